"""Calls of models in a run that is killed: what is noted before them, and what is used again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import pytest

from image_files import png
from promptgraft import (
    Image,
    MarkdownSection,
    MemoryJournal,
    ModelPrice,
    OpenAIAdapter,
    Prices,
    Prompt,
    PromptTemplate,
    Session,
)
from promptgraft.adapters.base import ModelCalled
from promptgraft.evals.spending import Spending, spent_from_json
from promptgraft.journal import Journal
from promptgraft.prompt import Tool
from promptgraft.search.call_log import CallLog
from servers.behaviour import WELL, Answer, Asked, Behaviour, Call
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

POSITION = "baseline/1"
PRICES = Prices({MODEL: ModelPrice(input="1", output="10")})


@attrs.frozen
class Question:
    """What the tool is asked."""

    words: str


TOOL = Tool(
    name="find",
    description="Finds.",
    params_type=Question,
    result_type=str,
    handler=lambda question: f"found {question.words}",
)


def brain(asked: Asked) -> Answer:
    if asked.tools and not asked.results:
        return Answer(text="let me see", calls=(Call("find", '{"words": "it"}'),))
    return Answer(text="yes")


class Noted:
    """A script that notes what the journal holds when a request arrives."""

    def __init__(self) -> None:
        self.journal: Journal = MemoryJournal()
        self.journal.begin({})
        self.keys: list[tuple[str, ...]] = []

    def __call__(self, asked: Asked) -> Behaviour:
        del asked
        self.keys.append(tuple(self.journal.calls_of(POSITION)))
        return WELL


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def server(noted: Noted) -> Iterator[LoopbackServer]:
    with LoopbackServer(OpenAIChat(), brain=brain, script=noted) as server:
        yield server


def adapter(server: LoopbackServer, **options: Any) -> OpenAIAdapter:
    options = {"max_output_tokens": 100, "prices": PRICES, **options}
    return OpenAIAdapter(MODEL, api_key=KEY, base_url=server.base_url, **options)


def prompt(template: str = "Is it so?", *tools: Tool[Any, Any]) -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template=template, tools=tools)
    return Prompt(PromptTemplate[object](ns="n", key="k", sections=[section]))


def ask(journal: Journal, asked: OpenAIAdapter, question: Prompt[object]) -> list[ModelCalled]:
    """Ask in a process that is killed after all answers have been kept."""
    session = Session()
    session.calls = CallLog(journal).places(POSITION)
    asked.evaluate(question, session=session)
    session.calls.kept.begin()
    return list(session.select_all(ModelCalled))


def bound(journal: Journal) -> Spending:
    """Return the most that the first request can cost, as it was noted."""
    record = journal.record(f"{POSITION}/call/1/sent/1")
    assert record is not None
    [spending] = spent_from_json(record.answer, record.key)
    return spending


def test_a_request_is_noted_with_the_most_it_can_cost_before_it_leaves(
    noted: Noted, server: LoopbackServer
) -> None:
    [called] = ask(noted.journal, adapter(server), prompt("word " * 400))
    assert noted.keys == [(f"{POSITION}/call/1/sent/1",)]
    most = bound(noted.journal)
    assert (most.model, most.output_tokens) == (MODEL, 100)
    assert 600 < most.input_tokens < 1000
    assert most.cost == Decimal(most.input_tokens + 10 * 100) / 1_000_000
    assert called.cost is not None
    assert most.cost > called.cost


def test_an_image_costs_what_a_model_reads_of_it(noted: Noted, server: LoopbackServer) -> None:
    photo = Image(data=png() + bytes(300_000))
    ask(
        noted.journal,
        adapter(server, vision=True),
        prompt("What is it? $photo").bind({"photo": photo}),
    )
    assert 1000 < bound(noted.journal).input_tokens < 5000


def test_an_answer_is_used_again_by_the_same_model_with_the_same_options(
    noted: Noted, server: LoopbackServer
) -> None:
    [first] = ask(noted.journal, adapter(server), prompt())
    [again] = ask(noted.journal, adapter(server), prompt())
    assert (again.usage, again.cost) == (first.usage, first.cost)
    assert server.counts.requests == 1
    ask(noted.journal, adapter(server, temperature=0.5), prompt())
    ask(noted.journal, adapter(server), prompt("Is it not?"))
    assert server.counts.requests == 3
    # The same request, of an adapter that is described by another identity.
    ask(noted.journal, adapter(server, vision=True), prompt())
    assert server.counts.requests == 4


def test_a_conversation_goes_on_from_a_turn_that_was_kept(
    noted: Noted, server: LoopbackServer
) -> None:
    ask(noted.journal, adapter(server), prompt("Is it so?", TOOL))
    _, whole = server.asked
    # The first turn alone survives.
    journal = MemoryJournal()
    journal.begin({})
    kept = noted.journal.record(f"{POSITION}/call/1")
    assert kept is not None
    journal.append_all([kept])
    recalled, called = ask(journal, adapter(server), prompt("Is it so?", TOOL))
    assert server.counts.requests == 3
    assert json.dumps(server.asked[-1].body) == json.dumps(whole.body)
    assert (recalled.requests, called.requests) == (1, 1)
