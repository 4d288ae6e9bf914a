"""A record of what threads are doing, for messages about threads that do not end.

A module of its own, because the command line imports it at every start.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_by_thread: dict[int, str] = {}


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Record what this thread is doing, for :func:`left_behind`; may be nested."""
    thread = threading.get_ident()
    before = _by_thread.get(thread, "")
    _by_thread[thread] = what
    try:
        yield
    finally:
        _by_thread[thread] = before
        if not before:
            del _by_thread[thread]


def left_behind(seconds: float) -> list[str]:
    """Wait up to ``seconds`` for other threads; return what is still being done."""
    threads = [thread for thread in threading.enumerate() if thread.ident in _by_thread]
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(seconds / len(threads))
    # Read once: a thread may end what it does at any time.
    works = (_by_thread.get(thread.ident) for thread in threads if thread.ident is not None)
    return [what for what in works if what]
