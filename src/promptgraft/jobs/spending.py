"""What the jobs of a project spend in a day, in the tables of jobs and attempts."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal

from sqlalchemy import Connection, case, func, select, update

from promptgraft.jobs.lines import JobLines
from promptgraft.jobs.types import JobState

_SECONDS_OF_A_DAY = 86_400
_MILLION = 1_000_000


def spent_for_today(project: str, most: Decimal) -> str:
    """Return why a project may spend nothing more today."""
    return f"max_cost_per_day: {most} US dollars of project `{project}` are used today (UTC)"


class SpendingRows(JobLines):
    """What jobs have spent. All methods take the connection of a transaction."""

    def spend(self, connection: Connection, number: int, cost: Decimal) -> None:
        """Count what is new of the cost of a job for the present day; a replay brings nothing."""
        jobs, attempts = self._jobs, self._database.tables.attempts
        whole = round(cost * _MILLION)
        before, attempt = connection.execute(
            select(jobs.c.spent, jobs.c.attempts).where(jobs.c.number == number)
        ).one()
        if (new := whole - before) <= 0:
            return
        day = self._day(connection)
        self.put(connection, number, spent=whole)
        # In this order: MySQL looks at the day that it has just written.
        connection.execute(
            update(attempts)
            .where(attempts.c.job == number, attempts.c.number == attempt)
            .ordered_values(
                (
                    "spent",
                    case((attempts.c.day == day, attempts.c.spent), else_=0) + new,
                ),
                ("day", day),
            )
        )

    def spent_today(self, connection: Connection, project: str) -> Decimal:
        """Return the US dollars that the jobs of a project have used since midnight (UTC)."""
        jobs, attempts = self._jobs, self._database.tables.attempts
        day = self._day(connection)
        found = connection.scalar(
            select(func.sum(attempts.c.spent))
            .join(jobs, jobs.c.number == attempts.c.job)
            .where(attempts.c.day == day, jobs.c.project == project)
        )
        return Decimal(int(found or 0)) / _MILLION

    def hold(
        self,
        connection: Connection,
        project: str,
        reason: str,
        *,
        held: bool = True,
        but: Collection[str] = (),
    ) -> None:
        """Say of the queued jobs of a project why none of them begins, or say it no longer.

        ``but``: nothing is said of jobs with these digests.
        """
        jobs, text = self._jobs, reason.encode()
        differs = jobs.c.reason != text if held else jobs.c.reason == text
        connection.execute(
            update(jobs)
            .where(
                jobs.c.state == JobState.QUEUED,
                jobs.c.project == project,
                differs,
                jobs.c.digest.not_in(but),
            )
            .values(reason=text if held else b"")
        )

    def _day(self, connection: Connection) -> int:
        return int(self._database.now(connection).timestamp() // _SECONDS_OF_A_DAY)
