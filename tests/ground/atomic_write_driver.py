"""Replaces a file again and again, each time killed at another effect on the file system.

    python atomic_write_driver.py FOLDER

Each run is a forked child with a folder of its own, in which it replaces ``old`` by ``NEW``
and creates ``fresh``. It kills itself with SIGKILL before, after or (writes only) in the middle
of its n-th effect; n grows until a run is not killed any more. For each run one line is said:
the folder and the signal that killed it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from promptgraft.files import write_atomically

OLD, NEW = b"old\n" * 1000, b"new\n" * 2000
T = TypeVar("T")
write, fsync, replace = os.write, os.fsync, os.replace


class Killer:
    """Counts the effects of this process and ends it at one of them."""

    def __init__(self, when: str, fatal: int) -> None:
        self._when = when
        self._fatal = fatal
        self._effects = 0

    def install(self) -> None:
        for name in ("write", "fsync", "replace"):
            setattr(os, name, getattr(self, f"_{name}"))

    def _effect(self, cause: Callable[[], T], part: Callable[[], object] | None = None) -> T:
        if self._when == "inside" and part is None:
            return cause()
        self._effects += 1
        fatal = self._when if self._effects == self._fatal else "never"
        if fatal == "inside" and part is not None:
            part()
        if fatal in {"before", "inside"}:
            os.kill(os.getpid(), signal.SIGKILL)
        done = cause()
        if fatal == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def _write(self, descriptor: int, data: memoryview) -> int:
        half = data[: len(data) // 2]
        return self._effect(lambda: write(descriptor, data), lambda: write(descriptor, half))

    def _fsync(self, descriptor: int) -> None:
        self._effect(lambda: fsync(descriptor))

    def _replace(self, source: str, target: Path) -> None:
        self._effect(lambda: replace(source, target))


def run(folder: Path, killer: Killer) -> int:
    """Replace and create in a child; return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            killer.install()
            write_atomically(folder / "old", NEW)
            write_atomically(folder / "fresh", NEW)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"{folder}: the writes failed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main() -> None:
    """Say ``FOLDER SIGNAL`` for each run."""
    for when in ("before", "after", "inside"):
        for fatal in itertools.count(1):
            folder = Path(sys.argv[1]) / f"{when}-{fatal}"
            folder.mkdir()
            (folder / "old").write_bytes(OLD)
            killed_by = run(folder, Killer(when, fatal))
            sys.stdout.write(f"{folder} {killed_by}\n")
            if not killed_by:
                break


if __name__ == "__main__":
    main()
