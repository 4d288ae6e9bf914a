"""When providers want to be asked again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from promptgraft.adapters.calling.faults import rate_limit_reset, retry_after

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 13:00:30 +0100"}, 30.0),
        ({"retry-after": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30"}, 30.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Sun, 99 Mar 2026 12:00:30 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-reset-requests": "1s"}, 1.0),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s"}, 3723.5),
        ({"x-ratelimit-reset-tokens": "12"}, 12.0),
        ({"x-ratelimit-reset-tokens": "later"}, None),
        (
            {
                "x-ratelimit-reset-requests": "9s",
                "x-ratelimit-remaining-requests": "7",
                "x-ratelimit-reset-tokens": "4s",
                "x-ratelimit-remaining-tokens": "0",
            },
            4.0,
        ),
        ({"x-ratelimit-reset-requests": "9s", "x-ratelimit-remaining-requests": "7"}, None),
        ({"anthropic-ratelimit-requests-reset": "2026-03-01T12:00:05Z"}, 5.0),
        ({"anthropic-ratelimit-requests-reset": "2026-03-01T11:59:00Z"}, 0.0),
        ({"anthropic-ratelimit-requests-reset": "tomorrow"}, None),
        (
            {
                "anthropic-ratelimit-requests-reset": "2026-03-01T12:00:05Z",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-03-01T12:00:08Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-output-tokens-reset": "2026-03-01T12:01:00Z",
                "anthropic-ratelimit-output-tokens-remaining": "3000",
            },
            8.0,
        ),
        ({"retry-after": "3"}, None),
    ],
)
def test_a_reset_counts_where_nothing_remains(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert rate_limit_reset(headers, now=NOW) == seconds
