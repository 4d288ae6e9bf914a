"""Webhooks: signed deliveries of job events to addresses that the operator has configured.

The table of deliveries is an outbox: :meth:`promptgraft.service.jobs.lines.JobLines.publish` adds
a row for each event and webhook in the transaction of the event, and a row stays until it is
delivered.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path

import attrs
from sqlalchemy import Connection, delete, select, update

from promptgraft.adapters.calling.access import is_address, is_confidential
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import TEXT, Kind, check
from promptgraft.ground.strict.kinds import checked, named, record_of
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project.files import source_file
from promptgraft.service.database import Database, DatabaseError
from promptgraft.service.jobs.client import authorities
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.jobs.types import JobNotFoundError

MOST_ATTEMPTS = 15
"""Attempts after which a delivery is given up; with the pauses between them, about four hours."""

_LONGEST_PAUSE_SECONDS = 3_600.0
_SECONDS_TO_ANSWER = 10.0
# Well above the time to answer: a delivery is due again only if its sender has died.
_SECONDS_TO_SEND = 60.0
_SECONDS_BETWEEN_LOOKS = 1.0
_LEAST_SECRET_CHARS = 16
# Secrets come from the environment only, so that files with webhooks can be shared.
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_logger = logging.getLogger("promptgraft.service.jobs")


@attrs.frozen(kw_only=True)
class Webhook:
    """An address that events are sent to.

    Attributes:
        url: Receives a POST; `https` except on this machine.
        secret: `${NAME}`, a variable with at least 16 characters that signs deliveries.
    """

    url: str
    secret: str = attrs.field(repr=False)


def _check_url(url: str) -> None:
    if not (is_address(url.partition("?")[0]) and is_confidential(url)):
        raise ConfigError(
            "expected an address such as https://ops.example.org/promptgraft (`http` only on "
            f"this machine), found {shown(url)}"
        )


_SECRET = check(
    "`${NAME}`",
    lambda value: value if isinstance(value, str) and _REFERENCE.fullmatch(value) else None,
    {"type": "string"},
    hidden=True,
    mend="put the secret into an environment variable and name that",
)
_URL: Kind[str] = checked(TEXT, _check_url)
_WEBHOOKS: Kind[dict[str, Webhook]] = named(
    record_of(Webhook, special={"url": _URL, "secret": _SECRET}),
    "an object with webhooks by their names",
    check=lambda name: check_key(name, what="name of a webhook"),
)


def read_webhooks(path: str | Path) -> dict[str, Webhook]:
    """Read the webhooks of a file, with their secrets from the environment.

    Raises:
        DataFormatError: the file is invalid; a line for each fault.
        ConfigError: a variable is not set, or too short.
    """
    source = source_file(Path(path))
    webhooks = _WEBHOOKS.read(source.root) or {}
    source.raise_all()
    return {
        name: attrs.evolve(webhook, secret=_secret(path, name, webhook))
        for name, webhook in webhooks.items()
    }


def _secret(path: str | Path, name: str, hook: Webhook) -> str:
    variable = _REFERENCE.sub(r"\1", hook.secret)
    secret = os.environ.get(variable, "")
    if len(secret) < _LEAST_SECRET_CHARS:
        raise ConfigError(
            f"{path}: {name}.secret: expected at least {_LEAST_SECRET_CHARS} characters in the "
            f"variable {variable}, found {len(secret)}; `openssl rand -hex 32` makes some"
        )
    return secret


def signature(secret: str, seconds: int, body: bytes) -> str:
    """Return the signature of a delivery: time, and HMAC-SHA256 over time, a dot, and the body."""
    mac = hmac.new(secret.encode(), b"%d.%b" % (seconds, body), hashlib.sha256)
    return f"t={seconds},v1={mac.hexdigest()}"


@attrs.frozen(kw_only=True)
class _Delivery:
    """An event on its way to a webhook.

    Attributes:
        id: the same in every attempt.
        hook: the name of the webhook.
        job: number of the job.
        body: the body of the request.
        attempt: number of this attempt, from 1.
        seconds: when the attempt began, in seconds since 1970.
    """

    id: int
    hook: str
    job: int
    body: bytes
    attempt: int
    seconds: float


class WebhookSender:
    """Delivers the events of jobs at least once; the events of one job in order.

    Several processes may share this work on one database. The process that was started last
    decides which webhooks there are.

    Args:
        database: where the jobs are.
        hooks: webhooks by their names; from now on, events are queued for these.
    """

    def __init__(self, database: Database, hooks: Mapping[str, Webhook]) -> None:
        self.database, self._hooks = database, hooks
        self._outbox = database.tables.outbox
        # In the database, because jobs run in processes that do not know the webhooks.
        names = update(database.tables.schema).values(hooks=",".join(sorted(hooks)))
        database.write(lambda connection: connection.execute(names))

    def run(self, ending: threading.Event) -> None:
        """Send due deliveries until ``ending`` is set."""
        while not ending.is_set():
            try:
                was_due = self.deliver()
            except DatabaseError:
                was_due = False
            if not was_due:
                ending.wait(_SECONDS_BETWEEN_LOOKS)

    def deliver(self) -> bool:
        """Send one due delivery; return whether there was one."""
        deliveries_due = self.database.write(self._take, durable=False)
        if deliveries_due is None:
            return False
        why = self._send(deliveries_due, self._hooks[deliveries_due.hook])
        if why:
            _logger.warning(
                "webhook %s: delivery %d: %s", deliveries_due.hook, deliveries_due.id, why
            )
        self.database.write(lambda connection: self._settle(connection, deliveries_due, why))
        return True

    def _take(self, connection: Connection) -> _Delivery | None:
        """Take a due delivery; for one job and webhook always the oldest."""
        rows, earlier = self._outbox, self._outbox.alias()
        now = self.database.now(connection).timestamp()
        is_first = ~(
            select(earlier.c.id)
            .where(
                earlier.c.hook == rows.c.hook, earlier.c.job == rows.c.job, earlier.c.id < rows.c.id
            )
            .exists()
        )
        due_rows = connection.execute(
            select(rows)
            .where(rows.c.hook.in_(sorted(self._hooks)), rows.c.due <= now, is_first)
            .order_by(rows.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        ).one_or_none()
        if due_rows is None:
            return None
        attempt = due_rows.attempts + 1
        self._postpone(connection, due_rows.id, now + _SECONDS_TO_SEND, attempts=attempt)
        return _Delivery(
            id=due_rows.id,
            hook=due_rows.hook,
            job=due_rows.job,
            body=due_rows.body,
            attempt=attempt,
            seconds=now,
        )

    def _postpone(self, connection: Connection, id_: int, due: float, *, attempts: int) -> None:
        rows = self._outbox
        connection.execute(update(rows).where(rows.c.id == id_).values(due=due, attempts=attempts))

    def _settle(self, connection: Connection, delivery: _Delivery, why: str) -> None:
        """Remove a delivery that has arrived or is given up; postpone any other."""
        if why and delivery.attempt < MOST_ATTEMPTS:
            # Doubling: a receiver that is down for hours is not asked every second.
            pause = min(_LONGEST_PAUSE_SECONDS, 2.0**delivery.attempt)
            due, attempts = delivery.seconds + pause, delivery.attempt
            self._postpone(connection, delivery.id, due, attempts=attempts)
            return
        connection.execute(delete(self._outbox).where(self._outbox.c.id == delivery.id))
        if not why:
            return
        rows = JobRows(self.database)
        try:
            rows.load(connection, delivery.job, locked=True)
        except JobNotFoundError:
            return
        message = f"given up after {delivery.attempt} attempts; the last: {why}"
        # Not published: a webhook that fails must not queue deliveries about its own failure.
        rows.add_event(
            connection, delivery.job, "webhook_failed", hook=delivery.hook, reason=message
        )

    def _send(self, delivery: _Delivery, hook: Webhook) -> str:
        """Send a delivery; return why it failed, or an empty string."""
        import httpx

        headers = {
            "Content-Type": "application/json",
            "Promptgraft-Delivery": str(delivery.id),
            "Promptgraft-Signature": signature(hook.secret, int(delivery.seconds), delivery.body),
        }
        try:
            # Only the status matters; a streamed body that is never read may be of any length.
            with httpx.stream(
                "POST",
                hook.url,
                content=delivery.body,
                headers=headers,
                timeout=_SECONDS_TO_ANSWER,
                verify=authorities(),
                follow_redirects=False,
            ) as answer:
                return "" if answer.is_success else f"answered {answer.status_code}"
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
