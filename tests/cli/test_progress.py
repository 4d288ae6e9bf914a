"""What is told of a run while it goes: lines, or a panel."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from optimizers.worlds import Run, config, optimize
from promptgraft.adapters.base import CallWaiting
from promptgraft.algorithms.gepa import GepaResult, GepaWorking
from promptgraft.cli.panel import PanelProgress
from promptgraft.cli.progress import (
    PlainProgress,
    Progress,
    SilentProgress,
    progress_for,
)
from promptgraft.cli.run_state import RunState
from promptgraft.cli.sentences import doing
from promptgraft.clock import FakeClock
from promptgraft.errors import DataFormatError
from promptgraft.runs.event_lines import EventLines, Line
from promptgraft.runtime import EventBus

TITLE = "promptgraft demo, [bold]embedded[/bold] offline model"
NOW = FakeClock().now()
PLAN_LINES = ("plan: at most 1000 rollouts", "warning: rollout_budget: too [bold]small")


def line(event: str, seconds: float = 0, **fields: Any) -> Line:
    return {"event": event, "time": (NOW + timedelta(seconds=seconds)).isoformat(), **fields}


def begun(seconds: float = 0, **limits: Any) -> list[Line]:
    plan = {"max_cost": None, "max_tokens": None, "max_seconds": None, **limits}
    plan["warnings"] = ["rollout_budget: too [bold]small"]
    return [
        line("started", seconds, prompt="support/triage"),
        line("plan", seconds, budget=1000, line=PLAN_LINES[0], plan=plan),
    ]


def candidate(number: int, mean: float | None, *, best: int, rollouts: int = 4) -> Line:
    used: dict[str, Any] = {"rollouts": rollouts, "cost": "0.25", "tokens": 12_000}
    return line("candidate", candidate=number, mean=mean, best=best, **used)


def working(position: str, rollouts: int, *, seconds: float = 0, done: int = 0) -> Line:
    return line(
        "progress",
        seconds,
        position=position,
        done=done,
        total=8,
        step=int(position.split("/")[1]) if position.startswith("step") else 0,
        rollouts=rollouts,
        cost="0.5",
        tokens=24_000,
    )


def accepted(number: int = 1, mean: float = 0.625) -> Line:
    return line("accepted", step=3, candidate=number, module="section rules", mean=mean)


def rejected(*, final: bool = True, detail: str = "") -> Line:
    return line(
        "rejected",
        step=4,
        module="section \x1b[31mrules",
        reason="not better",
        detail=detail,
        final=final,
    )


def waiting(seconds: float | None, reason: str = "rate limited") -> Line:
    return {**line("waiting", model="m-1", reason=reason), "seconds": seconds}


STORY = [
    *begun(),
    candidate(0, 0.5, best=0),
    working("step/3/parent", 10),
    candidate(1, 0.625, best=1, rollouts=12),
    accepted(),
    rejected(),
]
ENDED = line(
    "ended",
    improved=True,
    baseline_mean=0.5,
    best_mean=0.625,
    held_out={"baseline_mean": 0.25, "winner_mean": 0.75},
    rollouts=990,
    cost="1.5",
    stop={"reason": "budget", "detail": "10 of 1000 rollouts are left"},
)


def state_after(lines: Sequence[Line]) -> RunState:
    state = RunState(title=TITLE)
    for one in lines:
        state.fold(one)
    return state


def tell(progress: Progress, lines: Sequence[Line]) -> None:
    with progress:
        for one in lines:
            progress.on_line(one)


def test_the_state_follows_the_lines() -> None:
    state = state_after([*STORY, line("of a later version", rollouts="many")])

    assert (state.budget, state.rollouts, state.step) == (1000, 12, 3)
    assert (state.baseline, state.best, state.leader) == (0.5, 0.625, 1)
    assert (state.accepted, state.rejected, state.merged) == (1, 1, 0)
    assert (str(state.cost), state.tokens) == ("0.25", 12_000)
    assert state_after([*STORY, ENDED]).rollouts == 990


def test_what_a_run_of_this_process_tells_is_followed_the_same() -> None:
    bus, clock, state = EventBus(), FakeClock(), RunState(title=TITLE)
    lines, phases = EventLines(clock, every=0), list[str]()

    def follow(event: object) -> None:
        for one in lines.of(event):
            state.fold(one)
            phases.append(doing(state).partition(",")[0])

    bus.subscribe(object, follow)
    run = Run(config(rollout_budget=60), event_bus=bus)
    result: GepaResult = run.start()

    assert (state.baseline, state.best) == (
        result.baseline_pareto_mean,
        result.best_pareto_mean,
    )
    assert (state.rollouts, state.budget) == (result.total_rollouts, 60)
    assert (state.accepted, state.rejected) == (result.accepted_mutations, len(result.rejections))
    assert list(dict.fromkeys(phases))[:6] == [
        "starting",
        "trying the baseline",
        "step 1: trying the parent",
        "step 1: reflecting",
        "step 1: trying the child",
        "step 1: validating",
    ]
    assert phases[-1] == "ended"


def test_progress_is_told_once_a_second_and_whenever_long_work_begins() -> None:
    clock, told = FakeClock(), list[tuple[object, object]]()
    lines = EventLines(clock)

    def happens(after: float, position: str, done: int) -> None:
        clock.advance(after)
        used: dict[str, Any] = {"rollouts": 0, "reflections": 0, "tokens": 0, "cost": None}
        event = GepaWorking(position=position, done=done, total=9, **used)
        told.extend((one["position"], one["done"]) for one in lines.of(event))

    happens(0.2, "baseline", 0)
    happens(0.5, "baseline", 1)
    happens(0.6, "baseline", 2)
    happens(0.2, "baseline", 3)
    happens(0.0, "step/1/parent", 0)
    happens(0.05, "step/1/reflect/0", 0)
    happens(0.1, "step/1/child", 0)

    assert told == [("baseline", 0), ("baseline", 2), ("step/1/parent", 0), ("step/1/child", 0)]


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ("", "starting"),
        ("baseline", "trying the baseline, 2 of 8"),
        ("step/12/reflect/0", "step 12: reflecting, 2 of 8"),
        ("step/12/reflect/1", "step 12: asking for a repair, 2 of 8"),
        ("step/12/again/1/parent", "step 12: trying both again, 2 of 8"),
        ("step/12/merge/rest", "step 12: merging, 2 of 8"),
        ("step/12/3/parent", "step 12, proposal 3: trying the parent, 2 of 8"),
        ("step/12/3/reflect/1", "step 12, proposal 3: asking for a repair, 2 of 8"),
        ("step/12/3/again/1/child", "step 12, proposal 3: trying both again, 2 of 8"),
        ("step/12/idle", "step 12: trying the best on more, 2 of 8"),
        ("final/7", "trying the finalists, 2 of 8"),
        ("confirm/3/winner/0", "confirming the winner, 2 of 8"),
        ("held-out/3", "trying held-out examples, 2 of 8"),
        ("something/of/a/later/version", "starting"),
    ],
)
def test_where_a_run_is_is_said_in_words(position: str, said: str) -> None:
    lines = [*begun(), *([working(position, 10, done=2)] if position else [])]
    assert doing(state_after(lines)).removesuffix(", 2 of 8") == said.removesuffix(", 2 of 8")
    assert doing(state_after(lines)).endswith(", 2 of 8") is bool(position)


def test_a_run_that_begins_again_counts_from_the_start() -> None:
    state = state_after([*STORY, waiting(None), *begun(60)])

    assert (state.accepted, state.rejected, state.step, state.wait) == (0, 0, 0, None)
    assert state.elapsed(NOW + timedelta(seconds=90)) == 30


def test_a_baseline_without_scores_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    tell(PlainProgress(RunState(title=TITLE)), [*begun(), candidate(0, None, best=0)])

    assert "baseline none on D_pareto, 4 of 1000 rollouts" in capsys.readouterr().err


def test_the_time_left_is_taken_from_the_pace_of_new_answers() -> None:
    # What came out of a journal took no time and says nothing.
    replayed: Line = {**working("step/2/child", 100), "total": 0}
    answered = candidate(0, 0.5, best=0, rollouts=400)
    state = state_after([*begun(), replayed, answered, working("step/9/child", 400)])
    later = NOW + timedelta(seconds=60)
    assert state.left(later) is None

    state.fold(working("step/9/child", 460, seconds=60))
    assert state.left(later) == pytest.approx(540)


@pytest.mark.parametrize("length", [30, None])
def test_a_wait_ends_with_its_time_or_when_that_is_not_known_with_an_answer(
    length: float | None,
) -> None:
    state = state_after([*begun(), working("step/9/child", 20), waiting(length)])
    state.fold(working("step/9/child", 20, seconds=5))
    assert state.wait is not None
    state.fold(working("step/9/child", 21, seconds=10))

    # With workers side by side, others get their answers meanwhile.
    assert (state.wait is None) is (length is None)
    state.fold(working("step/9/child", 22, seconds=40))
    assert state.wait is None


def test_a_line_without_a_time_is_an_error_that_names_it() -> None:
    with pytest.raises(DataFormatError, match="time: expected an ISO 8601 time with its zone"):
        state_after([{"event": "plan"}])


FIELDS = st.sampled_from(
    ["step", "candidate", "best", "mean", "rollouts", "plan", "stop", "held_out", "parents", "line"]
)
VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
EVENTS = st.sampled_from([str(one["event"]) for one in [*STORY, ENDED, waiting(1)]])


@given(event=EVENTS, fields=st.dictionaries(FIELDS, VALUES))
def test_lines_of_another_version_are_never_a_fault(event: str, fields: Mapping[str, Any]) -> None:
    progress = PlainProgress(RunState(title=TITLE))
    progress._broken = True  # nothing is written

    progress.on_line({**line(event), **fields})


def test_lines_for_everything_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    merge: dict[str, Any] = {"step": 5, "parents": [1, 2]}
    tell(
        PlainProgress(RunState(title=TITLE)),
        [
            *STORY,
            rejected(final=False),
            line("merge_accepted", candidate=2, mean=0.625, **merge),
            line("merge_rejected", reason="not better", detail="0.1", **merge),
            ENDED,
        ],
    )

    captured = capsys.readouterr()
    assert captured.out == ""
    ended = (
        "ended: improved, 0.500 -> 0.625 (+0.125) on D_pareto, 0.250 -> 0.750 (+0.500) on held-out "
        "examples, 990 rollouts; stopped by budget: 10 of 1000 rollouts are left"
    )
    assert captured.err.splitlines() == [
        TITLE,
        *PLAN_LINES,
        "baseline 0.500 on D_pareto, 4 of 1000 rollouts",
        "step 3: accepted section rules with 0.625, best 0.625 (+0.125), 12 of 1000 rollouts",
        "step 4: rejected section \\x1b[31mrules: not better",
        "step 5: merged 1 and 2 with 0.625, best 0.625 (+0.125), 12 of 1000 rollouts",
        "step 5: rejected the merge of 1 and 2: not better; 0.1",
        ended,
    ]


def raced(number: int, scores: list[float | None], mean: float, *, best: int) -> Line:
    fields: dict[str, Any] = {"scores": scores, "estimated": None in scores}
    return {**candidate(number, mean, best=best), **fields}


RACE = [
    *begun(),
    raced(0, [0.5, 0.5, None, None, None], 0.5, best=0),
    raced(1, [1.0, None, None, None, None], 1.0, best=1),
    {**accepted(mean=1.0), "estimated": True},
]


def test_means_of_a_few_examples_are_marked_and_the_mark_is_explained_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole: Line = {**raced(1, [1.0, 1.0, 1.0, 0.0, 0.0], 0.6, best=1), "event": "scored"}
    merge: dict[str, Any] = {"step": 5, "parents": [1, 2], "mean": 0.5, "estimated": True}
    ended: Line = {**ENDED, "baseline_estimated": True, "best_estimated": False}
    tell(
        PlainProgress(RunState(title=TITLE)),
        [*RACE, whole, {**accepted(mean=0.6), "step": 4}, line("merge_accepted", **merge), ended],
    )

    told = capsys.readouterr().err.splitlines()[3:]
    assert told[:-1] == [
        "baseline ~0.500 on 2 of the 5 examples of D_pareto, 4 of 1000 rollouts",
        "~ is estimated, from some of the examples",
        "step 3: accepted section rules with ~1.000, best ~1.000 (~+0.500), 4 of 1000 rollouts",
        "step 4: accepted section rules with 0.600, best 0.600, 4 of 1000 rollouts",
        "step 5: merged 1 and 2 with ~0.500, best 0.600, 4 of 1000 rollouts",
    ]
    assert told[-1].startswith("ended: improved, ~0.500 -> 0.625 on D_pareto, 0.250 ->")


def test_the_panel_marks_means_of_a_few_examples_and_says_how_many() -> None:
    drawn, clock = Drawn(width=80), FakeClock()
    with PanelProgress(
        RunState(title=TITLE), console=drawn.console, clock=clock, tick=None
    ) as progress:
        for one in RACE:
            clock.advance(1)
            progress.on_line(one)
    text = "\n".join(drawn.frames[-1])

    assert "~0.500 -> ~1.000 (~+0.500)  ~ from 1 of 5 examples" in text
    assert "the baseline has ~0.500" in text
    assert "step 3: accepted ~1.000, best so far" in text


def test_a_run_that_has_ended_waits_for_nothing() -> None:
    drawn = Drawn()
    with PanelProgress(
        RunState(title=TITLE), console=drawn.console, clock=FakeClock(), tick=None
    ) as progress:
        for one in [*begun(), working("step/3/parent", 10), ENDED]:
            progress.on_line(one)
        progress.say("done")
        text = "\n".join(drawn.frames[-1])

    assert "ended" in text
    assert "for answers" not in text


def test_long_reasons_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    tell(PlainProgress(RunState(title=TITLE)), [*begun(), rejected(detail="why " * 500)])

    assert len(capsys.readouterr().err.splitlines()[-1]) < 240


def test_what_a_call_waits_for_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainProgress(RunState(title=TITLE)) as progress:
        progress.on_event(CallWaiting(model="m-1", seconds=30.2, reason="rate limited"))
        progress.on_event(CallWaiting(model="m-1", seconds=None, reason="no \x1b[31manswer"))

    assert capsys.readouterr().err.splitlines()[1:] == [
        "waiting 30 s for m-1: rate limited",
        "waiting for m-1: no \\x1b[31manswer",
    ]


def test_lines_every_few_hundred_rollouts_or_after_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    quick = [working(f"step/{total}/child", total) for total in range(12, 600)]
    slow = [working("step/700/child", 600, seconds=at) for at in range(130)]

    tell(PlainProgress(RunState(title=TITLE)), [*STORY, *quick, *slow])

    lines = capsys.readouterr().err.splitlines()[6:]
    assert lines == [
        "step 262: best 0.625 (+0.125), 262 of 1000 rollouts, $0.5000",
        "step 512: best 0.625 (+0.125), 512 of 1000 rollouts, $0.5000",
        *["step 700: best 0.625 (+0.125), 600 of 1000 rollouts, $0.5000"] * 2,
    ]


def test_a_reader_that_leaves_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())

    tell(PlainProgress(RunState(title=TITLE)), STORY)


class Drawn:
    """A terminal that keeps what is drawn on it."""

    def __init__(self, width: int = 60, height: int = 24, encoding: str = "utf-8") -> None:
        self._screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
        self.console = Console(
            file=self._screen,
            force_terminal=True,
            width=width,
            height=height,
            legacy_windows=False,
            _environ={},
        )

    @property
    def text(self) -> str:
        self._screen.flush()
        self._screen.seek(0)
        return self._screen.read()

    @property
    def frames(self) -> list[list[str]]:
        """The lines of each frame, without colours."""
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).replace("\r", "")
        return [
            [row for row in frame.split("\n") if row]
            for frame in re.findall(r"(?s)[╭+][^\n]*promptgraft demo.*?[╰+][─-]+[╯+]", plain)
        ]


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_panel_fits_and_shows_names_as_they_are(width: int, encoding: str) -> None:
    drawn, clock = Drawn(width, encoding=encoding), FakeClock()
    progress = PanelProgress(RunState(title=TITLE), console=drawn.console, clock=clock, tick=None)

    with progress:
        for one in [*STORY, waiting(30, "rate [bold]limited"), working("step/5/pareto", 20)]:
            clock.advance(1)
            progress.on_line(one)
        frame = drawn.frames[-1]

    assert "[bold]embedded" in frame[0]
    assert max(len(row) for row in frame) == min(width - 3, 76)
    text = "\n".join(frame)
    assert "step 5: validating, 0 of 8" in text
    assert "0.500 -> 0.625 (+0.125)" in text
    assert "20/1,000" in text
    assert "$0.5000, 24k tokens" in text
    assert "1 accepted, 1 rejected" in text
    assert "waiting    21 s for m-1: rate [bold]limited" in text
    assert "step 3: accepted 0.625, best so far" in text
    assert "step 4: rejected, not better: section" in text
    assert ("─" in text) is (encoding == "utf-8")


def test_limits_are_shown_with_what_is_used() -> None:
    drawn, clock = Drawn(), FakeClock()
    lines = begun(max_cost="2.5", max_tokens=1_000_000, max_seconds=3600.0)
    with PanelProgress(RunState(title=TITLE), console=drawn.console, clock=clock) as progress:
        for one in [*lines, working("step/1/child", 5), working("step/1/child", 6)]:
            clock.advance(30)
            progress.on_line(one)
        text = "\n".join(drawn.frames[-1])

    assert "$0.5000 of $2.50, 24k of 1.0M tokens" in text
    assert "2 min of 1 h  " in text


def test_what_is_left_is_said_roughly_and_only_when_no_limit_comes_first() -> None:
    for limit, told in ((None, "1 min, at most about 16 min left"), (300.0, "1 min of 5 min  ")):
        drawn, clock = Drawn(), FakeClock()
        with PanelProgress(
            RunState(title=TITLE), console=drawn.console, clock=clock, tick=None
        ) as progress:
            for one in [*begun(max_seconds=limit), working("step/1/child", 1)]:
                progress.on_line(one)
            clock.advance(60)
            progress.on_line(working("step/1/child", 61, seconds=60))
            assert told in "\n".join(drawn.frames[-1])


@pytest.mark.parametrize(("height", "rows"), [(24, 13), (12, 11)])
def test_the_panel_has_one_height_whatever_happens(height: int, rows: int) -> None:
    drawn, clock = Drawn(height=height), FakeClock()
    with PanelProgress(
        RunState(title=TITLE), console=drawn.console, clock=clock, tick=None
    ) as progress:
        for one in [*STORY, *STORY, waiting(10), ENDED]:
            clock.advance(1)
            progress.on_line(one)

    assert {len(frame) for frame in drawn.frames} == {rows}


def test_the_panel_is_drawn_ten_times_a_second_at_most_and_leaves_the_warnings_only() -> None:
    drawn, clock = Drawn(), FakeClock()

    with PanelProgress(
        RunState(title=TITLE), console=drawn.console, clock=clock, tick=None
    ) as progress:
        for one in begun():
            progress.on_line(one)
        for total in range(1, 1001):
            clock.advance(0.001)
            progress.on_line(working("step/1/child", total))
        frames = len(drawn.frames)
        progress.say("measuring")
        assert "measuring" in "\n".join(drawn.frames[-1])

    assert 5 <= frames <= 13
    rest = drawn.text[drawn.text.rindex("╯") + 1 :]
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", rest) == ""
    assert "\x1b[?25h" in rest, "the cursor is there again"
    outside = drawn.text
    for row in [row for frame in drawn.frames for row in frame]:
        outside = outside.replace(row, "")
    assert PLAN_LINES[1] in outside
    assert PLAN_LINES[0] not in outside


@pytest.mark.parametrize("error", [BrokenPipeError, OSError])
def test_a_terminal_that_goes_away_does_not_end_the_run(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        closed_down = False

        def write(self, text: str) -> int:
            if self.closed_down:
                raise error
            return super().write(text)

    terminal, clock, state = Terminal(), FakeClock(), RunState(title=TITLE)
    console = Console(file=terminal, force_terminal=True, width=60, height=24, _environ={})
    with PanelProgress(state, console=console, clock=clock, tick=None) as progress:
        for one in STORY:
            clock.advance(1)
            progress.on_line(one)
            terminal.closed_down = True

    assert state.accepted == 1


def test_the_panel_goes_on_while_nothing_happens() -> None:
    drawn, clock = Drawn(), FakeClock()
    ticked = PanelProgress(RunState(title=TITLE), console=drawn.console, clock=clock, tick=0.001)

    with ticked as progress:
        for one in begun():
            progress.on_line(one)
        clock.advance(83)
        while "1 min 23 s" not in drawn.text:
            pass


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


def test_json_on_a_terminal_is_not_mixed_with_a_panel() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(progress_for(TITLE, quiet=False, stream=Screen()), SilentProgress)
    assert isinstance(progress_for(TITLE, quiet=False, stream=io.StringIO()), PlainProgress)


def test_no_standard_error_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    tell(progress_for(TITLE, quiet=False), STORY)


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    bus, progress = EventBus(), SilentProgress()
    bus.subscribe(object, progress.on_event)
    progress.say("something")
    optimize(config(rollout_budget=20), event_bus=bus)
    tell(progress, STORY)

    assert capsys.readouterr() == ("", "")
