"""The journal of a job, in a database: the lines that a file would hold, under the job's fence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sqlalchemy import Connection, func, insert, select, update

from promptgraft.database.engine import Database, DatabaseError
from promptgraft.errors import JournalCorruptError, JournalError, JournalWriteError, LeaseLostError
from promptgraft.journal.base import Journal
from promptgraft.journal.records import decode_header, record_key
from promptgraft.serde import digest_text

_AHEAD = 256
"""Lines that are read at once: a replay asks for one after the other."""

_HEADER = 0


def check_fence(connection: Connection, database: Database, job: int, fence: int) -> None:
    """Refuse to write for a job that another worker has taken; keep others from taking it.

    Raises:
        LeaseLostError: another one has taken it, or it is gone.
    """
    jobs = database.tables.jobs
    found = connection.scalar(
        select(jobs.c.fence).where(jobs.c.number == job).with_for_update(read=True)
    )
    if found != fence:
        raise LeaseLostError(
            f"job {job} was taken over by another worker; nothing more of it is written here"
        )


class SqlJournal(Journal):
    """The answers of a job in the table of answers; a context manager.

    An append is one transaction that looks at the fence of the job and inserts. As with a file it
    survives the death of the process when it returns, and a loss of power after :meth:`sync`.

    Args:
        database: where.
        job: number of the job.
        fence: what the job's fence was when its lease was taken.

    Raises:
        DatabaseError: the database cannot be read.
        JournalCorruptError: what it holds is not what was written.
    """

    def __init__(self, database: Database, job: int, *, fence: int) -> None:
        self._database, self._job, self._fence = database, job, fence
        self._positions: dict[str, int] = {}
        self._lines: dict[int, bytes] = {}
        name = f"the journal of job {job} in {database.name}"
        header = self._indexed(name)
        self._last = len(self._positions) if header else _HEADER - 1
        super().__init__(name, header)

    def _indexed(self, name: str) -> bytes | None:
        """Check every line, find where each record is, and return the first line."""
        answers = self._database.tables.answers
        header: bytes | None = None
        lines = select(answers.c.position, answers.c.line).where(answers.c.job == self._job)
        with (
            self._database.reading() as connection,
            connection.execution_options(yield_per=_AHEAD).execute(
                lines.order_by(answers.c.position)
            ) as rows,
        ):
            for expected, (position, line) in enumerate(rows):
                try:
                    key = self._key_of(line, position, expected)
                except JournalCorruptError as error:
                    raise JournalCorruptError(
                        f"{name}, line {position + 1}: {error}; restore the database from a copy"
                    ) from None
                if key is None:
                    header = line
                else:
                    self._positions[key] = position
        return header

    def _key_of(self, line: bytes, position: int, expected: int) -> str | None:
        if position != expected:
            raise JournalCorruptError("a line is missing before it")
        if position:
            return record_key(line)
        decode_header(line)
        return None

    def _keys(self) -> Mapping[str, object]:
        return self._positions

    def _line(self, key: str) -> bytes | None:
        position = self._positions.get(key)
        if position is None:
            return None
        if position not in self._lines:
            self._read_ahead(position)
        return self._lines.get(position, b"")

    def _read_ahead(self, start: int) -> None:
        answers = self._database.tables.answers
        try:
            with self._database.reading() as connection:
                rows = connection.execute(
                    select(answers.c.position, answers.c.line).where(
                        answers.c.job == self._job,
                        answers.c.position >= start,
                        answers.c.position < start + _AHEAD,
                    )
                )
                self._lines = {row.position: row.line for row in rows}
        except DatabaseError as error:
            raise JournalError(f"{self._name} cannot be read: {error}") from error

    def _store(self, lines: Mapping[str, bytes]) -> None:
        start = len(self._positions) + 1
        self._insert(
            (start + at, digest_text(key), line) for at, (key, line) in enumerate(lines.items())
        )
        self._positions.update({key: start + at for at, key in enumerate(lines)})
        self._last = len(self._positions)

    def _store_header(self, line: bytes) -> None:
        self._insert([(_HEADER, "header", line)])
        self._last = _HEADER

    def _insert(self, numbered: Iterable[tuple[int, str, bytes]]) -> None:
        rows = [
            {"job": self._job, "position": position, "key_digest": digest, "line": line}
            for position, digest, line in numbered
        ]

        def append(connection: Connection) -> None:
            self._check(connection)
            if rows:
                connection.execute(insert(self._database.tables.answers), rows)

        self._write(append, durable=False)

    def _sync(self) -> None:
        jobs = self._database.tables.jobs

        # What was committed before is durable when a later commit is.
        def touch(connection: Connection) -> None:
            self._check(connection)
            connection.execute(
                update(jobs).where(jobs.c.number == self._job).values(synced=self._database.seconds)
            )

        self._write(touch, durable=True)

    def _check(self, connection: Connection) -> None:
        """Refuse to write behind a gap: a database that crashed has lost what was not synced.

        Raises:
            LeaseLostError: another worker has the job.
            JournalWriteError: the latest answers are gone.
        """
        check_fence(connection, self._database, self._job, self._fence)
        answers = self._database.tables.answers
        last = connection.scalar(
            select(func.max(answers.c.position)).where(answers.c.job == self._job)
        )
        found, expected = (-1 if last is None else last), self._last
        if found != expected:
            raise JournalWriteError(
                f"{self._name}: the database has lost {expected - found} answers, since it "
                "crashed before they were synced; open the journal again to ask for them again"
            )

    def _write(self, work: Callable[[Connection], None], *, durable: bool) -> None:
        try:
            self._database.write(work, durable=durable)
        except DatabaseError as error:
            raise JournalWriteError(f"{self._name} cannot be written: {error}") from error
