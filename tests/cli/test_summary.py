"""The summary of a run: verdict first, one screen, one next command."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from optimizers.worlds import PROMPT, answer, config, examples, propose, scored
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.cli.choosing import Runs
from promptgraft.cli.outcome import print_outcome
from promptgraft.cli.output import Screen
from promptgraft.errors import StoreError
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.project.outcome import RunOutcome
from promptgraft.runs import RunFolder
from promptgraft.search import OptimizationContext, OptimizationJob, StopReason

RUN = "20260131-120405-words"


def outcome(*, dry: bool = False, kept: bool = True, **changes: Any) -> RunOutcome:
    """Return what came of a run with held-out examples, kept in `runs`."""
    context = OptimizationContext(
        ScriptedAdapter(answer, identity="task"),
        overrides_store=LocalPromptOverridesStore(Path.cwd()) if changes.get("persist") else None,
        reflection_adapter=ScriptedAdapter(propose, identity="writer"),
    )
    settings = {"rollout_budget": 60, "held_out": examples(6, first=20), "persist": False}
    job = OptimizationJob(PROMPT, context, config(**{**settings, **changes}))
    return RunOutcome(
        job=job,
        dry=dry,
        result=job.run(),
        error=None,
        folder=RunFolder(Path("runs") / RUN) if kept else None,
        seconds=83.2,
    )


def summary(told: RunOutcome, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that are printed, of which there must be no more than a screen has."""
    print_outcome(Screen(), told, Runs(Path("runs"), "--runs runs"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30
    return lines


def test_the_verdict_comes_first_and_what_is_held_out_before_validation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = summary(outcome(), capsys)

    assert lines[:13] == [
        "toy/words: better on validation only",
        "",
        "            before  after    gain",
        "test         0.000  0.000  +0.000  6 cases, never seen before",
        "validation   0.000  0.500  +0.500  6 cases",
        "",
        (
            "cases       0 better, 0 worse, 6 the same; 95 % interval -0.459 to +0.459; "
            "not significant at 95 %"
        ),
        "cost        $0.00, 54 of 60 test calls, 3 reflection calls in 1 min 23 s",
        "rewrites    3 kept",
        "stopped     too few test calls left for another step and the final test",
        "",
        "changed: section rules",
        "  Known words:{+ w0 w4+}",
    ]
    assert lines[-4:] == [
        f"kept in     runs/{RUN}",
        "",
        "Next:",
        f"  promptgraft show {RUN} --runs runs",
    ]


def test_columns_of_the_ledger_that_say_nothing_are_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = outcome()
    assert "            calls  model" in summary(told, capsys)

    paid = tuple(
        attrs.evolve(entry, cost=Decimal("0.25"), retries=2) for entry in told.result.ledger
    )
    told = attrs.evolve(told, result=attrs.evolve(told.result, ledger=paid))
    lines = summary(told, capsys)
    assert "            calls  retries       in      out  dollars  model" in lines
    assert "task           54        2  unknown  unknown   0.2500  task" in lines
    assert "cost        $0.50, 54 of 60 test calls, 3 reflection calls in 1 min 23 s" in lines


def test_why_nothing_is_known_of_held_out_examples_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = summary(outcome(feedback_fn=scored(0.5)), capsys)

    assert lines[0] == "toy/words: not improved"
    assert not any("never seen" in line for line in lines)
    assert "test        not measured: no new text was better than yours" in lines
    assert lines[-1] == f"  promptgraft show {RUN} --runs runs"


def test_a_run_that_was_stopped_says_so_and_how_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = outcome()
    stopped = attrs.evolve(
        told.result, stop_reason=StopReason.COST, stop_detail="max_cost: 2 dollars are spent"
    )
    lines = summary(attrs.evolve(told, result=stopped), capsys)

    assert lines[0] == "toy/words: better on validation only, stopped early"
    assert "stopped     cost: max_cost: 2 dollars are spent" in lines
    assert lines[-1] == f"  promptgraft resume {RUN} --runs runs"


def test_a_winner_in_a_store_is_to_be_looked_at(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    lines = summary(outcome(persist=True), capsys)

    assert any(line.startswith("stored      tag `latest`, revision 1 (") for line in lines)
    assert "file        .promptgraft/overrides/toy/words/latest.json" in lines
    assert lines[-1] == "  promptgraft diff toy/words --tag latest"


def test_a_winner_that_no_store_took_says_why(
    capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    told = outcome(persist=True)
    lost = attrs.evolve(
        told,
        result=attrs.evolve(told.result, persisted=False),
        error=StoreError("the disk is full"),
    )
    assert "stored      no: the disk is full" in summary(lost, capsys)

    lines = summary(outcome(dry=True, kept=False), capsys)
    assert lines[1] == "a dry run on the embedded offline model"
    assert lines[-1] == "stored      no: a dry run stores nothing"
