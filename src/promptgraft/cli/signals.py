"""What SIGTERM and Ctrl+C do while a command is under way."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator

from promptgraft.cli.exits import ExitCode
from promptgraft.runtime import Cancellation

_REASONS: dict[int, str] = {
    signal.SIGINT: "interrupted (Ctrl+C)",
    signal.SIGTERM: "asked to end (SIGTERM)",
}


@contextlib.contextmanager
def handled(act: Callable[[int, object], None]) -> Iterator[None]:
    """Let both signals call ``act`` in the main thread meanwhile."""
    before = {number: signal.signal(number, act) for number in _REASONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[Cancellation]:
    """Give a cancellation that SIGINT (Ctrl+C) and SIGTERM set.

    The second signal ends the process without waiting. What a run was answered is
    in its journal by then: every answer is written before it is used. Outside the main thread,
    where Python takes no signals, the cancellation is never set.
    """
    cancellation = Cancellation()
    if threading.current_thread() is not threading.main_thread():
        yield cancellation
        return

    def stop(number: int, _: object = None) -> None:
        cancellation.set(_REASONS[number])

    # Handlers run in the main thread, which may be in a call that does not end; a thread that
    # reads the numbers of signals does not have to wait for it.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watcher = threading.Thread(target=_watch, args=(reading, stop), daemon=True)
    with handled(stop):
        watcher.start()
        woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield cancellation
        finally:
            signal.set_wakeup_fd(woken)
            os.close(writing)
            watcher.join()
            os.close(reading)


def _watch(reading: int, stop: Callable[[int], None]) -> None:
    is_second = False
    while byte := os.read(reading, 1):
        if byte[0] in _REASONS:
            if is_second:
                _end_at_once()
            stop(byte[0])
            is_second = True


def _end_at_once() -> None:
    # Not `print`, whose lock a thread may hold for ever; nor where nobody reads.
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, b"promptgraft: interrupted again, ended at once\n")
    os._exit(ExitCode.STOPPED_EARLY)
