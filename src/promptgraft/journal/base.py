"""The contract of all journals, the one in memory, and the comparison of fingerprints."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import attrs

from promptgraft.errors import JournalCorruptError, JournalError, JournalMismatchError
from promptgraft.ground.content import File
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, Json, canonical_json, shown
from promptgraft.journal.records import (
    Contents,
    Record,
    answer_text,
    decode_header,
    decode_record,
    encode_header,
    encode_record,
    header_contents,
    record_text,
)

_DIGEST = re.compile("[0-9a-f]{64}")
_ABSENT = "absent"
_BEFORE = 20  # characters that two texts share, shown before their difference

NO_CONTENTS: Contents = FrozenMap()
"""Of a journal that does not say what its digests were made of."""

FUNCTIONS = "functions"
"""The key of a fingerprint that holds the identities of users' functions, by name."""

CALL = "/call/"
"""Between the key of an answer and the place of a call inside it, as in ``baseline/4/call/2.1``."""


_MOST_NAMED = 5_000
"""Items of one digest whose names a journal keeps; a header must stay cheap to read."""


def bounded(contents: Contents) -> Contents:
    """Return contents without those of digests that were made of too many items."""
    return {name: items for name, items in contents.items() if len(items) <= _MOST_NAMED}


def differences(
    recorded: Mapping[str, Json],
    asked: Mapping[str, Json],
    *,
    recorded_contents: Contents = NO_CONTENTS,
    asked_contents: Contents = NO_CONTENTS,
) -> tuple[str, ...]:
    """Return a phrase for each key whose values differ; empty for the same run.

    Of a digest whose contents are known on both sides, the phrase names the first item that
    differs.
    """
    if canonical_json(recorded) == canonical_json(asked):
        return ()
    ours, theirs = dict(_leaves(asked)), dict(_leaves(recorded))
    return tuple(
        f"`{name}` differs{item}"
        if (item := _first_item(recorded_contents.get(name), asked_contents.get(name)))
        else _phrase(name, theirs.get(name), ours.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if _text(theirs.get(name)) != _text(ours.get(name))
    )


def short_digest(value: str) -> str:
    """Return the first 12 digits of a digest."""
    return f"{value[:12]}…"


def _first_item(there: Mapping[str, str] | None, here: Mapping[str, str] | None) -> str:
    """Return which item of a digest differs first; empty if that is not known."""
    if not there or not here:
        return ""
    phrases = [
        f"{name} is not in the journal" if name not in there else f"{name} has changed"
        for name, value in here.items()
        if there.get(name) != value
    ]
    phrases += [f"{name} is not here" for name in there if name not in here]
    if not phrases:
        pairs = zip(there, here, strict=False)
        phrases = [f"{mine} is in another place" for theirs, mine in pairs if theirs != mine][:1]
    more = f", and {len(phrases) - 1:,} more" if len(phrases) > 1 else ""
    return f" ({phrases[0]}{more})" if phrases else ""


# Each value is wrapped in a tuple, because null differs from a key that is absent.
def _leaves(fingerprint: Mapping[str, Json]) -> Iterator[tuple[str, tuple[Json]]]:
    for name, value in fingerprint.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{name}.{inner}", (item,)) for inner, item in value.items())
        else:
            yield name, (value,)


def _text(leaf: tuple[Json] | None) -> str:
    return _ABSENT if leaf is None else canonical_json(leaf[0])


def _phrase(name: str, there: tuple[Json] | None, here: tuple[Json] | None) -> str:
    shown_there, shown_here = _short(there), _short(here)
    if there is not None and here is not None and name.startswith(f"{FUNCTIONS}."):
        before, after = (str(leaf[0]).rpartition(" ")[0] for leaf in (there, here))
        if before and before == after:  # only the digests of the code differ
            return f"`{name}` ({before}) has changed since the run"
    if shown_there == shown_here and there is not None and here is not None:
        # Both are cut to the same text, so show where they differ.
        return f"`{name}` {_parted(there[0], here[0])}"
    return f"`{name}` is {shown_there} in the journal, {shown_here} here"


def _parted(there: Json, here: Json) -> str:
    """Return how two values differ that begin in the same way."""
    if isinstance(there, list) and isinstance(here, list):
        at = _first_difference(there, here)
        theirs, ours = (_short((item[at],) if at < len(item) else None) for item in (there, here))
        if theirs != ours:
            return f"has {theirs} as item {at + 1} in the journal, {ours} here"
    texts = [item if isinstance(item, str) else canonical_json(item) for item in (there, here)]
    start = max(0, _first_difference(*texts) - _BEFORE)
    theirs, ours = (shown(text[start:]) for text in texts)
    return f"has {theirs} from character {start + 1} on in the journal, {ours} here"


def _first_difference(one: Sequence[Json], other: Sequence[Json]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    shorter = min(len(one), len(other))
    return next((at for at, (first, second) in pairs if first != second), shorter)


def _short(leaf: tuple[Json] | None) -> str:
    if leaf is None:
        return _ABSENT
    value = leaf[0]
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return short_digest(value)
    return shown(value)


@attrs.frozen
class Answer:
    """A recorded answer, which may itself be null."""

    value: Json = attrs.field(hash=False)
    kind: str


class Journal(ABC):
    """The answers of one run, each under a key: the position in the run that asked for it.

    Safe to share between threads; a context manager. Every method but ``close``, ``holds_any``,
    ``len()`` and ``in`` raises ``JournalError`` once the journal is closed. Subclasses store the
    lines and are called under the lock. ``name`` is used in messages; ``header`` is the first line
    of a journal that is not empty.
    """

    is_slow = False
    """Whether an append takes milliseconds, as in a database."""
    _mend = "start a new run or restore what differs"
    _reuse = ", or keep the old scores: `--reuse-scores`, in Python `reuse_scores=True`"

    def __init__(self, name: str, header: bytes | None = None) -> None:
        self._name = name
        self._fingerprint = None if header is None else decode_header(header)
        self._contents: Contents = {} if header is None else header_contents(header)
        self._begun = False
        self._closed = False
        self._calls: dict[str, list[str]] = {}
        self._lock = threading.Lock()

    def begin(
        self,
        fingerprint: Mapping[str, Json],
        *,
        contents: Contents = NO_CONTENTS,
        reuse_scores: bool = False,
        translated: Callable[[Mapping[str, Json]], Mapping[str, Json]] = dict,
    ) -> Mapping[str, Json]:
        """Bind the journal to the run that ``fingerprint`` identifies.

        An empty journal stores the fingerprint durably. Otherwise the journal keeps its own, whose
        ``functions`` may differ when scores are reused. One that an earlier version has written is
        compared as ``translated`` returns it. ``contents`` are what digests in it were made of,
        and only serve messages. Returns the fingerprint of the journal.
        Must be called before ``find`` and ``append``; further calls change nothing.

        Raises ``JournalMismatchError``, which names the differences, when the journal belongs to
        another run, ``JournalWriteError`` when the system refuses to write.
        """
        contents = bounded(contents)
        header = encode_header(fingerprint, contents)
        # Read back from JSON, so that new and reopened journals return the same fingerprint.
        fingerprint_kept = decode_header(header)
        with self._lock:
            self._check_open()
            if self._fingerprint is None:
                self._store_header(header)
                self._fingerprint, self._contents = fingerprint_kept, contents
            self._compare(
                fingerprint_kept, contents, reuse_scores=reuse_scores, translated=translated
            )
            if not self._begun:
                self._settle()
                self._index_calls(self._keys())
                self._begun = True
            return self._fingerprint

    def check(
        self,
        fingerprint: Mapping[str, Json],
        *,
        contents: Contents = NO_CONTENTS,
        reuse_scores: bool = False,
        translated: Callable[[Mapping[str, Json]], Mapping[str, Json]] = dict,
    ) -> None:
        """Raise what :meth:`begin` would raise for another run, and change nothing."""
        asked, contents = decode_header(encode_header(fingerprint)), bounded(contents)
        with self._lock:
            self._check_open()
            if self._fingerprint is not None:
                self._compare(asked, contents, reuse_scores=reuse_scores, translated=translated)

    def _compare(
        self,
        asked: Mapping[str, Json],
        contents: Contents,
        *,
        reuse_scores: bool,
        translated: Callable[[Mapping[str, Json]], Mapping[str, Json]],
    ) -> None:
        differing = differences(
            translated(self._fingerprint or {}),
            asked,
            recorded_contents=self._contents,
            asked_contents=contents,
        )
        functions = [name for name in differing if name.startswith(f"`{FUNCTIONS}.")]
        if len(functions) < len(differing) or (functions and not reuse_scores):
            mend = self._mend + self._reuse * (len(functions) == len(differing))
            raise JournalMismatchError(
                f"{self._name} belongs to another run: {'; '.join(differing)}; {mend}"
            )

    def find(self, key: str, digest: HexDigest) -> Answer | None:
        """Return the answer recorded under ``key``, or None; the caller may modify it.

        Raises ``JournalMismatchError`` when another question was recorded under ``key``,
        ``JournalCorruptError`` when the record has changed since the journal was opened.
        """
        with self._lock:
            self._check_begun()
            line = self._line(key)
        return None if line is None else self._answer(key, digest, line)

    def admit(self, key: str) -> None:  # noqa: B027 - only the journal of a replay is complete
        """Raise if no answer may be obtained for ``key``, which has none."""

    def record(self, key: str) -> Record | None:
        """Return the record under ``key``, whatever its question, or None.

        For what does not depend on the question. Raises ``JournalCorruptError`` as ``find`` does.
        """
        with self._lock:
            self._check_begun()
            line = self._line(key)
        return None if line is None else self._decode(key, line)

    def calls_of(self, key: str) -> Sequence[str]:
        """Return the keys of the calls inside an answer, ``KEY/call/…``, in recording order."""
        with self._lock:
            return tuple(self._calls.get(key, ()))

    @property
    def with_calls(self) -> Sequence[str]:
        """The keys of the answers that calls are recorded of."""
        with self._lock:
            return tuple(self._calls)

    def find_texts(self, keys: Sequence[str], digests: Sequence[HexDigest]) -> list[bytes | None]:
        """Return for each key the JSON of the answer that ``find`` returns, many times faster.

        The JSON is not parsed; only its checksum is verified. Raises as ``find`` does.
        """
        with self._lock:
            self._check_begun()
            lines = list(map(self._line, keys))
        return [
            None
            if line is None
            else answer_text(line, key, digest) or self._checked_text(key, digest, line)
            for key, digest, line in zip(keys, digests, lines, strict=True)
        ]

    def _checked_text(self, key: str, digest: HexDigest, line: bytes) -> bytes:
        """Return the JSON of an answer the slow way, which tells damage from a key with escapes."""
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
        """Record answers together; when this returns, they survive the death of the process.

        When it raises, nothing was recorded: a record would not read back equal
        (``DataFormatError``), the system refuses to write (``JournalWriteError``), something else
        wrote to the file (``JournalCorruptError``), or a key is recorded already
        (``JournalError``). A crash on the way may keep the first few of them.
        """
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
                # All are encoded before any is stored: together or not at all.
                lines[key] = encode_record(record)
            self._store(lines)
            self._index_calls(lines)

    def append(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        """Record one answer, as :meth:`append_all` does."""
        self.append_all([Record(key, digest, kind, answer)])

    def keep_files(self, files: Iterable[File]) -> None:  # noqa: B027 - only files have a place
        """Keep the bytes of images and files; a journal that is no file keeps only their digests.

        Raises ``JournalWriteError`` when the system refuses, and ``DataFormatError`` for a file
        that cannot be read any more.
        """

    def sync(self) -> None:
        """Make all appended records survive a power loss.

        Raises ``JournalWriteError`` when the system refuses; later appends are refused too.
        """
        with self._lock:
            self._check_open()
            self._sync()

    def close(self) -> None:
        """Sync and release the journal, even if the sync fails; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._sync()
            finally:
                self._release()

    def records(self) -> Iterator[Record]:
        """Iterate over the answers recorded so far, in recording order.

        Raises ``JournalCorruptError`` when one has changed since the journal was opened.
        """
        with self._lock:
            self._check_open()
            keys = tuple(self._keys())  # a snapshot: the caller may append while iterating
        return map(self._recorded, keys)

    def __contains__(self, key: str) -> bool:
        """Return whether an answer is recorded under ``key``."""
        return key in self._keys()

    def holds_any(self, keys: Iterable[str]) -> bool:
        """Return whether an answer is recorded under one of ``keys``."""
        return not self._keys().keys().isdisjoint(keys)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def __len__(self) -> int:
        return len(self._keys())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _keys(self) -> Mapping[str, object]:
        """Return the keys, in recording order."""

    @abstractmethod
    def _line(self, key: str) -> bytes | None:
        """Return the line of ``key``, or None."""

    @abstractmethod
    def _store(self, lines: Mapping[str, bytes]) -> None:
        """Keep lines under their new keys, or raise and keep nothing."""

    # A journal in memory needs none of these.

    def _store_header(self, line: bytes) -> None:  # noqa: B027
        """Keep the first line."""

    def _settle(self) -> None:  # noqa: B027
        """Make the lines of an earlier process and the name of the journal durable."""

    def _sync(self) -> None:  # noqa: B027
        """Make the lines stored since the last sync durable."""

    def _release(self) -> None:  # noqa: B027
        """Release the resources of the system."""

    def _index_calls(self, keys: Iterable[str]) -> None:
        for key in keys:
            if CALL in key:
                self._calls.setdefault(key.rpartition(CALL)[0], []).append(key)

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


class MemoryJournal(Journal):
    """Keeps the lines of a journal file in memory, for the life of the object."""

    def __init__(self) -> None:
        super().__init__("the journal in memory")
        # Lines, not values, so that answers are checked and copied as those of a file are.
        self._stored: dict[str, bytes] = {}

    def _keys(self) -> Mapping[str, object]:
        return self._stored

    def _line(self, key: str) -> bytes | None:
        return self._stored.get(key)

    def _store(self, lines: Mapping[str, bytes]) -> None:
        self._stored.update(lines)


class NoJournal(MemoryJournal):
    """Records nothing; for runs that cannot be resumed."""

    def __init__(self) -> None:
        super().__init__()
        self.begin({})

    def append_all(self, records: Sequence[Record]) -> None:
        del records
