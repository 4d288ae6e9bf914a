"""The report of a run on a graph: its drawing, the blame of its nodes, the traces of its cases."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest

from promptgraft.evals.types import Step
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RoundSummary
from promptgraft.runs.report.data import ReportData, gather
from promptgraft.runs.report.drawings import graph_view
from promptgraft.runs.report.page import render
from promptgraft.search.round_events import Blame, Severity
from promptgraft.targets.types import RolloutFeedback, RolloutRecord
from runs.report_pages import changed


def data_of(project: Path) -> ReportData:
    [folder] = [path for path in (project / "runs").iterdir() if path.is_dir()]
    return gather(RunFolder(folder))


def test_the_report_draws_the_nodes_with_what_was_found_out_of_them(improved: Path) -> None:
    data = data_of(improved)
    view = graph_view(data)
    assert view is not None
    nodes = {node.name: node for node in view.nodes}
    assert set(nodes) == {"area", "streets", "green", "homes"}
    assert len(view.edges) == 3
    assert all(nodes["area"].x < nodes[name].x for name in ("streets", "green", "homes"))
    assert len({(node.x, node.y) for node in view.nodes}) == 4
    assert nodes["area"].taken == (120, 120)
    others = [nodes[name] for name in ("streets", "green", "homes")]
    assert sum(node.taken[0] for node in others) == 120
    assert sum(node.failed[1] for node in others) == nodes["area"].failed[1]
    assert nodes["area"].failed[1] < nodes["area"].failed[0]
    assert nodes["area"].blamed is None
    changed = [one.module.split(", ") for one in data.candidates if one.module]
    assert sum(node.accepted for node in view.nodes) == sum(map(len, changed))
    page = render(data)
    assert '<section id="graph"' in page
    assert page.count("<rect class=") == 4
    assert re.search(r"<h5>2 \w+ <span class=\"quiet\">after 1</span>", page)


def test_what_models_blamed_is_counted_by_node(improved: Path) -> None:
    blame = Blame(to="fernhill/reports/area#instruction", severity=Severity.P1, text="vague")
    rounds = (RoundSummary(number=1, blamed=((("a", blame),) * 3)),)
    view = graph_view(changed(data_of(improved), rounds=rounds))
    assert view is not None
    assert {node.name: node.blamed for node in view.nodes}["area"] == 3
    assert sum(node.blamed or 0 for node in view.nodes) == 3


def traced(case: str) -> RolloutRecord:
    """Return an answer with forty steps, as long as they may be."""
    return RolloutRecord(
        example_id=case,
        inputs_repr="i" * 6_000,
        output_repr="<b>o</b>" * 750,
        tool_trace_repr="",
        feedback=RolloutFeedback(score=0.0, feedback="f" * 6_000),
        steps=tuple(
            Step(
                id=str(number),
                node=f"node{number % 7}" if number else "<script>",
                kind="prompt",
                after=(str(number - 1),) if number else (),
                input="&" * 2_000,
                output="<i>" * 600,
            )
            for number in range(40)
        ),
    )


@pytest.mark.thorough
def test_the_report_of_five_hundred_traced_cases_stays_small(improved: Path) -> None:
    cases = tuple(f"c{number}" for number in range(500))
    data = changed(
        data_of(improved), case_ids=cases, seen={(0, case): traced(case) for case in cases}
    )
    page = render(data)
    assert len(page.encode()) < 10_000_000
    assert "cases did not fit into this page" in page
    assert "<i>" not in page
    assert "<script>&" not in page
    assert page.count("<rect class=") == 12


def test_a_loop_is_drawn_back_below_the_boxes(improved: Path) -> None:
    one = traced("c")
    looped = attrs.evolve(one, steps=one.steps[1:16])
    view = graph_view(
        changed(data_of(improved), case_ids=("c",), seen={(0, "c"): looped}, unseen={})
    )
    assert view is not None
    xs = [node.x for node in view.nodes]
    assert xs == sorted(xs)
    assert len(view.edges) == 7
    assert all(0 <= node.y <= view.height for node in view.nodes)


def test_a_run_without_steps_has_no_graph(improved: Path) -> None:
    data = changed(data_of(improved), seen={}, unseen={})
    assert graph_view(data) is None
    assert '<section id="graph"' not in render(data)
