"""What ends a run between two steps: which reason, at which moment, and again after a kill."""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers import worlds
from optimizers.paid import CENT, PaidAdapter
from optimizers.worlds import (
    OVERLOADED,
    PROMPT,
    PlainAdapter,
    Run,
    about,
    answer,
    failing,
    instruction,
    judge,
    numbered,
    optimize,
    propose,
    records,
    scored,
)
from promptgraft import (
    Cancellation,
    EventBus,
    FileJournal,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    MaxCandidates,
    MaxProposals,
    MemoryJournal,
    NoImprovement,
    OptimizationContext,
    PromptResponse,
    RequiredObjectives,
    RolloutFeedback,
    RunState,
    StopFile,
    Stopper,
    StopReason,
    TargetScore,
)
from promptgraft.algorithms.gepa import GepaConfig, GepaStopFileRemoved
from promptgraft.errors import ConfigError, FeedbackError, StopperError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Deadline, SessionProtocol
from promptgraft.search.stopping import Leader
from promptgraft.testing import FakeClock

# Minibatches that are drawn anew each time may teach nothing twice in a row.
config = partial(worlds.config, minibatches="random")

# The run of `config()` without stoppers takes 8 steps. After each of them (0 is the baseline):
#   step             0   1   2   3   4   5   6   7   8
#   rollouts         6  18  30  42  54  57  60  72  84
#   proposals        0   1   2   3   4   4   4   5   6
#   best mean * 6    0   1   2   3   4   4   4   5   6
WHOLE = optimize(config())
ROLLOUTS = (6, 18, 30, 42, 54, 57, 60, 72, 84)


def used_57_rollouts(state: RunState) -> str | None:
    return "57 are enough" if state.rollouts >= 57 else None


@attrs.frozen
class Case:
    """A stopper with the step after which it ends the run, and what it says."""

    stopper: Stopper
    step: int
    reason: StopReason
    detail: str


CASES: Mapping[str, Case] = {
    "file": Case(StopFile("STOP"), 2, StopReason.STOP_FILE, "the stop file `STOP` is there"),
    "score": Case(
        TargetScore(0.5),
        3,
        StopReason.TARGET_SCORE,
        "the best candidate has 0.500; the target is 0.5",
    ),
    "proposals": Case(MaxProposals(4), 4, StopReason.PROPOSALS, "4 of 4 proposals were tried"),
    "objectives": Case(
        RequiredObjectives({"score": 0.6}),
        4,
        StopReason.OBJECTIVES,
        "the best candidate has what is required: score 0.667 of 0.6",
    ),
    "function": Case(used_57_rollouts, 5, StopReason.STOPPER, "57 are enough"),
    "one step": Case(
        NoImprovement(1),
        5,
        StopReason.NO_IMPROVEMENT,
        "no better candidate in 1 step",
    ),
    "two steps": Case(
        NoImprovement(2),
        6,
        StopReason.NO_IMPROVEMENT,
        "no better candidate in 2 steps",
    ),
    "candidates": Case(
        MaxCandidates(6), 7, StopReason.CANDIDATES, "6 of 6 candidates are in the pool"
    ),
}
# Each beside the next one, and those that end at the same moment.
PAIRS = [
    pair
    for pair in itertools.combinations(CASES, 2)
    if pair in itertools.pairwise(CASES) or CASES[pair[0]].step == CASES[pair[1]].step
]


class Killed(KeyboardInterrupt):
    """The process dies."""


class World:
    """Makes the stop file with the 30th answer, the last of step 2; may die before that."""

    def __init__(self, *stoppers: Stopper) -> None:
        Path("STOP").unlink(missing_ok=True)
        self.journal = MemoryJournal()
        self._settings = config(stoppers=stoppers)
        self._answered = 0
        self._dies_at = -1

    def run(self) -> GepaResult:
        return Run(self._settings, task=self._reply, journal=self.journal).start()

    def killed(self, answers: int) -> World:
        """Run until so many answers are there, and die."""
        self._dies_at = answers
        with pytest.raises(Killed):
            self.run()
        return self

    def _reply(self, rendered: RenderedPrompt[object]) -> str:
        if self._answered == self._dies_at:
            self._dies_at = -1
            raise Killed
        self._answered += 1
        if self._answered == 30:
            Path("STOP").touch()
        return answer(rendered)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_ended(result: GepaResult, case: Case) -> None:
    assert (result.stop_reason, result.stop_detail) == (case.reason, case.detail)
    assert (result.steps, result.total_rollouts) == (case.step, ROLLOUTS[case.step])


# Which, and when


@pytest.mark.parametrize("name", CASES)
def test_a_stopper_ends_the_run_at_its_moment_and_after_a_kill_too(name: str) -> None:
    case = CASES[name]
    result = World(case.stopper).run()
    assert_ended(result, case)
    for answers in (ROLLOUTS[case.step] // 2, ROLLOUTS[case.step] - 1):
        assert World(case.stopper).killed(answers).run() == result


@pytest.mark.parametrize("names", PAIRS, ids=" and ".join)
def test_of_two_the_earlier_moment_counts_then_the_order(names: tuple[str, str]) -> None:
    one, two = sorted((CASES[name] for name in names), key=lambda case: -case.step)
    # In the other order, where that decides.
    for first, second in ((one, two), (two, one))[: 1 + (one.step == two.step)]:
        ends = second if second.step < first.step else first
        # Ends are as without a kill, which the test above holds.
        killed = World(first.stopper, second.stopper).killed(ROLLOUTS[ends.step] * 2 // 3)
        assert_ended(killed.run(), ends)


def test_stoppers_of_the_same_moment_are_among_the_pairs() -> None:
    steps = [case.step for case in CASES.values()]
    assert steps.count(4) == steps.count(5) == 2


def test_a_run_goes_on_with_other_stoppers_and_ends_like_one_without() -> None:
    journal = MemoryJournal()
    for stoppers, steps in (((MaxProposals(2),), 2), ((MaxProposals(5), NoImprovement(2)), 6)):
        assert optimize(config(stoppers=stoppers), journal=journal).steps == steps
    assert optimize(config(), journal=journal) == WHOLE


def test_a_run_that_a_signal_kills_ends_with_the_same_reason(folder: Path) -> None:
    code = """if True:
        import os, signal
        from optimizers.worlds import Run, answer, config, numbered
        from promptgraft import FileJournal, TargetScore

        def reply(number, rendered):
            if number == 35:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer(rendered)

        with FileJournal("journal.jsonl") as journal:
            settings = config(minibatches="random", stoppers=(TargetScore(0.5),))
            Run(settings, task=numbered(reply), journal=journal).start()
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    with FileJournal(folder / "journal.jsonl") as journal:
        run = Run(config(stoppers=(TargetScore(0.5),)), journal=journal)
        assert_ended(run.start(), CASES["score"])
    assert run.task.calls == 42 - 35


# Other reasons of the same moment


def after(answers: int, act: Callable[[], object]) -> Callable[[RenderedPrompt[object]], str]:
    """Answer as usual, and act with one of the answers."""

    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        if number + 1 == answers:
            act()
        return answer(rendered)

    return numbered(reply)


def paid_run(task: PaidAdapter, settings: GepaConfig, **context: Any) -> GepaResult:
    thinker = PaidAdapter(reply=propose, identity="thinker")
    surroundings = OptimizationContext(task, reflection_adapter=thinker, **context)
    return GepaOptimizer(surroundings, settings).optimize(PROMPT)


def test_perfection_comes_before_stoppers() -> None:
    result = optimize(config(stoppers=(MaxCandidates(7), MaxProposals(6))))
    assert result == WHOLE
    assert result.stop_reason is StopReason.PERFECT


def test_what_ends_a_run_inside_a_step_comes_before_stoppers() -> None:
    result = optimize(config(max_idle_steps=2, stoppers=(NoImprovement(2),)))
    assert (result.stop_reason, result.steps) == (StopReason.NO_PROGRESS, 6)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"rollout_budget": 42}, StopReason.BUDGET),
        ({"max_cost": 45 * CENT}, StopReason.COST),
        ({"max_tokens": 450}, StopReason.TOKENS),
        ({"timeout": 42.0}, StopReason.DEADLINE),
        ({}, StopReason.CANCELLED),
    ],
    ids=["rollouts", "money", "tokens", "time", "cancellation"],
)
def test_stoppers_come_before_limits_and_cancellation(
    limits: Mapping[str, object], reason: StopReason
) -> None:
    def run(*stoppers: Stopper) -> GepaResult:
        clock, cancellation = FakeClock(), Cancellation()

        def cancel() -> None:
            if not limits:
                cancellation.set("enough")

        task = PaidAdapter(
            reply=after(42, cancel),
            before=lambda deadline: clock.advance(1),
        )
        return paid_run(
            task,
            config(stoppers=stoppers, **limits),
            deadline=Deadline(clock=clock),
            cancellation=cancellation,
        )

    assert (run().stop_reason, run().steps) == (reason, 3)
    assert_ended(run(TargetScore(0.5)), CASES["score"])


def test_faults_of_the_last_step_are_recorded_as_the_run_went_on_without_them() -> None:
    journal = MemoryJournal()
    task = failing(OVERLOADED, about("w5"))
    result = optimize(config(stoppers=(MaxProposals(1),)), task=task, journal=journal)
    assert (result.stop_reason, result.steps) == (StopReason.PROPOSALS, 1)
    assert records(journal)["step/1/pareto/5"].kind == "fault"


# Each rule


def test_a_baseline_that_has_the_target_score_goes_on() -> None:
    settings = {"feedback_fn": scored(0.8), "rollout_budget": 30}
    result = optimize(config(**settings, stoppers=(TargetScore(0.5),)))
    assert result.stop_reason is StopReason.BUDGET
    assert result == optimize(config(**settings))


def objectives(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    found = judge(example, response, session)
    return attrs.evolve(found, objectives={"known": found.score, "polite": 0.9})


@pytest.mark.parametrize(
    ("thresholds", "step"),
    [
        ({"polite": 0.9}, 0),  # the baseline has it
        ({"known": 0.5}, 3),
        ({"known": 0.5, "polite": 0.9}, 3),
        ({"known": 0.5, "polite": 0.91}, 8),
    ],
)
def test_required_objectives_must_all_be_reached(
    thresholds: Mapping[str, float], step: int
) -> None:
    stoppers = (RequiredObjectives(thresholds),)
    result = optimize(config(feedback_fn=objectives, stoppers=stoppers))
    assert result.steps == step
    assert (result.stop_reason is StopReason.OBJECTIVES) == (step < 8)


@pytest.mark.parametrize("wrong", ["stoppers", "required"])
def test_an_objective_that_no_feedback_has_is_found_with_the_baseline(wrong: str) -> None:
    settings: dict[str, Any] = {"required": {"polit": 0.5}}
    if wrong == "stoppers":
        settings = {"stoppers": (RequiredObjectives({"polit": 0.5}),)}
    run = Run(config(feedback_fn=objectives, **settings))
    with pytest.raises(FeedbackError, match=r"`polit`: no feedback has it.*did you mean `polite`"):
        run.start()
    assert run.task.calls == 6


def test_a_mean_that_is_the_target_on_paper_reaches_it() -> None:
    mean = sum([0.7] * 3) / 3
    assert mean < 0.7
    state = attrs.evolve(START, best=1, best_mean=mean, best_objectives={"polite": mean})
    assert TargetScore(0.7).reached(state) is not None
    assert RequiredObjectives({"polite": 0.7}).reached(state) is not None
    assert RequiredObjectives({"polite": 0.7001}).reached(state) is None


def test_a_run_in_which_nothing_is_scored_has_no_best_mean() -> None:
    state = attrs.evolve(START, best=1, best_mean=None)
    assert TargetScore(0.0)(state) is None


def test_replies_that_were_refused_are_no_proposals_and_those_that_were_tried_are() -> None:
    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        return ("", propose(rendered), instruction(f"Worse {number}"))[number % 3]

    stoppers = (MaxProposals(4),)
    result = optimize(config(stoppers=stoppers), reflection=numbered(reply))
    assert result.stop_reason is StopReason.PROPOSALS
    assert result.total_reflections == 6  # of which 2 were refused
    assert result.accepted_mutations < 4


START = RunState(
    steps=0,
    proposals=0,
    rollouts=6,
    reflections=0,
    candidates=1,
    steps_since_improvement=0,
    best=0,
    baseline_mean=0.0,
    best_mean=0.0,
    best_objectives=FrozenMap({"score": 0.0}),
    best_is_estimated=False,
    cost=Decimal("0.06"),
    tokens=60,
    seconds=6.0,
    left=194,
    leaders=(Leader(0, (0.0,) * 6),),
)


def watched(cost: Decimal | None = CENT, **context: Any) -> list[RunState]:
    states: list[RunState] = []
    clock = FakeClock()
    clock.advance(1_000)  # a run counts from its own beginning
    task = PaidAdapter(before=lambda deadline: clock.advance(1), cost=cost)
    settings = config(stoppers=(states.append,))
    paid_run(task, settings, deadline=Deadline(clock=clock), **context)
    return states


def test_the_state_says_where_the_run_stands() -> None:
    states = watched()
    assert states[0] == START
    assert [state.rollouts for state in states] == list(ROLLOUTS[:-1])  # the end is perfect
    assert states[6] == RunState(
        steps=6,
        proposals=4,
        rollouts=60,
        reflections=4,
        candidates=5,
        steps_since_improvement=2,
        best=4,
        baseline_mean=0.0,
        best_mean=4 / 6,
        best_objectives=FrozenMap({"score": 4 / 6}),
        best_is_estimated=False,
        cost=Decimal("0.64"),
        tokens=640,
        seconds=60.0,
        left=140,
        leaders=states[6].leaders,
    )
    leaders = [(leader.rollouts, sum(map(bool, leader.scores))) for leader in states[6].leaders]
    assert leaders == [(0, 0), (18, 1), (30, 2), (42, 3), (54, 4)]


def test_a_replay_shows_the_same_states_but_for_the_time() -> None:
    journal = MemoryJournal()
    states = watched(journal=journal)
    again = watched(journal=journal)
    assert {state.seconds for state in again} == {0.0}
    assert again == [attrs.evolve(state, seconds=0.0) for state in states]


def test_what_a_run_costs_is_unknown_when_a_price_is() -> None:
    assert {state.cost for state in watched(cost=None)} == {None}


states = st.builds(
    RunState,
    steps=st.integers(0, 9),
    proposals=st.integers(0, 9),
    rollouts=st.just(0),
    reflections=st.just(0),
    candidates=st.integers(1, 9),
    steps_since_improvement=st.integers(0, 9),
    best=st.integers(0, 9),
    baseline_mean=st.none() | st.floats(0, 1),
    best_mean=st.none() | st.floats(0, 1),
    best_objectives=st.dictionaries(st.sampled_from("ab"), st.floats(0, 1)),
    best_is_estimated=st.booleans(),
    cost=st.none(),
    tokens=st.just(0),
    seconds=st.just(0.0),
)


@given(states, st.integers(2, 8))
def test_a_stricter_stopper_never_stops_earlier(state: RunState, size: int) -> None:
    share = size / 10
    pairs: list[tuple[Stopper, Stopper]] = [
        (MaxProposals(size), MaxProposals(size + 1)),
        (NoImprovement(size), NoImprovement(size + 1)),
        (MaxCandidates(size), MaxCandidates(size + 1)),
        (TargetScore(share), TargetScore(share + 0.1)),
        (RequiredObjectives({"a": share}), RequiredObjectives({"a": share, "b": 0.5})),
    ]
    for looser, stricter in pairs:
        if stricter(state):
            assert looser(state)


# Functions of the caller


def test_a_stopper_that_raises_is_named() -> None:
    def out_of_stock(state: RunState) -> str | None:
        raise KeyError("stock")

    message = r"^stoppers\[1\] \(`.*out_of_stock`\) after step 0 raised KeyError: 'stock'$"
    with pytest.raises(StopperError, match=message):
        optimize(config(stoppers=(MaxProposals(9), out_of_stock)))


@pytest.mark.parametrize("found", [True, "", " \n", 1, StopReason])
def test_a_stopper_that_returns_no_reason_is_named(found: Any) -> None:
    with pytest.raises(
        StopperError,
        match=r"^stoppers\[0\] \(`.*<lambda>`\) after step 0: expected None or a reason in words",
    ):
        optimize(config(stoppers=(lambda state: found,)))


def test_a_run_whose_stopper_failed_goes_on_without_it() -> None:
    def late(state: RunState) -> str | None:
        return str(1 / (3 - state.steps)) if state.steps == 3 else None

    journal = MemoryJournal()
    with pytest.raises(StopperError, match="division by zero"):
        optimize(config(stoppers=(late,)), journal=journal)
    run = Run(config(), journal=journal)
    assert run.start() == WHOLE
    assert run.task.calls == 84 - 42


# Settings


@pytest.mark.parametrize(
    ("stoppers", "message"),
    [
        (MaxProposals(3), "limits.stoppers: expected a sequence of stoppers such as (MaxPropo"),
        ("STOP", "limits.stoppers: expected a sequence of stoppers such as (MaxPropo"),
        (
            (MaxProposals(3), 5),
            "limits.stoppers[1]: expected a stopper such as MaxProposals(30), or ",
        ),
        ((MaxProposals,), "limits.stoppers[0]: expected a stopper such as MaxProposals(30), or "),
        ((None,), "limits.stoppers[0]: expected a stopper such as MaxProposals(30), or "),
    ],
)
def test_what_is_no_stopper_is_refused_with_its_position(stoppers: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        config(stoppers=stoppers)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        *(
            (kind, value, f"{kind.__name__}: {name}: expected an integer of at least {least}")
            for kind, name, least in (
                (MaxProposals, "proposals", 1),
                (NoImprovement, "steps", 1),
                (MaxCandidates, "candidates", 2),
            )
            for value in (least - 1, 2.5, "3", True, None)
        ),
        *(
            (TargetScore, value, "TargetScore: score: expected a finite number, found")
            for value in (math.nan, math.inf, "0.5", True, None)
        ),
        (RequiredObjectives, {}, "RequiredObjectives: thresholds: expected at least one"),
        *(
            (RequiredObjectives, value, "RequiredObjectives: thresholds: expected ")
            for value in (0.9, "accuracy", {"a": "1"}, {"a": math.nan}, {1: 0.5}, {"": 1})
        ),
        *(
            (StopFile, value, "StopFile: path: expected the path of a file, found")
            for value in ("", None, 3)
        ),
    ],
)
def test_a_stopper_that_makes_no_sense_is_refused(
    kind: Callable[[Any], Stopper], value: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        kind(value)


# The stop file


def test_a_stop_file_of_an_earlier_run_is_removed_and_that_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("STOP", "HALT"):
        (folder / name).touch()
    bus, told = EventBus(), list[GepaStopFileRemoved]()
    bus.subscribe(GepaStopFileRemoved, told.append)
    run = Run(config(stoppers=(StopFile("STOP"), StopFile(folder / "NONE"))), event_bus=bus)
    run.plan()
    assert (folder / "STOP").exists()
    with caplog.at_level(logging.WARNING, logger="promptgraft"):
        assert run.start() == WHOLE
    assert [event.path for event in told] == ["STOP"]
    assert caplog.messages == ["removed the stop file `STOP` that an earlier run has left behind"]
    assert not (folder / "STOP").exists()
    assert (folder / "HALT").exists()


def test_what_cannot_be_a_stop_file_is_refused_before_the_first_call(folder: Path) -> None:
    (folder / "folder").mkdir()
    (folder / "essay").write_text("x" * 2_000)
    for name, message in (
        ("folder", "stop file: `folder` is a folder; name a file that is not there yet"),
        ("essay", "stop file: `essay` has 2000 bytes and may be needed; remove it or name"),
    ):
        run = Run(config(stoppers=(StopFile(name),)))
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
            run.start()
        assert run.task.calls == 0
    assert (folder / "essay").exists()


def test_a_link_that_leads_nowhere_is_a_stop_file_too(folder: Path) -> None:
    (folder / "STOP").symlink_to("nowhere")
    assert optimize(config(stoppers=(StopFile("STOP"),))) == WHOLE
    assert not (folder / "STOP").is_symlink()


@pytest.mark.parametrize("answers", [2, 8, 20])
def test_a_stop_file_ends_the_run_before_the_next_rollout(answers: int) -> None:
    journal = MemoryJournal()
    run = Run(
        config(stoppers=(StopFile("STOP"),)),
        task=after(answers, Path("STOP").touch),
        journal=journal,
    )
    result = run.start()
    assert (result.stop_reason, result.stop_detail) == (
        StopReason.STOP_FILE,
        "the stop file `STOP` is there",
    )
    assert run.task.calls == answers
    rest = Run(config(), journal=journal)
    assert rest.start() == WHOLE
    assert rest.task.calls == 84 - answers  # nothing that was answered is asked again


def test_a_stop_file_is_seen_though_the_adapter_knows_nothing_of_deadlines() -> None:
    calls: list[str] = []

    def touching(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        calls.append(example.id)
        if len(calls) == 4:
            Path("STOP").touch()
        return judge(example, response, session)

    settings = config(stoppers=(StopFile("STOP"),), feedback_fn=touching)
    result = GepaOptimizer(OptimizationContext(PlainAdapter()), settings).optimize(PROMPT)
    assert result.stop_reason is StopReason.STOP_FILE
    assert len(calls) == 4


def test_a_stop_file_ends_a_run_whose_calls_hang_and_keeps_what_was_answered() -> None:
    journal, hanging = MemoryJournal(), threading.Semaphore(0)

    def hang_but_twice(deadline: Deadline | None) -> None:
        assert deadline is not None
        assert deadline.cancellation is not None
        with task.lock:
            began.append(None)
            if len(began) <= 2:
                return
        told = threading.Event()
        undo = deadline.cancellation.listen(told.set)
        hanging.release()
        assert told.wait(timeout=20)
        undo()
        deadline.check()

    def owner() -> None:
        for _ in range(4):
            hanging.acquire(timeout=20)
        Path("STOP").touch()

    began: list[None] = []
    task = PaidAdapter(before=hang_but_twice)
    boss = threading.Thread(target=owner)
    boss.start()
    with ThreadPoolExecutor(6) as executor:
        settings = config(stoppers=(StopFile("STOP"),))
        result = paid_run(task, settings, journal=journal, executor=executor)
    boss.join()
    assert result.stop_reason is StopReason.STOP_FILE
    assert result.total_rollouts == 2
    resumed = PaidAdapter()
    assert paid_run(resumed, config(), journal=journal).scores_matrix == WHOLE.scores_matrix
    assert resumed.calls == 84 - 2


def test_a_stop_file_ends_a_run_while_it_reflects() -> None:
    def reflect(rendered: RenderedPrompt[object]) -> str:
        Path("STOP").touch()
        return instruction("Known words: w0")

    run = Run(config(stoppers=(StopFile("STOP"),)), reflection=reflect)
    result = run.start()
    assert (result.stop_reason, result.steps) == (StopReason.STOP_FILE, 1)
    assert run.reflection.calls == result.total_reflections == 1
    assert run.task.calls == 9


def test_a_cancellation_reaches_a_run_that_has_a_stop_file() -> None:
    cancellation = Cancellation()
    task = PaidAdapter(reply=after(9, lambda: cancellation.set("the owner came home")))
    settings = config(stoppers=(StopFile("STOP"),))
    result = paid_run(task, settings, cancellation=cancellation)
    assert (result.stop_reason, result.stop_detail) == (
        StopReason.CANCELLED,
        "the run was stopped: the owner came home",
    )
