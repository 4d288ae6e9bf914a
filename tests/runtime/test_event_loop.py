"""Coroutines run beside the thread that waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from promptgraft.errors import CallerError, DeadlineExceededError, RunCancelledError
from promptgraft.runtime import event_loop
from promptgraft.runtime.deadline import Cancellation, Deadline


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise LookupError("gone")


def waited(call: Callable[[], int | Awaitable[int]], *, loop: event_loop.RunLoop) -> int:
    return event_loop.call_in(loop, lambda: event_loop.awaited(call()))


class Hang:
    """A coroutine that never ends, and what became of it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_it_returns_what_the_coroutine_returns() -> None:
    assert event_loop.run(double(4), deadline=None) == 8


def test_it_raises_what_the_coroutine_raises() -> None:
    with pytest.raises(LookupError, match="gone"):
        event_loop.run(fail(), deadline=Deadline.after(60))


def test_all_threads_share_one_loop() -> None:
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    with ThreadPoolExecutor(4) as pool:
        loops = set(pool.map(lambda _: event_loop.run(loop()), range(8)))
    assert len(loops) == 1


def test_a_deadline_ends_a_coroutine_that_hangs() -> None:
    hang = Hang()
    with pytest.raises(DeadlineExceededError):
        event_loop.run(hang(), deadline=Deadline.after(0.05))
    assert hang.cancelled.wait(5)


def test_a_cancellation_ends_coroutines_that_hang() -> None:
    cancellation = Cancellation()
    hangs = [Hang() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        waiting = [
            pool.submit(event_loop.run, hang(), deadline=Deadline(cancellation=cancellation))
            for hang in hangs
        ]
        assert all(hang.begun.wait(5) for hang in hangs)
        cancellation.set("enough")
        errors = [one.exception(5) for one in waiting]
    assert all(isinstance(error, RunCancelledError) for error in errors)
    assert all(hang.cancelled.wait(5) for hang in hangs)


def test_the_caller_continues_although_the_coroutine_blocks_the_loop() -> None:
    release = threading.Event()
    begun = threading.Event()
    cancellation = Cancellation()

    async def block() -> None:
        begun.set()
        release.wait(10)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(event_loop.run, block(), deadline=Deadline(cancellation=cancellation))
        assert begun.wait(5)
        cancellation.set("enough")
        assert isinstance(waiting.exception(5), RunCancelledError)
    release.set()
    assert event_loop.run(double(1)) == 2


def test_a_signal_handler_may_cancel_the_thread_that_it_interrupts() -> None:
    cancellation = Cancellation()

    async def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.get_running_loop().create_future()

    before = signal.signal(signal.SIGUSR1, lambda *_: cancellation.set("a signal"))
    try:
        with pytest.raises(RunCancelledError, match="a signal"):
            event_loop.run(interrupt(), deadline=Deadline(cancellation=cancellation))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_coroutine_is_given_time_to_end_when_it_is_cancelled() -> None:
    steps: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.01)
            steps.append("tidied")

    with pytest.raises(DeadlineExceededError):
        event_loop.run(tidy(), deadline=Deadline.after(0.05))
    assert steps == ["tidied"]


def test_what_is_not_awaitable_is_returned_as_it_is_and_starts_no_loop() -> None:
    code = (
        "import sys\n"
        "from promptgraft.runtime.event_loop import awaited\n"
        "assert awaited(7) == 7\n"
        "assert 'asyncio' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_a_coroutine_is_never_left_behind_when_it_cannot_be_run() -> None:
    async def inside() -> None:
        with pytest.raises(CallerError, match="would wait forever"):
            event_loop.run(double(1))

    event_loop.run(inside())
    loop = asyncio.new_event_loop()
    loop.close()
    closed = event_loop.RunLoop(loop, 0)
    with pytest.raises(CallerError, match="was closed before the run had ended"):
        waited(lambda: double(1), loop=closed)


def test_a_loop_that_is_closed_meanwhile_is_noticed() -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it complains of the task that it leaves
    stopping = threading.Thread(target=lambda: (loop.run_forever(), loop.close()))

    async def hang() -> int:
        loop.stop()
        return int(await loop.create_future())

    stopping.start()
    here = event_loop.RunLoop(loop, stopping.ident or 0)
    with (
        pytest.raises(CallerError, match="was closed before the run had ended"),
    ):
        waited(hang, loop=here)
    stopping.join()


def test_a_deadline_that_has_passed_runs_nothing() -> None:
    cancellation = Cancellation()
    cancellation.set("enough")
    with pytest.raises(RunCancelledError):
        event_loop.run(fail(), deadline=Deadline(cancellation=cancellation))


def test_coroutines_see_the_context_of_the_thread_that_waits() -> None:
    colour = contextvars.ContextVar("colour", default="none")

    async def seen() -> str:
        return colour.get()

    colour.set("green")
    assert event_loop.run(seen()) == "green"


_FORK = """
import asyncio, os
from promptgraft.runtime import event_loop
async def one(): return 1
event_loop.run(one())
child = os.fork()
if child == 0:
    os._exit(event_loop.run(one()) + 40)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41
assert event_loop.run(one()) == 1

gone = asyncio.new_event_loop()
gone.close()
def forked():
    child = os.fork()
    if child == 0:
        os._exit(event_loop.awaited(one()) + 40)
    return child
child = event_loop.call_in(event_loop.RunLoop(gone, 0), forked)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_loop_of_its_own_whatever_the_run_had() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK], check=False, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr.decode()
