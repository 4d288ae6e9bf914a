"""Journal of a job in a database: the lines of a journal file, guarded by the job's fence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sqlalchemy import Connection, func, insert, select, update

from promptgraft import errors
from promptgraft.ground.serde import digest_text
from promptgraft.journal.base import Journal
from promptgraft.journal.records import decode_header, record_key
from promptgraft.service.database.engine import Database, DatabaseError

_LINES_PER_FETCH = 256
"""Lines that are read at a time, since a replay asks for one after the other."""

_HEADER = 0


class SqlJournal(Journal):
    """A journal in the table of answers; a context manager.

    An append is one transaction that checks the fence of the job and inserts. As with a file, an
    append that has returned survives the death of the process, and a loss of power after
    :meth:`sync`.

    Args:
        job: number of the job.
        fence: the job's fence when its lease was taken.

    Raises:
        DatabaseError: the database cannot be read.
        JournalCorruptError: the lines are not those that were written.
    """

    is_slow = True
    _mend, _reuse = "restore what differs, or fork the job: a fork begins without these answers", ""

    def __init__(self, database: Database, job: int, *, fence: int) -> None:
        self._database, self._job, self._fence = database, job, fence
        self._positions: dict[str, int] = {}
        self._lines: dict[int, bytes] = {}
        name = f"the journal of job {job} in {database.name}"
        super().__init__(name, self._indexed(name))

    def _indexed(self, name: str) -> bytes | None:
        """Check every line, store the position of each record, and return the header."""
        answers = self._database.tables.answers
        header: bytes | None = None
        lines = select(answers.c.position, answers.c.line).where(answers.c.job == self._job)
        with (
            self._database.reading() as connection,
            connection.execution_options(yield_per=_LINES_PER_FETCH).execute(
                lines.order_by(answers.c.position)
            ) as rows,
        ):
            for expected, (position, line) in enumerate(rows):
                try:
                    key = self._key_of(line, position, expected)
                except errors.JournalCorruptError as error:
                    raise errors.JournalCorruptError(
                        f"{name}, line {position + 1}: {error}; restore the database from a copy"
                    ) from None
                if key is None:
                    header = line
                else:
                    self._positions[key] = position
        return header

    def _key_of(self, line: bytes, position: int, expected: int) -> str | None:
        if position != expected:
            raise errors.JournalCorruptError("a line is missing before it")
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
                        answers.c.position < start + _LINES_PER_FETCH,
                    )
                )
                # Replaces the previous ones: a replay asks in order, and a long journal must not
                # fill the memory.
                self._lines = {row.position: row.line for row in rows}
        except DatabaseError as error:
            raise errors.JournalError(f"{self._name} cannot be read: {error}") from error

    def _store(self, lines: Mapping[str, bytes]) -> None:
        start = len(self._positions) + 1
        self._insert(
            (start + at, digest_text(key), line) for at, (key, line) in enumerate(lines.items())
        )
        # Only after the commit: an append that failed may be repeated.
        self._positions.update({key: start + at for at, key in enumerate(lines)})

    def _store_header(self, line: bytes) -> None:
        self._insert([(_HEADER, "header", line)])

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

        # A durable commit makes all earlier commits durable, so any update will do.
        def touch(connection: Connection) -> None:
            self._check(connection)
            connection.execute(
                update(jobs).where(jobs.c.number == self._job).values(synced=self._database.seconds)
            )

        self._write(touch, durable=True)

    def _check(self, connection: Connection) -> None:
        """Refuse to write without the lease, or after a gap.

        A database server that crashes loses what was committed but not synced.

        Raises:
            LeaseLostError: another worker has the job, or it was deleted.
            JournalWriteError: the latest answers are gone.
        """
        jobs, answers = self._database.tables.jobs, self._database.tables.answers
        # A shared lock: appends do not block each other, but nobody can raise the fence meanwhile.
        fence = select(jobs.c.fence).where(jobs.c.number == self._job).with_for_update(read=True)
        if connection.scalar(fence) != self._fence:
            raise errors.LeaseLostError(
                f"job {self._job} was taken over by another worker; nothing more of it is written "
                "here"
            )
        last = connection.scalar(
            select(func.max(answers.c.position)).where(answers.c.job == self._job)
        )
        last_position = _HEADER - 1 if last is None else last
        expected = _HEADER - 1 if self._fingerprint is None else len(self._positions)
        if last_position != expected:
            raise errors.JournalWriteError(
                f"{self._name}: the database has lost {expected - last_position} answers, since it "
                "crashed before they were synced; open the journal again to ask for them again"
            )

    def _write(self, work: Callable[[Connection], None], *, durable: bool) -> None:
        try:
            self._database.write(work, durable=durable)
        except DatabaseError as error:
            raise errors.JournalWriteError(f"{self._name} cannot be written: {error}") from error
