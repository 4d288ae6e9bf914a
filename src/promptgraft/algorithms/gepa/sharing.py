"""How many reflections a proposal makes, and how they share the failures of a minibatch."""

from __future__ import annotations

ATTEMPTS = 2
"""Reflections that a text can use: one, and a repair."""

MOST_AT_ONCE = 4
"""Modules that a proposal can change."""

_FAILURES_EACH = 3


def parts_of(failures: int, reflections: int) -> int:
    """Return among how many of so many reflections failures are shared; one for each three."""
    return max(1, min(reflections, -(-failures // _FAILURES_EACH)))
