"""Clocks and fresh identifiers."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.testing import FakeClock

START = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


def test_a_fake_clock_moves_only_when_told_to() -> None:
    clock = FakeClock(START)
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    assert (clock.now(), clock.monotonic()) == (START, 0.0)

    clock.advance(90)
    clock.sleep(0.5)
    assert clock.monotonic() == 90.5
    assert clock.now() == START + timedelta(seconds=90.5)


@pytest.mark.parametrize("seconds", [0, -1, -math.inf])
def test_sleeping_for_no_time_does_nothing(seconds: float) -> None:
    fake = FakeClock()
    clocks: list[Clock] = [fake, SystemClock()]
    for clock in clocks:
        clock.sleep(seconds)
    assert fake.monotonic() == 0.0


@pytest.mark.parametrize("seconds", [-0.1, math.nan])
def test_a_fake_clock_cannot_go_back(seconds: float) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match=r"^a clock cannot go back; expected seconds >= 0, found"):
        clock.advance(seconds)
    assert clock.monotonic() == 0.0


def test_threads_that_advance_a_fake_clock_lose_nothing() -> None:
    clock = FakeClock()
    together = threading.Barrier(8)

    def advance() -> None:
        together.wait()
        for _ in range(500):
            clock.advance(1)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(advance) for _ in range(8)]:
            done.result()
    assert clock.monotonic() == 4000


def test_the_system_clock_tells_utc_and_never_runs_back() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_the_system_clock_sleeps_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for seconds in (2.5, 0.001, 0, -1):
        SystemClock().sleep(seconds)
    assert slept == [2.5, 0.001]


def test_a_fake_clock_starts_on_a_day_that_never_changes() -> None:
    assert FakeClock().now() == datetime(2026, 1, 1, tzinfo=UTC)
