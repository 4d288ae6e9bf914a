"""Lock files, which the system releases when the process that holds them dies.

By ``flock`` itself: filelock, from its version 4 on, has the whole program refuse an ``os.fork``
while another thread forks (since Python 3.12), which agents in a thread pool may do.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from promptgraft.errors import JournalLockedError
from promptgraft.ground.files import NEW_FILE

_of_this_process: set[int] = set()
"""Descriptors of lock files; a fork has none, or it would hold the locks when its parent dies."""


def _forget_locks() -> None:
    for descriptor in _of_this_process:
        os.close(descriptor)
    _of_this_process.clear()


os.register_at_fork(after_in_child=_forget_locks)


@contextlib.contextmanager
def locked(path: Path, *, seconds: float = math.inf, every: float = 0.05) -> Iterator[int]:
    """Hold the lock file at ``path``, against threads and processes alike; yield its descriptor.

    The system releases it when the process dies.

    Args:
        path: the file, which is created and stays.
        seconds: how long another holder is waited for.
        every: seconds from one attempt to the next.

    Raises:
        TimeoutError: something else holds it.
        OSError: the file cannot be created or opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, NEW_FILE)
    _of_this_process.add(descriptor)
    process = os.getpid()
    try:
        end = time.monotonic() + seconds
        while not _take(descriptor):
            if time.monotonic() >= end:
                raise TimeoutError(f"{path} is locked")
            time.sleep(every)
        yield descriptor
    finally:
        # A fork has closed it, and may have opened another file under its number.
        if os.getpid() == process:
            _of_this_process.remove(descriptor)
            # Not by closing alone: a child that was just forked may have the descriptor, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def held_lock(path: Path, *, what: str, mend: str, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock file at ``path``, which contains the process id.

    After ``seconds`` of waiting, a ``JournalLockedError`` says that ``what`` is in use and
    suggests ``mend`` as an alternative to waiting.

    Raises ``OSError`` when the lock file cannot be created.
    """
    with contextlib.ExitStack() as lock:
        try:
            descriptor = lock.enter_context(locked(path, seconds=seconds))
        except TimeoutError:
            holder = f"another process, which holds {path}"
            with contextlib.suppress(OSError, ValueError):
                holder = f"process {int(path.read_text('ascii'))}"
            raise JournalLockedError(
                f"{what} is in use by {holder}; wait for it to end, or {mend}"
            ) from None
        with contextlib.suppress(OSError):  # only for the message to a second process
            # Padded, so that nothing of a longer number stays.
            os.pwrite(descriptor, f"{os.getpid():<20}\n".encode(), 0)
        yield


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock file at ``path``, without holding it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Shared, so that two readers do not take each other for a running process.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
