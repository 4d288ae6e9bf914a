"""Durable files: the old bytes or the new ones, whatever happens, and nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from killing import deaths
from programs import Programs
from promptgraft.ground.files import (
    make_folder,
    sync_folder,
    write_all,
    write_atomically,
)

DRIVER = Path(__file__).with_name("atomic_write_driver.py")
OLD, NEW = b"old\n" * 1000, b"new\n" * 2000
FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from promptgraft.ground.files import write_atomically

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write_atomically(Path(sys.argv[1]), b"new" * 4000)
except OSError as error:
    print(error.errno)
"""


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_process_killed_at_any_call_leaves_the_old_bytes_or_the_new_ones(
    tmp_path: Path, programs: Programs
) -> None:
    runs = deaths(programs, DRIVER, tmp_path)
    killed = {folder.name: killed_by for folder, killed_by in runs.items()}

    # Two files, each with a write, an fsync, a rename and an fsync of the folder.
    effects = ["write", "fsync", "replace", "folder"] * 2
    assert len(killed) == 2 * (len(effects) + 1) + 3
    for name, killed_by in killed.items():
        when, number = name.split("-")
        calls = effects if when != "inside" else ["write"] * 2
        complete = int(number) > len(calls)
        assert killed_by == (0 if complete else signal.SIGKILL), name

        done = calls[: int(number) - (0 if when == "after" or complete else 1)]
        if when == "inside":
            done = effects[: 4 * len(done)]
        folder = tmp_path / name
        assert (folder / "old").read_bytes() == (NEW if "replace" in done else OLD), name
        assert (folder / "fresh").exists() == (done.count("replace") == 2), name
        if (folder / "fresh").exists():
            assert (folder / "fresh").read_bytes() == NEW
        left = [found for found in names(folder) if found not in {"old", "fresh"}]
        assert len(left) <= (0 if complete else 1)
        assert all(found.startswith(".") and found.endswith(".tmp") for found in left)


@pytest.mark.parametrize(("mask", "expected"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_a_file_has_the_permissions_that_the_umask_leaves(
    mask: int, expected: int, tmp_path: Path
) -> None:
    path = tmp_path / "state.json"
    before = os.umask(mask)
    try:
        for data in (b"one", b""):
            write_atomically(path, data)
            assert (path.read_bytes(), permissions(path)) == (data, expected)
        for mode in (0o600, 0o755):
            write_atomically(path, b"two", mode=mode)
            assert permissions(path) == mode
    finally:
        os.umask(before)
    assert names(tmp_path) == ["state.json"]


def refusing(
    call: Callable[..., object], number: int, error: BaseException
) -> Callable[..., object]:
    """Return ``call``, except that its ``number``-th use raises."""
    uses = iter(range(1, 1000))

    def refused(*args: object) -> object:
        if next(uses) == number:
            raise error
        return call(*args)

    return refused


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("fchmod", PermissionError(errno.EPERM, "not permitted")),
        ("write", OSError(errno.ENOSPC, "no space left on device")),
        ("fsync", OSError(errno.EIO, "input/output error")),
        ("replace", PermissionError(errno.EACCES, "denied")),
        ("write", KeyboardInterrupt()),
    ],
)
def test_a_refused_call_leaves_the_old_file_and_no_other(
    name: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, name, refusing(getattr(os, name), 1, error))

    with pytest.raises(type(error)) as caught:
        write_atomically(path, NEW, mode=0o644)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["state.json"]
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(path)


def test_a_full_disk_is_an_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(OLD)
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=True
    )
    assert int(ended.stdout) == errno.EFBIG
    assert path.read_bytes() == OLD
    assert names(tmp_path) == ["state.json"]


def test_a_folder_that_is_missing_or_in_the_way_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "state.json", NEW)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "folder", NEW)
    assert names(tmp_path) == ["folder"]


def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lowest_free() -> int:
        free = os.open(tmp_path, os.O_RDONLY)
        os.close(free)
        return free

    before = lowest_free()
    write_atomically(tmp_path / "state.json", OLD)
    monkeypatch.setattr(os, "fsync", refusing(os.fsync, 1, OSError(errno.EIO, "input/output")))
    with pytest.raises(OSError, match="input/output"):
        write_atomically(tmp_path / "state.json", NEW)
    assert lowest_free() == before


def test_every_byte_is_written_however_many_calls_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    with (tmp_path / "file").open("wb", buffering=0) as file:
        write_all(file.fileno(), OLD)
        write_all(file.fileno(), b"")
    assert (tmp_path / "file").read_bytes() == OLD


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of what was given to ``os.fsync``, in order."""
    found: list[int] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        found.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return found


def test_the_bytes_are_durable_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, synced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def noted(source: str, target: Path) -> None:
        assert synced == [Path(source).stat().st_ino]
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    write_atomically(tmp_path / "state.json", NEW)
    assert synced[1:] == [tmp_path.stat().st_ino]


def test_a_made_folder_has_durable_names_up_to_where_it_was_asked(
    tmp_path: Path, synced: list[int]
) -> None:
    folder = tmp_path / "a" / "b" / "c"
    for _ in range(2):
        make_folder(folder, under=tmp_path)
        assert folder.is_dir()
        named = (tmp_path, tmp_path / "a", tmp_path / "a" / "b")
        assert sorted(synced) == sorted(path.stat().st_ino for path in named)
        synced.clear()

    sync_folder(folder)
    assert synced == [folder.stat().st_ino]


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError, match="a"):
        make_folder(tmp_path / "a" / "b", under=tmp_path)


def test_a_system_without_posix_locks_is_told_what_is_needed() -> None:
    windows = "import sys; sys.modules['fcntl'] = None; from promptgraft import Prompt"
    command = [sys.executable, "-c", windows]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("needs a POSIX system; on Windows, run it inside WSL\n")
