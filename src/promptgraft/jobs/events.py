"""The events of a job as rows: what a replay tells again is compared, the rest is appended."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from msgspec import UnsetType
from sqlalchemy import Connection

from promptgraft.clock import Clock
from promptgraft.database import Database, DatabaseError
from promptgraft.errors import DataFormatError, JournalCorruptError, LeaseLostError
from promptgraft.jobs.heartbeat import Heartbeat
from promptgraft.jobs.lines import OF_THE_RUN, Line, LineKind, encoded_plain
from promptgraft.jobs.rows import Claim, JobRows
from promptgraft.jobs.spending import spent_for_today
from promptgraft.jobs.types import Status
from promptgraft.runs.event_file import EventLines, decoded, encoded, is_same
from promptgraft.search.ledger import money
from promptgraft.search.notices import Event, RunProgress

_PAGE = 500
_MOST_PROGRESS = 99.0
"""What only the end of a job goes beyond."""


def told(
    database: Database, number: int, kinds: Sequence[LineKind] = OF_THE_RUN
) -> Iterator[tuple[int, Event, bytes]]:
    """Yield what a run has told by now, without what a replay has taken back.

    Each with its number among the job's events; those of the job itself are left out.
    """
    rows, after = JobRows(database), 0
    while True:
        with database.reading() as connection:
            page = rows.events(connection, number, after=after, limit=_PAGE, kinds=kinds)
        for at, line in page:
            yield at, decoded(line, f"job {number}, event {at}"), line
        if len(page) < _PAGE:
            return
        after = page[-1][0]


class JobEvents:
    """Writes the events of a run of a job; safe to share between threads.

    Args:
        database: where.
        claim: the job, and the fence under which it is written.
        heartbeat: ends the run when the job was taken over or its events are damaged, and pauses
            it when the money of the day is used up.
        clock: decides the times of lines.
        most: US dollars that the jobs of the project may use in a day; None for no limit.
    """

    def __init__(
        self,
        database: Database,
        claim: Claim,
        heartbeat: Heartbeat,
        *,
        clock: Clock,
        most: Decimal | None = None,
    ) -> None:
        self._database, self._claim, self._heartbeat = database, claim, heartbeat
        self._most = most
        self._rows = JobRows(database)
        self._lines = EventLines(clock)
        self._lock = threading.Lock()
        self._earlier = told(database, claim.job.number, [LineKind.NUMBERED])
        self._expected: tuple[int, Event, bytes] | None = None
        self._is_replay = True
        self._is_over = False

    @property
    def status(self) -> Status:
        """How far the run is."""
        history = self._lines.history
        baseline, best = history.means
        candidates = history.candidates
        wait = history.wait
        return Status(
            step=history.steps,
            stage=str(history.place.phase) if history.place else "",
            waiting="" if wait is None else f"{wait.model}: {wait.reason}",
            latest=candidates[-1].mean if candidates else None,
            best=best,
            baseline=baseline,
            best_step=candidates[history.best].step if candidates else 0,
            rollouts=history.rollouts,
            reflections=history.reflections,
            tokens=history.tokens,
            cost=money(history.cost),
        )

    @property
    def progress(self) -> float:
        """The share of the rollouts that may be used, 0 to 99."""
        budget = self._lines.history.budget
        share = self._lines.history.rollouts / budget if budget else 0.0
        return min(_MOST_PROGRESS, 100.0 * share)

    def on_event(self, event: object) -> None:
        """Write what an event tells."""
        with self._lock:
            lines = self._lines.of(event)
            if self._is_over:
                return
            try:
                for line in lines:
                    self._tell(line)
            except (LeaseLostError, DatabaseError) as error:
                self._is_over = True
                self._heartbeat.lose(str(error))
            except DataFormatError as error:
                self._is_over = True
                mend = f"{error}; restore the database from a copy"
                self._heartbeat.stop(JournalCorruptError(mend))

    def _tell(self, line: Event) -> None:
        """Write a line, unless a replay tells again what is there."""
        new, start = [Line(_kind(line), encoded(line).encode())], 0
        if self._is_replay and self._expected is None:
            self._expected = next(self._earlier, None)
            self._is_replay = self._expected is not None
        if self._expected is not None:
            if isinstance(line.number, UnsetType):
                return
            start, expected, _ = self._expected
            self._expected = None
            if is_same(line, expected):
                return
            self._is_replay = False
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            marker = encoded_plain({"event": "rewound", "time": now, "from": line.number})
            new.insert(0, Line(LineKind.REWOUND, marker))

        def append(connection: Connection) -> str:
            number = self._claim.job.number
            self._rows.check(connection, self._claim)
            if start:
                self._rows.take_back(connection, number, start)
            self._rows.append(connection, number, new)
            self._rows.advance(connection, number, self.progress, self.status)
            return self._over_the_day(connection)

        if why := self._database.write(append):
            self._heartbeat.end_of_day(why)

    def _over_the_day(self, connection: Connection) -> str:
        """Return why the project may spend nothing more today; empty while it may."""
        if self._most is None:
            return ""
        if self._lines.history.cost is None:
            return (
                "max_cost_per_day cannot be kept: the price of a model is not known; give it its "
                "prices in the project file, then resume the job"
            )
        project = self._claim.job.project
        if self._rows.spent_today(connection, project) < self._most:
            return ""
        return f"{spent_for_today(project, self._most)}; resume the job tomorrow"


def _kind(line: Event) -> LineKind:
    if isinstance(line, RunProgress):
        return LineKind.PROGRESS
    return LineKind.PASSING if isinstance(line.number, UnsetType) else LineKind.NUMBERED
