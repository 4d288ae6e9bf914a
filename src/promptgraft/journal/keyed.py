"""The rules that every journal keeps, wherever its lines are."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from promptgraft.errors import JournalCorruptError, JournalError, JournalMismatchError
from promptgraft.journal.base import Answer
from promptgraft.journal.fingerprint import differences, short_digest
from promptgraft.journal.records import (
    Record,
    answer_text,
    decode_header,
    decode_record,
    encode_header,
    encode_record,
    record_text,
)
from promptgraft.serde import HexDigest, Json


class KeyedJournal(ABC):
    """Keeps the rules; subclasses keep the lines, and are called under the lock.

    ``name`` is how messages call the journal; ``header`` is its first line, if it has one.
    """

    def __init__(self, name: str, header: bytes | None = None) -> None:
        self._name = name
        self._fingerprint = None if header is None else decode_header(header)
        self._begun = False
        self._closed = False
        self._lock = threading.Lock()

    def begin(self, fingerprint: Mapping[str, Json]) -> None:
        header = encode_header(fingerprint)
        asked = decode_header(header)
        with self._lock:
            self._check_open()
            if self._fingerprint is None:
                self._store_header(header)
                self._fingerprint = asked
            differing = differences(self._fingerprint, asked)
            if differing:
                raise JournalMismatchError(
                    f"{self._name} belongs to another run: {'; '.join(differing)}; "
                    "start a new run or restore what differs"
                )
            if not self._begun:
                self._settle()
                self._begun = True

    def find(self, key: str, digest: HexDigest) -> Answer | None:
        with self._lock:
            self._check_begun()
            line = self._line(key)
        return None if line is None else self._answer(key, digest, line)

    def find_texts(self, keys: Sequence[str], digests: Sequence[HexDigest]) -> list[bytes | None]:
        with self._lock:
            self._check_begun()
            lines = list(map(self._line, keys))
        return [
            None
            if line is None
            else answer_text(line, key, digest) or self._text(key, digest, line)
            for key, digest, line in zip(keys, digests, lines, strict=True)
        ]

    def _text(self, key: str, digest: HexDigest, line: bytes) -> bytes:
        """Look closely: damage, another question, a key with escapes."""
        self._answer(key, digest, line)
        return record_text(line)

    def _answer(self, key: str, digest: HexDigest, line: bytes) -> Answer:
        record = self._decode(key, line)
        if record.digest != digest:
            raise JournalMismatchError(
                f"{self._name} holds the answer to another question under `{key}`: digest "
                f"{short_digest(record.digest)} in the journal, {short_digest(digest)} here; "
                "start a new run or restore the code and the data that it was made with"
            )
        return Answer(record.answer, record.kind)

    def append_all(self, records: Sequence[Record]) -> None:
        lines: dict[str, bytes] = {}
        with self._lock:
            self._check_begun()
            for record in records:
                key = record.key
                if key in lines or self._line(key) is not None:
                    raise JournalError(
                        f"{self._name} holds an answer under `{key}` already; "
                        "look for it with `find` before asking again"
                    )
                lines[key] = encode_record(record)
            self._store(lines)

    def append(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        self.append_all([Record(key, digest, kind, answer)])

    def sync(self) -> None:
        with self._lock:
            self._check_open()
            self._sync()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._sync()
            finally:
                self._release()

    def records(self) -> Iterator[Record]:
        with self._lock:
            self._check_open()
            keys = tuple(self._keys())
        return map(self._recorded, keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys()

    def holds_any(self, keys: Iterable[str]) -> bool:
        return not self._keys().keys().isdisjoint(keys)

    def __len__(self) -> int:
        return len(self._keys())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def _keys(self) -> Mapping[str, object]:
        """Return the keys, in the order of their recording."""

    @abstractmethod
    def _line(self, key: str) -> bytes | None:
        """Return the line of ``key``, or None."""

    @abstractmethod
    def _store(self, lines: Mapping[str, bytes]) -> None:
        """Keep lines under their new keys, or raise and keep nothing."""

    @abstractmethod
    def _store_header(self, line: bytes) -> None:
        """Keep the first line."""

    @abstractmethod
    def _settle(self) -> None:
        """Make durable what was there before this process, and the name of the journal."""

    @abstractmethod
    def _sync(self) -> None:
        """Make durable what was stored since the last time."""

    @abstractmethod
    def _release(self) -> None:
        """Let go of what the journal holds of the system."""

    def _recorded(self, key: str) -> Record:
        with self._lock:
            self._check_open()
            line = self._line(key)
        return self._decode(key, line or b"")

    def _decode(self, key: str, line: bytes) -> Record:
        try:
            record = decode_record(line)
        except JournalCorruptError as error:
            raise self._changed(key, str(error)) from None
        if record.key != key:
            raise self._changed(key, f"found the record of `{record.key}`")
        return record

    def _changed(self, key: str, reason: str) -> JournalCorruptError:
        return JournalCorruptError(
            f"{self._name} was changed after it was opened, at the record of `{key}`: {reason}; "
            "find out who writes to it and restore it from a copy"
        )

    def _check_open(self) -> None:
        if self._closed:
            raise JournalError(f"{self._name} is closed; open it again")

    def _check_begun(self) -> None:
        self._check_open()
        if not self._begun:
            raise JournalError(f"{self._name} is not bound to a run yet; call `begin` first")
