"""What is told of a run while it goes: lines, or a panel."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence

import pytest
from rich.console import Console

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.panel import PanelProgress
from promptgraft.cli.progress import (
    PlainProgress,
    Progress,
    RunState,
    SilentProgress,
    progress_for,
)
from promptgraft.clock import FakeClock
from promptgraft.optimizers import RejectionReason
from promptgraft.optimizers.gepa import (
    GepaMutationAccepted,
    GepaMutationRejected,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
    RolloutFeedback,
    RolloutRecord,
    RunPlan,
)
from promptgraft.optimizers.gepa.budgets import Affordable
from promptgraft.overrides import PromptDescriptor

TITLE = "promptgraft demo, [bold]embedded[/bold] offline model"


PLAN = RunPlan(
    rollouts=1000,
    reflections=200,
    proposals=Affordable(if_accepted=2, if_refused=99, steps=100),
    roles=(),
    max_cost=None,
    max_tokens=None,
    warnings=("rollout_budget: too [bold]small",),
)
PLAN_LINES = (
    "plan: at most 1000 rollouts, 200 reflections and 0 tokens, 0.00 US dollars; 2 to 99 proposals",
    "warning: rollout_budget: too [bold]small",
)


def started(budget: int = 1000) -> GepaOptimizationStarted:
    return GepaOptimizationStarted(
        run_id="0123456789ab",
        descriptor=PromptDescriptor(ns="support", key="triage", sections=()),
        rollout_budget=budget,
        pareto_ids=("t-1", "t-2", "t-3", "t-4"),
        modules=("section rules",),
        texts={"section rules": "Be kind."},
        seed=0,
        plan=PLAN,
    )


def rollout(position: str, total: int, score: float | None = 1.0) -> GepaRolloutCompleted:
    feedback = None if score is None else RolloutFeedback(score=score, feedback="")
    record = RolloutRecord(
        example_id="t-1",
        inputs_repr="",
        output_repr="",
        tool_trace_repr="",
        feedback=feedback,
    )
    return GepaRolloutCompleted(position=position, record=record, total_rollouts=total)


def baseline(scores: Sequence[float | None] = (1.0, 0.0, None, 0.5)) -> list[object]:
    return [
        started(),
        *(rollout(f"baseline/{at}", at + 1, score) for at, score in enumerate(scores)),
    ]


def accepted(step: int = 3, best: float | None = 0.75) -> GepaMutationAccepted:
    return GepaMutationAccepted(
        step=step,
        candidate=1,
        parent=0,
        module="section rules",
        parent_score=0.5,
        child_score=1.0,
        pareto_mean=0.625,
        best_pareto_mean=best,
    )


def rejected() -> GepaMutationRejected:
    return GepaMutationRejected(
        step=4,
        parent=0,
        module="section \x1b[31mrules",
        reason=RejectionReason.NOT_BETTER,
        detail="",
    )


def tell(progress: Progress, events: Sequence[object]) -> None:
    with progress:
        for event in events:
            progress.on_event(event)


def test_the_state_follows_the_events() -> None:
    state = RunState(title=TITLE)
    for event in [*baseline(), rollout("step/3/parent/0", 10), accepted(), rejected(), "other"]:
        state.update(event)

    assert (state.budget, state.rollouts, state.step) == (1000, 10, 3)
    assert (state.baseline, state.best, state.gain) == (0.5, 0.75, "+0.250")
    assert (state.accepted, state.rejected) == (1, 1)


def test_a_baseline_without_scores_is_no_fault() -> None:
    state = RunState(title=TITLE)
    for event in baseline([None] * 4):
        state.update(event)

    assert (state.baseline, state.best, state.gain) == (None, None, "")


def test_lines_for_the_baseline_and_each_accepted_candidate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell(PlainProgress(RunState(title=TITLE)), [*baseline(), accepted(), rejected()])

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"{TITLE}\n{PLAN_LINES[0]}\n{PLAN_LINES[1]}\n"
        "baseline 0.500 on D_pareto, 4 of 1000 rollouts\n"
        "step 3: accepted section rules, best 0.750 (+0.250), 4 of 1000 rollouts\n"
    )


def test_what_a_call_waits_for_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    waits = [
        CallWaiting(model="m-1", seconds=30.2, reason="rate limited"),
        CallWaiting(model="m-1", seconds=None, reason="no \x1b[31manswer yet"),
    ]
    state = RunState(title=TITLE)
    tell(PlainProgress(state), waits)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "waiting 30 s for m-1: rate limited",
        "waiting for m-1: no \\x1b[31manswer yet",
    ]
    assert state.last == "waiting for m-1: no \x1b[31manswer yet"


def test_lines_every_few_hundred_rollouts(capsys: pytest.CaptureFixture[str]) -> None:
    later = [rollout(f"step/{total}/child/0", total) for total in range(5, 1001)]

    tell(PlainProgress(RunState(title=TITLE)), [*baseline(), *later])

    lines = capsys.readouterr().err.splitlines()[4:]
    assert lines[0] == "step 254: best 0.500, 254 of 1000 rollouts"
    assert len(lines) == 3


def test_a_reader_that_leaves_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())

    tell(PlainProgress(RunState(title=TITLE)), [*baseline(), accepted()])


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_panel_fits_and_shows_names_as_they_are(width: int, encoding: str) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Console(
        file=screen, force_terminal=True, width=width, legacy_windows=False, _environ={}
    )
    clock = FakeClock()
    progress = PanelProgress(RunState(title=TITLE), console=console, clock=clock)

    with progress:
        for event in [*baseline(), accepted(), rejected()]:
            clock.advance(1)
            progress.on_event(event)
        screen.flush()
        screen.seek(0)
        drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.read())

    assert " ".join(PLAN_LINES) in " ".join(drawn.split())
    lines = drawn[drawn.rindex("promptgraft demo") - 3 :].splitlines()
    assert "[bold]embedded" in lines[0]
    assert max(len(line) for line in lines) == min(width - 3, 76)
    text = "\n".join(lines)
    assert "0 after 7 s" in text
    assert "4/1000" in text
    assert "0.500 -> 0.750 (+0.250)" in text
    assert "1 accepted, 1 rejected" in text
    assert "rejected section \\x1b[31mrules: not better" in text
    assert ("─" in text) is (encoding == "utf-8")


def test_the_panel_is_drawn_ten_times_a_second_at_most() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, _environ={})
    clock = FakeClock()

    with PanelProgress(RunState(title=TITLE), console=console, clock=clock) as progress:
        for total in range(1, 1001):
            clock.advance(0.001)
            progress.on_event(rollout("step/1/child/0", total))
        frames = screen.getvalue().count("after 0 s")
        progress.say("measuring")
        assert "measuring" in screen.getvalue()

    assert 5 <= frames <= 12
    # Nothing is left behind, and the cursor is there again.
    assert screen.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in screen.getvalue()


@pytest.mark.parametrize(
    ("terminal", "environment", "quiet", "kind"),
    [
        (True, {"TERM": "xterm"}, False, PanelProgress),
        (True, {}, False, PanelProgress),
        (True, {"TERM": "dumb"}, False, PlainProgress),
        (False, {"TERM": "xterm", "FORCE_COLOR": "1"}, False, PlainProgress),
        (True, {"TERM": "xterm"}, True, SilentProgress),
    ],
)
def test_a_panel_only_where_it_can_be_drawn(
    terminal: bool,
    environment: dict[str, str],
    quiet: bool,
    kind: type[Progress],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr(sys, "stderr", Screen())

    assert isinstance(progress_for(TITLE, quiet=quiet, environment=environment), kind)


def test_no_standard_error_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    tell(progress_for(TITLE, quiet=False), baseline())


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SilentProgress()
    progress.say("something")
    tell(progress, baseline())

    assert capsys.readouterr() == ("", "")
