"""Signals become a wish to stop; a second one ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from promptgraft.cli.exits import ExitCode, complain
from promptgraft.runtime.cancellation import Cancellation

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[Cancellation]:
    """Give a cancellation that SIGINT (Ctrl+C) and SIGTERM set.

    The second signal ends the process without waiting for anybody. What a run was answered is
    in its journal by then: every answer is written before it is used. Outside the main thread,
    where Python delivers no signals, the cancellation is never set.
    """
    cancellation = Cancellation()
    if threading.current_thread() is not threading.main_thread():
        yield cancellation
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if cancellation.is_set:
            complain("interrupted again, ended at once")
            os._exit(ExitCode.STOPPED_EARLY)
        cancellation.set(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield cancellation
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
