"""The journal of a run on disk: one file, one line for each answer."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from promptgraft.errors import JournalCorruptError, JournalError, JournalWriteError
from promptgraft.files import sync_folder, write_all
from promptgraft.journal.keyed import KeyedJournal
from promptgraft.journal.lock import locked
from promptgraft.journal.scan import scan

_AHEAD_BYTES = 1 << 16


class FileJournal(KeyedJournal):
    """The journal in the file ``path``, made if it does not exist; a context manager.

    Opening locks the file for the life of the object, checks every line and cuts a last
    line that a crash has left unfinished. The answers stay on disk: memory holds one entry
    for each key.

    Raises:
        JournalLockedError: another journal object, here or elsewhere, has the file open.
        JournalCorruptError: a line is not what was written, or the file is no journal;
            nothing was changed.
        JournalWriteError: the file cannot be opened for writing, or not be cut.
        JournalError: it was written by another version, cannot be read, or is no file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Resolved, so that one file has one lock however it is named.
        self._path = Path(path).resolve()
        self._process = os.getpid()
        self._failure: str | None = None
        self._unsynced = False
        self._ahead_at, self._ahead = 0, b""
        with contextlib.ExitStack() as held:
            held.enter_context(locked(self._path))
            self._descriptor = self._open()
            held.callback(os.close, self._descriptor)
            try:
                contents = scan(self._descriptor, self._path)
            except OSError as error:
                raise JournalError(
                    f"journal {self._path} cannot be read: {error.strerror}; "
                    "restore the file from a copy"
                ) from error
            super().__init__(f"journal {self._path}", contents.header)
            self._spans = contents.spans
            self._end = contents.whole
            if contents.size > contents.whole:
                self._cut()
                self._fsync()
            self._held = held.pop_all()

    def _keys(self) -> Mapping[str, object]:
        return self._spans

    def _line(self, key: str) -> bytes | None:
        span = self._spans.get(key)
        if span is None:
            return None
        start, length = span
        # A replay asks for one line after the other, nearly in the order of the file.
        at = start - self._ahead_at
        if at < 0 or at + length > len(self._ahead):
            self._ahead_at, self._ahead = start, self._read(start, max(length, _AHEAD_BYTES))
            at = 0
        return self._ahead[at : at + length]

    def _read(self, start: int, length: int) -> bytes:
        try:
            return os.pread(self._descriptor, length, start)
        except OSError as error:
            raise JournalError(
                f"{self._name} cannot be read: {error.strerror}; restore the file from a copy"
            ) from error

    def _store(self, lines: Mapping[str, bytes]) -> None:
        start = at = self._end
        try:
            for key, line in lines.items():
                self._spans[key] = (at, len(line))
                at += len(line)
            self._write(b"".join(lines.values()))
        finally:
            if self._end == start:
                for key in lines:
                    self._spans.pop(key, None)

    def _store_header(self, line: bytes) -> None:
        self._write(line)

    def _settle(self) -> None:
        # Lines that a killed process has left behind were perhaps never synced either.
        self._fsync()
        try:
            sync_folder(self._path.parent)
        except OSError as error:
            raise self._failed("not be synced", error) from error

    def _sync(self) -> None:
        self._check_sound()
        if self._unsynced:
            self._fsync()

    def _release(self) -> None:
        # After a fork the lock belongs to the parent.
        if os.getpid() == self._process:
            self._held.close()

    def _open(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise JournalWriteError(
                f"journal {self._path} cannot be opened: {error.strerror}; make it writable"
            ) from error
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise JournalError(f"journal {self._path} is not a regular file; name another one")

    def _write(self, line: bytes) -> None:
        self._check_writable()
        start = self._end
        self._unsynced = True
        try:
            write_all(self._descriptor, line)
            self._end = start + len(line)
        except OSError as error:
            raise JournalWriteError(
                f"{self._name} cannot be written: {error.strerror}; the latest answers are not "
                "recorded, all before them are; mend the cause and run again"
            ) from error
        finally:
            # Not only after a refusal: Ctrl-C may have come in the middle of the line.
            if self._end == start:
                self._cut()

    def _check_writable(self) -> None:
        self._check_sound()
        if os.getpid() != self._process:
            raise JournalError(
                f"{self._name} was opened by process {self._process} and not by its child "
                f"{os.getpid()}; append where it was opened"
            )
        size = os.fstat(self._descriptor).st_size
        if size != self._end:
            raise JournalCorruptError(
                f"{self._name} was changed after it was opened: expected {self._end} bytes, "
                f"found {size}; find out who writes to it, then open it again"
            )

    def _check_sound(self) -> None:
        if self._failure is not None:
            raise JournalWriteError(f"{self._failure}; mend the cause and open it again")

    def _cut(self) -> None:
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as error:
            raise self._failed("not be cut to its last whole line", error) from error

    def _fsync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._failed("not be synced", error) from error
        self._unsynced = False

    def _failed(self, what: str, error: OSError) -> JournalWriteError:
        # After a failed fsync the next one may report success for bytes that were dropped.
        self._failure = f"journal {self._path} could {what}: {error.strerror}"
        return JournalWriteError(f"{self._failure}; mend the cause and open it again")
