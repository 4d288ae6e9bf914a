"""``plan --probe``: the first test calls of a run, planned by and kept for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console
from cli.priced_projects import SHAPES, Shape
from servers.loopback import KEY, LoopbackServer
from servers.openai_responses import OpenAIResponses

MODELS = ("gpt-6-luna", "gpt-5.4-mini")
SHAPE = attrs.evolve(
    SHAPES["labels"],
    task="openai gpt-6-luna",
    reflection="openai gpt-6-luna",
    thinks=3_000,
    optimizer={"rollout_budget": 60, "targets": {"sections": ["rules"]}},
)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(OpenAIResponses(), brain=SHAPE.brain(), models=MODELS) as running:
        yield running


@pytest.fixture
def written(
    project: Path, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> LoopbackServer:
    write(SHAPE, project, server)
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    return server


def write(shape: Shape, project: Path, server: LoopbackServer, **model: Any) -> None:
    shape.write(project, {"openai": server.base_url})
    path = project / "promptgraft.yaml"
    data = json.loads(path.read_text("utf-8"))
    for role in ("task", "reflection"):
        data["models"][role] |= {"api": "responses", **model}
    path.write_text(json.dumps(data), "utf-8")


def test_a_probe_replaces_the_guess_by_what_it_measured(
    console: Console, written: LoopbackServer
) -> None:
    before = json.loads(console("plan", "--json").out)
    assert before["probe"] is None
    assert written.counts.requests == 0
    after = json.loads(console("plan", "--probe", "3", "--json").out)
    assert written.counts.requests == after["probe"]["rollouts"] == 3
    task = after["roles"][0]["expected"]
    assert task["thinking_from"] == f"as in the probe {after['probe']['run']}"
    assert before["roles"][0]["expected"]["thinking"] == 500
    assert task["thinking"] == 3_000
    assert task["output_tokens"] >= 3_000
    used = written.counts.input_tokens / 3
    assert used <= task["input_tokens"] <= used + 100
    assert float(after["probe"]["cost"]) < float(after["expected"]["cost"])


def test_the_run_that_follows_does_not_pay_for_the_probe_again(
    console: Console, written: LoopbackServer
) -> None:
    shown = console("plan", "--probe", "3")
    assert "probe: 3 test calls for $0.0" in shown.out
    [run] = json.loads(console("runs", "--json").out)["runs"]
    assert f"promptgraft resume {run['id']}" in shown.out
    first = [asked.texts for asked in written.asked]
    ended = console("resume", run["id"], "--json", "-q")
    assert ended.code in {0, 1}, ended.err
    assert not [asked for asked in written.asked[3:] if asked.texts in first[:1]]
    result = json.loads(ended.out.splitlines()[-1])
    [task] = [row for row in result["ledger"] if row["role"] == "task"]
    assert task["calls"] + sum(
        row["calls"] for row in result["ledger"] if row["role"] != "task"
    ) == len(written.asked)
    assert task["reasoning_tokens"] == 3_000 * task["calls"]


def test_the_text_names_the_thinking_that_was_measured(
    console: Console, written: LoopbackServer
) -> None:
    del written
    assert "about 500 tokens a call of task, usual for the model" in console("plan").out
    assert "about 3,000 tokens a call of task, as in the probe" in (
        console("plan", "--probe", "2").out
    )


def test_a_probe_in_batches_is_refused_before_a_call(
    console: Console, project: Path, written: LoopbackServer
) -> None:
    write(SHAPE, project, written, mode="batch")
    found = console("plan", "--probe", "2")
    assert found.code == 2
    assert "set `mode: call` for it" in found.err
    assert written.counts.requests == 0


def test_a_model_without_a_price_is_offered_the_line_to_add(
    console: Console, project: Path, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(attrs.evolve(SHAPE, task="openai gpt-9-vega"), project, server)
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    shown = console("plan").out
    assert "price unknown: gpt-9-vega" in shown
    assert "\n  prices: {input: IN, output: OUT}\n" in shown
    assert "prices:" not in console("plan", "--json").out
