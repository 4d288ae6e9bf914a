"""Data sets of projects in the database: cases under a name, with a revision for each edit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

import attrs
from sqlalchemy import ColumnElement, Connection, Row, func, insert, select, tuple_

from promptgraft.errors import DataFormatError, OverrideConflictError, RevisionNotFoundError
from promptgraft.evals.dataset import format_of, rows_of
from promptgraft.evals.rows import CaseFaults
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.nodes import read_fault
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project import Project
from promptgraft.project.other_cases import ProjectOnCases, cases_for, rows_in
from promptgraft.project.python_source import beside
from promptgraft.service.database import Database
from promptgraft.service.jobs.types import JobChanges

MOST_DATASET_BYTES = 1_000_000
"""Size of a data set in UTF-8."""

_LEAST_DIGITS = 4


@attrs.frozen(kw_only=True)
class DatasetRevision:
    """A data set as it was saved once.

    Attributes:
        name: its name there.
        number: number of the revision, from 1.
        digest: SHA-256 of its text in UTF-8.
        cases: number of cases.
        created: seconds since 1970.
        author: the name of the token that saved it; empty if there was none.
        text: the cases, a JSON object per line; empty in lists.
    """

    project: str
    name: str
    number: int
    digest: str
    cases: int
    created: float
    author: str = ""
    text: str = attrs.field(default="", repr=False)

    @property
    def id(self) -> str:
        """What a job records: the name and the digest."""
        return f"{self.name}@{self.digest}"

    @property
    def rows(self) -> list[dict[str, Json]]:
        """The cases as plain data."""
        return rows_in(self.text, self.name)


_SAME = tuple(
    field.name for field in attrs.fields(DatasetRevision) if field.name not in ("author", "text")
)
"""Fields that are columns of the same name and type."""


def text_of(cases: str | Path) -> str:
    """Return cases as a text with a JSON object per line: a text as it is, or a file of any format.

    Raises:
        ConfigError: the format of the file is not known.
        DataFormatError: it cannot be read, or has faults; a line for each.
    """
    if isinstance(cases, str):
        return cases
    kind, faults = format_of(cases, None), CaseFaults(str(cases))
    try:
        rows = [row.value for row in rows_of(cases, kind, faults, delimiter=None, encoding=None)]
    except OSError as error:
        raise read_fault(cases, error) from None
    faults.raise_all()
    return "".join(f"{json.dumps(_filled(row) if kind == 'csv' else row)}\n" for row in rows)


def _filled(row: Json) -> Json:
    # An empty cell of a table is no value.
    return {key: cell for key, cell in row.items() if cell != ""} if isinstance(row, dict) else row


def tidy(text: str) -> str:
    """Return the text of a data set without empty lines and space around lines."""
    # Not `splitlines`: a text in JSON may contain other line ends, such as U+2028.
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    return "".join(f"{line}\n" for line in lines if line)


def encoded(text: str, name: str) -> bytes:
    """Return a text in UTF-8.

    Raises:
        DataFormatError: it has half of a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise DataFormatError(
            f"data set {name}: line {line}: expected characters, found half of a surrogate pair"
        ) from None


def lines_by_case(text: str) -> dict[str, str]:
    """Return the lines of a data set by the ids of their cases, or by themselves without one."""
    rows = zip(rows_in(text, ""), text.split("\n")[:-1], strict=True)
    return {str(row.get("id", line)): line for row, line in rows}


class Datasets:
    """The data sets in a database."""

    def __init__(self, database: Database) -> None:
        self._database, self._table = database, database.tables.datasets
        self._light = [column for column in self._table.c if column.name != "text"]

    def latest(self, projects: Collection[str]) -> list[DatasetRevision]:
        """Return the latest revision of each data set of some projects, without texts."""
        table = self._table
        newest = (
            select(table.c.project, table.c.name, func.max(table.c.number))
            .where(table.c.project.in_(sorted(projects)))
            .group_by(table.c.project, table.c.name)
        )
        with self._database.reading() as connection:
            keys = [tuple(row) for row in connection.execute(newest)]
            key = tuple_(table.c.project, table.c.name, table.c.number)
            query = select(*self._light).where(key.in_(keys)).order_by(*self._light[:2])
            return [_revision(row) for row in connection.execute(query)] if keys else []

    def history(self, project: str, name: str) -> list[DatasetRevision]:
        """Return the revisions of a data set without texts, the newest first; none for another."""
        with self._database.reading() as connection:
            query = select(*self._light).where(*self._of(project, name))
            rows = connection.execute(query.order_by(self._table.c.number.desc()))
            return [_revision(row) for row in rows]

    def find(self, project: str, which: str) -> DatasetRevision:
        """Return a revision with its text: `NAME` for the latest, or `NAME@DIGEST`.

        Raises:
            InvalidIdentifierError: the name is invalid.
            RevisionNotFoundError: the project has no such data set, or it no such revision.
        """
        name, _, digest = which.partition("@")
        check_key(name, "name of a data set")
        history = self.history(project, name)
        if not history:
            names = ", ".join(dataset.name for dataset in self.latest([project])[:10])
            there = names or "none; `promptgraft jobs datasets save` saves one"
            raise RevisionNotFoundError(
                f"project `{project}` has no data set `{name[:64]}`; there: {there}"
            )
        matches = history[:1]
        if "@" in which:
            is_long = len(digest) >= _LEAST_DIGITS
            matches = [row for row in history if is_long and row.digest.startswith(digest)]
        if len({revision.digest for revision in matches}) != 1:
            raise RevisionNotFoundError(
                f"data set `{name}` has no single revision whose digest begins with "
                f"`{digest[:64]}`; the latest is {history[0].digest}"
            )
        with self._database.reading() as connection:
            number = self._table.c.number == matches[0].number
            query = select(self._table.c.text).where(*self._of(project, name), number)
            text = connection.execute(query).scalar_one()
        return attrs.evolve(matches[0], text=text.decode())

    def save(
        self, project: str, name: str, text: str, *, cases: int, author: str, expected: str | None
    ) -> DatasetRevision:
        """Save a tidy text as the latest revision of a data set; the same text is none.

        Raises:
            OverrideConflictError: the digest of the latest revision is not ``expected``.
        """
        content = encoded(text, name)
        digest = hashlib.sha256(content).hexdigest()

        def save(connection: Connection) -> None:
            query = select(*self._light).where(*self._of(project, name))
            last = connection.execute(query.order_by(self._table.c.number.desc()).limit(1)).first()
            before = "" if last is None else last.digest
            if expected is not None and expected != before:
                raise OverrideConflictError(
                    f"data set `{name}` was changed meanwhile: expected "
                    f"{expected[:12] or 'none'}, found {before[:12] or 'none'}"
                )
            if digest != before:
                values = {"project": project, "name": name, "digest": digest, "cases": cases}
                values |= {"author": author.encode(), "text": content}
                number = 1 if last is None else last.number + 1
                created = self._database.seconds
                connection.execute(
                    insert(self._table).values(number=number, created=created, **values)
                )

        self._database.write(save)
        return attrs.evolve(self.find(project, f"{name}@{digest}"), text="")

    def _of(self, project: str, name: str) -> list[ColumnElement[bool]]:
        return [self._table.c.project == project, self._table.c.name == name]


def _revision(row: Row[object]) -> DatasetRevision:
    columns = {name: getattr(row, name) for name in _SAME}
    return DatasetRevision(**columns, author=row.author.decode())


def on_chosen(database: Database, project: Project, name: str, changes: JobChanges) -> Project:
    """Return a project, called ``name``, with the cases that the changes of a job choose.

    Raises:
        RevisionNotFoundError: the project has no such data set.
        ConfigError, DataFormatError: the cases do not suit the project.
    """
    if changes.dataset is None:
        return project
    revision = Datasets(database).find(name, changes.dataset)
    with beside(project.folder):
        return ProjectOnCases(project, cases_for(project, revision.rows, revision.id))
