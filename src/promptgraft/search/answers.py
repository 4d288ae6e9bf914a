"""Answers that cannot be recomputed: asked for once, then remembered by the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from promptgraft.journal.base import Journal
from promptgraft.journal.records import Record
from promptgraft.serde import HexDigest, Json

Working = Callable[[str, int, int], None]
"""Is told where answers are waited for: position, how many are there, how many are wanted."""

_READER = msgspec.json.Decoder()
_FAULT = "fault"
_SPENT = "spent"


def silent(position: str, done: int, total: int) -> None:
    """Ignore that answers are waited for."""
    del position, done, total


class Answers:
    """The journal as a run sees it.

    A *fault* of a provider is an answer only once the run goes on without it. Until then it
    is held back, so that a run which stops because of faults asks again when it is resumed.
    Each step that is under way holds back its own.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._held: dict[str, tuple[HexDigest, Json]] = {}

    def recall(self, key: str, digest: HexDigest) -> Json | None:
        """Return what was recorded for the question, or None; recorded answers are objects.

        Raises:
            JournalMismatchError: the journal holds the answer to another question there.
        """
        [text] = self.recall_texts([key], [digest])
        if text is None or self._journal is None:
            return None
        try:
            answer: Json = _READER.decode(text)
        except msgspec.DecodeError:  # half characters and the like, which JSON itself can hold
            found = self._journal.find(key, digest)
            return None if found is None else found.value
        return answer

    def recall_texts(self, keys: Sequence[str], digests: Sequence[HexDigest]) -> list[bytes | None]:
        """Return what was recorded for each question as JSON, or None.

        Raises:
            JournalMismatchError: the journal holds the answer to another question there.
        """
        if self._journal is None:
            return [None] * len(keys)
        return self._journal.find_texts(keys, digests)

    def record(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        """Record an answer before anybody uses it."""
        if self._journal is not None:
            self._journal.append(key, digest, kind, answer)

    def record_all(self, records: Sequence[Record]) -> None:
        """Record answers before anybody uses them."""
        if self._journal is not None and records:
            self._journal.append_all(records)

    def spend(self, key: str, digest: HexDigest, spent: Json) -> None:
        """Record calls that were made for an answer which did not come of them."""
        if self._journal is not None:
            number = len(self.spent(key, digest))
            self._journal.append(_spent_key(key, number), digest, _SPENT, spent)

    def spent(self, key: str, digest: HexDigest) -> list[Json]:
        """Return the calls that were made for an answer before it came, attempt by attempt."""
        attempts: list[Json] = []
        while self._journal is not None and _spent_key(key, len(attempts)) in self._journal:
            attempts.append(self.recall(_spent_key(key, len(attempts)), digest))
        return attempts

    def has_spent(self, keys: Sequence[str]) -> bool:
        """Tell whether calls were made for one of some answers before it came.

        Nearly always there were none, and a replay asks this for every batch.
        """
        first = [_spent_key(key, 0) for key in keys]
        return self._journal is not None and self._journal.holds_any(first)

    def hold(self, key: str, digest: HexDigest, fault: Json) -> None:
        """Keep a fault until the run goes on without the answer."""
        self._held[key] = (digest, fault)

    def accept_faults(self) -> None:
        """Record the faults that were held: the run goes on without those answers."""
        held = self.let_go().items()
        self.record_all([Record(key, digest, _FAULT, fault) for key, (digest, fault) in held])

    def step(self) -> Answers:
        """Return the same journal for a step, with no fault that is held."""
        return Answers(self._journal)

    def take_over(self, step: Answers) -> None:
        """Hold the faults that a step holds: the run has not gone on yet."""
        self._held |= step.let_go()

    def let_go(self) -> dict[str, tuple[HexDigest, Json]]:
        """Return the faults that were held, by key with their digests; they are no longer."""
        held, self._held = self._held, {}
        return held

    def sync(self) -> None:
        """Make everything recorded survive a power failure."""
        if self._journal is not None:
            self._journal.sync()


def _spent_key(key: str, number: int) -> str:
    return f"{key}/spent/{number}"
