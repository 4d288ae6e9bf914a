"""Runs a scenario again and again, each time killed at the next effect on the file system.

    python crash_driver.py SCENARIO FOLDER

Each run is a forked child with a store of its own below FOLDER. It kills itself with SIGKILL
before, after or (writes only) in the middle of its n-th effect; n grows until a run is not
killed any more. A line ``RUN SIGNAL`` is printed for each.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from promptgraft.clock import FakeClock
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing.samples import PROMPT, RULES, TONE

T = TypeVar("T")
write, fsync, replace, unlink, mkdir = os.write, os.fsync, os.replace, os.unlink, os.mkdir


class Effects:
    """Counts the effects of this process and ends it at the fatal one."""

    def __init__(self, when: str, fatal: int) -> None:
        self._when = when
        self._fatal = fatal
        self._count = 0

    def install(self) -> None:
        for name in ("write", "fsync", "replace", "unlink", "mkdir"):
            setattr(os, name, getattr(self, f"_{name}"))

    def _effect(self, cause: Callable[[], T]) -> T:
        if self._when == "inside":
            return cause()
        self._count += 1
        if self._count != self._fatal:
            return cause()
        if self._when == "after":
            cause()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def _write(self, descriptor: int, data: memoryview) -> int:
        if self._when != "inside":
            return self._effect(lambda: write(descriptor, data))
        self._count += 1
        if self._count == self._fatal:
            write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, data)

    def _fsync(self, descriptor: int) -> None:
        self._effect(lambda: fsync(descriptor))

    def _replace(self, source: str, target: str) -> None:
        self._effect(lambda: replace(source, target))

    def _unlink(self, path: str) -> None:
        self._effect(lambda: unlink(path))

    def _mkdir(self, path: str, mode: int = 0o777) -> None:
        if os.path.exists(path) or not os.path.exists(os.path.dirname(path)):  # noqa: PTH110, PTH120
            mkdir(path, mode)  # raises; no effect
        self._effect(lambda: mkdir(path, mode))


def two_revisions(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")
    store.set_section_override(PROMPT, path=TONE, body="two")


def nothing(store: LocalPromptOverridesStore) -> None:
    del store


def one_revision(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")


def rolled_back(store: LocalPromptOverridesStore) -> None:
    two_revisions(store)
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key)


def do_write(store: LocalPromptOverridesStore) -> None:
    store.set_section_override(PROMPT, path=RULES, body="written")


def do_rollback(store: LocalPromptOverridesStore) -> None:
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key)


def do_forward(store: LocalPromptOverridesStore) -> None:
    latest = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key)[-1]
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key, revision=latest.id)


def do_delete(store: LocalPromptOverridesStore) -> None:
    store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")


Step = Callable[[LocalPromptOverridesStore], None]

SCENARIOS: dict[str, tuple[Step, Step]] = {
    "first-write": (nothing, do_write),
    "second-write": (one_revision, do_write),
    "third-write": (two_revisions, do_write),
    "write-after-rollback": (rolled_back, do_write),
    "rollback": (two_revisions, do_rollback),
    "rollback-of-the-first": (one_revision, do_rollback),
    "rollback-forward": (rolled_back, do_forward),
    "delete": (two_revisions, do_delete),
}


def outcome(step: Step, root: Path, effects: Effects) -> int:
    """Run ``step`` in a child; return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store = LocalPromptOverridesStore(root, clock=FakeClock())
            effects.install()
            step(store)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"{root}: the scenario failed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def warm_up() -> None:
    """Import what a store needs when it is used, so that no child has to."""
    with tempfile.TemporaryDirectory() as name:
        store = LocalPromptOverridesStore(name, clock=FakeClock())
        rolled_back(store)
        do_forward(store)
    gc.freeze()


def main() -> None:
    """Leave the state before in ``FOLDER/before`` and one folder for each run."""
    prepare, step = SCENARIOS[sys.argv[1]]
    before = Path(sys.argv[2]) / "before"
    before.mkdir()
    warm_up()
    prepare(LocalPromptOverridesStore(before, clock=FakeClock()))
    for when in ("before", "after", "inside"):
        for fatal in itertools.count(1):
            root = before.with_name(f"{when}-{fatal}")
            shutil.copytree(before, root)
            killed_by = outcome(step, root, Effects(when, fatal))
            sys.stdout.write(f"{root} {killed_by}\n")
            if not killed_by:
                break


if __name__ == "__main__":
    main()
