"""A deadline is a moment on a clock that can be moved by hand."""

from __future__ import annotations

import math

import attrs
import pytest

from promptgraft.errors import ConfigError, DeadlineExceededError, RunCancelledError
from promptgraft.runtime import Cancellation, Deadline
from promptgraft.runtime.deadline import sooner
from promptgraft.testing import FakeClock


def test_time_runs_down_to_zero_and_no_further() -> None:
    clock = FakeClock()
    clock.advance(100)
    deadline = Deadline.after(10, clock=clock)
    assert (deadline.remaining, deadline.expired) == (10.0, False)
    deadline.check()

    clock.advance(9.5)
    assert (deadline.remaining, deadline.expired) == (0.5, False)
    deadline.check()

    clock.advance(0.5)
    assert (deadline.remaining, deadline.expired) == (0.0, True)
    clock.advance(1000)
    assert (deadline.remaining, deadline.expired) == (0.0, True)


def test_a_deadline_that_has_passed_stops_what_asks() -> None:
    clock = FakeClock()
    deadline = Deadline.after(1, clock=clock)
    clock.advance(1)
    with pytest.raises(DeadlineExceededError, match=r"^the deadline of the run has passed"):
        deadline.check()
    with pytest.raises(TimeoutError):
        deadline.check()


def test_a_run_that_is_cancelled_during_the_look_has_not_outlived_its_deadline() -> None:
    class CancelledRightAfter(Cancellation):
        def check(self) -> None:
            super().check()
            self.set("interrupted")

    deadline = Deadline(cancellation=CancelledRightAfter())
    deadline.check()
    with pytest.raises(RunCancelledError, match="interrupted"):
        deadline.check()


@pytest.mark.parametrize("seconds", [0, -1, -0.0, math.nan, -math.inf])
def test_a_deadline_is_in_the_future(seconds: float) -> None:
    with pytest.raises(ConfigError) as caught:
        Deadline.after(seconds)
    assert str(caught.value) == f"deadline: expected seconds > 0, found {seconds!r}"


def test_a_deadline_may_be_never() -> None:
    clock = FakeClock()
    deadline = Deadline.after(math.inf, clock=clock)
    clock.advance(10**9)
    assert deadline.remaining == math.inf
    deadline.check()


def test_the_clock_of_the_machine_is_used_without_another() -> None:
    deadline = Deadline.after(1_000_000)
    assert 0 < deadline.remaining <= 1_000_000
    assert not deadline.expired


def test_a_deadline_does_not_change() -> None:
    deadline = Deadline(clock=FakeClock(), expires_at=5.0)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        deadline.expires_at = 6.0  # type: ignore[misc]
    assert deadline.remaining == 5.0


def test_of_two_deadlines_the_sooner_counts() -> None:
    near = Deadline.after(1)
    assert sooner(near, 60) is near
    assert sooner(near, 0.1).expires_at < near.expires_at
    assert sooner(None, 60).remaining <= 60
