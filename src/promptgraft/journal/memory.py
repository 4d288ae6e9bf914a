"""A journal for runs that nobody wants to keep, and for tests."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft.journal.keyed import KeyedJournal


class MemoryJournal(KeyedJournal):
    """Keeps the same lines as a file would, in memory: gone with the object."""

    def __init__(self) -> None:
        super().__init__("the journal in memory")
        self._stored: dict[str, bytes] = {}

    def _keys(self) -> Mapping[str, object]:
        return self._stored

    def _line(self, key: str) -> bytes | None:
        return self._stored.get(key)

    def _store(self, lines: Mapping[str, bytes]) -> None:
        self._stored.update(lines)

    def _store_header(self, line: bytes) -> None:
        pass

    def _settle(self) -> None:
        pass

    def _sync(self) -> None:
        pass

    def _release(self) -> None:
        pass
