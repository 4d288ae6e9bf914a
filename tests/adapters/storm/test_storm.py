"""Runs through a storm of faults, and runs with limits: the outcome and the books are right."""

from __future__ import annotations

from decimal import Decimal

import attrs
import pytest

from adapters.storm.storm_servers import Weather, brain, served
from adapters.storm.storm_world import (
    CONFIG,
    KEY,
    MODELS,
    PATIENCE,
    REFLECTION_MODEL,
    TASK_MODEL,
    WORKERS,
    Question,
    adapter_of,
    found_by,
    run,
    scripted,
)
from further import thorough
from promptgraft import GepaConfig, GepaResult
from promptgraft.adapters.base import Usage
from promptgraft.algorithms.gepa import Candidate, GepaExample
from promptgraft.evals.spending import Role
from promptgraft.search import StopReason
from promptgraft.search.ledger import LedgerEntry
from servers.behaviour import Answer, Asked, Behaviour, Break, storm
from servers.desk import Counts
from servers.loopback import LoopbackServer
from servers.openai_chat import OpenAIChat
from settings_leaves import evolved

OVERLOADED = OpenAIChat().fault(503)
FAULTS = (
    *(Behaviour(status=status) for status in (408, 409, 425, 500, 502, 503, 504, 529)),
    *(Behaviour(breaks=breaks) for breaks in Break if "reset" in breaks or "closed" in breaks),
    Behaviour(status=500, headers={"retry-after": "0.001"}),
    Behaviour(status=200, fault=OVERLOADED),
    Behaviour(body=b'{"id": "1", "content": [{"ty'),
    Behaviour(body=b""),
    Behaviour(body=b"[]"),
    Behaviour(body=b"<html><title>Sign in</title></html>", content_type="text/html"),
    Behaviour(status=429, headers={"retry-after": "0.01"}),
)
"""What may pass. Hanging calls have their own tests: they take their time."""


def assert_counted(entry: LedgerEntry, counts: Counts) -> None:
    """Compare what a run says of a model with what the model's server has seen."""
    assert entry.calls + entry.retries == counts.requests
    assert entry.usage == Usage(
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=counts.cached_tokens,
    )
    assert entry.unpriced_calls == 0


def test_a_storm_changes_nothing_but_the_number_of_requests() -> None:
    calm = run(scripted(TASK_MODEL), scripted(REFLECTION_MODEL))
    task_weather, reflection_weather = (
        Weather(storm(*FAULTS, share=0.3, seed=seed)) for seed in range(2)
    )
    with (
        served("openai", task_weather, caching=True) as task,
        served("anthropic", reflection_weather, caching=True) as reflection,
    ):
        result = run(
            adapter_of("openai", TASK_MODEL, task.base_url),
            adapter_of("anthropic", REFLECTION_MODEL, reflection.base_url),
        )
    assert calm.found_better
    assert found_by(result) == found_by(calm)
    assert result.total_rollouts > CONFIG.budget - CONFIG.step_size
    solved, reflected = result.ledger
    assert (solved.role, solved.model) == (Role.TASK, TASK_MODEL)
    assert (reflected.role, reflected.model) == (Role.REFLECTION, REFLECTION_MODEL)
    assert solved.calls == task_weather.spared == result.total_rollouts
    assert reflected.calls == reflection_weather.spared == result.total_reflections
    assert_counted(solved, task.counts)
    assert_counted(reflected, reflection.counts)
    assert solved.retries > 0.25 * task.counts.requests
    assert solved.usage.cached_tokens > 0


def truth(candidate: Candidate, example: GepaExample) -> float:
    """Return the only score that a candidate can have on an example."""
    said = candidate.section_bodies.get(("rules",), "apple").split()
    (question,) = example.params
    assert isinstance(question, Question)
    return float(question.word in said)


@pytest.mark.parametrize("sdk", ["anthropic", *thorough(["openai"])])
def test_calls_that_are_given_up_are_counted_and_never_scored(sdk: str) -> None:
    weather = Weather(storm(*FAULTS, share=0.3, seed=2))
    with served(sdk, weather) as server:
        result = run(
            adapter_of(sdk, TASK_MODEL, server.base_url, attrs.evolve(PATIENCE, attempts=2)),
            scripted(REFLECTION_MODEL),
            attrs.evolve(CONFIG, rollout_budget=CONFIG.pareto_set_size + CONFIG.step_size),
        )
    examples = {example.id: example for example in CONFIG.training_examples}
    for candidate, scores in zip(result.candidates, result.scores_matrix, strict=True):
        for name, score in zip(result.pareto_ids, scores, strict=True):
            assert score in {None, truth(candidate, examples[name])}
    solved, _ = result.ledger
    assert_counted(solved, server.counts)
    assert solved.calls == result.total_rollouts
    assert weather.spared == result.total_rollouts - result.unscored_rollouts
    assert result.unscored_rollouts > 0


EACH = Usage(input_tokens=800, output_tokens=200)
PRICE = Decimal("0.00048")
"""What each answer of the task costs in the tests of limits."""
CROWD = attrs.evolve(CONFIG, pareto_set_size=40)


def same_size(asked: Asked) -> Answer:
    """Answer at the same price each time."""
    return attrs.evolve(
        brain(asked), input_tokens=EACH.input_tokens, output_tokens=EACH.output_tokens
    )


def limited(config: GepaConfig) -> tuple[GepaResult, Counts]:
    slow = Weather(lambda _: Behaviour(seconds=0.02))
    with LoopbackServer(
        OpenAIChat(), brain=same_size, script=slow, key=KEY, models=MODELS
    ) as server:
        result = run(
            adapter_of("openai", TASK_MODEL, server.base_url), scripted(REFLECTION_MODEL), config
        )
    assert 1 < server.counts.most_in_flight <= WORKERS
    return result, server.counts


@pytest.mark.parametrize("answers", [6, 20])
def test_max_tokens_is_exceeded_by_the_calls_in_flight_at_most(answers: int) -> None:
    most = answers * 1000
    result, counts = limited(evolved(CROWD, max_tokens=most))
    assert result.stop_reason is StopReason.TOKENS
    (solved,) = result.ledger
    assert_counted(solved, counts)
    used = solved.usage.input_tokens + solved.usage.output_tokens
    assert most <= used <= most + WORKERS * 1000
    assert used < CROWD.pareto_set_size * 1000


@pytest.mark.parametrize("answers", [6, 20])
def test_max_cost_is_exceeded_by_the_calls_in_flight_at_most(answers: int) -> None:
    most = answers * PRICE
    result, counts = limited(evolved(CROWD, max_cost=most))
    assert result.stop_reason is StopReason.COST
    (solved,) = result.ledger
    assert_counted(solved, counts)
    assert solved.cost == counts.requests * PRICE == result.total_cost
    assert most <= solved.cost <= most + WORKERS * PRICE
    assert counts.requests < CROWD.pareto_set_size
