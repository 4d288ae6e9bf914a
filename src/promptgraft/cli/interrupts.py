"""SIGINT and SIGTERM cancel a run; a second one ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from promptgraft.cli.exits import ExitCode, complain
from promptgraft.runtime.cancellation import Cancellation

LOOK_EVERY = 0.5
"""Seconds after which a main thread that waits lets Python deliver signals."""

_REASONS = {
    signal.SIGINT: "interrupted (Ctrl+C)",
    signal.SIGTERM: "asked to end (SIGTERM)",
}


class _SignalCancellation(Cancellation):
    # A signal that the system hands to another thread does not wake the main thread, and
    # Python runs handlers nowhere else.

    def __reduce__(self) -> tuple[type[Cancellation], tuple[()]]:
        return Cancellation, ()

    @property
    def look_every(self) -> float:
        return LOOK_EVERY


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[Cancellation]:
    """Give a cancellation that SIGINT (Ctrl+C) and SIGTERM set.

    The second signal ends the process without waiting. What a run was answered is
    in its journal by then: every answer is written before it is used. Outside the main thread,
    where Python delivers no signals, the cancellation is never set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Cancellation()
        return
    cancellation = _SignalCancellation()

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if cancellation.is_set:
            complain("interrupted again, ended at once")
            os._exit(ExitCode.STOPPED_EARLY)
        cancellation.set(_REASONS[signal.Signals(number)])

    before = {number: signal.signal(number, stop) for number in _REASONS}
    try:
        yield cancellation
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
