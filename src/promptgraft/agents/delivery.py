"""Deliveries of a candidate's texts to an agent: in the call, or in a copy of a folder."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import attrs

from promptgraft.agents.sources import Sources
from promptgraft.errors import ConfigError
from promptgraft.ground.files import write_all
from promptgraft.ground.folders import (
    OwnFolder,
    ReplacedFolderError,
    folder_opened,
    remove_tree,
    temporary_folder,
)
from promptgraft.runtime.deadline import Deadline

_logger = logging.getLogger("promptgraft")

_SETTLED_NS = 100_000_000  # two changes within one tick of the clock may leave one status behind
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_ONLY = 0o600
_PART = 1 << 16

_Status = tuple[int, ...]


@attrs.frozen
class FolderTree:
    """A folder that promptgraft filled, with the status of every entry.

    Attributes:
        folder: the folder.
        entries: device, inode, mode, and for other than folders size and times, by relative path.
    """

    folder: OwnFolder
    entries: Mapping[str, _Status]

    @classmethod
    def of(cls, folder: OwnFolder) -> FolderTree:
        """Return a folder with what is in it now."""
        entries: dict[str, _Status] = {}
        tree = cls(folder, entries)
        for path, status, _ in tree.walked():
            # One by one: a folder is entered if it is among the entries by then.
            entries.update({path: status})
        return tree

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[int]:
        """Yield the descriptor of a folder in it, or of the whole if ``name`` is empty.

        Raises:
            ReplacedFolderError: something else is there.
            OSError: it cannot be opened.
        """
        with self.folder.opened() as root:
            if not name:
                yield root
                return
            with folder_opened(name, within=root) as inner:
                # The descriptor tells what was opened, whatever became of the folders above it.
                if _status(os.fstat(inner)) != self.entries[name]:
                    raise ReplacedFolderError(self.folder.path / name)
                yield inner

    def walked(self) -> Iterator[tuple[str, _Status, int]]:
        """Yield each entry: its path, its status and the descriptor of its folder.

        Folders are entered if ``entries`` names them by then.
        """
        waiting = [""]
        while waiting:
            name = waiting.pop()
            with self.opened(name) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    path = f"{name}/{entry.name}" if name else entry.name
                    status = _status(entry.stat(follow_symlinks=False))
                    yield path, status, folder
                    if path in self.entries and _is_folder(status):
                        waiting.append(path)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Write a file, in the place of whatever is there."""
        parent, _, name = path.rpartition("/")
        with self.opened(parent) as folder:
            remove_tree(name, within=folder)
            descriptor = os.open(name, _NEW, _OWNER_ONLY, dir_fd=folder)
            try:
                # Not written atomically: a copy that a kill leaves behind is never used again.
                write_all(descriptor, data)
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)


class Copies:
    """The copies of one run: the pattern that they are made from, and the spare ones."""

    def __init__(self, folder: OwnFolder) -> None:
        self._folder = folder
        self._pattern = FolderTree(folder, {})
        self._numbers = itertools.count(1)
        self._spare: list[FolderTree] = []
        self._has_told = False

    def begin(self, make: Callable[[Path], None]) -> None:
        """Fill the pattern with ``make``, and copy it once.

        A folder that cannot be copied fails here, before a rollout.
        """
        pattern = self._folder.subfolder("pattern")
        make(pattern.path)
        self._pattern = FolderTree.of(pattern)
        self._spare.append(self._new())

    def take(self, fill: Callable[[FolderTree], None]) -> FolderTree:
        """Return a copy for exclusive use, after ``fill`` has written the texts to it."""
        while True:
            try:
                spare = self._spare.pop()
            except IndexError:
                break
            try:
                fill(spare)
            except OSError:  # a process that an agent left behind is still at work there
                self.drop(spare)
            else:
                return spare
        fresh = self._new()
        fill(fresh)
        return fresh

    def _new(self) -> FolderTree:
        with self._folder.opened() as within:
            folder = OwnFolder.create(self._new_path(), within=within)
        return self._restored(FolderTree(folder, {}), used_at=0)

    def give_back(self, copy: FolderTree, *, used_at: int) -> None:
        """Restore a copy and keep it for another rollout."""
        try:
            restored = self._restored(copy, used_at=used_at)
            path = self._new_path()
            with self._folder.opened() as within:
                # Processes that the agent has left behind still know the old name.
                os.rename(copy.folder.path.name, path.name, src_dir_fd=within, dst_dir_fd=within)
        # An agent may have taken away the rights to restore it; a new copy is made instead.
        except OSError:
            self.drop(copy)
        else:
            folder = attrs.evolve(copy.folder, path=path)
            self._spare.append(attrs.evolve(restored, folder=folder))

    def drop(self, copy: FolderTree) -> None:
        """Remove a copy; of something else in its place only a link."""
        try:
            copy.folder.remove()
        except ReplacedFolderError:
            self._tell(copy.folder.path)
            with contextlib.suppress(OSError), self._folder.opened() as within:
                remove_tree(copy.folder.path.name, within=within)
        except OSError:
            pass  # removed with all copies, or left

    def close(self) -> None:
        """Remove all copies."""
        try:
            self._folder.remove()
        except ReplacedFolderError:
            self._tell(self._folder.path)
        except OSError:
            pass  # what an agent made unremovable is left; it must not replace the result

    def _new_path(self) -> Path:
        # Never reuse a path: processes left behind by an agent must not find their copy again.
        return self._folder.path / str(next(self._numbers))

    def _tell(self, path: Path) -> None:
        if not self._has_told:
            self._has_told = True
            _logger.warning(
                "folder: the agent put something else in the place of its copy %s; nothing behind "
                "a link there is read, written or removed; let the agent work inside its copy",
                path,
            )

    def _restored(self, copy: FolderTree, *, used_at: int) -> FolderTree:
        """Return the copy restored: new entries removed, changed or removed ones replaced."""
        statuses: dict[str, _Status] = {}
        restored = attrs.evolve(copy, entries=statuses)
        for path, status, folder in restored.walked():
            if copy.entries.get(path) == status and self._is_same(path, status, folder, used_at):
                statuses[path] = status
            else:
                remove_tree(path.rpartition("/")[2], within=folder)
        # A folder must exist before what is in it.
        missing = sorted(self._pattern.entries.keys() - statuses.keys(), key=_parents_first)
        for parent, paths in itertools.groupby(missing, key=lambda path: path.rpartition("/")[0]):
            with self._pattern.opened(parent) as source, restored.opened(parent) as target:
                for path in paths:
                    name = path.rpartition("/")[2]
                    statuses[path] = _copied(name, source, target, self._pattern.entries[path])
        return restored

    def _is_same(self, path: str, status: _Status, folder: int, used_at: int) -> bool:
        """Return whether an entry of unchanged status has the content of the pattern."""
        # The change time cannot be set by a program, unlike the modification time.
        if not stat.S_ISREG(status[2]) or used_at - status[-1] > _SETTLED_NS:
            return True
        parent, _, name = path.rpartition("/")
        with self._pattern.opened(parent) as source:
            return _same_bytes(name, source, folder)


def _parents_first(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _is_folder(status: _Status) -> bool:
    return stat.S_ISDIR(status[2])


def _status(status: os.stat_result) -> _Status:
    what = (status.st_dev, status.st_ino, status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return what  # its size and times change with its content
    return (*what, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _copied(name: str, source: int, target: int, expected: _Status) -> _Status:
    """Copy an entry of the pattern into an open folder, and return the status of the copy."""
    if _is_folder(expected):
        folder = OwnFolder.create(Path(name), within=target)
        with folder_opened(name, within=target) as copied_folder:
            os.fchmod(copied_folder, stat.S_IMODE(expected[2]))
            return (*folder.identity, expected[2])
    if stat.S_ISLNK(expected[2]):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    else:
        _copy_file(name, source, target, expected)
    return _status(os.stat(name, dir_fd=target, follow_symlinks=False))


def _copy_file(name: str, source: int, target: int, expected: _Status) -> None:
    with os.fdopen(os.open(name, _READ, dir_fd=source), "rb") as pattern:
        status = os.fstat(pattern.fileno())
        if _status(status) != expected:
            raise OSError(errno.ESTALE, "an agent changed the original of its copies", name)
        with os.fdopen(os.open(name, _NEW, _OWNER_ONLY, dir_fd=target), "wb") as copy:
            shutil.copyfileobj(pattern, copy, _PART)
            copy.flush()
            os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fchmod(copy.fileno(), stat.S_IMODE(expected[2]))


def _same_bytes(name: str, *folders: int) -> bool:
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(os.fdopen(os.open(name, _READ, dir_fd=folder), "rb"))
            for folder in folders
        ]
        parts = [iter(partial(file.read, _PART), b"") for file in files]
        return all(len(set(part)) == 1 for part in itertools.zip_longest(*parts))


_DEEPEST = 200  # folders within each other; nobody means to copy more
# History is large, and the stores of the project must not be written by an agent.
_NOT_COPIED = {".git", ".promptgraft"}


@attrs.frozen
class InCall:
    """Passes the texts in the call (``AgentCall.texts``).

    Attributes:
        kind: ``argument``, or ``request`` for an agent that sends them in fields of its own.
    """

    kind: Literal["argument", "request"] = "argument"

    def opened(self, folder: Path) -> contextlib.AbstractContextManager[None]:
        """Return a context for one run; ``folder`` is not used."""
        return contextlib.nullcontext()

    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> contextlib.AbstractContextManager[Path | None]:
        """Return an empty context; never blocks."""
        return contextlib.nullcontext()


class RunScope:
    """A context that is entered for its first user and exited after its last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()

    @contextlib.contextmanager
    def entered(self, context: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Enter ``context`` unless one is entered already."""
        with self._lock:
            if not self._users:
                context.__enter__()
                self._context = context
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    # Without the exception of its last user: others of the same context may have
                    # succeeded.
                    self._context.__exit__(None, None, None)


class FolderCopy:
    """Gives each rollout its own copy of a folder, whose files hold the candidate.

    Copies share no files with the folder or each other, not even by hard links, so that writes in
    place stay within a copy. Because creating many files is slow, copies are restored after a
    rollout and reused under another name.

    The folder is read once per run. Links within the folder become links within the copy.

    Args:
        sources: the texts; texts of callbacks are only passed in the call.
        folder: the folder to copy, which contains every file of the sources.
        leave_out: folders in it that are not copied; ``.git`` and ``.promptgraft`` never are.

    Raises:
        ConfigError: it is not a folder, a file of the sources is not in it or in a part that is
            left out, or a link in it leads to a folder outside.
        OSError: it cannot be read.
    """

    kind = "folder"

    def __init__(self, sources: Sources, folder: Path, *, leave_out: Sequence[Path] = ()) -> None:
        self._sources = sources
        self._folder = folder.resolve()
        self._left_out = {str(path.resolve()) for path in leave_out}
        if not self._folder.is_dir():
            raise ConfigError(f"folder: expected a folder, found none at {folder}")
        copied = {entry.path for entry in self._entries(str(self._folder))}
        for name, file in sources.files.items():
            if str(file.path) not in copied:
                raise ConfigError(
                    f"folder: expected the file of text `{name}` in {folder} and in no folder that "
                    f"is left out, found {file.name}; name a folder that holds all files"
                )
        self._copies: Copies | None = None
        self._scope = RunScope()

    def opened(self, folder: Path) -> contextlib.AbstractContextManager[None]:
        """Keep copies below ``folder`` during the context; remove them and any leftovers."""
        return self._scope.entered(self._opened(folder))

    @contextlib.contextmanager
    def _opened(self, folder: Path) -> Iterator[None]:
        with self._copies_in(folder) as copies:
            self._copies = copies
            try:
                yield
            finally:
                self._copies = None

    @contextlib.contextmanager
    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> Iterator[Path]:
        """Return a context with a copy that holds ``texts``; does not wait for other rollouts.

        Outside of :meth:`opened` the copy is in the system's temporary folder.

        Raises:
            ConfigError: the folder cannot be copied.
        """
        with contextlib.ExitStack() as opened:
            copies = self._copies
            if copies is None:
                folder = opened.enter_context(temporary_folder())
                copies = opened.enter_context(self._copies_in(folder))
            with self._explained():
                copy = copies.take(partial(self._fill, texts))
            began = time.time_ns()
            try:
                yield copy.folder.path
            except BaseException:
                # An agent that failed or ran out of time may still write to it.
                copies.drop(copy)
                raise
            copies.give_back(copy, used_at=began)

    @contextlib.contextmanager
    def _copies_in(self, folder: Path) -> Iterator[Copies]:
        copies_folder = folder.resolve() / "copies"
        self._left_out.add(str(copies_folder))
        with self._explained():
            copies_folder.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(copies_folder)  # of a killed run
            copies = Copies(OwnFolder.create(copies_folder))
        try:
            with self._explained():
                copies.begin(self._make_pattern)
            yield copies
        finally:
            copies.close()

    def _fill(self, texts: Mapping[str, str], copy: FolderTree) -> None:
        # Several texts may be in one file.
        for name, file in {
            file.path: (name, file) for name, file in self._sources.files.items()
        }.values():
            path = file.path.relative_to(self._folder).as_posix()
            copy.write(path, self._sources.content(name, texts).encode(), file.mode)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(f"folder: {self._folder} cannot be copied: {error}") from error

    def _make_pattern(self, pattern: Path) -> None:
        """Copy everything except the files that candidates change."""
        changing = {str(file.path) for file in self._sources.files.values()}
        base = len(str(self._folder))
        for entry in self._entries(str(self._folder)):
            target = f"{pattern}{entry.path[base:]}"
            if entry.is_dir(follow_symlinks=False):
                Path(target).mkdir()
                shutil.copymode(entry.path, target)
            elif (inner := self._inner(entry)) is not None:
                Path(target).symlink_to(inner)
            elif entry.path not in changing:
                shutil.copy2(entry.path, target)

    def _entries(self, folder: str, depth: int = 1) -> Iterator[os.DirEntry[str]]:
        """Yield the entries of a folder that are copied, parents first."""
        if depth > _DEEPEST:
            raise ConfigError(
                f"folder: expected at most {_DEEPEST} folders within each other, found more in "
                f"{self._folder}; name another folder"
            )
        with os.scandir(folder) as entries_there:
            entries = list(entries_there)
        for entry in entries:
            if entry.name in _NOT_COPIED or entry.path in self._left_out:
                continue
            if self._inner(entry) is None and not entry.is_file():
                if not entry.is_dir():
                    continue  # a socket, or a link that leads nowhere
                if entry.is_symlink():
                    raise ConfigError(
                        f"folder: {entry.path} is a link to a folder outside of {self._folder}, "
                        "which rollouts would share; name another folder"
                    )
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from self._entries(entry.path, depth + 1)

    def _inner(self, entry: os.DirEntry[str]) -> str | None:
        """Return the relative target of a link that stays within the folder; None otherwise."""
        if not entry.is_symlink():
            return None
        real = Path(entry.path).resolve()
        if not real.is_relative_to(self._folder):
            return None
        return os.path.relpath(real, Path(entry.path).parent)
