"""Killed at every effect, out of power, out of disk, without permission."""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from forked import Run, forking
from killing import FEWER, deaths_in, folder_in_memory
from programs import Programs
from promptgraft.overrides import LocalPromptOverridesStore, OverrideAddress, Revision
from promptgraft.testing import FakeClock
from promptgraft.testing.prompts import JUDGE, PROMPT, TONE, WRITER, set_all

EVERY = (PROMPT, WRITER, JUDGE, attrs.evolve(PROMPT, key="other"))
FOLDER = Path(".promptgraft/overrides/tests/stores/support")
DRIVER = Path(__file__).with_name("crash_driver.py")


@attrs.frozen
class Held:
    """What a store holds for a prompt of the tests."""

    current: Revision | None
    history: tuple[Revision, ...]


def held(root: Path) -> tuple[Held, ...]:
    """Return what a store holds for each prompt; check that reading changes nothing."""
    files = files_in(root)
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    states = []
    for prompt in EVERY:
        current = store.current(ns=prompt.ns, prompt_key=prompt.key)
        assert store.resolve(prompt.descriptor) == (current and current.override)
        address = OverrideAddress(prompt.ns, prompt.key, "latest")
        assert (address in store.addresses()) == (current is not None)
        states.append(Held(current, store.history(ns=prompt.ns, prompt_key=prompt.key)))
    assert files_in(root) == files
    return tuple(states)


def files_in(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def left_in(root: Path) -> frozenset[tuple[str, bytes | None]]:
    """Return what is in a folder, by paths without what is random in them; folders hold None."""
    return frozenset(
        (
            re.sub(r"\.\w+\.tmp$", ".tmp", str(path.relative_to(root))),
            path.read_bytes() if path.is_file() else None,
        )
        for path in root.rglob("*")
    )


def check_usable(root: Path, before: tuple[Held, ...]) -> None:
    """Check that the next write resumes from what is held, and sweeps what was left."""
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    set_all(store, *EVERY, path=TONE, body="next")
    for old, new in zip(before, held(root), strict=True):
        assert new.current is not None
        assert new.current.parent == (old.current and old.current.id)
        assert new.current.number == max((one.number for one in old.history), default=0) + 1
        assert new.history == (*old.history, new.current)
    set_all(store, *EVERY, path=TONE, body="last")
    assert list(root.rglob("*.tmp")) == []
    assert list(root.rglob(".intent.json")) == []


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture(scope="module")
def driver() -> Iterator[Run]:
    with forking(DRIVER) as run:
        yield run


@pytest.mark.parametrize(
    ("scenario", "effects", "writes"),
    [
        # One document: write, sync, rename, sync. Before the first in a folder: make it and
        # those above, sync their names up to the root.
        ("first-write", 14, 1),
        pytest.param("second-write", 17, 2, marks=pytest.mark.thorough),
        pytest.param("third-write", 8, 2, marks=pytest.mark.thorough),
        ("write-after-rollback", 4, 1),
        pytest.param("rollback", 8, 2, marks=pytest.mark.thorough),
        pytest.param("rollback-of-the-first", 15, 1, marks=pytest.mark.thorough),
        pytest.param("rollback-forward", 4, 1, marks=pytest.mark.thorough),
        ("delete", 6, 1),
        # Several documents: archives first, then the intent, the documents, and its removal.
        ("write-of-several", 44, 6),
        # What a killed writer left is finished first.
        ("write-after-a-killed-one", 27, 5),
        pytest.param("write-beside-a-killed-one", 29, 4, marks=pytest.mark.thorough),
    ],
)
def test_a_killed_process_leaves_the_old_or_the_new_revision_of_every_tag(
    scenario: str, effects: int, writes: int, driver: Run, quick_folder: Path
) -> None:
    code, said = driver(quick_folder, scenario)
    assert code == 0
    runs = deaths_in(said.splitlines())
    before = held(quick_folder / "before")

    survivors = [run for run, killed_by in runs.items() if killed_by != signal.SIGKILL]
    assert [run.name for run in survivors] == [
        f"{when}-{(writes if when == 'inside' else effects) + 1}" for when in FEWER
    ]
    after = held(survivors[0])
    assert after != before
    # After an effect is often before the next one: the same files are looked at once.
    left = {run: left_in(run) for run in runs}
    different = {files: run for run, files in left.items()}
    found = {files: held(run) for files, run in different.items()}
    states = [found[files] for files in left.values()]
    assert all(state in {before, after} for state in states)
    assert states.count(before) > 1
    assert states.count(after) > len(survivors)
    for files, run in different.items():
        check_usable(run, found[files])


# Refusals of the system, in a process of its own

FULL_DISK = """
import resource, signal, sys
from promptgraft.errors import StoreError
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing.prompts import PROMPT, TONE

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    LocalPromptOverridesStore(sys.argv[1]).set_section_override(
        PROMPT, path=TONE, body="x" * 10_000
    )
except StoreError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(error)
"""

# Root may write everywhere: become nobody, once every module is imported.
READ_ONLY = """
import os, sys, tempfile
from promptgraft.errors import StoreError
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing.prompts import PROMPT, TONE, bodies

names = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
with tempfile.TemporaryDirectory() as scratch:
    store = LocalPromptOverridesStore(scratch)
    store.set_section_override(PROMPT, path=TONE, body="x")
    store.rollback(**names)
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
store = LocalPromptOverridesStore(sys.argv[1])
print(bodies(store.resolve(PROMPT.descriptor)), len(store.history(**names)))
for operation in (
    lambda: store.set_section_override(PROMPT, path=TONE, body="x"),
    lambda: store.seed(PROMPT, tag="other"),
    lambda: store.rollback(**names),
    lambda: store.delete(**names, tag="latest"),
):
    try:
        operation()
    except StoreError as error:
        print(error)
"""


def output_of(programs: Programs, script: str, *arguments: object) -> list[str]:
    ended = programs("-c", script, *map(str, arguments))
    if "os.setuid" in ended.stderr or "os.setgid" in ended.stderr:
        pytest.skip(f"root may write everywhere and cannot become nobody: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("limit", [100, 9000])
def test_a_full_disk_is_a_clear_error_and_changes_nothing(
    limit: int, tmp_path: Path, programs: Programs
) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    store.set_section_override(PROMPT, path=TONE, body="before")
    before = held(tmp_path)
    (message,) = output_of(programs, FULL_DISK, tmp_path, limit)

    refused = FOLDER / (
        "latest.json"
        if limit == 9000
        else f".revisions/latest/000001-{before[0].history[0].id[:12]}.json"
    )
    assert message == (
        f"cannot write override file {tmp_path / refused}: File too large; "
        "make the folder writable, or make space on the disk"
    )
    assert held(tmp_path) == before
    assert list(tmp_path.rglob("*.tmp")) == []
    check_usable(tmp_path, before)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that nobody can reach; pytest's own is closed to other users."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in folders:
            path.chmod(0o755)


def test_a_read_only_folder_can_be_read_and_a_write_is_a_clear_error(
    open_folder: Path, programs: Programs
) -> None:
    store = LocalPromptOverridesStore(open_folder)
    store.set_section_override(PROMPT, path=TONE, body="one")
    store.set_section_override(PROMPT, path=TONE, body="two")
    before = held(open_folder)
    # Who may use the lock may still not be allowed to write beside it.
    (open_folder / FOLDER / ".lock").chmod(0o666)
    with read_only(open_folder):
        found, *messages = output_of(programs, READ_ONLY, open_folder)

    assert found == f"{ {TONE: 'two'} } 2"
    archive = open_folder / FOLDER / ".revisions" / "latest"
    assert messages[0].startswith(f"cannot write override file {archive}/000002-")
    assert messages[1].startswith(f"cannot write override file {open_folder / FOLDER}/other.json")
    assert messages[2:] == [messages[0]] * 2
    for message in messages:
        assert message.endswith(
            "Permission denied; make the folder writable, or make space on the disk"
        )
    assert held(open_folder) == before


def test_a_lock_that_cannot_be_used_is_a_clear_error(open_folder: Path, programs: Programs) -> None:
    store = LocalPromptOverridesStore(open_folder)
    store.set_section_override(PROMPT, path=TONE, body="one")
    (open_folder / FOLDER / ".lock").unlink()
    before = held(open_folder)
    with read_only(open_folder):
        _, *messages = output_of(programs, READ_ONLY, open_folder)

    lock = open_folder / FOLDER / ".lock"
    assert (
        messages
        == [f"cannot lock override file {lock}: Permission denied; make the folder writable"] * 4
    )
    assert held(open_folder) == before


def test_a_folder_that_cannot_be_made_is_a_clear_error(
    open_folder: Path, programs: Programs
) -> None:
    with read_only(open_folder):
        _, *messages = output_of(programs, READ_ONLY, open_folder)

    for message in messages[:2]:
        assert message.endswith("Permission denied; make the folder writable")
    assert [message.rpartition("; ")[2] for message in messages[2:]] == [
        "there is nothing to roll back"
    ]
    assert list(open_folder.iterdir()) == []
