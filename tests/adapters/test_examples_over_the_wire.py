"""The examples run on the adapters of real providers, against servers on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from further import thorough
from promptgraft import (
    Data,
    GepaConfig,
    GepaOptimizer,
    GepaResult,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
    ProviderAdapter,
    Targets,
)
from promptgraft.adapters.anthropic import AnthropicAdapter
from promptgraft.adapters.calling.retrying import RetryPolicy
from promptgraft.adapters.openai import OpenAIAdapter
from promptgraft.evals.spending import Role
from promptgraft.project.python_source import load_file
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Asked, Behaviour, Break, Script, in_turn, storm
from servers.loopback import KEY, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.tape import Tape, Taught

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-4.1-mini"}
PATIENCE = RetryPolicy(attempts=20, wait_initial=0.001, wait_max=0.01, timeout=30.0)


@attrs.frozen(kw_only=True)
class Example:
    """A prompt of an example and a short run on it."""

    prompt: Prompt[Any]
    config: GepaConfig


def triage() -> Example:
    task = loaded("triage/task.py")
    config = GepaConfig(
        rollout_budget=110,
        minibatch_size=10,
        pareto_set_size=12,
        target_section_paths=(("queues",), ("conventions",)),
        training_examples=task.load_tickets(EXAMPLES / "triage" / "train.jsonl"),
        feedback_fn=task.feedback,
        seed=2,
        additions=("blame", "shorten"),
        data=Data(shuffle=True, held_out=()),
    )
    return Example(prompt=Prompt(task.TEMPLATE), config=config)


def code_search() -> Example:
    task = loaded("code_search/code_questions.py")
    config = GepaConfig(
        rollout_budget=60,
        minibatch_size=6,
        pareto_set_size=8,
        target_section_paths=(("guidelines",),),
        enable_example_generation=True,
        training_examples=task.load_questions(EXAMPLES / "code_search" / "train.jsonl"),
        feedback_fn=task.feedback,
        seed=0,
        data=Data(held_out=()),
        example_mutation_rate=0.5,
        targets=Targets(
            tools=("search_code", "read_file"),
            output_fields=("Finding.category", "Finding.severity", "Finding.file"),
        ),
    )
    return Example(prompt=Prompt(task.TEMPLATE), config=config)


def loaded(path: str) -> ModuleType:
    name = f"wire_{Path(path).stem}"
    return load_file(EXAMPLES / path, name=name, what="example")


KINDS = {"triage": triage, "code_search": code_search}


def run(example: Example, adapter: ProviderAdapter) -> GepaResult:
    with ThreadPoolExecutor(4) as pool:
        context = OptimizationContext(adapter=adapter, executor=pool)
        return GepaOptimizer(context, example.config).optimize(example.prompt)


@pytest.fixture(scope="module")
def offline() -> dict[str, GepaResult]:
    return {name: run(kind(), OfflineAdapter()) for name, kind in KINDS.items()}


@contextlib.contextmanager
def serving(sdk: str, tape: Tape, script: Script = in_turn()) -> Iterator[LoopbackServer]:  # noqa: B008
    provider = AnthropicMessages() if sdk == "anthropic" else OpenAIChat()
    models = (MODELS[sdk],)
    with LoopbackServer(provider, brain=tape, script=script, models=models, caching=True) as server:
        yield server


def adapter_for(server: LoopbackServer) -> ProviderAdapter:
    sdk = server.provider.name
    kind = AnthropicAdapter if sdk == "anthropic" else OpenAIAdapter
    return kind(MODELS[sdk], api_key=KEY, base_url=server.base_url, policy=PATIENCE)


STORM = storm(
    Behaviour(status=429, headers={"retry-after": "0.01"}),
    Behaviour(status=500),
    Behaviour(status=529),
    Behaviour(breaks=Break.IN_BODY),
    Behaviour(body=b'{"id": "1", "cont'),
    share=0.3,
)


@pytest.mark.parametrize(
    ("name", "sdk"), [("triage", "openai"), *thorough([("code_search", "anthropic")])]
)
def test_an_example_finds_over_the_wire_what_it_finds_offline(
    name: str, sdk: str, offline: dict[str, GepaResult]
) -> None:
    tape = Tape()
    with serving(sdk, tape) as server:
        result = run(KINDS[name](), Taught(adapter_for(server), tape))
        check_requests(name, server.asked)
    assert server.counts.refused == ()
    check_result(result, offline[name])
    check_ledger(result, server)
    assert sum(entry.retries for entry in result.ledger) == 0


@pytest.mark.thorough
def test_a_storm_of_faults_changes_nothing_but_the_retries(
    offline: dict[str, GepaResult],
) -> None:
    tape = Tape()
    with serving("anthropic", tape, STORM) as server:
        result = run(triage(), Taught(adapter_for(server), tape))
    check_result(result, offline["triage"])
    check_ledger(result, server)
    assert sum(entry.retries for entry in result.ledger) > result.total_rollouts / 5


def check_result(result: GepaResult, offline: GepaResult) -> None:
    assert offline.found_better
    assert result.unscored_rollouts == 0
    same = ("best_override", "candidates", "scores_matrix", "total_rollouts", "stop_reason")
    for field in same:
        assert getattr(result, field) == getattr(offline, field)


def check_ledger(result: GepaResult, server: LoopbackServer) -> None:
    counts, ledger = server.counts, result.ledger
    assert {entry.role for entry in ledger} == {Role.TASK, Role.REFLECTION}
    assert {entry.model for entry in ledger} == {MODELS[server.provider.name]}
    assert sum(entry.calls for entry in ledger) >= result.total_rollouts + result.total_reflections
    assert sum(entry.calls + entry.retries for entry in ledger) == counts.requests
    assert sum(entry.usage.input_tokens for entry in ledger) == counts.input_tokens
    assert sum(entry.usage.output_tokens for entry in ledger) == counts.output_tokens
    assert sum(entry.usage.cached_tokens for entry in ledger) == counts.cached_tokens
    assert result.total_cost


def check_requests(name: str, asked: tuple[Asked, ...]) -> None:
    """Answers are held to a schema, and the agent's tools are offered and used."""
    tasks = [one for one in asked if one.schema is not None]
    assert tasks
    if name == "code_search":
        assert {one.tools for one in tasks} == {("search_code", "read_file")}
        assert any(one.results for one in tasks)
