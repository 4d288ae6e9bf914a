"""Reads a whole journal file once: checks every line, finds where each record is."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import BinaryIO

import attrs

from promptgraft.errors import JournalCorruptError, JournalError
from promptgraft.journal.records import (
    HEADER_START,
    decode_header,
    may_be_torn_header,
    may_start_journal,
    record_key,
    sealed_length,
)
from promptgraft.serde import shown

Spans = dict[str, tuple[int, int]]
"""Offset and length of the line of each key, in file order."""

_BUFFER_BYTES = 1 << 20


@attrs.frozen
class Contents:
    """What a journal file holds; ``size`` is larger than ``whole`` when its tail is torn."""

    header: bytes | None
    spans: Spans
    whole: int
    size: int


def scan(descriptor: int, path: Path) -> Contents:
    """Read the journal behind ``descriptor`` from its start; ``path`` is for messages.

    Raises:
        JournalCorruptError: a line is not what was written, or the file is no journal.
        JournalError: another version of promptgraft has written it.
    """
    with os.fdopen(descriptor, "rb", _BUFFER_BYTES, closefd=False) as file:
        return _Scanner(path).run(file)


class _Scanner:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._spans: Spans = {}
        self._offset = 0

    def run(self, file: BinaryIO) -> Contents:
        start = file.read(len(HEADER_START))
        if not may_start_journal(start):
            raise self._foreign(start)
        header = start + file.readline()
        if not header.endswith(b"\n"):
            self._check_torn(header)
            if not may_be_torn_header(header):
                raise self._foreign(header)
            return Contents(None, {}, 0, len(header))
        self._check_header(header)
        self._offset = len(header)
        torn = self._index(file)
        return Contents(header, self._spans, self._offset, self._offset + torn)

    def _index(self, file: BinaryIO) -> int:
        """Index every whole line; return the length of the torn one after them, or 0."""
        spans, offset = self._spans, self._offset
        for line in file:
            self._offset = offset
            if line[-1] != 0x0A:
                self._check_torn(line)
                return len(line)
            try:
                key = record_key(line)
            except JournalCorruptError as error:
                raise self._corrupt(str(error)) from None
            if key in spans:
                raise self._corrupt(f"the key `{key}` is recorded a second time")
            spans[key] = (offset, len(line))
            offset += len(line)
        self._offset = offset
        return 0

    def _check_header(self, line: bytes) -> None:
        try:
            decode_header(line)
        except JournalCorruptError as error:
            raise self._corrupt(str(error)) from None
        except JournalError as error:
            raise JournalError(f"journal {self._path}: {error}") from None

    def _check_torn(self, tail: bytes) -> None:
        # An interrupted write leaves a part of one line. A whole line without its newline
        # may be that; a whole line with anything else behind it has lost its newline later.
        length = sealed_length(tail)
        if length is not None and length < len(tail):
            raise self._corrupt(f"expected a newline at byte {self._offset + length}")

    def _foreign(self, start: bytes) -> JournalCorruptError:
        return JournalCorruptError(
            f"journal {self._path}, line 1, byte 0: expected a file that starts with "
            f"{HEADER_START.decode()}, found {shown(start)}; nothing was changed; "
            "name another file, or restore this one from a copy"
        )

    def _corrupt(self, reason: str) -> JournalCorruptError:
        # The header is line 1; every line before this one is in the index.
        line = len(self._spans) + 2 if self._offset else 1
        mend = (
            "give up this record and all behind it with "
            f"`truncate -s {self._offset} {shlex.quote(str(self._path))}`"
            if self._offset
            else "start a new run"
        )
        return JournalCorruptError(
            f"journal {self._path}, line {line}, byte {self._offset}: {reason}; "
            f"restore the file from a copy, or {mend}"
        )
