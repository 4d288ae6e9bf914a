"""The append-only record of every answer that a run paid for (``specs/journal.md``)."""

from promptgraft.journal.base import Answer, Journal, MemoryJournal
from promptgraft.journal.file import FileJournal
from promptgraft.journal.records import Record

__all__ = ["Answer", "FileJournal", "Journal", "MemoryJournal", "Record"]
