"""What the searches of a family found, as rows of a table and for machines."""

from __future__ import annotations

import math

import attrs

from search.curves import Curve, median, quartiles
from search.methods import BEST, DEFAULTS, LEAN, METHODS, PAPER, Run

PEERS = (DEFAULTS, BEST)
REFLECTION = 10
"""What a reflection costs, in calls of the task model, when costs are compared."""


@attrs.frozen(kw_only=True)
class Cell:
    """What one method found in a family of worlds, one run for each seed."""

    method: str
    budget: int
    runs: tuple[Run, ...]

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The curves, one for each seed."""
        return tuple(run.curve for run in self.runs)

    @property
    def finals(self) -> list[float]:
        """The scores that the searches ended with."""
        return [curve.final for curve in self.curves]

    @property
    def early(self) -> float:
        """The median score after a third of the budget."""
        return median([curve.at(self.budget // 3) for curve in self.curves])

    @property
    def most_calls(self) -> int:
        """The most calls that a search really made."""
        return max(curve.calls for curve in self.curves)

    @property
    def excess(self) -> int:
        """Calls beyond the budget, at most."""
        return max(0, self.most_calls - self.budget)

    def until(self, target: float) -> str:
        """Return after how many calls the median search had ``target`` for good."""
        reached = (curve.reaches(target) for curve in self.curves)
        calls = median([self.budget + 1 if one is None else one for one in reached])
        return "never" if calls > self.budget else f"{calls:,.0f}"

    def cost(self, target: float | None = None) -> float:
        """Return the median cost of a search with all of its reflections, in calls.

        Args:
            target: the score until which calls count; None for all of them.
        """
        calls = [c.calls if target is None else c.reaches(target) for c in self.curves]
        pairs = zip(calls, self.curves, strict=True)
        return median(
            [math.inf if one is None else one + REFLECTION * c.reflections for one, c in pairs]
        )

    def line(self, targets: tuple[float, ...]) -> str:
        """Return the row of the table; ``targets`` are the peer's final scores."""
        low, high = quartiles(self.finals)
        area = median([curve.area(self.budget) for curve in self.curves])
        asked = median([curve.reflections for curve in self.curves])
        seconds = median([run.seconds for run in self.runs])
        until = "  ".join(f"{self.until(target):>11}" for target in targets)
        over = f"+{self.excess:,}" if self.excess else ""
        return (
            f"  {self.method:<19} {median(self.finals):.3f} ({low:.3f} to {high:.3f})  "
            f"{self.early:.3f}  {area:.3f}  {until}  {self.most_calls:>6,} {over:>4}  "
            f"{asked:>5.0f}  {seconds:>5.2f}"
        )

    def plain(self) -> dict[str, object]:
        """Return the same for machines, seed by seed."""
        return {
            "method": self.method,
            "runs": [
                {
                    "final": run.curve.final,
                    "early": run.curve.at(self.budget // 3),
                    "area": run.curve.area(self.budget),
                    "calls": run.curve.calls,
                    "reflections": run.curve.reflections,
                    "processor_seconds": run.seconds,
                    "points": run.curve.points,
                }
                for run in self.runs
            ],
        }


@attrs.frozen(kw_only=True)
class Result:
    """What every method found in a family of worlds.

    Attributes:
        family: its name.
        says: what is hard about it.
        budget: calls that each search had.
        cells: by method.
    """

    family: str
    says: str
    budget: int
    cells: dict[str, Cell]

    @property
    def targets(self) -> tuple[float, ...]:
        """The median final scores of gepa with its defaults and with its best settings."""
        return tuple(median(self.cells[method].finals) for method in PEERS)

    @property
    def within_budget(self) -> bool:
        """Whether promptgraft never made more calls than it had."""
        return not any(self.cells[method].excess for method in (LEAN, PAPER))

    def lines(self) -> list[str]:
        """Return its part of the table."""
        heads = (
            f"  {'':<19} {'final (quartiles)':<23}  {f'@{self.budget // 3}':<5}  {'area':<5}  "
            "to defaults      to best  calls made   asked  cpu s"
        )
        rows = (self.cells[method].line(self.targets) for method in METHODS)
        return [f"{self.family}: {self.says}; {self.budget:,} calls", heads, *rows]

    def plain(self) -> dict[str, object]:
        """Return the same for machines."""
        cells = [cell.plain() for cell in self.cells.values()]
        return {"family": self.family, "budget": self.budget, "methods": cells}
