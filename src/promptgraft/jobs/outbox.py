"""The outbox: a row for each event of a job and each webhook, until it is delivered."""

from __future__ import annotations

from collections.abc import Collection

import attrs
from sqlalchemy import Connection, delete, insert, select, update

from promptgraft.database import Database

_SECONDS_TO_SEND = 60.0
"""After these a delivery that was taken is due again: its sender is gone."""


@attrs.frozen(kw_only=True)
class Delivery:
    """An event on its way to a webhook.

    Attributes:
        id: the same however often it is sent.
        hook: the webhook, by its name.
        job: number of the job.
        body: what is sent.
        attempt: which one this is, from 1.
        seconds: when it was taken, in seconds since 1970.
    """

    id: int
    hook: str
    job: int
    body: bytes
    attempt: int
    seconds: float


class Outbox:
    """The table of deliveries. All methods take the connection of a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rows = database.tables.outbox

    def serve(self, connection: Connection, hooks: Collection[str]) -> None:
        """From now on keep events for these webhooks, and for no others."""
        connection.execute(update(self._database.tables.schema).values(hooks=",".join(hooks)))

    def hooks(self, connection: Connection) -> list[str]:
        """Return the webhooks that events are kept for."""
        found = connection.scalar(select(self._database.tables.schema.c.hooks))
        return found.split(",") if found else []

    def put(self, connection: Connection, job: int, body: bytes) -> None:
        """Keep an event of a job for each webhook."""
        rows = [{"hook": hook, "job": job, "body": body} for hook in self.hooks(connection)]
        if rows:
            connection.execute(insert(self._rows), rows)

    def take(self, connection: Connection, hooks: Collection[str]) -> Delivery | None:
        """Take a delivery that is due; of one job and webhook always the oldest.

        Unless :meth:`remove` or :meth:`postpone` follows, it is due again after a minute.
        """
        rows, earlier = self._rows, self._rows.alias()
        now = float(connection.scalar(select(self._database.seconds)) or 0)
        is_first = ~(
            select(earlier.c.id)
            .where(
                earlier.c.hook == rows.c.hook,
                earlier.c.job == rows.c.job,
                earlier.c.id < rows.c.id,
            )
            .exists()
        )
        found = connection.execute(
            select(rows)
            .where(rows.c.hook.in_(sorted(hooks)), rows.c.due <= now, is_first)
            .order_by(rows.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        ).one_or_none()
        if found is None:
            return None
        self.postpone(connection, found.id, now + _SECONDS_TO_SEND, attempts=found.attempts + 1)
        return Delivery(
            id=found.id,
            hook=found.hook,
            job=found.job,
            body=found.body,
            attempt=found.attempts + 1,
            seconds=now,
        )

    def postpone(self, connection: Connection, id_: int, due: float, *, attempts: int) -> None:
        """Let a delivery be due at another time."""
        values = {"due": due, "attempts": attempts}
        connection.execute(update(self._rows).where(self._rows.c.id == id_).values(values))

    def remove(self, connection: Connection, id_: int) -> None:
        """Remove a delivery that has arrived, or is given up."""
        connection.execute(delete(self._rows).where(self._rows.c.id == id_))
