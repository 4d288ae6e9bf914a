"""Proposals and steps under way at the same time: faster with workers, the same with any."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, ParamSpec, TypeVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from further import thorough
from optimizers.worlds import (
    OVERLOADED,
    Run,
    about,
    answer,
    answers,
    config,
    current_text,
    failing,
    instruction,
    judge,
    numbered,
    optimize,
    propose,
    twins,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaConfig,
    GepaExample,
    GepaMutationProposed,
    GepaOptimizationCompleted,
    GepaResult,
    GepaRolloutCompleted,
    GepaWorking,
    RolloutFeedback,
)
from promptgraft.errors import (
    BudgetExhaustedError,
    ConfigError,
    FeedbackError,
    JournalMismatchError,
)
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runs import RunHistory
from promptgraft.runtime import Cancellation, EventBus, Session, SessionProtocol
from promptgraft.search import RejectionReason, StopReason
from promptgraft.search.events import Event
from promptgraft.search.stopping import MaxProposals, TargetScore
from promptgraft.search.validation import Racing
from settings_leaves import evolved

P = ParamSpec("P")
T = TypeVar("T")
Rendered = RenderedPrompt[object]

LONG_ENOUGH = 60  # seconds until a test that hangs is given up


def overlapping(k: int = 3, g: int = 1, **changes: Any) -> GepaConfig:
    """Return a search with proposals of every fate; 12 examples to compare on.

    ``k`` proposals in each step, ``g`` steps at once.
    """
    sizes: dict[str, Any] = {"training_examples": twins(12), "pareto_set_size": 12}
    common: dict[str, Any] = {"preset": "lean", "rollout_budget": 160, "minibatch_growth": 1}
    at_once = {"proposals_per_step": k, "steps_at_once": g}
    return config(**(common | sizes | at_once | changes))


def moody(rendered: Rendered) -> str:
    """Propose something useful, something useless, or nothing, as the question decides."""
    mood = random.Random(rendered.text).randrange(4)
    return (instruction(f"{current_text(rendered)} x"), "hm", *[propose(rendered)] * 2)[mood]


flaky = failing(OVERLOADED, about("w11"))


class Lottery(Executor):
    """Workers that take any of the waiting tasks, as ``seed`` decides."""

    def __init__(self, workers: int, seed: int) -> None:
        self._threads = ThreadPoolExecutor(workers)
        self._random = random.Random(seed)
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        def task() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)
                raise

        with self._lock:
            self._waiting.append(task)
        self._threads.submit(self._draw)
        return future

    def _draw(self) -> None:
        with self._lock:
            task = self._waiting.pop(self._random.randrange(len(self._waiting)))
        task()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)


@attrs.frozen
class Outcome:
    """Everything that a run leaves behind."""

    result: GepaResult
    answers: dict[str, Json]
    events: tuple[object, ...]


def outcome(settings: GepaConfig, executor: Executor | None, **changes: Any) -> Outcome:
    journal, session = MemoryJournal(), Session()
    surroundings = {"task": flaky, "reflection": moody} | changes
    result = optimize(settings, journal=journal, session=session, executor=executor, **surroundings)
    return Outcome(result, answers(journal), session.select_all(object))


@contextmanager
def workers(count: int) -> Iterator[Executor | None]:
    """Give so many workers; at the end nobody works any more."""
    before = set(threading.enumerate())
    if not count:
        yield None
    else:
        with ThreadPoolExecutor(count) as executor:
            yield executor
    assert set(threading.enumerate()) <= before


STRATEGIES = [
    {},
    {"preset": "paper", "rollout_budget": 200, "enable_merge": True, "history_top_k": 1},
    {"enable_merge": True, "max_reflections": 11},
    {"stoppers": (MaxProposals(7),)},
]


@pytest.mark.parametrize(
    ("k", "g", "changes"),
    [
        (4, 2, STRATEGIES[0]),
        (3, 1, STRATEGIES[1]),
        *thorough([(1, 2, STRATEGIES[1]), (2, 3, STRATEGIES[2]), (8, 1, STRATEGIES[3])]),
    ],
)
def test_neither_workers_nor_the_order_of_answers_change_the_outcome(
    k: int, g: int, changes: dict[str, Any]
) -> None:
    settings = overlapping(k, g, **changes)
    in_turn = outcome(settings, None)
    assert in_turn.result.total_rollouts <= settings.budget
    with workers(16) as executor:
        assert outcome(settings, executor) == in_turn
    with Lottery(5, seed=k) as lottery:
        assert outcome(settings, lottery) == in_turn


def test_what_is_made_sure_of_beside_other_steps_does_not_depend_on_workers() -> None:
    """The budget pays for it when steps under way have used little, and not for all they may."""
    settings = overlapping(
        2,
        2,
        seed=262,
        training_examples=twins(30),
        pareto_set_size=30,
        rollout_budget=182,
        validation=Racing(first=2, every=2),
        stoppers=(TargetScore(0.05),),
    )
    in_turn = outcome(settings, None, task=answer)
    with workers(4) as executor:
        assert outcome(settings, executor, task=answer) == in_turn


def test_a_search_goes_on_to_the_end_with_proposals_of_every_fate() -> None:
    result = outcome(overlapping(8, seed=3), None).result
    assert result.found_better
    assert result.unscored_rollouts
    assert result.accepted_mutations > 3
    assert len({rejection.reason for rejection in result.rejections}) > 2


class Together:
    """Answers as usual, once so many calls are under way at the same time."""

    def __init__(self, first: int, together: int) -> None:
        self._first = first
        self._barrier = threading.Barrier(together, timeout=LONG_ENOUGH)
        self._lock = threading.Lock()
        self._together = together
        self._calls = 0

    def __call__(self, rendered: Rendered) -> str:
        with self._lock:
            self._calls += 1
            held = self._first < self._calls <= self._first + self._together
        if held:
            self._barrier.wait()
        return answer(rendered)


class Counted:
    """Answers as usual, and knows the most calls that were under way at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __call__(self, rendered: Rendered) -> str:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return answer(rendered)
        finally:
            with self._lock:
                self._now -= 1


def test_sixteen_workers_are_busy_when_eight_proposals_are_under_way() -> None:
    settings = config(proposals_per_step=8, rollout_budget=200)
    with workers(16) as executor:  # the baseline takes six calls
        optimize(settings, task=Together(6, 16), executor=executor)
    counted = Counted()
    with workers(16) as executor:
        optimize(config(rollout_budget=200), task=counted, executor=executor)
    assert counted.most <= 6


@pytest.mark.parametrize(("k", "g"), [(4, 1), (1, 5), (2, 3)])
def test_reflections_of_different_proposals_are_made_side_by_side(k: int, g: int) -> None:
    together = threading.Barrier(4, timeout=LONG_ENOUGH)
    first = iter(range(4))

    def reply(rendered: Rendered) -> str:
        if next(first, None) is not None:
            together.wait()
        return propose(rendered)

    settings = config(proposals_per_step=k, steps_at_once=g)
    with workers(2) as executor:
        assert optimize(settings, reflection=reply, executor=executor).found_better


def test_a_step_knows_what_was_committed_before_it_began() -> None:
    session = Session()
    optimize(overlapping(2, 4, perfect_score=2), session=session)
    proposed = session.select_all(GepaMutationProposed)
    parents = {event.step: event.parent for event in proposed}
    # Three make proposals at the same time; the fourth begins from what is about to race.
    assert {parents[step] for step in range(1, 4)} == {0}
    assert parents[4] == 1


def test_events_are_told_in_the_order_of_steps_and_only_notices_at_once() -> None:
    session, bus, noticed = Session(), EventBus(), list[GepaWorking]()
    bus.subscribe(GepaWorking, noticed.append)
    with workers(16) as executor:
        result = optimize(overlapping(2, 4), session=session, event_bus=bus, executor=executor)
    rollouts = session.select_all(GepaRolloutCompleted)
    assert [event.total_rollouts for event in rollouts] == [*range(1, result.total_rollouts + 1)]
    steps = [
        int(event.position.split("/")[1]) for event in rollouts if event.position[:4] == "step"
    ]
    assert steps == sorted(steps)
    seen = [int(one.position.split("/")[1]) for one in noticed if one.position[:4] == "step"]
    assert seen != sorted(seen)


def test_what_is_shown_of_a_run_never_goes_back() -> None:
    bus, progress, states = EventBus(), RunHistory(), list[tuple[int, int]]()

    def show(event: object) -> None:
        if isinstance(event, Event):
            progress.add(event)
        states.append((progress.steps, progress.rollouts))

    bus.subscribe(object, show)
    with workers(16) as executor:
        result = optimize(overlapping(2, 4), event_bus=bus, executor=executor)
    steps, rollouts = zip(*states, strict=True)
    assert list(steps) == sorted(steps)
    assert list(rollouts) == sorted(rollouts)
    assert progress.rollouts == result.total_rollouts


@pytest.mark.parametrize(("k", "g", "twins_of"), [(3, 1, (1, 1)), *thorough([(1, 4, (2, 3))])])
def test_a_text_that_another_proposal_has_tried_is_refused_when_it_is_committed(
    k: int, g: int, twins_of: tuple[int, int]
) -> None:
    def same(rendered: Rendered) -> str:
        return instruction("Known words: w0 w1 w2 w3 w4 w5")

    result = optimize(
        config(
            proposals_per_step=k,
            steps_at_once=g,
            target_section_paths=(("rules",),),
            perfect_score=2,
            rollout_budget=300,
        ),
        reflection=same,
    )
    reasons = [(one.step, one.reason) for one in result.rejections if one.final][:2]
    assert reasons == [(step, RejectionReason.DUPLICATE) for step in twins_of]
    assert result.accepted_mutations == 1
    assert result.stop_reason is StopReason.NO_PROGRESS


@pytest.mark.parametrize(("k", "g", "limit"), [(1, 2, 2), (2, 3, 5), (7, 1, 1), (7, 1, 8)])
def test_reflections_are_used_up_exactly(k: int, g: int, limit: int) -> None:
    with workers(16) as executor:
        settings = overlapping(k, g, max_reflections=limit)
        run = Run(settings, reflection=moody, executor=executor)
        result = run.start()
    assert result.stop_reason is StopReason.REFLECTIONS
    assert result.total_reflections == run.reflection.calls == limit


@pytest.mark.parametrize(
    ("k", "g", "limits"),
    [
        (3, 1, {"max_reflections": 5}),
        (1, 2, {"max_idle_steps": 1, "max_failed_reflections": 1}),
        *thorough([(2, 3, {"stoppers": (MaxProposals(4),)}), (2, 2, {"rollout_budget": 120})]),
    ],
)
def test_with_higher_limits_a_run_goes_on_and_ends_like_one_without(
    k: int, g: int, limits: dict[str, Any]
) -> None:
    unlimited = overlapping(k, g, enable_merge=True, rollout_budget=220)
    whole = optimize(unlimited, reflection=moody)
    journal = MemoryJournal()
    with workers(4) as executor:
        first = optimize(
            evolved(unlimited, **limits),
            reflection=moody,
            journal=journal,
            executor=executor,
        )
    assert first.steps < whole.steps
    second = Run(unlimited, reflection=moody, journal=journal)
    assert second.start() == whole
    assert second.task.calls < whole.total_rollouts


@pytest.mark.parametrize(("k", "g", "seed"), [(2, 2, 1), *thorough([(1, 1, 1)])])
def test_a_merge_that_is_not_paid_for_is_made_with_a_larger_budget(
    k: int, g: int, seed: int
) -> None:
    sizes: dict[str, Any] = {"training_examples": twins(20), "pareto_set_size": 20}
    merging = {"exploration": 1.0, "enable_merge": True, "minibatch_size": 3, "perfect_score": 2}
    whole = overlapping(k, g, seed=seed, rollout_budget=200, **sizes, **merging)
    small = attrs.evolve(whole, rollout_budget=140)
    journal = MemoryJournal()
    first = optimize(small, reflection=moody, journal=journal)
    assert "are to be merged, which takes" in first.stop_detail
    again = optimize(whole, reflection=moody, journal=journal)
    assert again == optimize(whole, reflection=moody)
    assert again.total_rollouts > first.total_rollouts


def unpaid(value: object) -> object:
    """Return a result, or an event, without the calls that were paid for."""
    if isinstance(value, GepaResult):
        return attrs.evolve(value, ledger=())
    if isinstance(value, GepaOptimizationCompleted):
        return replace(value, ledger=(), cost=None)
    if isinstance(value, GepaCandidateAdded):
        return replace(value, tokens=0, cost=None)
    return value


class KilledError(BaseException):
    """The process is no more."""


class Mortal(MemoryJournal):
    """Whoever records an answer too many is killed, and so are all after that."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = 0

    def _store(self, lines: Mapping[str, bytes]) -> None:
        for key, line in lines.items():  # a crash keeps the first few of several
            if self.lives <= 0:
                raise KilledError
            self.lives -= 1
            super()._store({key: line})


PAIRS = ((1, 2), (3, 1), (2, 3), (4, 2), (8, 1))


@given(st.integers(0, 2**16), st.sampled_from(PAIRS), st.booleans(), st.sampled_from((0, 1, 4)))
@settings(max_examples=2, deadline=None)
def test_killed_twice_and_resumed_it_ends_the_same(
    seed: int, pair: tuple[int, int], merge: bool, count: int
) -> None:
    chance = random.Random(seed)
    chosen = overlapping(*pair, seed=seed, enable_merge=merge, rollout_budget=120)
    whole = outcome(chosen, None)
    journal, session = Mortal(), Session()
    with Lottery(count, seed) if count else nullcontext() as executor:
        for part in (len(whole.answers), len(whole.answers) // 2):
            journal.lives = chance.randrange(1, part)
            with suppress(KilledError):
                optimize(chosen, task=flaky, reflection=moody, journal=journal, executor=executor)
        journal.lives = 1000
        again = Run(
            chosen,
            task=flaky,
            reflection=moody,
            journal=journal,
            executor=executor,
            session=session,
        )
        assert unpaid(again.start()) == unpaid(whole.result)
    # Faults that were held back when the process died were asked for again, and paid again.
    kept = {key: one for key, one in answers(journal).items() if "/spent/" not in key}
    assert kept == {key: one for key, one in whole.answers.items() if "/spent/" not in key}
    assert list(map(unpaid, session.select_all(object))) == list(map(unpaid, whole.events))


class Gate:
    """Answers as usual until a call; from then on calls hang until they are let go."""

    def __init__(self, after: int, reached: Callable[[], None]) -> None:
        self._after = after
        self._reached = reached
        self._calls = 0
        self._lock = threading.Lock()
        self.opened = threading.Event()

    def __call__(self, rendered: Rendered) -> str:
        with self._lock:
            self._calls += 1
            calls = self._calls
        if calls == self._after:
            self._reached()
        if calls >= self._after:
            assert self.opened.wait(LONG_ENOUGH)
        return answer(rendered)


def test_a_cancelled_run_leaves_hanging_calls_behind_and_writes_nothing_more() -> None:
    cancellation, journal = Cancellation(), MemoryJournal()
    gate = Gate(30, lambda: cancellation.set("enough"))
    chosen = overlapping(2, 2)
    whole = optimize(chosen)
    with workers(8) as executor:
        result = optimize(
            chosen,
            task=gate,
            cancellation=cancellation,
            journal=journal,
            executor=executor,
        )
        assert result.stop_reason is StopReason.CANCELLED
        assert not [one for one in threading.enumerate() if "promptgraft-step" in one.name]
        written = len(journal)
        gate.opened.set()
    assert len(journal) == written
    assert unpaid(optimize(chosen, journal=journal)) == unpaid(whole)


@pytest.mark.parametrize(("k", "g", "count"), [(4, 1, 0), (2, 3, 4), *thorough([(4, 1, 4)])])
def test_a_feedback_function_that_raises_ends_the_run_and_keeps_the_answers(
    k: int, g: int, count: int
) -> None:
    journal, lock = MemoryJournal(), threading.Lock()
    calls = iter(range(1000))

    def breaks(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        with lock:
            if next(calls) == 40:
                raise ValueError("no such label")
        return judge(example, response, session)

    chosen = overlapping(k, g)
    with workers(count) as executor, pytest.raises(FeedbackError, match="no such label"):
        optimize(attrs.evolve(chosen, feedback_fn=breaks), journal=journal, executor=executor)
    assert len(journal) > 30
    resumed = optimize(chosen, journal=journal, reuse_scores=True)
    alone = optimize(chosen)
    assert unpaid(attrs.evolve(resumed, run_id=alone.run_id)) == unpaid(alone)


def down(number: int, rendered: Rendered) -> str:
    if number >= 60:
        raise OVERLOADED
    return answer(rendered)


@pytest.mark.parametrize(("k", "g"), [(4, 1), *thorough([(1, 3)])])
def test_a_fault_of_a_provider_ends_the_run_when_its_step_is_committed(k: int, g: int) -> None:
    # The batches are large, so that the first one without an answer ends the run.
    large = overlapping(k, g, validation=Racing(first=12), minibatch_size=8)
    journal = MemoryJournal()
    result = optimize(large, task=numbered(down), journal=journal)
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert unpaid(optimize(large, journal=journal)) == unpaid(optimize(large))


@pytest.mark.parametrize(("k", "g", "count"), [(4, 1, 0), (2, 3, 8), *thorough([(4, 1, 8)])])
def test_a_run_that_a_provider_ended_in_small_batches_goes_on_when_it_is_back(
    k: int, g: int, count: int
) -> None:
    journal, chosen = MemoryJournal(), overlapping(k, g)
    with workers(count) as executor:
        result = optimize(chosen, task=numbered(down), journal=journal, executor=executor)
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    # Steps that went on without a few answers keep to that; what ended the run is asked again.
    resumed = Run(chosen, journal=journal)
    ended = resumed.start()
    assert ended.stop_reason is StopReason.BUDGET
    assert ended.unscored_rollouts < result.unscored_rollouts
    if not count:  # else some answers came when nobody waited for them any more
        assert resumed.task.calls + 60 + ended.unscored_rollouts == ended.total_rollouts


def test_what_steps_have_used_that_are_given_up_is_part_of_the_budget() -> None:
    """An adapter says that its budget is used up, but answers again: the finals are paid for."""

    def reply(number: int, rendered: Rendered) -> str:
        if number == 7:
            raise BudgetExhaustedError("no more", limit="theirs")
        return moody(rendered)

    settings = overlapping(2, 3, rollout_budget=130)
    with workers(4) as executor:
        run = Run(settings, reflection=numbered(reply), executor=executor)
        result = run.start()
    assert result.stop_reason is StopReason.BUDGET
    assert run.task.calls == result.total_rollouts <= 130


def test_what_steps_might_have_used_that_are_given_up_is_not_kept_from_the_finals() -> None:
    def reply(number: int, rendered: Rendered) -> str:
        if number == 3:
            raise BudgetExhaustedError("no more", limit="theirs")
        return moody(rendered)

    result = optimize(overlapping(2, 3, rollout_budget=60), reflection=numbered(reply))
    assert (result.stop_reason, result.stop_detail) == (StopReason.BUDGET, "no more")
    assert None not in (*result.scores_matrix[0], *result.scores_matrix[result.best_index])


def test_what_is_under_way_belongs_to_the_fingerprint_of_a_run() -> None:
    journal = MemoryJournal()
    optimize(overlapping(2, 2), journal=journal)
    with pytest.raises(
        JournalMismatchError, match=r"`strategy\.proposals_per_step` is 2 in the journal"
    ):
        optimize(overlapping(3, 2), journal=journal)
    with pytest.raises(
        JournalMismatchError, match=r"`strategy\.steps_at_once` is 2 in the journal"
    ):
        optimize(overlapping(2, 1), journal=journal)


@pytest.mark.parametrize("name", ["proposals_per_step", "steps_at_once"])
@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2"])
def test_there_is_at_least_one_under_way(name: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=rf"^strategy\.{name}: expected an integer of at least 1"):
        config(**{name: wrong})


@pytest.mark.parametrize(("k", "g"), [(4, 1), *thorough([(1, 4)])])
def test_modules_still_take_turns(k: int, g: int) -> None:
    session, more = Session(), {"preset": "paper", "perfect_score": 2, "rollout_budget": 200}
    optimize(overlapping(k, g, **more), session=session)
    modules = Counter(event.module for event in session.select_all(GepaMutationProposed))
    assert max(modules.values()) - min(modules.values()) <= 2


def test_a_race_with_overlapping_steps_compares_what_both_were_tried_on() -> None:
    settings = overlapping(
        2,
        3,
        training_examples=twins(40),
        pareto_set_size=40,
        rollout_budget=500,
        perfect_score=2,
    )
    result = optimize(settings)
    assert result.found_better
    assert None not in result.scores_matrix[result.best_index]
    assert any(None in row for row in result.scores_matrix)
    assert result.total_rollouts <= 500


def test_the_best_candidate_is_tried_once_on_each_example() -> None:
    session = Session()
    races = Racing(first=2, every=1)
    result = optimize(overlapping(2, 3, validation=races, rollout_budget=300), session=session)
    made = found = 0
    scores: dict[int, int] = {}
    for event in session.select_all(object):
        if isinstance(event, GepaRolloutCompleted):
            # What the last step makes is told of with the finals.
            before = not event.position.startswith((f"step/{result.steps}/", "final/"))
            made += before and "/pareto/best/" in event.position
        elif isinstance(event, GepaCandidateAdded):
            scores[event.candidate] = len(event.scores) - event.scores.count(None)
        elif isinstance(event, GepaCandidateScored) and event.step < result.steps:
            known = len(event.scores) - event.scores.count(None)
            found += known - scores[event.candidate]
            scores[event.candidate] = known
    assert made == found > 0
