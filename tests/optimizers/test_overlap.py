"""Work overlaps where it waits, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from promptgraft.search.overlap import HaltedError, InTurn, Overlap, SideBySide, Task

LONG_ENOUGH = 60  # seconds until a test that hangs is given up


def finish(overlap: Overlap, *tasks: Task) -> None:
    while not all(task.ended for task in tasks):
        overlap.await_one()


def test_one_works_at_a_time_and_others_while_it_waits() -> None:
    both = threading.Barrier(2, timeout=LONG_ENOUGH)
    working = list[str]()
    overlap = SideBySide(2)

    def work(name: str) -> Callable[[], None]:
        def do() -> None:
            working.append(name)
            assert working == [name]
            working.remove(name)
            with overlap.resting():
                both.wait()  # the other one has to come as far, too
            working.append(name)
            assert working == [name]
            working.remove(name)

        return do

    with overlap:
        tasks = overlap.start(work("a")), overlap.start(work("b"))
        finish(overlap, *tasks)
    assert [task.error for task in tasks] == [None, None]


@pytest.mark.parametrize("make", [InTurn, lambda: SideBySide(1)])
def test_an_error_is_kept_for_whoever_has_started_the_work(make: Callable[[], Overlap]) -> None:
    error = HaltedError("no more")

    def fail() -> None:
        raise error

    with make() as overlap:
        task = overlap.start(fail)
        finish(overlap, task)
    assert task.error is error


def test_work_waits_for_what_the_end_of_other_work_brings_about() -> None:
    overlap, done = SideBySide(2), list[str]()
    go = threading.Event()

    def first() -> None:
        with overlap.resting():
            assert go.wait(LONG_ENOUGH)
        done.append("first")

    def second() -> None:
        go.set()
        overlap.await_that(lambda: bool(done))
        done.append("second")

    with overlap:
        finish(overlap, overlap.start(first), overlap.start(second))
    assert done == ["first", "second"]


def test_work_that_is_given_up_ends_where_it_waits() -> None:
    overlap, waiting = SideBySide(2), threading.Barrier(3, timeout=LONG_ENOUGH)
    reached = list[str]()
    future = Future[None]()  # nobody works on it

    def for_others() -> None:
        with overlap.resting():
            waiting.wait()
        overlap.await_that(lambda: False)
        reached.append("others")

    def for_an_answer() -> None:
        with overlap.resting():
            waiting.wait()
        assert [one.cancelled() for one in overlap.as_ended([future], None)] == [True]
        overlap.check()
        reached.append("answer")

    with overlap:
        tasks = overlap.start(for_others), overlap.start(for_an_answer)
        with overlap.resting():
            waiting.wait()
    assert not reached
    assert all(isinstance(task.error, HaltedError) for task in tasks)
    assert not [one for one in threading.enumerate() if "promptgraft-step" in one.name]


def test_what_is_in_flight_when_work_is_given_up_is_taken_in() -> None:
    overlap, begun, go = SideBySide(1), threading.Event(), threading.Event()
    taken = list[str]()

    def answer() -> str:
        begun.set()
        assert go.wait(LONG_ENOUGH)
        return "late"

    with ThreadPoolExecutor(1) as executor:

        def work() -> None:
            futures = [executor.submit(answer), executor.submit(answer)]
            for future in overlap.as_ended(futures, None):
                taken.append("none" if future.cancelled() else future.result())
                go.set()  # the second one was cancelled, so the first may end
            overlap.check()

        with overlap:
            task = overlap.start(work)
            with overlap.resting():
                assert begun.wait(LONG_ENOUGH)
    assert taken == ["none", "late"]
    assert isinstance(task.error, HaltedError)


def test_outside_of_it_whoever_waits_waits_alone() -> None:
    overlap = SideBySide(1)
    with overlap.resting():
        pass
    with overlap:
        pass
    with overlap.resting():
        overlap.check()
