"""The journal of a run on disk: one file, one line per answer."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from promptgraft.errors import JournalCorruptError, JournalError, JournalWriteError
from promptgraft.ground.content import File
from promptgraft.ground.files import (
    NEW_FILE,
    make_folder,
    sweep,
    sync_folder,
    write_all,
    write_atomically,
)
from promptgraft.ground.locks import held_lock
from promptgraft.ground.serde import shown
from promptgraft.ground.text import shell_word
from promptgraft.journal import records
from promptgraft.journal.base import Journal

_AHEAD_BYTES = 1 << 16  # read at once, since a replay reads nearly in file order


class FileJournal(Journal):
    """The journal in the file ``path``, created if it does not exist; a context manager.

    Opening locks the file for the life of the object, verifies every line and truncates a last
    line that a crash has left incomplete. Answers stay on disk; memory holds one entry per key.

    Raises:
        JournalLockedError: another journal object, here or elsewhere, has the file open.
        JournalCorruptError: the file was changed, or is not a journal; it is left as it is.
        JournalWriteError: the file cannot be opened for writing, or not be truncated.
        JournalError: it was written by another version, cannot be read, or is not a regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Resolved, so that one file has one lock however it is named.
        self._path = Path(path).resolve()
        self._process = os.getpid()
        self._failure: str | None = None
        self._unsynced = False
        self._ahead_at, self._ahead = 0, b""
        with contextlib.ExitStack() as stack:
            # First, so that the file is checked under the lock and closed before its release.
            self._lock_in(stack)
            self._descriptor, contents = self._open(), _LineScanner(self._path)
            stack.callback(os.close, self._descriptor)
            try:
                with os.fdopen(self._descriptor, "rb", _BUFFER_BYTES, closefd=False) as file:
                    contents.run(file)
            except OSError as error:
                raise self._unreadable(error) from error
            super().__init__(f"journal {self._path}", contents.header)
            self._spans = contents.spans
            self._end = contents.offset
            if contents.torn:
                self._cut()
                self._fsync()
            self._held = stack.pop_all()

    def keep_files(self, files: Iterable[File]) -> None:
        """Keep the bytes of images and files in the folder ``files`` beside the journal."""
        keep_files(self._path.with_name(FOLDER), files)

    def _keys(self) -> Mapping[str, object]:
        return self._spans

    def _line(self, key: str) -> bytes | None:
        span = self._spans.get(key)
        if span is None:
            return None
        start, length = span
        at = start - self._ahead_at
        if at < 0 or at + length > len(self._ahead):
            try:
                self._ahead = os.pread(self._descriptor, max(length, _AHEAD_BYTES), start)
            except OSError as error:
                raise self._unreadable(error) from error
            self._ahead_at, at = start, 0
        return self._ahead[at : at + length]

    def _unreadable(self, error: OSError) -> JournalError:
        return JournalError(
            f"journal {self._path} cannot be read: {error.strerror}; restore the file from a copy"
        )

    def _store(self, lines: Mapping[str, bytes]) -> None:
        start = at = self._end
        # Indexed before the write, so that Ctrl-C after it cannot leave a line without its entry.
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
        # A killed process may have left lines that were never synced.
        self._fsync()
        try:
            sync_folder(self._path.parent)
        except OSError as error:
            raise self._failed("not be synced", error) from error

    def _sync(self) -> None:
        self._check_sound()
        self._check_in_place()
        if self._unsynced:
            self._fsync()

    def _check_in_place(self) -> None:
        """Refuse to continue when the file was replaced or deleted: its answers would be lost."""
        try:
            in_place = os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            raise JournalWriteError(
                f"{self._name} was deleted while it was written to; its answers are lost: find out "
                "who deletes it, and start a new run"
            ) from None
        except OSError as error:
            raise self._unreadable(error) from error
        if not in_place:
            raise JournalCorruptError(
                f"{self._name} was replaced by another file while it was written to; find out who "
                "writes there, restore it from a copy, and run again"
            )

    def _release(self) -> None:
        # After a fork the lock belongs to the parent.
        if os.getpid() == self._process:
            self._held.close()

    def _lock_in(self, stack: contextlib.ExitStack) -> None:
        path = self._path
        beside = path.with_name(f"{path.name}.lock")
        if not path.parent.is_dir():
            raise JournalWriteError(
                f"journal {path} cannot be opened: there is no folder {path.parent}; "
                "create it first"
            )
        try:
            stack.enter_context(held_lock(beside, what=f"journal {path}", mend="close it there"))
        except OSError as error:
            raise JournalWriteError(
                f"journal {path} cannot be locked: {error.strerror}; make {beside} writable"
            ) from error

    def _open(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, NEW_FILE)
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
        # Set first: even a write that fails may have changed the file.
        self._unsynced = True
        try:
            write_all(self._descriptor, line)
            self._end = start + len(line)
        except OSError as error:
            raise JournalWriteError(
                f"{self._name} cannot be written: {error.strerror}; the latest answers are not "
                "recorded, all before them are; fix the cause and run again"
            ) from error
        finally:
            # Also after Ctrl-C, which may interrupt the write in the middle of the line.
            if self._end == start:
                self._cut()

    def _check_writable(self) -> None:
        self._check_sound()
        if os.getpid() != self._process:
            raise JournalError(
                f"{self._name} was opened by process {self._process} and not by its child "
                f"{os.getpid()}; append where it was opened"
            )
        # O_APPEND writes behind foreign bytes, and the index would then be wrong.
        size = os.lseek(self._descriptor, 0, os.SEEK_END)  # records are read with `pread`
        if size != self._end:
            raise JournalCorruptError(
                f"{self._name} was changed after it was opened: expected {self._end} bytes, "
                f"found {size}; find out who writes to it, then open it again"
            )

    def _check_sound(self) -> None:
        if self._failure is not None:
            raise JournalWriteError(f"{self._failure}; fix the cause and open it again")

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
        # After a failed fsync the next one may report success although the bytes were dropped.
        self._failure = f"journal {self._path} could {what}: {error.strerror}"
        return JournalWriteError(f"{self._failure}; fix the cause and open it again")


_Spans = dict[str, tuple[int, int]]
"""Offset and length of the line of each key, in file order."""

_BUFFER_BYTES = 1 << 20


class _LineScanner:
    """Reads a file once, verifies every line and locates each record.

    Afterwards ``header`` is the first line, if complete, ``offset`` the end of the last complete
    line, and ``torn`` the length of the incomplete rest that a crash has left.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.header: bytes | None = None
        self.spans: _Spans = {}
        self.offset = 0
        self.torn = 0

    def run(self, file: BinaryIO) -> None:
        start = file.read(len(records.HEADER_START))
        if not records.may_be_header(start):
            raise self._foreign(start)
        header = start + file.readline()
        if not header.endswith(b"\n"):
            self._check_torn(header)
            if not records.may_be_header(header, torn=True):
                raise self._foreign(header)
            self.torn = len(header)
            return
        try:
            records.decode_header(header)
        except JournalCorruptError as error:
            raise self._corrupt(str(error)) from None
        except JournalError as error:
            raise JournalError(f"journal {self._path}: {error}") from None
        self.header, self.offset = header, len(header)
        self._index(file)

    def _index(self, file: BinaryIO) -> None:
        spans, offset = self.spans, self.offset
        for line in file:
            self.offset = offset
            if line[-1] != 0x0A:
                self._check_torn(line)
                self.torn = len(line)
                return
            try:
                key = records.record_key(line)
            except JournalCorruptError as error:
                raise self._corrupt(str(error)) from None
            if key in spans:
                raise self._corrupt(f"the key `{key}` is recorded a second time")
            spans[key] = (offset, len(line))
            offset += len(line)
        self.offset = offset

    def _check_torn(self, tail: bytes) -> None:
        # An interrupted write leaves a part of one line, perhaps all but its newline. A whole line
        # followed by anything else lost its newline later: that is damage.
        length = records.sealed_length(tail)
        if length is not None and length < len(tail):
            raise self._corrupt(f"expected a newline at byte {self.offset + length}")

    def _foreign(self, start: bytes) -> JournalCorruptError:
        return JournalCorruptError(
            f"journal {self._path}, line 1, byte 0: expected a file that starts with "
            f"{records.HEADER_START.decode()}, found {shown(start)}; nothing was changed; "
            "name another file, or restore this one from a copy"
        )

    def _corrupt(self, reason: str) -> JournalCorruptError:
        # The header is line 1; every line before this one is in the index.
        line = len(self.spans) + 2 if self.offset else 1
        mend = (
            "give up this record and all behind it with "
            f"`truncate -s {self.offset} {shell_word(str(self._path))}`"
            if self.offset
            else "start a new run"
        )
        return JournalCorruptError(
            f"journal {self._path}, line {line}, byte {self.offset}: {reason}; "
            f"restore the file from a copy, or {mend}"
        )


FOLDER = "files"
"""The folder beside a journal."""

_ENDING = re.compile(r"(?:image|application|text)/([a-z0-9]{2,10})")


def keep_files(folder: Path, files: Iterable[File]) -> None:
    """Write files to a folder, except those that it holds, and addresses, which have no bytes.

    Raises:
        DataFormatError: a file cannot be read, or has changed.
        JournalWriteError: the folder cannot be written.
    """
    for file in files:
        if file.url is not None:
            continue
        path = folder / _name_of(file)
        try:
            if not _holds(path, file):
                make_folder(folder, under=folder.parent)
                sweep(path)
                write_atomically(path, file.read())
        except OSError as error:
            raise JournalWriteError(
                f"{path}: the file {file.name} cannot be kept: {error.strerror}; fix the cause "
                "and run again"
            ) from error


def kept_file(folder: Path, short: str) -> Path | None:
    """Return a kept file by the first digits of the SHA-256 in its name; None if there is none."""
    if not re.fullmatch(r"[0-9a-f]{16,64}", short):
        return None
    return next(folder.glob(f"{short}*"), None)


def _holds(path: Path, file: File) -> bool:
    # A file of the right length may still be damaged, which nothing would repair later.
    return (
        path.is_file()
        and path.stat().st_size == file.size
        and hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    )


def _name_of(file: File) -> str:
    ending = _ENDING.fullmatch(file.media_type)
    return f"{file.sha256}.{ending[1] if ending else 'bin'}"
