"""Stores and journals in a SQL database: SQLite, PostgreSQL, MySQL and MariaDB.

Needs ``pip install "promptgraft[server]"``.
"""

from promptgraft.database.engine import Database, DatabaseError
from promptgraft.database.journal import SqlJournal
from promptgraft.database.store import SqlPromptOverridesStore

__all__ = ["Database", "DatabaseError", "SqlJournal", "SqlPromptOverridesStore"]
