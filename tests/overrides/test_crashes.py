"""Killed at every effect, out of power, out of disk, without permission."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from promptgraft.clock import FakeClock
from promptgraft.errors import StoreError
from promptgraft.overrides import LocalPromptOverridesStore, Revision
from promptgraft.testing.samples import PROMPT, RULES, TONE, bodies

ADDRESS = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
FOLDER = Path(".promptgraft/overrides/tests/stores/support")
DRIVER = Path(__file__).with_name("crash_driver.py")


@attrs.frozen
class Held:
    """What a store holds for the tag of the tests."""

    current: Revision | None
    history: tuple[Revision, ...]


def held(root: Path) -> Held:
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    current = store.current(**ADDRESS)
    assert store.resolve(PROMPT.descriptor) == (current and current.override)
    return Held(current, store.history(**ADDRESS))


def check_usable(root: Path, before: Held) -> None:
    """Check that the next write goes on from what is held, and sweeps what was left."""
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    store.set_section_override(PROMPT, path=TONE, body="next")
    after = held(root)
    assert after.current is not None
    assert after.current.parent == (before.current and before.current.id)
    assert after.current.number == max((old.number for old in before.history), default=0) + 1
    assert after.history == (*before.history, after.current)
    store.set_section_override(PROMPT, path=TONE, body="last")
    assert list(root.rglob("*.tmp")) == []


def crash(scenario: str, folder: Path) -> dict[Path, int]:
    """Return the root of each run of ``scenario`` with the signal that killed it."""
    ended = subprocess.run(
        [sys.executable, DRIVER, scenario, folder], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    runs = [line.rsplit(" ", 1) for line in ended.stdout.splitlines()]
    return {Path(name): int(killed_by) for name, killed_by in runs}


@pytest.mark.parametrize(
    ("scenario", "effects", "writes"),
    [
        # One document: write, sync, rename, sync. Before the first in a folder: make it and
        # those above, sync their names up to the root.
        ("first-write", 14, 1),
        ("second-write", 17, 2),
        ("third-write", 8, 2),
        ("write-after-rollback", 4, 1),
        ("rollback", 8, 2),
        ("rollback-of-the-first", 15, 1),
        ("rollback-forward", 4, 1),
        ("delete", 6, 1),
    ],
)
def test_a_killed_process_leaves_the_old_or_the_new_revision(
    scenario: str, effects: int, writes: int, tmp_path: Path
) -> None:
    runs = crash(scenario, tmp_path)
    before = held(tmp_path / "before")

    survivors = [run for run, killed_by in runs.items() if killed_by != signal.SIGKILL]
    assert [run.name for run in survivors] == [
        f"before-{effects + 1}",
        f"after-{effects + 1}",
        f"inside-{writes + 1}",
    ]
    after = held(survivors[0])
    assert after != before
    states = [held(run) for run in runs]
    assert all(state in {before, after} for state in states)
    assert states.count(before) > 1
    assert states.count(after) > len(survivors)
    for run, state in zip(runs, states, strict=True):
        check_usable(run, state)
