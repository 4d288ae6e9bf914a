"""Rows of tests that only ``make thorough`` tries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thorough(rows: Iterable[Any]) -> list[Any]:
    """Mark rows that try more of what the other rows assert; a tuple has several values."""
    mark = pytest.mark.thorough
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=mark) for row in rows]


def some(rows: Iterable[Any]) -> list[Any]:
    """Mark all rows but each third one, of many that try the same thing."""
    rows = list(rows)
    return [*rows[::3], *thorough(row for at, row in enumerate(rows) if at % 3)]
