"""Answers that cannot be recomputed: asked for once, then remembered by the journal."""

from __future__ import annotations

from promptgraft.journal.base import Journal
from promptgraft.serde import HexDigest, Json

_FAULT = "fault"


class Answers:
    """The journal as a run sees it.

    A *fault* of a provider is an answer only once the run goes on without it. Until then it
    is held back, so that a run which stops because of faults asks again when it is resumed.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._held: dict[str, tuple[HexDigest, Json]] = {}

    def recall(self, key: str, digest: HexDigest) -> Json | None:
        """Return what was recorded for the question, or None; recorded answers are objects.

        Raises:
            JournalMismatchError: the journal holds the answer to another question there.
        """
        found = self._journal.find(key, digest) if self._journal is not None else None
        return None if found is None else found.value

    def record(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        """Record an answer before anybody uses it."""
        if self._journal is not None:
            self._journal.append(key, digest, kind, answer)

    def hold(self, key: str, digest: HexDigest, fault: Json) -> None:
        """Keep a fault until the run goes on without the answer."""
        self._held[key] = (digest, fault)

    def accept_faults(self) -> None:
        """Record the faults that were held: the run goes on without those answers."""
        for key, (digest, fault) in self._held.items():
            self.record(key, digest, _FAULT, fault)
        self._held.clear()

    def sync(self) -> None:
        """Make everything recorded survive a power failure."""
        if self._journal is not None:
            self._journal.sync()
