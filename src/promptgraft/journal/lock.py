"""One process at a time: a lock of the operating system on a file beside the journal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from promptgraft.errors import JournalLockedError, JournalWriteError


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the journal at ``path``; the system releases it when the process dies.

    Raises:
        JournalLockedError: somebody else holds it.
        JournalWriteError: the lock file cannot be made.
    """
    from filelock import FileLock, Timeout

    beside = path.with_name(f"{path.name}.lock")
    if not path.parent.is_dir():  # filelock would create it
        raise JournalWriteError(
            f"journal {path} cannot be opened: there is no folder {path.parent}; create it first"
        )
    lock = FileLock(beside, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise JournalLockedError(
            f"journal {path} is in use by {_holder(beside)}; wait for it to end, or end it"
        ) from None
    except OSError as error:
        raise JournalWriteError(
            f"journal {path} cannot be locked: {error.strerror}; make {beside} writable"
        ) from error
    try:
        with contextlib.suppress(OSError):  # only a help for those who find it locked
            beside.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        lock.release()


def _holder(beside: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return f"process {int(beside.read_text(encoding='ascii'))} (as {beside} says)"
    return f"another process, which holds {beside}"
