"""Progress of a run, as lines and as a panel."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest
from msgspec.structs import replace
from rich.console import Console

from optimizers.worlds import Run, config, optimize
from promptgraft.adapters.base import CallWaiting
from promptgraft.algorithms.gepa import GepaResult, GepaWorking
from promptgraft.cli.display import progress_for
from promptgraft.cli.panel import PanelProgress
from promptgraft.cli.progress import PlainProgress, Progress, doing
from promptgraft.runs import RunHistory
from promptgraft.runs.event_file import EventLines
from promptgraft.runtime import EventBus
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search import RejectionReason
from promptgraft.search.events import (
    CallWaits,
    CandidateAdded,
    CandidateScored,
    Event,
    MergeAccepted,
    MergeRejected,
    MutationAccepted,
    MutationRejected,
    RunEnded,
    RunPlanned,
    RunProgress,
    RunStarted,
    Unknown,
)
from promptgraft.search.verdict import HeldOut, RunVerdict
from promptgraft.testing import FakeClock

TITLE = "promptgraft demo, [bold]embedded[/bold] offline model"
NOW = FakeClock().now()
PLAN_LINES = ("plan: at most 1000 rollouts", "warning: rollout_budget: too [bold]small")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def begun(seconds: float = 0, *, examples: int = 0, **limits: Any) -> list[Event]:
    return [
        RunStarted(
            time=at(seconds),
            run_id="r",
            prompt="support/triage",
            seed=0,
            settings={},
            modules=(),
            texts={},
            pareto_ids=tuple(f"e{number}" for number in range(examples)),
        ),
        RunPlanned(
            time=at(seconds),
            budget=1000,
            line=PLAN_LINES[0],
            warnings=("rollout_budget: too [bold]small",),
            **limits,
        ),
    ]


def candidate(number: int, mean: float | None, *, best: int, rollouts: int = 4) -> CandidateAdded:
    return CandidateAdded(
        time=at(0),
        step=0,
        candidate=number,
        parents=(0,) if number else (),
        module="section rules" if number else None,
        mean=mean,
        best=best,
        scores=(),
        objectives={},
        rollouts=rollouts,
        reflections=0,
        tokens=12_000,
        cost=Decimal("0.25"),
        texts={},
        entries={},
    )


def working(position: str, rollouts: int, *, seconds: float = 0, done: int = 0) -> RunProgress:
    return RunProgress(
        time=at(seconds),
        position=position,
        done=done,
        total=8,
        step=0,
        rollouts=rollouts,
        reflections=0,
        tokens=24_000,
        cost=Decimal("0.5"),
        budget=1000,
        candidates=1,
        accepted=0,
        rejected=0,
        best=0,
        baseline_mean=None,
        best_mean=None,
        baseline_estimated=False,
        best_estimated=False,
    )


def accepted(number: int = 1, *, step: int = 3) -> MutationAccepted:
    return MutationAccepted(
        time=at(0),
        step=step,
        candidate=number,
        parent=0,
        module="section rules",
        parent_score=0.5,
        child_score=1.0,
        pareto_mean=None,
        best_pareto_mean=None,
    )


def rejected(*, final: bool = True, detail: str = "") -> MutationRejected:
    return MutationRejected(
        time=at(0),
        step=4,
        parent=0,
        module="section \x1b[31mrules",
        reason=RejectionReason.NOT_BETTER,
        detail=detail,
        final=final,
    )


def waiting(seconds: float | None, reason: str = "rate limited") -> CallWaits:
    return CallWaits(time=at(0), model="m-1", seconds=seconds, reason=reason)


STORY: list[Event] = [
    *begun(),
    candidate(0, 0.5, best=0),
    working("step/3/parent", 10),
    candidate(1, 0.625, best=1, rollouts=12),
    accepted(),
    rejected(),
]
ENDED = RunEnded(
    time=at(0),
    run_id="r",
    stop_reason="budget",
    stop_detail="10 of 1000 rollouts are left",
    verdict=RunVerdict.IMPROVED,
    best=1,
    baseline_mean=0.5,
    best_mean=0.625,
    baseline_estimated=False,
    best_estimated=False,
    means=(0.5, 0.625),
    shortened=0.0,
    frontier=(1,),
    gains={},
    held_out=HeldOut(ids=("u",), baseline_scores=(0.25,), winner_scores=(0.75,)),
    tag="latest",
    accepted=1,
    merges=0,
    rejected={"not better": 1},
    candidates=2,
    steps=4,
    rollouts=990,
    unscored=0,
    reflections=3,
    ledger=(),
    cost=Decimal("1.5"),
)


def run_after(lines: Sequence[Event]) -> RunHistory:
    run = RunHistory()
    for one in lines:
        run.add(one)
    return run


def tell(progress: Progress, lines: Sequence[Event]) -> None:
    with progress:
        for one in lines:
            progress.on_line(one)


def test_the_history_follows_the_lines() -> None:
    run = run_after([*STORY, Unknown()])

    assert (run.budget, run.rollouts, run.steps) == (1000, 12, 4)
    assert (*run.means, run.best) == (0.5, 0.625, 1)
    assert (run.accepted, len(run.rejections), run.merged) == (1, 1, 0)
    assert (str(run.cost), run.tokens) == ("0.25", 12_000)
    assert run_after([*STORY, ENDED]).rollouts == 990


def test_of_a_run_that_is_resumed_nothing_is_left_but_its_plan() -> None:
    started = next(one for one in STORY if isinstance(one, RunStarted))
    progress = run_after(STORY).progress()
    resumed = run_after([*STORY, replace(progress, in_flight=3), started])

    anew = run_after([started])
    names = {field.name for field in attrs.fields(RunHistory)} - {"plan"}
    public = [name for name in names if not name.startswith("_")]
    assert {name: getattr(resumed, name) for name in public} == {
        name: getattr(anew, name) for name in public
    } | {"expected_cost": resumed.expected_cost}


def test_what_a_run_of_this_process_tells_is_followed_the_same() -> None:
    bus, clock, history = EventBus(), FakeClock(), RunHistory()
    lines, phases = EventLines(clock, every=0), list[str]()

    def follow(event: object) -> None:
        for one in lines.of(event):
            history.add(one)
            phases.append(doing(history).partition(",")[0])

    bus.subscribe(object, follow)
    run = Run(config(rollout_budget=60), event_bus=bus)
    result: GepaResult = run.start()

    assert history.means == (result.baseline_pareto_mean, result.best_pareto_mean)
    assert (history.rollouts, history.budget) == (result.total_rollouts, 60)
    assert history.accepted == result.accepted_mutations
    assert len(history.rejections) == len(result.rejections)
    assert list(dict.fromkeys(phases))[:6] == [
        "starting",
        "testing your prompt",
        "step 1: testing the old text",
        "step 1: writing a new text",
        "step 1: testing the new text",
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
        found = [one for one in lines.of(event) if isinstance(one, RunProgress)]
        told.extend((one.position, one.done) for one in found)

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
        ("baseline", "testing your prompt, 2 of 8"),
        ("step/12/reflect/0", "step 12: writing a new text, 2 of 8"),
        ("step/12/reflect/1", "step 12: repairing the new text, 2 of 8"),
        ("step/12/again/1/parent", "step 12: testing both texts again, 2 of 8"),
        ("step/12/merge/rest", "step 12: merging, 2 of 8"),
        ("step/12/3/parent", "step 12, proposal 3: testing the old text, 2 of 8"),
        ("step/12/3/reflect/1", "step 12, proposal 3: repairing the new text, 2 of 8"),
        ("step/12/3/again/1/child", "step 12, proposal 3: testing both texts again, 2 of 8"),
        ("step/12/idle/4", "step 12: testing the best text on more cases, 2 of 8"),
        ("final/7/3", "testing the finalists, 2 of 8"),
        ("held-out/3", "testing on the test cases, 2 of 8"),
    ],
)
def test_where_a_run_is_is_said_in_words(position: str, said: str) -> None:
    lines = [*begun(), *([working(position, 10, done=2)] if position else [])]
    assert doing(run_after(lines)).removesuffix(", 2 of 8") == said.removesuffix(", 2 of 8")
    assert doing(run_after(lines)).endswith(", 2 of 8") is bool(position)


def test_a_run_that_begins_again_counts_from_the_start() -> None:
    run = run_after([*STORY, waiting(None), *begun(60)])

    assert (run.accepted, run.rejections, run.steps, run.wait) == (0, [], 0, None)
    assert run.elapsed(NOW + timedelta(seconds=90)) == 30


def test_a_baseline_without_scores_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    tell(PlainProgress(TITLE), [*begun(), candidate(0, None, best=0)])

    assert "your prompt: score none, $0.25" in capsys.readouterr().err


def test_the_time_left_is_taken_from_the_pace_of_new_answers() -> None:
    # What came out of a journal took no time and says nothing.
    replayed = replace(working("step/2/child", 100), total=0)
    answered = candidate(0, 0.5, best=0, rollouts=400)
    run = run_after([*begun(), replayed, answered, working("step/9/child", 400)])
    later = NOW + timedelta(seconds=60)
    assert run.left(later) is None

    run.add(working("step/9/child", 460, seconds=60))
    assert run.left(later) == pytest.approx(540)


@pytest.mark.parametrize("length", [30, None])
def test_a_wait_ends_with_its_time_or_when_that_is_not_known_with_an_answer(
    length: float | None,
) -> None:
    run = run_after([*begun(), working("step/9/child", 20), waiting(length)])
    run.add(working("step/9/child", 20, seconds=5))
    assert run.wait is not None
    run.add(working("step/9/child", 21, seconds=10))

    # With workers side by side, others get their answers meanwhile.
    assert (run.wait is None) is (length is None)
    run.add(working("step/9/child", 22, seconds=40))
    assert run.wait is None


MERGES: list[Event] = [
    MergeAccepted(step=5, candidate=1, parents=(0, 1), pareto_mean=None, best_pareto_mean=None),
    MergeRejected(step=5, parents=(0, 1), reason=RejectionReason.NOT_BETTER, detail="0.1"),
]


def test_combined_texts_count_beside_rewrites() -> None:
    run = run_after([*STORY, *MERGES])
    assert (run.rewrites.kept, run.rewrites.combined) == (1, 1)
    assert (run.progress().accepted, run.progress().rejected) == (2, 2)


def test_lines_for_everything_that_matters(capsys: pytest.CaptureFixture[str]) -> None:
    tell(PlainProgress(TITLE), [*STORY, rejected(final=False), *MERGES, ENDED])

    captured = capsys.readouterr()
    assert captured.out == ""
    ended = (
        "improved: 0.250 -> 0.750 (+0.500) on 1 test case (95 % interval -0.963 to +0.988), "
        "990 test calls; stopped: too few test calls left for another step and the final test"
    )
    assert captured.err.splitlines() == [
        TITLE,
        *PLAN_LINES,
        "your prompt: score 0.500, $0.25",
        (
            "step 3: new text for section rules: 0.50 -> 1.00 on its cases, 0.625 in validation, "
            "best so far, $0.25"
        ),
        (
            "steps 4 to 5: rewrites: 0 kept, 2 dropped, 1 combined, 1 not combined; "
            "none beats the best"
        ),
        ended,
    ]


def raced(number: int, scores: list[float | None], mean: float, *, best: int) -> CandidateAdded:
    return replace(candidate(number, mean, best=best), scores=scores)


RACE: list[Event] = [
    *begun(examples=5),
    raced(0, [0.5, 0.5, None, None, None], 0.5, best=0),
    raced(1, [1.0, None, None, None, None], 1.0, best=1),
    accepted(),
]


def test_means_of_a_few_examples_say_of_how_many(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = CandidateScored(
        step=4, candidate=1, mean=0.6, best=1, scores=(1.0, 1.0, 1.0, 0.0, 0.0), objectives={}
    )
    merged = MergeAccepted(
        step=5, candidate=0, parents=(0, 1), pareto_mean=None, best_pareto_mean=None
    )
    ended = replace(ENDED, baseline_estimated=True, means=(0.5, 0.6))
    tell(PlainProgress(TITLE), [*RACE, whole, accepted(step=4), merged, ended])

    told = capsys.readouterr().err.splitlines()[3:]
    gained = "0.50 -> 1.00 on its cases"
    lead = "ahead so far, $0.25"
    assert told[:-1] == [
        "your prompt: score 0.500 on the first 2 cases, $0.25",
        f"step 3: new text for section rules: {gained}, 1 of 1 in validation, {lead}",
        f"step 4: new text for section rules: {gained}, 0.600 in validation, {lead}",
        "step 5: texts 0 and 1 combined: 0.500 on 2 cases in validation, $0.25",
    ]


@pytest.mark.parametrize(("right", "why"), [(4, ""), (1, " by the gain on its cases")])
def test_answers_that_are_right_or_wrong_are_counted(
    capsys: pytest.CaptureFixture[str], right: int, why: str
) -> None:
    scores = [1.0] * right + [0.0] * (4 - right)
    lines = [
        *begun(examples=60),
        raced(0, [1.0, 1.0, 0.0, 1.0, *[None] * 56], 0.75, best=0),
        raced(1, [*scores, *[None] * 56], right / 4, best=1),
        accepted(),
    ]
    tell(PlainProgress(TITLE), lines)

    assert capsys.readouterr().err.splitlines()[3:] == [
        "your prompt: 3 of the first 4 cases right, $0.25",
        (
            "step 3: new text for section rules: 0.50 -> 1.00 on its cases, "
            f"{right} of 4 in validation, ahead so far{why}, $0.25"
        ),
    ]


def test_steps_without_a_better_candidate_are_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ties = [
        one
        for step in range(4, 30)
        for one in (
            raced(step - 2, [1.0, None, None, None, None], 1.0, best=step - 2),
            accepted(step - 2, step=step),
        )
    ]
    later = [
        replace(rejected(), step=30),
        working("step/31/child", 300),
        replace(rejected(), step=31),
    ]
    tell(PlainProgress(TITLE), [*RACE, *ties, *later])

    assert capsys.readouterr().err.splitlines()[5:] == [
        "steps 4 to 30: rewrites: 26 kept, 1 dropped; none beats the best",
        "step 31: ahead with 1 of 1, 300 of 1,000 test calls, $0.50",
    ]


def test_the_panel_says_on_how_many_examples_and_draws_the_curve() -> None:
    drawn, clock = Drawn(width=80), FakeClock()
    with PanelProgress(TITLE, console=drawn.console, clock=clock, tick=None) as progress:
        for one in [*RACE, raced(2, [1.0, 1.0, 1.0, 0.0, 1.0], 0.8, best=2)]:
            clock.advance(1)
            progress.on_line(one)
    text = "\n".join(drawn.frames[-1])

    assert "0.500 on 2 cases -> 0.800  ▁█▅" in text
    assert "your prompt: score 0.500 on the first 2 cases" in text
    assert "step 3: 1 of 1 in validation, ahead so far" in text


def test_the_panel_shows_calls_in_flight_and_what_is_spent_of_what_is_expected() -> None:
    drawn, clock, bus = Drawn(width=80), FakeClock(), EventBus()
    with PanelProgress(TITLE, console=drawn.console, clock=clock, tick=None) as progress:
        bus.subscribe(object, progress.on_event)
        for one in begun(expected_cost=Decimal("0.81")):
            progress.on_line(one)
        for change in (1, 1, 1, -1):
            clock.advance(1)
            bus.publish(CallsInFlight(change))
        assert "calls       2 in flight " in "\n".join(drawn.frames[-1])
        clock.advance(1)
        progress.on_line(
            replace(working("step/1/child", 9), expected_cost=Decimal("0.812"), in_flight=7)
        )
        text = "\n".join(drawn.frames[-1])

    assert "used        $0.50 of about $0.81, 24k tokens" in text
    assert "calls       7 in flight " in text


def test_a_run_that_has_ended_waits_for_nothing() -> None:
    drawn = Drawn()
    with PanelProgress(TITLE, console=drawn.console, clock=FakeClock(), tick=None) as progress:
        for one in [*STORY, ENDED]:
            progress.on_line(one)
        progress.say("done")
        text = "\n".join(drawn.frames[-1])

    assert "ended" in text
    assert "for answers" not in text


def test_long_reasons_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    tell(PlainProgress(TITLE), [*STORY, rejected(detail="why " * 500)])

    assert len(capsys.readouterr().err.splitlines()[-1]) < 240


def test_what_a_call_waits_for_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainProgress(TITLE) as progress:
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

    tell(PlainProgress(TITLE), [*STORY, *quick, *slow])

    lines = capsys.readouterr().err.splitlines()[5:]
    assert lines == [
        "step 4: new text for section \\x1b[31mrules dropped: not better",
        "step 262: best so far 0.625 (+0.125), 262 of 1,000 test calls, $0.50",
        "step 512: best so far 0.625 (+0.125), 512 of 1,000 test calls, $0.50",
        *["step 700: best so far 0.625 (+0.125), 600 of 1,000 test calls, $0.50"] * 2,
    ]


def test_a_reader_that_leaves_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    progress = PlainProgress(TITLE)

    tell(progress, STORY)
    assert progress.run.accepted == 1


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
    progress = PanelProgress(TITLE, console=drawn.console, clock=clock, tick=None)

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
    assert "$0.50, 24k tokens" in text
    assert "1 kept, 1 dropped" in text
    assert "calls       waiting 21 s for m-1: rate [bold]limited" in text
    assert "step 3: 0.625 in validation, best so far" in text
    assert "step 4: dropped, not better: section" in text
    assert ("─" in text) is (encoding == "utf-8")


def test_limits_are_shown_with_what_is_used() -> None:
    drawn, clock = Drawn(), FakeClock()
    lines = begun(max_cost=Decimal("2.5"), max_tokens=1_000_000, max_seconds=3600.0)
    with PanelProgress(TITLE, console=drawn.console, clock=clock) as progress:
        for one in [*lines, working("step/1/child", 5), working("step/1/child", 6)]:
            clock.advance(30)
            progress.on_line(one)
        text = "\n".join(drawn.frames[-1])

    assert "$0.50 (max $2.50), 24k of 1.0M tokens" in text
    assert "2 min of 1 h  " in text


def test_what_is_left_is_said_roughly_and_only_when_no_limit_comes_first() -> None:
    for limit, told in ((None, "1 min, at most about 16 min left"), (300.0, "1 min of 5 min  ")):
        drawn, clock = Drawn(), FakeClock()
        with PanelProgress(TITLE, console=drawn.console, clock=clock, tick=None) as progress:
            for one in [*begun(max_seconds=limit), working("step/1/child", 1)]:
                progress.on_line(one)
            clock.advance(60)
            progress.on_line(working("step/1/child", 61, seconds=60))
            assert told in "\n".join(drawn.frames[-1])


@pytest.mark.parametrize(("height", "rows"), [(24, 13), (12, 11)])
def test_the_panel_has_one_height_whatever_happens(height: int, rows: int) -> None:
    drawn, clock = Drawn(height=height), FakeClock()
    with PanelProgress(TITLE, console=drawn.console, clock=clock, tick=None) as progress:
        for one in [*STORY, *STORY, waiting(10), ENDED]:
            clock.advance(1)
            progress.on_line(one)

    assert {len(frame) for frame in drawn.frames} == {rows}


def test_the_panel_is_drawn_ten_times_a_second_at_most_and_leaves_the_warnings_only() -> None:
    drawn, clock = Drawn(), FakeClock()

    with PanelProgress(TITLE, console=drawn.console, clock=clock, tick=None) as progress:
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

    terminal, clock = Terminal(), FakeClock()
    console = Console(file=terminal, force_terminal=True, width=60, height=24, _environ={})
    with PanelProgress(TITLE, console=console, clock=clock, tick=None) as progress:
        for one in STORY:
            clock.advance(1)
            progress.on_line(one)
            terminal.closed_down = True

    assert progress.run.accepted == 1


def test_the_panel_goes_on_while_nothing_happens() -> None:
    drawn, clock = Drawn(), FakeClock()
    ticked = PanelProgress(TITLE, console=drawn.console, clock=clock, tick=0.001)

    with ticked as progress:
        for one in begun():
            progress.on_line(one)
        clock.advance(83)
        assert any("1 min 23 s" in drawn.text for _ in range(100_000))


@pytest.mark.parametrize(
    ("terminal", "environment", "quiet", "kind"),
    [
        (True, {"TERM": "xterm"}, False, PanelProgress),
        (True, {}, False, PanelProgress),
        (True, {"TERM": "dumb"}, False, PlainProgress),
        (False, {"TERM": "xterm", "FORCE_COLOR": "1"}, False, PlainProgress),
        (True, {"TERM": "xterm"}, True, Progress),
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

    assert type(progress_for(TITLE, quiet=quiet, environment=environment)) is kind


def test_json_on_a_terminal_is_not_mixed_with_a_panel() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert type(progress_for(TITLE, quiet=False, stream=Screen())) is Progress
    assert isinstance(progress_for(TITLE, quiet=False, stream=io.StringIO()), PlainProgress)


def test_no_standard_error_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    progress = progress_for(TITLE, quiet=False)
    tell(progress, STORY)
    assert progress.run.accepted == 1


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    bus, progress = EventBus(), Progress()
    bus.subscribe(object, progress.on_event)
    progress.say("something")
    optimize(config(rollout_budget=20), event_bus=bus)
    tell(progress, STORY)

    assert capsys.readouterr() == ("", "")
