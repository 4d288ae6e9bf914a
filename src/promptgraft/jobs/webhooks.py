"""Webhooks: the events of jobs, signed, to addresses that an operator has named."""

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
from sqlalchemy import Connection

from promptgraft.adapters.calling.access import is_address, is_confidential
from promptgraft.database import Database, DatabaseError
from promptgraft.errors import ConfigError
from promptgraft.jobs.client import authorities
from promptgraft.jobs.outbox import Delivery, Outbox
from promptgraft.jobs.rows import JobRows
from promptgraft.jobs.types import JobNotFoundError
from promptgraft.parts.validation import check_key
from promptgraft.project.files import source_file
from promptgraft.serde import shown
from promptgraft.strict.checks import TEXT, Kind, check
from promptgraft.strict.kinds import checked, named, record_of

MOST_ATTEMPTS = 15
"""After these a delivery is given up: about five hours."""

_LONGEST_PAUSE_SECONDS = 3_600.0
_SECONDS_TO_ANSWER = 10.0
_SECONDS_BETWEEN_LOOKS = 1.0
_LEAST_SECRET_CHARS = 16
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_logger = logging.getLogger("promptgraft.jobs")


@attrs.frozen(kw_only=True)
class Webhook:
    """Where events are sent.

    Attributes:
        url: Takes a POST; `https` but on this machine.
        secret: `${NAME}`, a variable with at least 16 characters that signs what is sent.
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
    """Return the webhooks of a file, with their secrets from the environment.

    Raises:
        DataFormatError: the file is at fault; a line for each.
        ConfigError: a variable is not set, or too short.
    """
    source = source_file(Path(path))
    found = _WEBHOOKS.read(source.root) or {}
    source.raise_all()
    return {name: attrs.evolve(one, secret=_secret(path, name, one)) for name, one in found.items()}


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
    """Return what signs a delivery: the time, and HMAC-SHA256 over time, a dot, and the body."""
    made = hmac.new(secret.encode(), b"%d.%b" % (seconds, body), hashlib.sha256)
    return f"t={seconds},v1={made.hexdigest()}"


class WebhookSender:
    """Delivers events of jobs at least once; those of one job in their order.

    Several processes may do so on one database. The one that was started last decides which
    webhooks there are.

    Args:
        database: where the jobs are.
        hooks: webhooks by their names; from now on events are kept for these.
    """

    def __init__(self, database: Database, hooks: Mapping[str, Webhook]) -> None:
        self.database, self._hooks = database, hooks
        self._outbox = Outbox(database)
        database.write(lambda connection: self._outbox.serve(connection, sorted(hooks)))

    def run(self, ending: threading.Event) -> None:
        """Deliver what is due until ``ending`` is set."""
        while not ending.is_set():
            try:
                was_due = self.deliver()
            except DatabaseError:
                was_due = False
            if not was_due:
                ending.wait(_SECONDS_BETWEEN_LOOKS)

    def deliver(self) -> bool:
        """Send one delivery that is due; return whether there was one."""
        found = self.database.write(
            lambda connection: self._outbox.take(connection, self._hooks), durable=False
        )
        if found is None:
            return False
        why = self._refusal(found, self._hooks[found.hook])
        if why:
            _logger.warning("webhook %s: delivery %d: %s", found.hook, found.id, why)
        self.database.write(lambda connection: self._settle(connection, found, why))
        return True

    def _settle(self, connection: Connection, delivery: Delivery, why: str) -> None:
        if why and delivery.attempt < MOST_ATTEMPTS:
            pause = min(_LONGEST_PAUSE_SECONDS, 2.0**delivery.attempt)
            due, attempts = delivery.seconds + pause, delivery.attempt
            self._outbox.postpone(connection, delivery.id, due, attempts=attempts)
            return
        self._outbox.remove(connection, delivery.id)
        if not why:
            return
        rows = JobRows(self.database)
        try:
            rows.at(connection, delivery.job, locked=True)
        except JobNotFoundError:
            return
        said = f"given up after {delivery.attempt} attempts; the last: {why}"
        rows.note(connection, delivery.job, "webhook_failed", hook=delivery.hook, reason=said)

    def _refusal(self, delivery: Delivery, hook: Webhook) -> str:
        """Send a delivery; return why it did not arrive, empty when it did."""
        import httpx

        headers = {
            "Content-Type": "application/json",
            "Promptgraft-Delivery": str(delivery.id),
            "Promptgraft-Signature": signature(hook.secret, int(delivery.seconds), delivery.body),
        }
        try:
            # What is answered is not read: it may be long, and nothing depends on it.
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
