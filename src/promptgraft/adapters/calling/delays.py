"""When a provider says that it wants to be asked again, read from the headers of its answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_OPENAI = re.compile(r"x-ratelimit-reset-(.+)")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-(.+)-reset")


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds that ``retry-after-ms`` or ``retry-after`` ask for, or None.

    A date that has passed is 0. What is neither a number nor a date is ignored.

    Args:
        headers: names in lower case.
        now: the time in UTC, for dates.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after", "").strip()
    seconds = _number(told)
    return _until(_http_date(told), now) if seconds is None else seconds


def rate_limit_reset(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds until every limit that is used up is reset, or None.

    Reads ``x-ratelimit-reset-*`` (durations such as ``6m0s``) and ``anthropic-ratelimit-*-reset``
    (times of RFC 3339). A limit of which something remains is passed over.
    """
    return max(_resets(headers, now), default=None)


def _resets(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    for name, value in headers.items():
        if found := _OPENAI.fullmatch(name):
            remaining, reset = f"x-ratelimit-remaining-{found[1]}", _duration(value)
        elif found := _ANTHROPIC.fullmatch(name):
            remaining = f"anthropic-ratelimit-{found[1]}-remaining"
            reset = _until(_rfc3339(value), now)
        else:
            continue
        if reset is not None and not _number(headers.get(remaining, "")):
            yield reset


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _duration(text: str) -> float | None:
    if _DURATION.fullmatch(text.strip()) is None:
        return _number(text)
    return sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))


def _until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def _http_date(text: str) -> datetime | None:
    try:
        return _aware(parsedate_to_datetime(text))
    except (ValueError, OverflowError):
        return None


def _rfc3339(text: str) -> datetime | None:
    try:
        return _aware(datetime.fromisoformat(text.strip()))
    except ValueError:
        return None


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
