"""The ledger has as many requests of each model as its server, whatever the calls are for."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import attrs
import calls_world
import pytest
from calls_world import JUDGE, TASK, WRITER

import teacher_world
from further import thorough
from promptgraft import (
    AgentCall,
    BlackBox,
    Case,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    Limits,
    Teacher,
)
from promptgraft.adapters.calling.prices import ModelPrice, Prices
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer
from promptgraft.errors import ProviderError
from promptgraft.evals.judges.kinds import LlmFinalResponse
from promptgraft.evals.metrics import load_metrics
from promptgraft.ground.serde import Json
from promptgraft.journal import Journal, MemoryJournal
from promptgraft.search import OptimizationContext
from promptgraft.search.result import RunResult
from promptgraft.targets.judging import feedback_from
from servers.behaviour import WELL, Answer, Asked, Behaviour, Break
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat

TEACHER, USER = "teacher-1", "user-1"
MODELS = (TASK, JUDGE, WRITER, TEACHER, USER)
PRICES = Prices({model: ModelPrice(input="1", output="2") for model in MODELS})
LIMITS = Limits(max_unscored_share=1.0, max_idle_steps=100)
PROBLEM = {"severity": "P1", "problem": "it is wrong"}


def brain(asked: Asked) -> Answer:
    """Answer as each of the models does; every fourth proposal has to be repaired."""
    said = "\n".join(asked.texts)
    if asked.model == TEACHER:
        return Answer(text=said[-6:].upper())
    if asked.model == USER:
        return Answer(text=json.dumps({"message": "" if len(said) > 1500 else "and more?"}))
    if asked.model == WRITER:
        replies: tuple[tuple[str, dict[str, object]], ...] = (
            ('"blame"', {"blame": [{"text": "T1", **PROBLEM}]}),
            ('"problems"', {"problems": [PROBLEM]}),
        )
        for field, reply in replies:
            if field in said:
                whole = {**reply, "hand_on": []} if '"hand_on"' in said else reply
                return Answer(text=f"```json\n{json.dumps(whole)}\n```")
        block = f"```instruction\nThis is number {asked.number}.\n```"
        return Answer(text="no block" if asked.number % 4 == 0 else block)
    return calls_world.brain(asked)


FAULTS = (
    Behaviour(status=500),
    Behaviour(status=400),
    Behaviour(breaks=Break.IN_BODY),
    Behaviour(body=b"<html>"),
)


class AtTimes:
    """A script that breaks every sixth request of each model, in turns, and counts them."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.left: Iterator[Behaviour] = itertools.cycle(FAULTS)
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Behaviour:
        with self._lock:
            self.counts[asked.model] += 1
            return WELL if self.counts[asked.model] % 6 else next(self.left, WELL)


def adapter(model: str, url: str) -> OpenAIAdapter:
    policy = RetryPolicy(attempts=2, wait_initial=0.001, wait_max=0.001)
    return OpenAIAdapter(
        model, api_key=calls_world.KEY, base_url=url, prices=PRICES, policy=policy, timeout=30.0
    )


def context(url: str, journal: Journal, teacher: Teacher | None = None) -> OptimizationContext:
    return OptimizationContext(
        adapter(TASK, url),
        reflection_adapter=adapter(WRITER, url),
        teacher=teacher,
        journal=journal,
    )


def graph(url: str, journal: Journal) -> RunResult:
    judge = LlmFinalResponse(name="judged", judges=[adapter(JUDGE, url)])
    config = attrs.evolve(
        calls_world.config(url), limits=LIMITS, feedback_fn=feedback_from([judge])
    )
    return GepaOptimizer(context(url, journal), config).optimize(calls_world.GRAPH)


def gradient(url: str, journal: Journal) -> RunResult:
    config = calls_world.config(url)
    settings = GradientConfig(
        rollout_budget=76,
        pareto_set_size=config.pareto_set_size,
        training_examples=config.training_examples,
        feedback_fn=feedback_from([LlmFinalResponse(name="judged", judges=[adapter(JUDGE, url)])]),
        data=config.data,
        limits=LIMITS,
    )
    return GradientOptimizer(context(url, journal), settings).optimize(calls_world.GRAPH)


def taught(url: str, journal: Journal) -> RunResult:
    teacher = Teacher(teacher_world.TEACHING, adapter(TEACHER, url))
    config = teacher_world.settings(limits=LIMITS)
    return GepaOptimizer(context(url, journal, teacher), config).optimize(teacher_world.TASK)


def refuse(query: str, call: AgentCall) -> str:
    del query, call
    return "no"


def talked(url: str, journal: Journal) -> RunResult:
    plans: list[Json] = [
        {"starting_prompt": f"hello {number}", "conversation_plan": "ask more"}
        for number in range(8)
    ]
    cases = [
        Case(
            id=f"c{number}",
            input=f"hello {number}",
            expected="yes",
            fields={"conversation_scenario": plan},
        )
        for number, plan in enumerate(plans)
    ]
    config = GepaConfig(
        rollout_budget=28,
        minibatch_size=2,
        pareto_set_size=4,
        training_examples=[GepaExample(id=case.id, params=(case,), label=case) for case in cases],
        feedback_fn=feedback_from(load_metrics(["contains"])),
        data=calls_world.config(url).data,
        limits=LIMITS,
    )
    box = BlackBox({"rules": "Say no."}, agent=refuse, user=adapter(USER, url), max_turns=3)
    return GepaOptimizer(context(url, journal), config).optimize(box)


@pytest.mark.parametrize(
    ("run", "models"),
    [
        (graph, {TASK, JUDGE, WRITER}),
        (taught, {TASK, TEACHER, WRITER}),
        (talked, {USER, WRITER}),
        *thorough([(gradient, {TASK, JUDGE, WRITER})]),
    ],
)
def test_each_request_is_in_the_ledger_of_its_model(
    run: Callable[[str, Journal], RunResult], models: set[str]
) -> None:
    script, journal = AtTimes(), MemoryJournal()
    with LoopbackServer(
        OpenAIChat(), brain=brain, script=script, key=calls_world.KEY, models=MODELS
    ) as server:
        try:
            result = run(server.base_url, journal)
        except ProviderError:  # of the teacher; what the run has paid for counts when it goes on
            script.left = iter(())
            result = run(server.base_url, journal)
    counted = Counter[str]()
    for entry in result.ledger:
        counted[entry.model] += entry.calls + entry.retries
    assert {model: counted[model] for model in script.counts} == script.counts
    assert script.counts.keys() == models
    assert sum(count // 6 for count in script.counts.values()) >= len(FAULTS)
