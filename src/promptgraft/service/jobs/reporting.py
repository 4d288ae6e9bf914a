"""What the process of a job tells the database while it runs: that it is alive, and its events."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from msgspec import UnsetType
from sqlalchemy import Connection

from promptgraft.errors import DataFormatError, JournalCorruptError, LeaseLostError
from promptgraft.ground.clock import Clock
from promptgraft.runs.event_file import EventLines, decoded, encoded, is_same
from promptgraft.runtime import Cancellation
from promptgraft.search.events import Event, RunProgress
from promptgraft.search.ledger import money
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs.lines import (
    OF_THE_RUN,
    JobLine,
    LineKind,
    encoded_plain,
    spent_for_today,
)
from promptgraft.service.jobs.rows import LEASE_SECONDS, Claim, JobRows
from promptgraft.service.jobs.types import Status, Wish

SECONDS_BETWEEN_LOOKS = 1.0
# A third of the lease: two renewals in a row may fail without losing it.
SECONDS_BETWEEN_RENEWALS = 10.0

_PAGE = 500
_MOST_PROGRESS = 99.0
"""Highest progress of a job that has not ended."""


class Heartbeat:
    """Renews the lease of a job and applies wishes for it; a context manager.

    Attributes:
        pause: set when the run is to pause after its step.
        cancellation: set when the run is to end at once.
        wish: the open wish.
        spent: why the project may not spend more today; empty while it may.
        lost: why nothing may be written any more; empty while the lease is held.
        fault: damage that was found; None if there is none.
    """

    def __init__(self, database: Database, claim: Claim, *, clock: Clock) -> None:
        self.pause, self.cancellation = Cancellation(), Cancellation()
        self.wish, self.lost, self.spent = Wish.NONE, "", ""
        self.fault: JournalCorruptError | None = None
        self._database, self._claim, self._rows = database, claim, JobRows(database)
        self._clock, self._renewed = clock, clock.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self.beat()  # a wish from before the start is applied at once
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def lose(self, why: str) -> None:
        """End the run because its lease is lost, so that nothing may be written any more."""
        self.lost = self.lost or why
        self.cancellation.set(why)

    def stop(self, fault: JournalCorruptError) -> None:
        """End the run because its records are damaged."""
        self.fault = fault
        self.cancellation.set(str(fault))

    def end_of_day(self, why: str) -> None:
        """Pause the run after its step because the money of the day is used up."""
        self.spent = why
        self.pause.set(why)

    def beat(self) -> None:
        """Renew the lease when that is due, and apply the open wish; end the run if it is lost."""
        try:
            # Looks only read: a write would wait for an unreachable database, for up to a lease.
            with self._database.reading() as connection:
                wish = self._rows.wish(connection, self._claim)
            now = self._clock.monotonic()
            if now - self._renewed >= SECONDS_BETWEEN_RENEWALS:
                wish = self._database.write(
                    lambda connection: self._rows.renew(connection, self._claim), durable=False
                )
                # The time before the write: the lease counts from then at the latest.
                self._renewed = now
        except LeaseLostError as error:
            self.lose(str(error))
        # A database that is away for a moment is no reason to drop a paid run.
        except DatabaseError as error:
            # Without a connection nobody can say so, but by now another worker may have the job.
            if self._clock.monotonic() - self._renewed >= LEASE_SECONDS:
                self.lose(f"the lease has expired, and {error}")
        else:
            # Only after a successful look, so that an outage does not withdraw a wish.
            self.wish = wish
            if wish is Wish.PAUSE:
                self.pause.set("asked to pause")
            elif wish is Wish.CANCEL:
                self.cancellation.set("asked to end")

    def _beat(self) -> None:
        while not self.lost and not self._over.wait(SECONDS_BETWEEN_LOOKS):
            self.beat()


def run_events(
    database: Database, number: int, kinds: Sequence[LineKind] = OF_THE_RUN
) -> Iterator[tuple[int, Event, bytes]]:
    """Yield the events of a job's run with their numbers and lines, without retracted ones.

    Raises:
        DataFormatError: an event is damaged.
    """
    for at, line in run_lines(database, number, kinds):
        yield at, decoded(line, f"job {number}, event {at}"), line


def run_lines(
    database: Database, number: int, kinds: Sequence[LineKind] = OF_THE_RUN
) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and lines of the events of a job's run, without retracted ones."""
    rows, after = JobRows(database), 0
    while True:
        with database.reading() as connection:
            page = rows.events(connection, number, after=after, limit=_PAGE, kinds=kinds)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1][0]


class JobEvents:
    """Writes the events of a job's run; safe to share between threads.

    When an interrupted run is resumed, its replay repeats events that are in the database. These
    are compared and not written again. Where the replay diverges, the rest is retracted.

    Args:
        claim: the job, and the fence under which it is written.
        heartbeat: ends the run when the lease is lost or the events are damaged, and pauses it
            when the money of the day is used up.
        clock: gives the times of lines.
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
        self._recorded = run_events(database, claim.job.number, [LineKind.NUMBERED])
        self._next: tuple[int, Event, bytes] | None = None
        self._is_replay = True
        self._is_over = False

    @property
    def status(self) -> Status:
        """The status of the run."""
        history = self._lines.history
        baseline, best = history.means
        candidates = history.candidates
        wait = history.wait
        return Status(
            step=history.steps,
            max_iterations=history.plan.proposals if history.plan else None,
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
    def repeats(self) -> bool:
        """Whether the run has only repeated what is recorded, so that its status may be behind."""
        return self._is_replay

    @property
    def progress(self) -> float:
        """The share of the budget of rollouts that is used, 0 to 99."""
        budget = self._lines.history.budget
        share = self._lines.history.rollouts / budget if budget else 0.0
        return min(_MOST_PROGRESS, 100.0 * share)

    def on_event(self, event: object) -> None:
        """Write the lines of an event."""
        with self._lock:
            lines = self._lines.of(event)
            # The lines above are made all the same, because the status is taken from their history.
            if self._is_over:
                return
            try:
                for line in lines:
                    self._write(line)
            except (LeaseLostError, DatabaseError) as error:
                self._is_over = True
                self._heartbeat.lose(str(error))
            except DataFormatError as error:
                self._is_over = True
                mend = f"{error}; restore the database from a copy"
                self._heartbeat.stop(JournalCorruptError(mend))

    def _write(self, line: Event) -> None:
        """Write a line, unless a replay repeats one that is recorded."""
        new, start = [JobLine(_kind(line), encoded(line).encode())], 0
        if self._is_replay and self._next is None:
            self._next = next(self._recorded, None)
            self._is_replay = self._next is not None
        if self._next is not None:
            # Lines without a number tell of a moment, such as a wait, which was told then.
            if isinstance(line.number, UnsetType):
                return
            start, recorded, _ = self._next
            self._next = None
            if is_same(line, recorded):
                return
            self._is_replay = False
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            marker = encoded_plain({"event": "rewound", "time": now, "from": line.number})
            new.insert(0, JobLine(LineKind.REWOUND, marker))

        def append(connection: Connection) -> str:
            number = self._claim.job.number
            # The fence, in the same transaction: a late worker must not write among a newer one's
            # lines.
            self._rows.check(connection, self._claim)
            if start:
                self._rows.retract(connection, number, start)
            self._rows.append(connection, number, new)
            self._rows.advance(connection, number, self.progress, self.status)
            return self._over_the_day(connection)

        if why := self._database.write(append):
            self._heartbeat.end_of_day(why)

    def _over_the_day(self, connection: Connection) -> str:
        """Return why the project may not spend more today; empty while it may."""
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
