"""Hard limits: money, tokens, reflections, time, and somebody who wants to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from optimizers.paid import CENT, PaidAdapter
from optimizers.worlds import PROMPT, PlainAdapter, about, answer, asked, config, propose
from promptgraft.algorithms.gepa import GepaConfig, GepaOptimizer, GepaResult
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Cancellation, Deadline
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.testing import FakeClock

AMOUNT = "US dollars above 0 and of at most 1,000,000,000, such as 2.50"


def run(task: Any, settings: GepaConfig, **surroundings: Any) -> GepaResult:
    thinker = PaidAdapter(reply=propose, identity="thinker")
    context = OptimizationContext(task, reflection_adapter=thinker, **surroundings)
    return GepaOptimizer(context, settings).optimize(PROMPT)


UNLIMITED = run(PaidAdapter(), config())


@pytest.mark.parametrize("cents", [1, 3, 6, 7, 12, 20])
def test_money_is_a_hard_stop(cents: int) -> None:
    result = run(PaidAdapter(), config(max_cost=cents * CENT))
    assert result.stop_reason is StopReason.COST
    assert result.stop_detail == (
        f"max_cost: {cents / 100:.4f} of 0.{cents:02} US dollars are used or reserved"
    )
    assert result.total_cost == cents * CENT


@pytest.mark.parametrize("tokens", [1, 10, 55, 60, 200])
def test_tokens_are_a_hard_stop(tokens: int) -> None:
    result = run(PaidAdapter(), config(max_tokens=tokens))
    assert result.stop_reason is StopReason.TOKENS
    used = sum(e.usage.input_tokens + e.usage.output_tokens for e in result.ledger)
    assert tokens <= used < tokens + 10  # one call in flight


@pytest.mark.parametrize("reflections", [1, 2, 3])
def test_reflections_are_a_hard_stop(reflections: int) -> None:
    result = run(PaidAdapter(), config(max_reflections=reflections))
    assert result.stop_reason is StopReason.REFLECTIONS
    assert result.stop_detail == f"max_reflections: {reflections} of {reflections} are used"
    assert result.total_reflections == reflections


def test_money_holds_side_by_side_within_the_calls_in_flight() -> None:
    workers = 6
    together = threading.Barrier(workers)
    with ThreadPoolExecutor(workers) as executor:
        # The worst case: every call of the baseline begins before any of them has ended.
        def begin(deadline: Deadline | None) -> None:
            together.wait(timeout=20)

        task = PaidAdapter(before=begin)
        result = run(task, config(max_cost=CENT), executor=executor)
    assert result.stop_reason is StopReason.COST
    assert result.total_cost == workers * CENT
    assert task.calls == workers


@pytest.mark.parametrize(
    "limits",
    [{"max_cost": 8 * CENT}, {"max_tokens": 70}, {"max_reflections": 1}],
    ids=["money", "tokens", "reflections"],
)
def test_a_run_goes_on_with_a_higher_limit_and_ends_like_one_without(
    limits: dict[str, object],
) -> None:
    journal = MemoryJournal()
    first = run(PaidAdapter(), config(**limits), journal=journal)
    assert first.stop_reason in (StopReason.COST, StopReason.TOKENS, StopReason.REFLECTIONS)
    task = PaidAdapter()
    second = run(task, config(), journal=journal)
    assert second == UNLIMITED
    assert task.calls < UNLIMITED.total_rollouts


def test_a_limit_below_what_was_spent_ends_a_resumed_run_without_a_call() -> None:
    journal = MemoryJournal()
    run(PaidAdapter(), config(), journal=journal)
    task = PaidAdapter()
    result = run(task, config(max_cost=2 * CENT), journal=journal)
    assert result.stop_reason is StopReason.COST
    assert task.calls == 0


def test_a_model_of_unknown_price_ends_a_run_with_a_limit_in_money() -> None:
    result = run(PlainAdapter(), config(max_cost=1))
    assert result.stop_reason is StopReason.COST
    assert "a call of `task` has no known cost" in result.stop_detail


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_cost": 0}, f"limits.max_cost: expected {AMOUNT}, found"),
        ({"max_cost": "-1"}, f"limits.max_cost: expected {AMOUNT}, found"),
        (
            {"max_cost": "much"},
            f"limits.max_cost: expected {AMOUNT}, found 'much'",
        ),
        (
            {"max_cost": True},
            f"limits.max_cost: expected {AMOUNT}, found True",
        ),
        (
            {"max_cost": float("nan")},
            f"limits.max_cost: expected {AMOUNT}, found",
        ),
        ({"max_tokens": 0}, "limits.max_tokens: expected an integer of at least 1, found 0"),
        ({"max_tokens": 1.5}, "limits.max_tokens: expected an integer of at least 1, found 1.5"),
        (
            {"max_reflections": False},
            "limits.max_reflections: expected an integer of at least 1, found",
        ),
        ({"timeout": 0}, "limits.timeout: expected seconds above 0, found 0"),
        ({"timeout": "1h"}, "limits.timeout: expected seconds above 0, found '1h'"),
        ({"timeout": float("nan")}, "limits.timeout: expected seconds above 0, found nan"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        config(**limits)


def test_money_may_be_written_as_any_number() -> None:
    assert (
        config(max_cost=0.1).limits.max_cost
        == config(max_cost="0.1").limits.max_cost
        == Decimal("0.1")
    )


# Time and cancellation


def test_a_timeout_is_a_deadline_from_the_start_of_the_run() -> None:
    clock = FakeClock()

    def slow(rendered: RenderedPrompt[object]) -> str:
        clock.advance(1)
        return answer(rendered)

    far = Deadline.after(1_000, clock=clock)
    result = run(PaidAdapter(reply=slow), config(timeout=10), deadline=far)
    assert result.stop_reason is StopReason.DEADLINE
    assert clock.monotonic() == 10


def cancelling(word: str, cancellation: Cancellation) -> Callable[[RenderedPrompt[object]], str]:
    def reply(rendered: RenderedPrompt[object]) -> str:
        if about(word)(rendered):
            cancellation.set("the owner came home")
        return answer(rendered)

    return reply


def test_a_second_cancellation_is_refused_and_a_parent_is_heard() -> None:
    owner, guest = Cancellation(), Cancellation()
    with pytest.raises(ConfigError, match=r"the deadline has a cancellation already.*parent"):
        run(PaidAdapter(), config(), cancellation=guest, deadline=Deadline(cancellation=owner))
    owner.set("the owner came home")
    both = Deadline(cancellation=Cancellation(owner))
    result = run(PaidAdapter(), config(), deadline=both)
    assert result.stop_detail == "the run was stopped: the owner came home"


@pytest.mark.parametrize("word", ["w0", "w5"])
def test_a_cancelled_run_ends_with_the_best_so_far_and_can_be_resumed(word: str) -> None:
    cancellation, journal = Cancellation(), MemoryJournal()
    task = PaidAdapter(reply=cancelling(word, cancellation))
    result = run(task, config(), cancellation=cancellation, journal=journal)
    assert result.stop_reason is StopReason.CANCELLED
    assert result.stop_detail == "the run was stopped: the owner came home"
    assert run(PaidAdapter(), config(), journal=journal) == UNLIMITED


def test_a_cancelled_run_is_told_while_its_calls_hang() -> None:
    cancellation, journal = Cancellation(), MemoryJournal()
    hanging = threading.Semaphore(0)

    def hang(deadline: Deadline | None) -> None:
        assert deadline is not None
        assert deadline.cancellation is not None
        released = threading.Event()
        undo = deadline.cancellation.listen(released.set)
        hanging.release()
        assert released.wait(timeout=20)
        undo()
        deadline.check()

    def owner() -> None:
        for _ in range(6):
            hanging.acquire(timeout=20)
        cancellation.set("enough")

    boss = threading.Thread(target=owner)
    boss.start()
    with ThreadPoolExecutor(16) as executor:
        task = PaidAdapter(before=hang)
        result = run(task, config(), cancellation=cancellation, journal=journal, executor=executor)
    boss.join()
    assert result.stop_reason is StopReason.CANCELLED
    assert result.best_index == 0
    assert task.calls == sum(entry.calls for entry in result.ledger) == 6
    assert run(PaidAdapter(), config(), journal=journal).scores_matrix == UNLIMITED.scores_matrix


def test_a_call_that_cannot_be_told_is_left_behind() -> None:
    """An adapter that knows nothing of cancellations holds up its thread, not the run."""
    cancellation = Cancellation()
    asleep, awake = threading.Semaphore(0), threading.Event()

    def sleep(deadline: Deadline | None) -> None:
        asleep.release()
        assert awake.wait(timeout=20)

    def owner() -> None:
        for _ in range(6):
            asleep.acquire(timeout=20)
        cancellation.set("enough")

    boss = threading.Thread(target=owner)
    boss.start()
    with ThreadPoolExecutor(6) as executor:
        task = PaidAdapter(before=sleep)
        result = run(task, config(), cancellation=cancellation, executor=executor)
        assert result.stop_reason is StopReason.CANCELLED
        assert task.calls == 0
        awake.set()
    boss.join()


def test_what_was_answered_before_the_end_is_kept() -> None:
    cancellation, journal = Cancellation(), MemoryJournal()
    done = threading.Semaphore(0)

    def some_hang(rendered: RenderedPrompt[object]) -> str:
        if asked(rendered) == "w5":
            for _ in range(5):
                done.acquire(timeout=20)
            cancellation.set("enough")
            return "no"
        done.release()
        return answer(rendered)

    with ThreadPoolExecutor(6) as executor:
        task = PaidAdapter(reply=some_hang)
        result = run(task, config(), cancellation=cancellation, journal=journal, executor=executor)
    assert result.stop_reason is StopReason.CANCELLED
    assert result.total_rollouts == 6
