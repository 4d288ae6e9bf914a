"""What is left by a disk that keeps only what it was told to keep."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from promptgraft.overrides import LocalPromptOverridesStore, Revision
from promptgraft.testing import FakeClock
from promptgraft.testing.prompts import JUDGE, PROMPT, TONE, WRITER, set_all

ADDRESS = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
PROMPTS = (PROMPT, WRITER, JUDGE)
Step = Callable[[LocalPromptOverridesStore], object]
State = dict[Path, bytes | None]


@attrs.define(eq=False)
class Node:
    """A file or folder, whatever its name; ``durable`` is what a power loss leaves in it."""

    durable: bytes | None


class ForgetfulDisk:
    """Follows the calls of this process below ``root``; knows what a power loss leaves.

    The bytes of a file survive once the file was synced, a name once its folder was.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = {
            path: Node(None if path.is_dir() else path.read_bytes()) for path in root.rglob("*")
        }
        self._durable = dict(self._names)
        self.states: list[State] = []

    def follow(self, patch: pytest.MonkeyPatch) -> None:
        """Watch the calls of this process from now on."""
        open_, mkdir, fsync, replace, unlink = os.open, os.mkdir, os.fsync, os.replace, os.unlink

        def opened(path: str, flags: int, mode: int = 0o777) -> int:
            descriptor = open_(path, flags, mode)
            if flags & os.O_CREAT:
                self._names.setdefault(Path(path), Node(b""))
            return descriptor

        def made(path: str, mode: int = 0o777) -> None:
            mkdir(path, mode)
            self._names[Path(path)] = Node(None)

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            self._synced(Path(f"/proc/self/fd/{descriptor}").readlink())

        def replaced(source: str, target: str) -> None:
            replace(source, target)
            self._names[Path(target)] = self._names.pop(Path(source))

        def unlinked(path: str) -> None:
            unlink(path)
            del self._names[Path(path)]

        for name, call in (
            ("open", opened),
            ("mkdir", made),
            ("fsync", synced),
            ("replace", replaced),
            ("unlink", unlinked),
        ):
            patch.setattr(os, name, call)

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            others = {name: node for name, node in self._durable.items() if name.parent != path}
            inside = {name: node for name, node in self._names.items() if name.parent == path}
            self._durable = {**others, **inside}
        else:
            self._names[path].durable = path.read_bytes()
        self.states.append(self.left())

    def left(self) -> State:
        """Return what a power loss would leave now."""
        return {
            path.relative_to(self._root): node.durable
            for path, node in sorted(self._durable.items())
            if all(
                parent in self._durable
                for parent in path.parents
                if parent != self._root and parent.is_relative_to(self._root)
            )
        }


def held(root: Path) -> list[tuple[Revision | None, tuple[Revision, ...]]]:
    store = LocalPromptOverridesStore(root)
    names = [{"ns": prompt.ns, "prompt_key": prompt.key} for prompt in PROMPTS]
    return [(store.current(**one), store.history(**one)) for one in names]


def rebuilt(state: State, root: Path) -> Path:
    root.mkdir()
    for path, data in state.items():
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
    return root


def wrote(*words: str) -> Step:
    def step(store: LocalPromptOverridesStore) -> None:
        for word in words:
            store.set_section_override(PROMPT, path=TONE, body=word)

    return step


def wrote_all(store: LocalPromptOverridesStore) -> None:
    set_all(store, *PROMPTS, path=TONE, body="all")


def began_all(store: LocalPromptOverridesStore) -> None:
    """Write a revision of every prompt so that only the intent gets to the disk."""
    wrote("one", "two")(store)
    with pytest.MonkeyPatch.context() as patch:
        replace = os.replace

        def replaced(source: str, target: str) -> None:
            if Path(target).name != "latest.json":
                replace(source, target)
                return
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(os, "replace", replaced)
        wrote_all(store)


def rolled_back(store: LocalPromptOverridesStore) -> object:
    return store.rollback(**ADDRESS)


def deleted(store: LocalPromptOverridesStore) -> None:
    store.delete(**ADDRESS, tag="latest")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name descriptors")
@pytest.mark.parametrize(
    ("prepare", "step"),
    [
        pytest.param(wrote(), wrote("new"), id="the first write"),
        pytest.param(wrote("one"), wrote("new"), id="the second write"),
        pytest.param(wrote("one", "two"), wrote("new"), id="the third write"),
        pytest.param(wrote("one", "two"), rolled_back, id="a rollback"),
        pytest.param(wrote("one"), rolled_back, id="a rollback of the first"),
        pytest.param(wrote("one"), deleted, id="a deletion"),
        pytest.param(wrote(), wrote_all, id="a first write of several tags"),
        pytest.param(wrote("one", "two"), wrote_all, id="a write of several tags"),
        pytest.param(began_all, wrote("new"), id="a write after an unfinished one"),
        pytest.param(began_all, deleted, id="a deletion after an unfinished write"),
    ],
)
def test_a_power_loss_leaves_the_old_or_the_new_revision_and_nothing_acknowledged_is_lost(
    prepare: Step, step: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    prepare(store)
    before = held(root)
    disk = ForgetfulDisk(root)
    with monkeypatch.context() as patch:
        disk.follow(patch)
        step(store)
        acknowledged = disk.left()
    after = held(root)

    assert after != before
    assert held(rebuilt(acknowledged, tmp_path / "acknowledged")) == after
    for number, state in enumerate(disk.states):
        assert held(rebuilt(state, tmp_path / str(number))) in (before, after), number
