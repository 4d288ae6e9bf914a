"""The append-only record of every answer that a run paid for (``specs/journal.md``)."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.journal.base import Answer, Journal, MemoryJournal
    from promptgraft.journal.file import FileJournal
    from promptgraft.journal.records import Record

__all__ = ["Answer", "FileJournal", "Journal", "MemoryJournal", "Record"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
