"""The events of a job as rows: what a replay tells again is compared, the rest is appended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from msgspec import UnsetType
from sqlalchemy import Connection

from promptgraft.clock import Clock
from promptgraft.database import Database, DatabaseError
from promptgraft.errors import LeaseLostError
from promptgraft.jobs.rows import Claim, JobRows
from promptgraft.jobs.types import Status
from promptgraft.runs.event_file import EventLines, decoded, encoded, encoded_json, is_same
from promptgraft.search.ledger import money
from promptgraft.search.notices import Event, RunProgress, Unknown

_PAGE = 500
_MOST_PROGRESS = 99.0
"""What only the end of a job goes beyond."""

REWOUND = "rewound"


def lines_of(database: Database, number: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a job's events with their numbers."""
    rows, after = JobRows(database), 0
    while True:
        with database.reading() as connection:
            page = rows.events(connection, number, after=after, limit=_PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1][0]


def told(database: Database, number: int) -> list[tuple[int, Event, bytes]]:
    """Return what a run has told by now, without what a replay has taken back.

    Each with its number among the job's events; those of the job itself are left out.
    """
    found: list[tuple[int, Event, bytes]] = []
    for at, line in lines_of(database, number):
        event = decoded(line, f"job {number}, event {at}")
        if not isinstance(event, Unknown):
            if not isinstance(event.number, UnsetType):
                # What a replay tells otherwise begins again with the number of the difference.
                while found and _number(found[-1][1]) >= event.number:
                    found.pop()
            found.append((at, event, line))
    return found


def _number(event: Event) -> int:
    return 0 if isinstance(event.number, UnsetType) else event.number


class JobEvents:
    """Writes the events of a run of a job; safe to share between threads.

    Args:
        database: where.
        claim: the job, and the fence under which it is written.
        clock: decides the times of lines.
        lost: called when the job was taken over, with why; nothing is written from then on.
    """

    def __init__(
        self, database: Database, claim: Claim, *, clock: Clock, lost: Callable[[str], None]
    ) -> None:
        self._database, self._claim, self._lost = database, claim, lost
        self._rows = JobRows(database)
        self._lines = EventLines(clock)
        self._lock = threading.Lock()
        earlier = [one for _, one, _ in told(database, claim.job.number) if _number(one)]
        self._earlier = iter(earlier)
        self._expected = next(self._earlier, None)
        self._is_over = False
        self._last_stage = ""

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
            new = [line for told in self._lines.of(event) for line in self._fresh(told)]
            if not new or self._is_over:
                return
            try:
                self._database.write(lambda connection: self._append(connection, new))
            except (LeaseLostError, DatabaseError) as error:
                self._is_over = True
                self._lost(str(error))

    def progress_lines(self) -> list[int]:
        """Return the numbers of the lines that tell where the run stood."""
        return [
            at
            for at, line in lines_of(self._database, self._claim.job.number)
            if isinstance(decoded(line, f"event {at}"), RunProgress)
        ]

    def _append(self, connection: Connection, lines: list[bytes]) -> None:
        self._rows.check(connection, self._claim)
        number = self._claim.job.number
        self._rows.append(connection, number, lines)
        self._rows.advance(connection, number, self.progress, self.status)

    def _fresh(self, line: Event) -> Iterator[bytes]:
        """Yield the lines to write for one; none for what a replay tells again."""
        if self._expected is not None:
            if isinstance(line.number, UnsetType):
                return
            if is_same(line, self._expected):
                self._expected = next(self._earlier, None)
                return
            self._expected = None
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            yield encoded_json({"event": REWOUND, "time": now, "from": line.number}).encode()
        yield encoded(line).encode()
