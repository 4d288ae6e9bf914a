"""Figures with their limits, and how they are printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

import attrs

from promptgraft.ground.serde import digest_text

_ROUNDS = 10_000


def unit_seconds(clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of a fixed piece of work on this machine, now.

    A limit in time would say more about the machine than about promptgraft, so such limits are
    multiples of this: a small record as JSON there and back, and its digest.
    """
    record = {"example": "e1", "scores": [0.25, 0.5, 1.0], "text": "some words " * 20}
    return min(_seconds(record, clock) for _ in range(5)) / _ROUNDS


def _seconds(record: object, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(_ROUNDS):
        digest_text(json.dumps(json.loads(json.dumps(record)), sort_keys=True))
    return clock() - started


@attrs.frozen
class Figure:
    """One measured number.

    Attributes:
        name: what was measured.
        value: the number.
        unit: its unit.
        limit: the most that it may be; None where there is no limit.
    """

    name: str
    value: float
    unit: str
    limit: float | None

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.limit is None or self.value <= self.limit

    def line(self) -> str:
        """Return the figure as a line of a table."""
        limit = "" if self.limit is None else f"at most {self.limit:g} {self.unit}".rstrip()
        verdict = "" if self.limit is None else ("ok" if self.kept else "TOO MUCH")
        return f"  {self.name:<44} {self.value:>10.1f} {self.unit:<3} {limit:<18} {verdict}"


def shown(figures: Iterable[Figure]) -> int:
    """Print figures, and return the exit code: 1 where a limit is not kept."""
    found = list(figures)
    for figure in found:
        print(figure.line())
    return 0 if all(figure.kept for figure in found) else 1
