"""Deliveries of a candidate's texts to an agent: in the call, or in a copy of a folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from promptgraft.agents.sources import Sources
from promptgraft.errors import ConfigError
from promptgraft.ground.folders import OwnFolder, remove_tree, temporary_folder
from promptgraft.runtime.deadline import Deadline

if TYPE_CHECKING:
    from promptgraft.agents import copies as folder_copies

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
        del folder
        return contextlib.nullcontext()

    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> contextlib.AbstractContextManager[Path | None]:
        """Return an empty context; never blocks."""
        del texts, deadline
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
        self._copies: folder_copies.Copies | None = None
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
        del deadline
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
    def _copies_in(self, folder: Path) -> Iterator[folder_copies.Copies]:
        copies_folder = folder.resolve() / "copies"
        self._left_out.add(str(copies_folder))
        with self._explained():
            copies_folder.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(copies_folder)  # of a killed run
            from promptgraft.agents import copies as folder_copies  # only for copied folders

            copies = folder_copies.Copies(OwnFolder.create(copies_folder))
        try:
            with self._explained():
                copies.begin(self._make_pattern)
            yield copies
        finally:
            copies.close()

    def _fill(self, texts: Mapping[str, str], copy: folder_copies.FolderTree) -> None:
        for name, file in self._sources.files.items():
            path = file.path.relative_to(self._folder).as_posix()
            copy.write(path, file.holding(texts[name]), file.mode)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"folder: {self._folder} cannot be copied: {error.filename}: {error.strerror}"
            ) from error

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
