"""Kills a process at each of its effects on the file system, one after the other.

A driver is a program that forks a child for each run. The child kills itself with SIGKILL
before, after or (writes only) in the middle of its n-th effect; n grows until a run is not
killed any more.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

from programs import Programs

T = TypeVar("T")
MOMENTS = ("before", "after", "inside")
FEWER = MOMENTS if "PROMPTGRAFT_KILLS" in os.environ else ("before", "inside")
"""Where there are many effects: after one is nearly always what is before the next one."""
write, fsync, ftruncate = os.write, os.fsync, os.ftruncate
replace, unlink, mkdir = os.replace, os.unlink, os.mkdir


class Killer:
    """Counts the effects of this process and ends it at one of them.

    Args:
        when: ``before``, ``after`` or ``inside``.
        fatal: the number of the effect, from 1.
    """

    names: ClassVar[tuple[str, ...]] = ("write", "fsync", "replace")
    """The functions of ``os`` whose calls are effects."""

    def __init__(self, when: str, fatal: int) -> None:
        self._when = when
        self._fatal = fatal
        self._effects = 0

    def install(self) -> None:
        """Take the place of the functions."""
        for name in self.names:
            setattr(os, name, getattr(self, f"_{name}"))

    def effect(self, cause: Callable[[], T], part: Callable[[], object] | None = None) -> T:
        """Cause an effect; ``part`` causes some of it, where that can be."""
        if self._when == "inside" and part is None:
            return cause()
        self._effects += 1
        fatal = self._when if self._effects == self._fatal else "never"
        if fatal == "inside" and part is not None:
            with contextlib.suppress(OSError):
                part()
        if fatal in {"before", "inside"}:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return cause()
        finally:
            if fatal == "after":
                os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, descriptor: int, data: memoryview) -> int:
        half = data[: len(data) // 2]
        return self.effect(lambda: write(descriptor, data), lambda: write(descriptor, half))

    def _fsync(self, descriptor: int) -> None:
        self.effect(lambda: fsync(descriptor))

    def _ftruncate(self, descriptor: int, length: int) -> None:
        self.effect(lambda: ftruncate(descriptor, length))

    def _replace(self, source: str, target: str, **folders: int) -> None:
        self.effect(lambda: replace(source, target, **folders))

    def _unlink(self, path: str) -> None:
        self.effect(lambda: unlink(path))

    def _mkdir(self, path: str, mode: int = 0o777) -> None:
        if os.path.exists(path) or not os.path.exists(os.path.dirname(path)):  # noqa: PTH110, PTH120
            mkdir(path, mode)  # raises; no effect
        self.effect(lambda: mkdir(path, mode))


def killed_by(act: Callable[[], object], killer: Killer) -> int:
    """Act in a child with a killer; return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            killer.install()
            act()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("a child failed without being killed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def at_every_effect(run: Callable[[str, int], int], moments: Sequence[str] = MOMENTS) -> None:
    """Call ``run`` with when and at which effect to kill, until it returns that nobody was."""
    for when in moments:
        for fatal in itertools.count(1):
            if not run(when, fatal):
                break


def say(folder: Path, signal_: int) -> None:
    """Say how a run in a folder ended."""
    sys.stdout.write(f"{folder} {signal_}\n")


def error_text(programs: Programs, driver: Path, *arguments: str | Path) -> list[str]:
    """Run a driver and return what it says."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = programs(driver, *arguments, environment=path)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def deaths(programs: Programs, driver: Path, *arguments: str | Path) -> dict[Path, int]:
    """Return the folder of each run of a driver with the signal that killed it."""
    return deaths_in(error_text(programs, driver, *arguments))


def deaths_in(said: list[str]) -> dict[Path, int]:
    """Return the folder of each run with the signal that killed it, of what a driver says."""
    runs = [line.rsplit(" ", 1) for line in said]
    return {Path(name): int(number) for name, number in runs}


@contextlib.contextmanager
def folder_in_memory() -> Iterator[Path]:
    """Give a folder in memory if there is one: what a killed process leaves needs no disk."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        yield Path(name)
