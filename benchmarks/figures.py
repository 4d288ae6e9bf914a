"""Figures with their limits, and how they are printed."""

from __future__ import annotations

import attrs


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
