"""Stores and journals in a SQL database: SQLite, PostgreSQL, MySQL and MariaDB.

Needs ``pip install "promptgraft[server]"``.
"""

from promptgraft.service.database.engine import Database, DatabaseError
from promptgraft.service.database.journal import SqlJournal
from promptgraft.service.database.store import SqlPromptOverridesStore

__all__ = ["Database", "DatabaseError", "SqlJournal", "SqlPromptOverridesStore"]
