"""Whose fault it is decides what becomes of a rollout, a reflection and the run."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from further import thorough
from optimizers.worlds import (
    OVERLOADED,
    REFUSED,
    RULES,
    Run,
    about,
    answer,
    asked,
    config,
    failing,
    judge,
    numbered,
    optimize,
    propose,
    records,
    section,
    with_output,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import (
    GepaExample,
    GepaResult,
    GepaRolloutCompleted,
    RolloutFeedback,
)
from promptgraft.errors import (
    BudgetExhaustedError,
    DeadlineExceededError,
    PromptRenderError,
)
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Deadline, Session, SessionProtocol
from promptgraft.search import RejectionReason, StopReason
from promptgraft.search.stops import FaultyStretch
from promptgraft.testing import FakeClock

Rendered = RenderedPrompt[object]


# The candidate's fault


def without_ledger(result: GepaResult) -> GepaResult:
    """Leave out what only a run without interruptions has: no call was made in vain."""
    return attrs.evolve(result, ledger=())


def test_a_fault_of_the_candidate_scores_zero_and_says_why() -> None:
    session = Session()
    task = failing(PromptRenderError("the block is broken"), about("w0", "w1"))
    result = optimize(task=task, session=session)
    first = session.select_all(GepaRolloutCompleted)[0].record
    assert first.score == 0.0
    assert first.feedback is not None
    assert first.feedback.feedback == "The answer could not be used: the block is broken"
    assert first.fault == "the block is broken"
    assert first.output_repr == "<no response>"
    assert result.unscored_rollouts == 0
    assert all(row[:2] == (0.0, 0.0) for row in result.scores_matrix)


def test_an_answer_that_does_not_parse_is_kept_in_the_record() -> None:
    session = Session()
    prompt = with_output(Literal["ok", "no"])
    optimize(prompt=prompt, task=lambda _: "perhaps", session=session, reflection=[""] * 99)
    first = session.select_all(GepaRolloutCompleted)[0].record
    assert first.score == 0.0
    assert first.output_repr == "perhaps"
    assert first.fault.startswith("answer: expected one of ok, no; found 'perhaps'")


# The provider's fault


def test_a_fault_of_the_provider_stays_unscored_and_out_of_every_mean() -> None:
    task = failing(OVERLOADED, lambda r: asked(r) == "w0")
    settings = config(minibatch_size=6, rollout_budget=300)
    run = Run(settings, task=task)
    result = run.start()
    assert all(row[0] is None for row in result.scores_matrix)
    assert None not in {score for row in result.scores_matrix for score in row[1:]}
    assert result.baseline_pareto_mean == 0.0
    assert result.best_pareto_mean == 1.0
    assert result.found_better
    assert result.stop_reason is not StopReason.PERFECT  # nobody knows about w0
    assert result.unscored_rollouts == sum(asked(r) == "w0" for r in run.task.requests) > 5
    assert result.total_rollouts == run.task.calls


@pytest.mark.parametrize("words", [("w0",), ("w0", "w1")])
def test_a_run_says_that_candidates_lacked_only_scores_to_win(words: tuple[str, ...]) -> None:
    task = failing(OVERLOADED, lambda r: asked(r) in words)
    settings = config(minibatch_size=6, rollout_budget=300, max_unscored_share=0.3)
    result = optimize(settings, task=task)
    assert result.found_better == (len(words) == 1)
    remarks = [remark for remark in result.remarks if "could not win" in remark]
    if result.found_better:
        assert remarks == []
        return
    [remark] = remarks
    assert remark.startswith(f"{len(result.candidates) - 1} candidates with a higher mean could")
    assert "more than 30% of the validation cases have no score (`e0`, `e1`)" in remark


def test_candidates_that_are_no_better_lack_more_than_scores() -> None:
    def judge_learning(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        # Nothing improves on the examples that candidates are compared on.
        is_compared = not example.id.endswith("-again")
        return judge(
            example, attrs.evolve(response, text="no") if is_compared else response, session
        )

    settings = config(
        minibatch_size=6, rollout_budget=300, max_unscored_share=0.3, feedback_fn=judge_learning
    )
    result = optimize(settings, task=failing(OVERLOADED, about("w0", "w1")))
    assert len(result.candidates) > 1
    assert not [remark for remark in result.remarks if "could not win" in remark]


def test_parent_and_child_are_compared_on_what_both_were_scored_on() -> None:
    # The parent fails where the child is good, the child where the parent is good.
    def task(rendered: Rendered) -> str:
        word, rules = asked(rendered), section(rendered, RULES).text
        if word == ("w0" if rules == "Known words:" else "w1"):
            raise OVERLOADED
        return "ok" if word == "w0" or (word == "w1" and rules == "Known words:") else "no"

    result = optimize(
        config(minibatch_size=6, target_section_paths=(RULES,), rollout_budget=24), task=task
    )
    assert [(r.reason, r.detail) for r in result.rejections] == [
        (RejectionReason.NOT_BETTER, "0.000 on its cases, the text before had 0.000")
    ]


def test_leaving_out_what_is_hard_makes_no_candidate_better() -> None:
    """The child fails where the baseline is bad; on what both were scored on, it is no better."""

    def task(rendered: Rendered) -> str:
        changed = section(rendered, RULES).text != "Known words:"
        if asked(rendered) == "w0":
            if changed and asked_for_comparison.pop():
                raise OVERLOADED
            return "ok" if changed else "no"
        return "ok"

    # w0 is asked once by the baseline, by the parent, by the child (which is good) ...
    # ... and by the child on the validation set, where the provider fails.
    asked_for_comparison = [True, False]
    settings = config(
        minibatch_size=6, target_section_paths=(RULES,), rollout_budget=24, persist=False
    )
    result = optimize(settings, task=task)
    assert result.accepted_mutations == 1
    assert result.scores_matrix == ((0.0, *[1.0] * 5), (None, *[1.0] * 5))
    assert not result.found_better
    assert result.best_index == 0
    assert result.best_pareto_mean == result.baseline_pareto_mean == pytest.approx(5 / 6)


def test_faults_of_the_provider_score_zero_on_request() -> None:
    session = Session()
    task = failing(OVERLOADED, about("w0"))
    result = optimize(config(on_error="zero"), task=task, session=session)
    assert all(row[0] == 0.0 for row in result.scores_matrix)
    assert result.unscored_rollouts == 0
    first = session.select_all(GepaRolloutCompleted)[0].record
    assert first.feedback is not None
    assert first.feedback.feedback == "The model's provider failed: 429: overloaded"


def test_a_judge_whose_provider_fails_leaves_the_rollout_unscored() -> None:
    def judge_by_model(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        if example.id == "e0":
            raise OVERLOADED
        return judge(example, response, session)

    session = Session()
    result = optimize(config(feedback_fn=judge_by_model), session=session)
    assert result.scores_matrix[0] == (None, *[0.0] * 5)
    first = session.select_all(GepaRolloutCompleted)[0].record
    assert first.output_repr == "no"
    assert first.fault == "429: overloaded"


@pytest.mark.parametrize(("share", "stops"), [(0.0, True), (0.1, True), (0.2, False), (1.0, False)])
def test_too_many_unscored_rollouts_stop_the_run(share: float, stops: bool) -> None:
    def fail_half(number: int, rendered: Rendered) -> str:
        if number < 10 and number % 2:  # 5 of the first 10, and none after them
            raise OVERLOADED
        return answer(rendered)

    settings = config(
        max_unscored_share=share, minibatch_size=4, pareto_set_size=6, rollout_budget=400
    )
    run = Run(settings, task=numbered(fail_half))
    result = run.start()
    assert (result.stop_reason is StopReason.PROVIDER_FAILED) is stops
    assert result.found_better is not stops
    assert result.unscored_rollouts == (3 if share == 0 else 5)
    if share == 0.1:
        assert result.stop_detail == (
            "5 of the latest 9 rollouts stayed unscored; the last: 429: overloaded"
        )
        assert run.task.calls == result.total_rollouts == 10


def test_one_fault_in_each_small_minibatch_stops_nothing_while_their_share_is_small() -> None:
    """One of three is more than the share of a batch, one of the nine of a step is not."""
    batches: list[int] = []

    def task(number: int, rendered: Rendered) -> str:
        if number % 9 == 0:
            batches.append(number)
            raise OVERLOADED
        return "no"

    result = optimize(config(rollout_budget=200, max_idle_steps=100), task=numbered(task))
    assert result.stop_reason is not StopReason.PROVIDER_FAILED
    assert len(batches) == result.unscored_rollouts > 10


def test_a_provider_that_dies_late_is_noticed_as_soon_as_one_that_never_lived() -> None:
    def task(number: int, rendered: Rendered) -> str:
        if number >= 90:
            raise OVERLOADED
        return "no"

    run = Run(config(rollout_budget=400, max_idle_steps=100), task=numbered(task))
    result = run.start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.unscored_rollouts == 6
    assert run.task.calls == result.total_rollouts == 96


def stops_after(share_of_faults: float, seed: int) -> int | None:
    """Return how many rollouts in batches of 3 a run survives, or None for all of a thousand."""
    chance = random.Random(seed)
    stretch = FaultyStretch(0.3)
    for batch in range(333):
        stretch.add([[chance.random() < share_of_faults for _ in range(3)]])
        if stretch.is_too_faulty:
            return 3 * batch + 3
    return None


def test_one_fault_in_ten_passes_and_four_in_ten_do_not() -> None:
    seeds = range(40)
    assert all(stops_after(0.1, seed) is None for seed in seeds)
    assert all((stops_after(0.4, seed) or 1000) <= 150 for seed in seeds)
    assert stops_after(1.0, 0) == 6


@given(st.lists(st.booleans(), max_size=60), st.sampled_from((0.1, 0.3, 0.5, 1.0)))
def test_the_stretch_that_is_watched_is_the_worst_that_ends_here(
    faults: list[bool], share: float
) -> None:
    stretch = FaultyStretch(share)
    stretch.add([faults])
    worst = max(
        sum(faults[start:]) - share * len(faults[start:]) for start in range(len(faults) + 1)
    )
    assert stretch.unscored - share * stretch.rollouts == pytest.approx(worst, abs=1e-9)


def test_a_provider_that_refuses_stops_the_run_with_the_best_so_far() -> None:
    def task(number: int, rendered: Rendered) -> str:
        if number == 60:
            raise REFUSED
        return answer(rendered)

    journal = MemoryJournal()
    run = Run(task=numbered(task), journal=journal)
    result = run.start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.stop_detail == "401: the key is not valid"
    assert result.found_better
    assert result.best_pareto_mean == max(
        sum(score or 0 for score in row) / 6 for row in result.scores_matrix
    )
    # The refused call is no rollout, and nothing is asked for after it.
    assert run.task.calls == 61
    assert result.total_rollouts == 60
    assert sum(record.kind == "rollout" for record in journal.records()) == 60

    rest = Run(journal=journal)
    assert without_ledger(rest.start()) == without_ledger(optimize())
    assert rest.task.calls == optimize().total_rollouts - 60


def test_a_refusal_side_by_side_keeps_what_the_others_answered() -> None:
    journal = MemoryJournal()
    task = failing(REFUSED, about("w3"))
    with ThreadPoolExecutor(6) as executor:
        run = Run(task=task, journal=journal, executor=executor)
        result = run.start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    kept = [found for found in journal.records() if found.kind == "rollout"]
    assert result.total_rollouts == len(kept) == run.task.calls - 1
    rest = Run(journal=journal)
    assert without_ledger(rest.start()) == without_ledger(optimize())
    assert rest.task.calls == optimize().total_rollouts - len(kept)


def test_a_provider_that_refuses_the_very_baseline_leaves_the_baseline_as_the_best() -> None:
    result = optimize(task=failing(REFUSED, lambda _: True))
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.best_index == 0
    assert result.scores_matrix == ((None,) * 6,)
    assert result.best_pareto_mean is result.baseline_pareto_mean is None
    assert not result.found_better
    assert result.steps == result.total_rollouts == 0


def test_faults_that_stopped_a_run_are_asked_for_again() -> None:
    journal = MemoryJournal()
    down = failing(OVERLOADED, about("w0", "w1", "w2"))
    first = Run(config(max_unscored_share=0), task=down, journal=journal)
    assert first.start().stop_reason is StopReason.PROVIDER_FAILED
    kept = {record.key for record in journal.records() if record.kind != "spent"}
    assert kept == {"base", "baseline/3", "baseline/4", "baseline/5"}
    second = Run(journal=journal)
    assert without_ledger(second.start()) == without_ledger(optimize())
    assert [asked(r) for r in second.task.requests[:3]] == ["w0", "w1", "w2"]


@pytest.mark.parametrize(
    ("preset", "dead_from", "workers"),
    [
        *(("lean", 3, 0), ("lean", 28, 0)),
        *(("paper", 4, 4), ("paper", 41, 4)),
        *thorough([("lean", 0, 4), ("lean", 7, 4), ("paper", 1, 0), ("paper", 15, 0)]),
    ],
)
def test_a_run_whose_provider_died_ends_like_a_healthy_one_when_it_is_back(
    preset: str, dead_from: int, workers: int
) -> None:
    """Nothing is taken for unscored that no answer came after."""
    calls = 0

    def dying(rendered: Rendered) -> str:
        nonlocal calls
        calls += 1
        if calls > dead_from:
            raise OVERLOADED
        return answer(rendered)

    def reflect(rendered: Rendered) -> str:
        if calls > dead_from:
            raise OVERLOADED
        return propose(rendered)

    journal, settings = MemoryJournal(), config(preset=preset, rollout_budget=90)
    first = Run(settings, task=dying, reflection=reflect, journal=journal)
    assert first.start().stop_reason is StopReason.PROVIDER_FAILED
    assert [record.key for record in journal.records() if record.kind == "fault"] == []
    with ThreadPoolExecutor(workers) if workers else nullcontext() as executor:
        second = Run(settings, journal=journal, executor=executor)
        healthy = optimize(settings)
        assert without_ledger(second.start()) == without_ledger(healthy)
    # What is paid for is not paid for again.
    assert second.task.calls == healthy.total_rollouts - dead_from


def test_faults_of_a_run_that_went_on_are_answers() -> None:
    journal = MemoryJournal()
    task = failing(OVERLOADED, about("w0"))
    settings = config(minibatch_size=6)
    first = Run(settings, task=task, journal=journal)
    result = first.start()
    kinds = {key: record.kind for key, record in records(journal).items()}
    assert kinds["baseline/0"] == "fault"
    assert kinds["baseline/1"] == "rollout"
    faults = sum(kind == "fault" for kind in kinds.values())
    assert faults == result.unscored_rollouts
    again = Run(settings, journal=journal)  # with a provider that works by now
    assert again.start() == result
    assert again.task.calls == again.reflection.calls == 0


def test_a_fault_before_the_last_garbage_is_an_answer_too() -> None:
    journal = MemoryJournal()
    settings = config(minibatch_size=6)
    task = failing(OVERLOADED, about("w0"))
    first = Run(settings, task=task, reflection=lambda _: "", journal=journal)
    result = first.start()
    assert result.stop_reason is StopReason.REFLECTION_FAILED
    faults = [key for key, found in records(journal).items() if found.kind == "fault"]
    assert [key.rpartition("/")[0] for key in faults] == [
        "baseline",
        *(f"step/{step}/parent" for step in range(1, 6)),
    ]
    again = Run(settings, journal=journal)
    assert again.start() == result
    assert again.task.calls == again.reflection.calls == 0


# Out of time


def after(seconds: int, clock: FakeClock, reply: Callable[[Rendered], str]) -> Any:
    """Answer, one second a call; return the reply and the deadline."""

    def slow(rendered: Rendered) -> str:
        clock.advance(1)
        return reply(rendered)

    return slow, Deadline.after(seconds, clock=clock)


@pytest.mark.parametrize("seconds", [7, 20, 63, *thorough([9, 11, 40])])
def test_a_deadline_stops_the_run_with_the_best_so_far(seconds: int) -> None:
    clock, journal = FakeClock(), MemoryJournal()
    task, deadline = after(seconds, clock, answer)
    run = Run(task=task, deadline=deadline, journal=journal)
    result = run.start()
    assert result.stop_reason is StopReason.DEADLINE
    assert result.stop_detail == "the deadline of the run has passed"
    assert run.task.calls == result.total_rollouts == seconds
    whole = optimize()
    accepted = len(result.candidates)
    assert result.candidates == whole.candidates[:accepted]
    assert result.scores_matrix == whole.scores_matrix[:accepted]
    assert result.found_better == (accepted > 1)
    rest = Run(journal=journal)
    assert rest.start() == whole
    assert rest.task.calls == whole.total_rollouts - seconds


def test_a_deadline_in_the_very_baseline_leaves_the_baseline_as_the_best() -> None:
    task, deadline = after(4, FakeClock(), answer)
    result = optimize(task=task, deadline=deadline)
    assert result.stop_reason is StopReason.DEADLINE
    assert result.total_rollouts == 4
    assert result.candidates[0].section_bodies == {}
    assert result.baseline_pareto_mean is None
    assert not result.found_better


def test_a_deadline_between_two_steps_is_kept_without_an_adapter_that_looks_at_it() -> None:
    clock = FakeClock()
    task, deadline = after(18, clock, answer)  # the baseline and one accepted step
    run = Run(task=task, deadline=deadline)
    result = run.start()
    assert result.stop_reason is StopReason.DEADLINE
    assert (result.steps, result.accepted_mutations) == (1, 1)


def test_a_reflection_that_runs_out_of_time_stops_the_run() -> None:
    def late(rendered: Rendered) -> str:
        raise DeadlineExceededError("the deadline passed during the call")

    result = optimize(reflection=late)
    assert result.stop_reason is StopReason.DEADLINE
    assert result.stop_detail == "the deadline passed during the call"
    assert result.total_reflections == 0


def test_an_adapter_that_is_out_of_budget_stops_the_run_cleanly() -> None:
    def poor(number: int, rendered: Rendered) -> str:
        if number == 30:
            raise BudgetExhaustedError("no money is left")
        return answer(rendered)

    result = optimize(task=numbered(poor))
    assert (result.stop_reason, result.stop_detail) == (StopReason.BUDGET, "no money is left")
    assert result.total_rollouts == 30
