"""Plans compared with the usage of runs on loopback servers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console, on_terminals
from cli.priced_projects import FREE_TEXTS, SHAPES, UNKNOWN_TEXTS, Shape
from programs import Programs
from servers.anthropic_messages import AnthropicMessages
from servers.behaviour import Answer, Asked, Brain, says
from servers.loopback import KEY, LoopbackServer
from servers.openai_chat import OpenAIChat
from servers.provider import Provider

MODELS = {
    "openai": ("gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-5-mini", "gpt-5-nano"),
    "anthropic": ("claude-haiku-4-5", "claude-sonnet-4-5"),
}


class Brains:
    """Answers for the project of a test."""

    def __init__(self) -> None:
        self.of: Brain = says("")

    def __call__(self, asked: Asked) -> Answer:
        return self.of(asked)


@pytest.fixture(scope="module")
def brains() -> Brains:
    return Brains()


@pytest.fixture(scope="module")
def servers(brains: Brains) -> Iterator[Mapping[str, str]]:
    providers: Mapping[str, Provider] = {
        "openai": OpenAIChat(),
        "anthropic": AnthropicMessages(),
    }
    with contextlib.ExitStack() as held:
        yield {
            name: held.enter_context(
                LoopbackServer(provider, brain=brains, models=MODELS[name])
            ).base_url
            for name, provider in providers.items()
        }


@pytest.fixture
def run_of(
    console: Console,
    project: Path,
    servers: Mapping[str, str],
    brains: Brains,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Shape], dict[str, Any]]:
    """Writes a project, plans it without a key and runs it; the plan and the end of the run."""

    def documents(shape: Shape) -> dict[str, Any]:
        brains.of = shape.brain()
        shape.write(project, servers)
        monkeypatch.delenv("LOOPBACK_KEY", raising=False)
        planned = console(*PLAN)
        assert planned.code == 0, planned.err
        monkeypatch.setenv("LOOPBACK_KEY", KEY)
        ran = console("optimize", "--json", "-q")
        assert ran.code in (0, 1), ran.err
        result = json.loads(ran.out.splitlines()[-1])
        [task] = [row for row in result["ledger"] if row["role"] == "task"]
        return {
            "plan": json.loads(planned.out),
            "run": result["run"],
            "ledger": result["ledger"],
            "answer": task["output_tokens"] / task["calls"],
            "tokens": sum(row["input_tokens"] + row["output_tokens"] for row in result["ledger"]),
            "cost": float(result["cost"]),
        }

    return documents


PLAN = ("plan", "--json")
USUAL = ("fields", "a tool", "replies with a judge")
"""Shapes that have, together, what the others have: fields, tools, judges."""


def first_only(names: Iterable[str]) -> list[Any]:
    """Return the names, of which only the first is tried by day."""
    first, *others = names
    return [first, *(pytest.param(name, marks=pytest.mark.thorough) for name in others)]


@pytest.mark.parametrize("name", first_only(FREE_TEXTS))
def test_texts_are_expected_to_be_as_long_as_what_is_expected(
    name: str, run_of: Callable[[Shape], dict[str, Any]]
) -> None:
    ended = run_of(FREE_TEXTS[name])
    planned = ended["plan"]["expected"]
    assert planned["answer_from"] == "as long as what is expected"
    check_near(planned, ended)


@pytest.mark.parametrize("name", first_only(UNKNOWN_TEXTS))
def test_texts_are_expected_to_be_as_long_as_in_the_last_run(
    name: str, console: Console, run_of: Callable[[Shape], dict[str, Any]]
) -> None:
    ended = run_of(UNKNOWN_TEXTS[name])
    guessed = ended["plan"]["expected"]
    planned = json.loads(console(*PLAN).out)["expected"]
    assert guessed["answer_from"].startswith("a guess, ")
    assert not within_a_factor_of_two(guessed["answer_tokens"], ended["answer"])
    assert planned["answer_from"] == f"as in run {ended['run']}"
    check_near(planned, ended)


def check_near(planned: Mapping[str, Any], ended: Mapping[str, Any]) -> None:
    assert within_a_factor_of_two(planned["answer_tokens"], ended["answer"])
    assert within_a_factor_of_two(planned["tokens"], ended["tokens"])
    assert within_a_factor_of_two(float(planned["cost"]), ended["cost"])


def within_a_factor_of_two(expected: float, used: float) -> bool:
    return used / 2 <= expected <= used * 2


# Not "labels", which "few proposals" has too.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in USUAL else [pytest.mark.thorough])
        for name in [*SHAPES][1:]
    ],
)
def test_a_plan_without_a_key_expects_what_the_run_then_uses(
    name: str, run_of: Callable[[Shape], dict[str, Any]]
) -> None:
    ended = run_of(SHAPES[name])
    plan = ended["plan"]
    used = dict.fromkeys(("task", "judge", "reflection"), 0.0)
    for row in ended["ledger"]:
        used[row["role"]] += float(row["cost"])
    assert {row["role"] for row in plan["roles"]} == {role for role, cost in used.items() if cost}
    assert within_a_factor_of_two(float(plan["expected"]["cost"]), ended["cost"])
    assert within_a_factor_of_two(plan["expected"]["tokens"], ended["tokens"])
    assert ended["cost"] <= float(plan["cost"])


def test_a_run_shows_what_is_spent_of_what_is_expected_in_pipes_and_on_terminals(
    console: Console,
    project: Path,
    servers: Mapping[str, str],
    brains: Brains,
    monkeypatch: pytest.MonkeyPatch,
    programs: Programs,
) -> None:
    shape = SHAPES["labels"]
    brains.of = shape.brain()
    shape.write(project, servers)
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    command = ("optimize", "--workers", "2")
    large = {"TERM": "xterm-256color", "COLUMNS": "90", "LINES": "24"}
    code, [got] = on_terminals(programs, *command, environment=large)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", got)
    assert code in (0, 1)
    piped = console(*command)
    assert piped.code in (0, 1), piped.err

    money = r"\$0\.\d+ of about \$0\.\d+"
    assert re.search(rf"│ used        {money}, [\d,k]+ tokens", shown)
    assert re.search(r"│ validation  \d of \d -> \d of \d", shown)
    assert re.search(rf"(?m)^your prompt: \d of the first 4 cases right, {money}$", piped.err)
    assert "\x1b" not in piped.err
    assert "Event loop" not in shown + piped.err
