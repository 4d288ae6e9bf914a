"""Models that are asked equal requests once: what it saves, and that nothing else changes."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import attrs
import pytest

from promptgraft import GepaOptimizer, GepaResult, MemoryJournal, OpenAIAdapter
from promptgraft.adapters.base import ModelCalled, evaluated
from promptgraft.adapters.calling.adapter import MOST_SHARED, SharedTurns
from promptgraft.adapters.calling.turns import Turn
from promptgraft.errors import ConfigError, TransientProviderError
from promptgraft.evals.judges.kinds import LlmFinalResponse
from promptgraft.evals.spending import Role
from promptgraft.ground.serde import digest_text
from promptgraft.journal import Journal
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.runtime import Session
from promptgraft.search import OptimizationContext
from promptgraft.targets.judging import feedback_from
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat

sys.path.append(str(Path(__file__).parents[1] / "resume"))

import calls_world
from calls_world import GRAPH, JUDGE, TASK, WRITER

ONCE = ", asked once"
QUESTION = digest_text("q")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(
        OpenAIChat(), brain=calls_world.brain, key=calls_world.KEY, models=calls_world.MODELS
    ) as server:
        yield server


def model(name: str, server: LoopbackServer, *, once: bool) -> OpenAIAdapter:
    adapter = calls_world.adapter(name, server.base_url)
    assert isinstance(adapter, OpenAIAdapter)
    return attrs.evolve(adapter, temperature=0.0, ask_once=once)


def run(
    server: LoopbackServer, journal: Journal, *, workers: int, once: bool, budget: int | None = None
) -> GepaResult:
    settings = calls_world.config(server.base_url)
    judge = LlmFinalResponse(name="judged", judges=[model(JUDGE, server, once=once)])
    settings = attrs.evolve(
        settings,
        feedback_fn=feedback_from([judge]),
        rollout_budget=budget or settings.rollout_budget,
    )
    with ThreadPoolExecutor(workers) as executor:
        context = OptimizationContext(
            model(TASK, server, once=once),
            reflection_adapter=model(WRITER, server, once=once),
            executor=executor,
            journal=journal,
        )
        return GepaOptimizer(context, settings).optimize(GRAPH)


def found(result: GepaResult) -> str:
    return repr(attrs.evolve(result, ledger=()))


def test_a_run_asks_equal_requests_once_and_finds_the_same(server: LoopbackServer) -> None:
    every = run(server, MemoryJournal(), workers=4, once=False)
    calls = server.counts.requests
    result = run(server, MemoryJournal(), workers=8, once=True)
    assert found(result) == found(every)
    asked = [entry for entry in result.ledger if not entry.model.endswith(ONCE)]
    shared = [entry for entry in result.ledger if entry.model.endswith(ONCE)]
    assert {entry.role for entry in shared} == {Role.TASK, Role.JUDGE}
    assert {(entry.retries, entry.usage.input_tokens, entry.cost) for entry in shared} == {
        (0, 0, Decimal(0))
    }
    assert server.counts.requests - calls == sum(entry.calls for entry in asked)
    assert sum(entry.calls for entry in result.ledger) == calls
    assert sum(entry.calls for entry in shared) > calls / 20
    assert result.total_cost is not None
    assert every.total_cost is not None
    assert result.total_cost < every.total_cost


@pytest.mark.thorough
def test_a_run_that_is_continued_finds_what_a_whole_one_does(server: LoopbackServer) -> None:
    whole = run(server, MemoryJournal(), workers=4, once=True, budget=70)
    journal = MemoryJournal()
    run(server, journal, workers=4, once=True)
    assert found(run(server, journal, workers=2, once=True, budget=70)) == found(whole)


def question(word: str) -> Prompt[object]:
    section = MarkdownSection(title="", key="rules", template=f"Say {word}.")
    return Prompt(PromptTemplate(ns="tests", key="once", sections=(section,)))


def test_questions_of_a_search_are_asked_each_time(server: LoopbackServer) -> None:
    adapter = model(TASK, server, once=True)
    for scope, requests in (("rollout", 1), ("reflection", 3), ("judge", 3)):
        for _ in range(2):
            evaluated(adapter, question("yes"), session=Session(tags={"scope": scope}))
        assert server.counts.requests == requests
    evaluated(adapter, question("no"), session=Session())
    assert server.counts.requests == 4
    # A copy in another process has answered nothing yet.
    evaluated(pickle.loads(pickle.dumps(adapter)), question("no"), session=Session())
    assert server.counts.requests == 5


def test_after_a_fault_the_next_one_asks() -> None:
    answered, session = SharedTurns(), Session()

    def fails() -> Turn:
        raise TransientProviderError("gone")

    with pytest.raises(TransientProviderError):
        answered.turn(QUESTION, fails, model="m", session=session)
    turn = object.__new__(Turn)
    for _ in range(2):
        assert answered.turn(QUESTION, lambda: turn, model="m", session=session) is turn
    [call] = session.select_all(ModelCalled)
    assert (call.model, call.requests, call.cost) == (f"m{ONCE}", 0, Decimal(0))


def test_of_many_answers_those_needed_longest_ago_are_asked_for_again() -> None:
    answers, requests = SharedTurns(), list[int]()

    def ask(number: int) -> None:
        def sent() -> Turn:
            requests.append(number)
            return object.__new__(Turn)

        answers.turn(digest_text(str(number)), sent, model="m", session=Session())

    for number in range(MOST_SHARED):
        ask(number)
    ask(0)
    ask(MOST_SHARED)  # in place of 1
    for number in (0, 2, 1):
        ask(number)
    assert requests == [*range(MOST_SHARED + 1), 1]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}, {"temperature": 0, "mode": "batch"}])
def test_it_needs_a_temperature_of_0_and_no_batches(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"ask_once: needs `temperature: 0` and no `mode: batch`"):
        OpenAIAdapter("gpt-4.1", api_key="k" * 20, ask_once=True, **options)  # type: ignore[arg-type]
