"""Orders of lists of jobs, by columns and by figures inside of their status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from sqlalchemy import CHAR, JSON, ColumnElement, Double, Table, Text, cast, func, select

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import did_you_mean
from promptgraft.service.database import Database

COLUMNS = ("created", "prompt", "verdict", "gain", "cost", "time")
"""What jobs can be ordered by."""


@attrs.frozen(kw_only=True)
class Order:
    """An order of jobs; jobs without a value come last, and equal ones with the newest first.

    Attributes:
        by: one of :data:`COLUMNS`.
        is_rising: whether the least value comes first.
        offset: number of jobs to leave out.
    """

    by: str
    is_rising: bool = False
    offset: int = 0

    @classmethod
    def of(cls, sort: str, offset: int = 0) -> Order:
        """Return the order that a column, or one after a minus for rising values, asks for.

        Raises:
            ConfigError: there is no such column.
        """
        by = sort.removeprefix("-")
        if by not in COLUMNS:
            near = did_you_mean(by, COLUMNS)
            raise ConfigError(
                f"sort: expected one of {', '.join(COLUMNS)}, found {by[:40]!r}{near}"
            )
        return cls(by=by, is_rising=sort != by, offset=offset)

    def clauses(self, database: Database, dialect: str) -> Sequence[ColumnElement[Any]]:
        """Return what a statement is ordered by."""
        jobs, value = database.tables.jobs, self._value(database, dialect)
        return [
            value.is_(None),
            value.asc() if self.is_rising else value.desc(),
            jobs.c.number.desc(),
        ]

    def _value(self, database: Database, dialect: str) -> ColumnElement[object]:
        jobs, attempts = database.tables.jobs, database.tables.attempts
        match self.by:
            case "created":
                return jobs.c.number
            case "prompt":
                return jobs.c.project + "/" + jobs.c.prompt
            case "cost":
                return jobs.c.spent
            case "time":
                ended = func.coalesce(attempts.c.ended, database.seconds)
                took = select(func.sum(ended - attempts.c.started))
                return took.where(attempts.c.job == jobs.c.number).scalar_subquery()
            case "verdict":
                return func.nullif(_of_status(jobs, "verdict", dialect), "")
        gain = _of_status(jobs, "gain", dialect)
        # MySQL returns numbers of a document as text.
        return gain if dialect == "sqlite" else cast(gain, Double)


def _of_status(jobs: Table, name: str, dialect: str) -> ColumnElement[object]:
    """Return a field of the status, which is a document of bytes in every database."""
    status = jobs.c.status
    if dialect == "postgresql":
        return func.json_extract_path_text(cast(func.convert_from(status, "UTF8"), JSON), name)
    if dialect == "sqlite":
        return func.json_extract(cast(status, Text), f"$.{name}")
    return func.json_value(cast(status, CHAR), f"$.{name}")
