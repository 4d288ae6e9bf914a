"""Replaces source files again and again, each time killed at another effect on the file system.

    python crash_driver.py FOLDER

Each run is a forked child with a folder of its own. It kills itself with SIGKILL before, after
or (writes only) in the middle of its n-th effect; n grows until a run is not killed any more.
Then the same call is made once more, and nobody kills it. For each run one line of JSON is
said: the folder, the signal, and the texts between the two calls and at the end.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from promptgraft.project.applying.files import planned, replace_files
from promptgraft.project.applying.intent import Intent
from promptgraft.project.sources import FileChange

TEXTS = {"a.md": ("old a\n", "new a\n" * 500), "sub/b.yaml": ("old b\r\n", "new b\r\n")}
T = TypeVar("T")
write, fsync, replace, unlink = os.write, os.fsync, os.replace, os.unlink


class Killer:
    """Counts the effects of this process and ends it at one of them."""

    def __init__(self, when: str, fatal: int) -> None:
        self._when = when
        self._fatal = fatal
        self._effects = 0

    def install(self) -> None:
        for name in ("write", "fsync", "replace", "unlink"):
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

    def _unlink(self, path: str) -> None:
        self._effect(lambda: unlink(path))


def call(folder: Path) -> None:
    changes = [FileChange(folder / name, old, new) for name, (old, new) in TEXTS.items()]
    files = planned(folder, changes)
    intent = Intent(run="run", candidate=3, done=False, files=files)
    replace_files(folder, folder / "runs", intent)


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_bytes().decode() for name in TEXTS}


def run(folder: Path, killer: Killer) -> int:
    """Replace in a child; return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            killer.install()
            call(folder)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"{folder}: the writes failed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main() -> None:
    """Say a line for each run."""
    for when in ("before", "after", "inside"):
        for fatal in itertools.count(1):
            folder = Path(sys.argv[1]) / f"{when}-{fatal}"
            for name in ("runs", "sub"):
                (folder / name).mkdir(parents=True)
            for name, (old, _) in TEXTS.items():
                (folder / name).write_bytes(old.encode())
            killed_by = run(folder, Killer(when, fatal))
            between = texts(folder)
            call(folder)
            found = {"between": between, "after": texts(folder)}
            line = {"folder": str(folder), "signal": killed_by, **found}
            sys.stdout.write(f"{json.dumps(line)}\n")
            if not killed_by:
                break


if __name__ == "__main__":
    main()
