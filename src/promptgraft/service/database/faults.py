"""How long faults of databases last, and what to do about them, by the codes of their drivers."""

from __future__ import annotations

import re
import sqlite3

from sqlalchemy.exc import DBAPIError, ProgrammingError, SQLAlchemyError

from promptgraft.errors import Lasting
from promptgraft.ground.text import clip

_MAX_REASON_CHARS = 300

# SQLite's codes are numbers, those of PostgreSQL texts, and those of MySQL numbers above 1000.
BUSY = frozenset[object]({sqlite3.SQLITE_BUSY})
GIVEN_UP = frozenset[object]({"40P01", "40001", "23505", 1020, 1062, 1213})
"""Deadlocks, and rows that another transaction inserted first: a repetition may succeed."""

_LOCKED = BUSY | {"55P03", 1205}
_NO_RIGHT = frozenset[object]({"42501", "25006", 1044, 1142, 1290, sqlite3.SQLITE_READONLY})
_FULL = frozenset[object]({sqlite3.SQLITE_FULL, "53100", 1021, 1114})
_DAMAGED = frozenset[object]({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, "XX001", "XX002"})
_UNOPENED = frozenset[object]({sqlite3.SQLITE_CANTOPEN})
_REFUSED = frozenset[object](
    {
        sqlite3.SQLITE_ERROR,  # above all: a table or a column does not exist
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_MISMATCH,
        *(1045, 1049, 1054, 1064, 1146),  # no access, no such database, column, syntax, table
    }
)
_PERMANENT = _NO_RIGHT | _FULL | _DAMAGED | _REFUSED
# Classes of PostgreSQL: authorization, no such database or schema, syntax and access.
_PERMANENT_CLASSES = frozenset({"28", "3D", "3F", "42"})
_TRANSIENT = _LOCKED | GIVEN_UP | {sqlite3.SQLITE_LOCKED, 1040, 1053, 2002, 2003, 2006, 2013}
# Connections, conflicts, resources, locks, and an operator who stops the server.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57"})

# While a connection is made, PostgreSQL's driver has no codes.
_PERMANENT_TEXT = re.compile(
    r"authentication failed|does not exist|no pg_hba\.conf entry|no password supplied"
)
_TRANSIENT_TEXT = re.compile(
    r"connection refused|timed? ?out|starting up|shutting down|in recovery mode|too many clients"
    r"|closed the connection|no such file or directory",
    re.IGNORECASE,
)


def has_code(error: SQLAlchemyError, codes: frozenset[object]) -> bool:
    """Return whether an error has one of these codes: text in PostgreSQL, numbers elsewhere."""
    return not codes.isdisjoint(_codes(error))


def _codes(error: SQLAlchemyError) -> list[object]:
    original: object = getattr(error, "orig", None)
    if isinstance(original, sqlite3.Error):
        extended: object = getattr(original, "sqlite_errorcode", None)
        # The lowest byte is the kind of fault; the others tell where it came up.
        return [extended & 0xFF] if isinstance(extended, int) else []
    arguments = original.args[:1] if isinstance(original, Exception) else ()
    return [getattr(original, "sqlstate", None), *arguments]


def lasting_of(error: SQLAlchemyError) -> Lasting:
    """Return how long a fault of a database lasts."""
    classes = {code[:2] for code in _codes(error) if isinstance(code, str) and len(code) == 5}
    if has_code(error, _PERMANENT) or classes & _PERMANENT_CLASSES:
        return Lasting.PERMANENT
    if has_code(error, _TRANSIENT) or classes & _TRANSIENT_CLASSES:
        return Lasting.TRANSIENT
    words = reason(error)
    if _PERMANENT_TEXT.search(words) or isinstance(error, ProgrammingError):
        return Lasting.PERMANENT
    is_broken = isinstance(error, DBAPIError) and error.connection_invalidated
    return Lasting.TRANSIENT if is_broken or _TRANSIENT_TEXT.search(words) else Lasting.UNKNOWN


def reason(error: SQLAlchemyError) -> str:
    """Return the driver's message in one line."""
    original: object = getattr(error, "orig", None)
    # PyMySQL puts a number before the message.
    arguments: list[object] = list(original.args) if isinstance(original, Exception) else []
    words = " ".join(str(arguments[-1] if arguments else error).split())
    return clip(words, _MAX_REASON_CHARS, around=" ") or type(error).__name__


def mend(error: SQLAlchemyError) -> str:
    """Return what to do about a fault."""
    if has_code(error, _NO_RIGHT):
        return "give the user the right to read and write the tables"
    if has_code(error, _LOCKED):
        return "another process has held a lock for too long; check what it is doing"
    if has_code(error, _FULL):
        return "make room on its disk"
    if has_code(error, _DAMAGED):
        return "name another file, or restore it from a copy"
    if has_code(error, _UNOPENED):
        return "name a file in a folder that exists and can be written to"
    return "check that the database is running and not full, and that URL and user are right"
