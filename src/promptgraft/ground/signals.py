"""Handlers of signals that processes forked by code of users do not inherit."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_outside: dict[int, Any] = {}
"""What signals do outside of :func:`handling`, while it is open."""


def _restore_in_child() -> None:
    """Disconnect a forked process, such as one of a pool of a metric, whose end is not the run's.

    It would write its signals to the pipe of its parent, and survive SIGTERM: Python 3.13 may
    never call a handler in a process that a thread has forked.
    """
    if _outside:
        signal.set_wakeup_fd(-1)
    for number, handler in _outside.items():
        signal.signal(number, handler)


os.register_at_fork(after_in_child=_restore_in_child)


@contextlib.contextmanager
def handling(numbers: Iterable[int], act: Callable[[int, object], None]) -> Iterator[None]:
    """Let signals call ``act`` in the main thread while the context is open."""
    before = {number: signal.signal(number, act) for number in numbers}
    outer = dict(_outside)
    _outside.update((number, before[number]) for number in before.keys() - outer.keys())
    try:
        yield
    finally:
        _outside.clear()
        _outside.update(outer)
        for number, handler in before.items():
            signal.signal(number, handler)
