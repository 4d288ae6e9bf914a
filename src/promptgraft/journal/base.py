"""What the optimizers know about journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import attrs

from promptgraft.journal.records import Record
from promptgraft.serde import HexDigest, Json


@attrs.frozen
class Answer:
    """A recorded answer; wrapped, because an answer may itself be null."""

    value: Json
    kind: str


class Journal(Protocol):
    """The answers of one run, each under a key: the position in the run that asked for it.

    Safe to share between threads. Every method but ``close``, ``holds_any``, ``len()`` and ``in``
    raises ``JournalError`` once the journal is closed.
    """

    def begin(self, fingerprint: Mapping[str, Json]) -> None:
        """Bind the journal to the run that ``fingerprint`` identifies.

        An empty journal takes the fingerprint and has it on disk when this returns.
        Needed before ``find`` and ``append``; calling it again changes nothing.

        Raises:
            JournalMismatchError: the journal belongs to another run; names what differs.
            JournalWriteError: the system refuses to write.
            DataFormatError: the fingerprint is not plain data.
        """
        ...

    def find(self, key: str, digest: HexDigest) -> Answer | None:
        """Return what was recorded under ``key``, or None.

        Every call returns fresh data that the caller may change.

        Raises:
            JournalMismatchError: another question was recorded under ``key``.
            JournalCorruptError: the record has changed since the journal was opened.
            JournalError: ``begin`` was not called.
        """
        ...

    def find_texts(self, keys: Sequence[str], digests: Sequence[HexDigest]) -> list[bytes | None]:
        """Return the JSON of what ``find`` returns for each key, which is many times as fast.

        It is as it was written: what the checksum does not find, nobody has looked for.

        Raises:
            As ``find`` does.
        """
        ...

    def append_all(self, records: Sequence[Record]) -> None:
        """Record answers together; when this returns, they survive the death of the process.

        When it raises, nothing was recorded. A crash on the way keeps the first few of them.

        Raises:
            DataFormatError: a record would not read back as it is (NaN, odd digest, ...).
            JournalWriteError: the system refuses to write.
            JournalCorruptError: somebody else has written to the file.
            JournalError: a key is recorded already, or ``begin`` was not called.
        """
        ...

    def append(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        """Record one answer, as :meth:`append_all` does."""
        ...

    def sync(self) -> None:
        """Make what was appended survive a power loss; nothing new, nothing done.

        Raises:
            JournalWriteError: the system refuses. No append is taken from then on.
        """
        ...

    def close(self) -> None:
        """Sync and let go of the journal; a second call does nothing.

        Raises:
            JournalWriteError: the last sync failed; the journal is closed all the same.
        """
        ...

    def __contains__(self, key: str) -> bool:
        """Tell whether an answer is recorded under ``key``."""
        ...

    def holds_any(self, keys: Iterable[str]) -> bool:
        """Tell whether an answer is recorded under one of ``keys``."""
        ...

    def __len__(self) -> int:
        """Return the number of recorded answers."""
        ...

    def records(self) -> Iterator[Record]:
        """Return the answers recorded so far, in the order of their recording.

        Raises:
            JournalCorruptError: a record has changed since the journal was opened.
        """
        ...
