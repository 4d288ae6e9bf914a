"""Folders that promptgraft made: recognized by device and inode, not by name.

Agents run with the rights of the user and know where their folders are. One that leaves a link in
the place of such a folder must not lead a write, and least of all a removal, to what is behind the
link. So folders are opened without following links, compared with what was made, and used through
their descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import attrs

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ELOOP})
_OWNER_ONLY = 0o700


class ReplacedFolderError(NotADirectoryError):
    """Something else is in the place of a folder that promptgraft made."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(
            errno.ENOTDIR, "expected the folder that was made there, found another one", str(path)
        )


class LinkedFolderError(NotADirectoryError):
    """A link or a file is in the place of a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(errno.ENOTDIR, "expected a folder, found a link or a file", str(path))


@contextlib.contextmanager
def folder_opened(path: str | os.PathLike[str], *, within: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a folder, itself no link.

    Args:
        path: the folder.
        within: the descriptor of the folder that ``path`` is relative to.

    Raises:
        LinkedFolderError: it is a link or a file.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, _FOLDER, dir_fd=within)
    except OSError as error:
        if error.errno in _NO_FOLDER:
            raise LinkedFolderError(path) from None
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@attrs.frozen
class OwnFolder:
    """A folder that promptgraft made."""

    path: Path
    identity: tuple[int, int]

    @classmethod
    def create(cls, path: Path, *, within: int | None = None) -> OwnFolder:
        """Create a folder.

        Args:
            path: the folder; nothing may be there yet.
            within: the descriptor of its parent; by default the parent is found by its path.
        """
        place: str | Path = path if within is None else path.name
        os.mkdir(place, dir_fd=within)
        with folder_opened(place, within=within) as descriptor:
            return cls(path, _identity(descriptor))

    def subfolder(self, name: str) -> OwnFolder:
        """Create a folder in this one."""
        with self.opened() as descriptor:
            return OwnFolder.create(self.path / name, within=descriptor)

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Yield the descriptor of the folder.

        Raises:
            ReplacedFolderError: something else is there.
            OSError: nothing is there, or it cannot be opened.
        """
        with contextlib.ExitStack() as stack:
            try:
                descriptor = stack.enter_context(folder_opened(self.path))
            except LinkedFolderError:
                raise ReplacedFolderError(self.path) from None
            if _identity(descriptor) != self.identity:
                raise ReplacedFolderError(self.path)
            yield descriptor

    def remove(self) -> None:
        """Remove the folder with everything in it.

        Raises:
            ReplacedFolderError: something else is there, which is left alone.
            OSError: a part of it cannot be removed; everything else is.
        """
        with self.opened() as descriptor:
            _empty(descriptor)
        os.rmdir(self.path)  # noqa: PTH106 - fails for a link, which `unlink` would not


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def remove_tree(path: str | os.PathLike[str], *, within: int | None = None) -> None:
    """Remove what is at ``path``: a folder with everything in it, a file, or only a link.

    Follows no links, enters no other file system, and works at any depth.

    Args:
        path: the place; that nothing is there is no error.
        within: the descriptor of the folder that ``path`` is relative to.

    Raises:
        OSError: a part of it cannot be removed; everything else is.
    """
    with contextlib.suppress(FileNotFoundError):
        try:
            with folder_opened(path, within=within) as descriptor:
                _empty(descriptor)
        except LinkedFolderError:
            os.unlink(path, dir_fd=within)
        else:
            os.rmdir(path, dir_fd=within)


def _empty(root: int) -> None:
    """Remove everything in an open folder.

    Folders at any depth are moved up into ``root`` and emptied there: paths stay short, and two
    descriptors are enough.
    """
    mark, numbers = uuid.uuid4().hex, itertools.count(1)
    new_names = (f".{mark}-{number}" for number in numbers)
    first: OSError | None = None
    waiting = _without_files(root)
    while waiting:
        name = waiting.pop()
        try:
            waiting += _moved_up(name, root, new_names)
            os.rmdir(name, dir_fd=root)
        except OSError as error:
            first = first or error
    if first is not None:
        raise first


def _moved_up(name: str, root: int, new_names: Iterator[str]) -> list[str]:
    """Remove the files of a folder in ``root``, move its folders to ``root``; return their names.

    Raises:
        OSError: the folder is another file system, or something in it cannot be removed.
    """
    moved: list[str] = []
    with folder_opened(name, within=root) as folder:
        if _identity(folder)[0] != _identity(root)[0]:
            raise OSError(errno.EXDEV, "is another file system, and is left alone", name)
        for inside in _without_files(folder):
            moved.append(next(new_names))
            _move(inside, folder, moved[-1], root)
    return moved


def _without_files(folder: int) -> list[str]:
    """Remove everything but folders from an open folder, and return the names of the folders."""
    with contextlib.suppress(PermissionError):  # a folder of another user
        os.fchmod(folder, _OWNER_ONLY)  # an agent may have taken away the right to change it
    with os.scandir(folder) as entries:
        entries_found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in entries_found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries_found if is_folder]


def _move(name: str, source: int, target_name: str, target: int) -> None:
    try:
        os.rename(name, target_name, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:  # to move a folder takes the right to change it
        with folder_opened(name, within=source) as inside:
            os.fchmod(inside, _OWNER_ONLY)
        os.rename(name, target_name, src_dir_fd=source, dst_dir_fd=target)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder in the system's temporary folder, and remove it at the end.

    What cannot be removed is left: it must not replace the outcome of the work in the folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="promptgraft-")).resolve()
    with folder_opened(folder) as descriptor:
        own_folder = OwnFolder(folder, _identity(descriptor))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            own_folder.remove()
