"""Limits of a server, and the buckets that hold the rates of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.service.server.problems import ApiProblem

_MOST_BUCKETS = 10_000
_SECONDS_AT_ONCE = 2.0
"""A silent client may send this many seconds' requests at once."""


def _check(_: object, field: attrs.Attribute[float], value: float) -> None:
    if not 0 < value <= 1e9:
        raise ConfigError(f"{field.name}: expected a number above 0, found {shown(value)}")


def _limit(default: float) -> float:
    value: float = attrs.field(default=default, converter=float, validator=_check)
    return value


@attrs.frozen(kw_only=True)
class Limits:
    """Limits of a server; all are above 0.

    Attributes:
        requests: requests a second for a token; twice as many at once.
        address_requests: requests a second from an address, before anything is known of them.
        streams: streams of events for a token.
        all_streams: streams of events in total.
        queued_jobs: jobs that may be queued at a time.
        reports: reports, archives and comparisons that are made at a time.
        waiting_reports: further ones that may wait for that; more are refused.
        header_seconds: time in which a connection has to bring the headers of a request.
        body_seconds: time in which a request has to bring its body.
        waiting_connections: connections without a request; the oldest are closed for new ones.
        idle_seconds: time after which an unused browser session ends.
        session_seconds: time after which every browser session ends.

    Raises:
        ConfigError: a limit is not above 0.
    """

    requests: float = _limit(20)
    address_requests: float = _limit(200)
    streams: float = _limit(10)
    all_streams: float = _limit(200)
    queued_jobs: float = _limit(1_000)
    reports: float = _limit(2)
    waiting_reports: float = _limit(8)
    header_seconds: float = _limit(10)
    body_seconds: float = _limit(30)
    waiting_connections: float = _limit(500)
    idle_seconds: float = _limit(8 * 3600)
    session_seconds: float = _limit(7 * 86_400)

    @classmethod
    def of(cls, pairs: Sequence[str]) -> Limits:
        """Return the limits with some set by pairs ``NAME=NUMBER``.

        Raises:
            ConfigError: a pair is not of this form, or there is no such limit.
        """
        names = [field.name for field in attrs.fields(cls)]
        values: dict[str, float] = {}
        for pair in pairs:
            name, _, number = pair.partition("=")
            if name not in names:
                near = did_you_mean(name, names)
                raise ConfigError(
                    f"--limit: there is no limit `{name}`{near}; there: {_list(names)}"
                )
            try:
                values[name] = float(number)
            except ValueError:
                raise ConfigError(f"--limit: expected {name}=NUMBER, found {pair!r}") from None
        return cls(**values)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)


@attrs.define
class _Bucket:
    """Token bucket of a rate limit: requests left at a time."""

    left: float
    at: float


class Buckets:
    """Limits the rate of requests by name; safe to share between threads.

    Args:
        rate: requests a second.
        now: a monotonic clock in seconds.
    """

    def __init__(self, rate: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._now = rate, now
        self._most = rate * _SECONDS_AT_ONCE
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def take(self, name: str) -> None:
        """Count a request.

        Raises:
            Problem: 429: too many.
        """
        with self._lock:
            now = self._now()
            if len(self._buckets) >= _MOST_BUCKETS:
                self._buckets = _used(self._buckets, since=now - _SECONDS_AT_ONCE)
            # A token bucket: it refills with time, and every request takes one.
            bucket = self._buckets.setdefault(name, _Bucket(self._most, now))
            bucket.left += (now - bucket.at) * self._rate
            # Capped, so that a long silence does not allow a flood.
            bucket.left, bucket.at = min(self._most, bucket.left), now
            if bucket.left < 1:
                raise ApiProblem(
                    429,
                    f"more than {self._rate:.0f} requests a second; wait a moment",
                    headers={"Retry-After": "1"},
                )
            bucket.left -= 1


def _used(buckets: Mapping[str, _Bucket], *, since: float) -> dict[str, _Bucket]:
    # Addresses are many, and a bucket that has had time to fill says nothing.
    return {name: bucket for name, bucket in buckets.items() if bucket.at > since}
