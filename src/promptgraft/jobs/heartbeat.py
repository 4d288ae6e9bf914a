"""The lease of a job while it runs: renewed, lost, and what is asked meanwhile."""

from __future__ import annotations

import threading

from promptgraft.clock import Clock
from promptgraft.database import Database, DatabaseError
from promptgraft.errors import JournalCorruptError, LeaseLostError
from promptgraft.jobs.rows import LEASE_SECONDS, Claim, JobRows
from promptgraft.jobs.types import Wish
from promptgraft.runtime import Cancellation

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_RENEWALS = 10.0


class Heartbeat:
    """Renews the lease of a job, and hands on what is asked of it; a context manager.

    Attributes:
        pause: set when the run is to pause after its step.
        cancellation: set when it is to end at once.
        wish: what was asked.
        spent: why the project may spend nothing more today; empty while it may.
        lost: why nothing may be written any more; empty while the lease is held.
        fault: what was found damaged; None for nothing.
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
        self.look()  # what was asked before it began is done at once
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def lose(self, why: str) -> None:
        """End the run, because nothing of it may be written any more."""
        self.lost = self.lost or why
        self.cancellation.set(why)

    def stop(self, fault: JournalCorruptError) -> None:
        """End the run, because what was written earlier is damaged."""
        self.fault = fault
        self.cancellation.set(str(fault))

    def end_of_day(self, why: str) -> None:
        """Pause the run after its step, because the money of the day is used."""
        self.spent = why
        self.pause.set(why)

    def look(self) -> None:
        """Renew the lease when that is due, and do what is asked; end the run once it is over."""
        try:
            # A write waits for a database that is away, until long after the lease.
            with self._database.reading() as connection:
                wish = self._rows.wish(connection, self._claim)
            now = self._clock.monotonic()
            if now - self._renewed >= SECONDS_BETWEEN_RENEWALS:
                wish = self._database.write(
                    lambda connection: self._rows.renew(connection, self._claim), durable=False
                )
                self._renewed = now
        except LeaseLostError as error:
            self.lose(str(error))
        except DatabaseError as error:
            if self._clock.monotonic() - self._renewed >= LEASE_SECONDS:
                self.lose(f"the lease is over, and {error}")
        else:
            self._hear(wish)

    def _beat(self) -> None:
        while not self.lost and not self._over.wait(SECONDS_BETWEEN_LOOKS):
            self.look()

    def _hear(self, wish: Wish) -> None:
        self.wish = wish
        if wish is Wish.PAUSE:
            self.pause.set("asked to pause")
        elif wish is Wish.CANCEL:
            self.cancellation.set("asked to end")
