"""Durable files, whose acknowledged writes survive a crash.

Every effect on a durable file goes through ``os.open``, ``os.write``, ``os.fsync`` and
``os.replace``, so that tests can kill the process before or after each of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from promptgraft.errors import ConfigError, DataFormatError

try:
    import fcntl  # noqa: F401 - for locks; said here, where every program comes first
except ModuleNotFoundError:
    raise ImportError("promptgraft needs a POSIX system; on Windows, run it inside WSL") from None


def as_path(value: object, name: str = "path") -> Path:
    """Return an argument of a public function as a path.

    Raises:
        ConfigError: it is neither a text nor a path; the message begins with ``name``.
    """
    from promptgraft.ground.serde import shown  # loads attrs, which no path needs

    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise ConfigError(f"{name}: expected a path, found {shown(value)}")
    if "\0" in os.fspath(value):
        raise ConfigError(f"{name}: expected the name of a file, found {shown(str(value))}")
    return Path(value)


NEW_FILE = 0o666
"""Permissions of a new file, of which the system takes away what the umask says."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_ONLY = 0o600


def is_file(path: Path) -> bool:
    """Return whether ``path`` is a file; false for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, a zero byte, an unreadable folder
        return False


def opened(path: Path) -> BinaryIO:
    """Open a file for reading; a named pipe is refused, because it would be waited for.

    Raises:
        OSError: the file cannot be opened.
        DataFormatError: it is a pipe or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise DataFormatError(f"{path}: expected a file, found a pipe or a device; remove it")


def nearest_folder(holding: Path) -> Path | None:
    """Return the nearest folder upwards that holds the file ``holding``, or None."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if is_file(folder / holding)), None)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, in as many calls as it takes."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable: creations, renames and removals."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace ``path`` by ``data`` so that readers and crashes see the old or the new bytes.

    The parent folder must exist. An ``OSError`` names ``path``.

    Args:
        path: the file.
        data: its new content.
        mode: its permissions; by default what the umask leaves of ``NEW_FILE``.
    """
    with named_in_errors(path):
        _replace(path, data, mode)


@contextlib.contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Make an ``OSError`` name the target file, not a temporary one."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    temporary = f"{path.parent}/.{path.name}.{uuid.uuid4().hex[:8]}.tmp"
    # Not with `tempfile`, whose files only the owner may read: the system knows the umask.
    descriptor = os.open(temporary, _NEW, NEW_FILE if mode is None else _OWNER_ONLY)
    try:
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
            write_all(descriptor, data)
            # Before the rename, or a power loss may leave the new name with an empty file.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)  # noqa: PTH105 - the call that tests interrupt
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    sync_folder(path.parent)  # makes the rename durable


def sweep(path: Path) -> None:
    """Remove the temporary files that killed writers of ``path`` have left."""
    left_over = re.compile(rf"\.{re.escape(path.name)}\.[^.]+\.tmp")
    for name in os.listdir(path.parent):  # noqa: PTH208 - names are all that is needed
        if left_over.fullmatch(name):
            (path.parent / name).unlink()


def make_folder(folder: Path, *, under: Path) -> None:
    """Create ``folder`` and its parents, and make every name on the way from ``under`` durable.

    Existing folders are synced too: their creator may have died before syncing them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for parent in folder.parents:
        sync_folder(parent)
        if parent == under:
            break
