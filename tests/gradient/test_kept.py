"""A gradient run that is kept in a run directory, and one of a project file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gradient.flow_world import NODES, Flow
from gradient.flow_world import reply as flow_reply
from gradient.flow_world import settings as flow_settings
from gradient.words_world import reply, settings
from optimizers.worlds import PROMPT, answer
from promptgraft import OptimizationContext, OptimizationJob, ScriptedAdapter
from promptgraft.cli.main import run
from promptgraft.cli.progress import doing
from promptgraft.runs.event_file import read_lines
from promptgraft.runs.history import RunHistory
from promptgraft.runs.report.data import gather
from promptgraft.runs.report.drawings import graph_view
from promptgraft.runs.report.page import render
from promptgraft.runtime.session import EventBus
from promptgraft.search.events import Working
from promptgraft.search.round_events import StepBlamed
from runs.toy_runs import carry_out, files_of, new_folder


def job(**changes: object) -> OptimizationJob:
    context = OptimizationContext(
        ScriptedAdapter(answer, identity="task"),
        reflection_adapter=ScriptedAdapter(reply, identity="writer"),
    )
    return OptimizationJob(PROMPT, context, settings(**changes))


def test_every_round_has_a_page_and_a_resumed_run_leaves_the_same(tmp_path: Path) -> None:
    folder = new_folder(tmp_path, job())
    carry_out(folder, job())
    assert sorted(path.name for path in folder.rounds.iterdir()) == ["1.md", "2.md", "3.md"]
    page = folder.round(2).read_text("utf-8")
    for line in (
        "# Round 2: accepted",
        "- training cases: 6, 4 failed",
        "- on the validation set: 0.333 -> 0.667",
        "| e2-again |  | P1 | missing w2 |",
        "| e2-again | 1 toy/words | section rules | P1 | missing w2 |",
        "it does not know w2, w3",
        "+Known words: w0 w1 w2 w3",
    ):
        assert line in page
    lines = [json.loads(line) for line in folder.events.read_text("utf-8").splitlines()]
    names = [line["event"] for line in lines if line["event"] in ("round_started", "trained")]
    assert names == ["round_started", "trained"] * 3
    started = [line for line in lines if line["event"] == "round_started"]
    assert [(line["step"], line["current"]) for line in started] == [(1, 0), (2, 1), (3, 2)]
    before = files_of(folder)
    carry_out(folder, job())
    assert files_of(folder) == before


def test_the_report_draws_whom_the_run_blamed_and_shows_what_each_node_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = OptimizationContext(ScriptedAdapter(flow_reply, identity="writer"))
    made = OptimizationJob(Flow(), context, flow_settings(max_rounds=2))
    folder = new_folder(tmp_path, made)
    carry_out(folder, made)
    blamed = Counter(
        one.to
        for _, event in read_lines(folder.events)
        if isinstance(event, StepBlamed)
        for one in event.blamed
    )
    data = gather(folder)
    view = graph_view(data)
    assert view is not None
    assert {node.name: node.blamed for node in view.nodes} == {**blamed, "join": 0}
    page = render(data)
    for node in NODES:
        assert blamed[node] > 0
        assert f">blamed {blamed[node]}</text>" in page
    case = data.case_ids[0]
    assert run(["show", folder.id, "--runs", str(folder.path.parent), "--case", case]) == 0
    assert "step 2: join, after 1.1.1, 1.2.1" in capsys.readouterr().out


def test_progress_names_round_stage_and_what_is_waited_for() -> None:
    bus, history = EventBus(), RunHistory()
    said: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, Working):
            history.add(event)
            said.append(doing(history))

    bus.subscribe(object, hear)
    model = ScriptedAdapter(flow_reply, identity="writer")
    context = OptimizationContext(model, event_bus=bus)
    OptimizationJob(Flow(), context, flow_settings(max_rounds=1)).run()
    assert "round 1: testing on training cases, 3 of 9" in said
    assert "round 1: tracing a failure back, a0 b0 c0 again/1.1.1" in said
    assert "round 1: merging the feedback, left" in said
    assert "round 1: writing a new text, writer/0" in said
    assert "round 1: validating, 9 of 9" in said
