"""What is claimed of promptgraft's searches, checked on what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from search.curves import median
from search.methods import DEFAULTS, LEAN, PAPER
from search.results import PEERS, Result
from search.seeds import Difference, difference


@attrs.frozen(kw_only=True)
class Claims:
    """Whether the claims hold in a family.

    Attributes:
        family: its name.
        final: lean's median final score is no less than gepa's with its defaults, and with its
            best settings.
        early: lean's median score after a third of the budget is no less than those.
        cost: lean has reached those at no higher cost than gepa's whole searches have. A reflection
            costs as much as ``REFLECTION`` calls, and all reflections of lean count.
        paper: paper's final scores beside those of gepa's defaults, seed by seed; they should
            do the same.
        within_budget: no search of ours made more calls than it had.
    """

    family: str
    final: tuple[bool, ...]
    early: tuple[bool, ...]
    cost: tuple[bool, ...]
    paper: Difference
    within_budget: bool

    def line(self) -> str:
        """Return the row of the summary."""
        kept = "  ".join(f"{_kept(one):<8}" for one in (*self.final, *self.early, *self.cost))
        return (
            f"  {self.family:<10} {kept}  {self.paper!s:<28} "
            f"{self.paper.word:<7} {_kept(self.within_budget)}"
        )

    def plain(self) -> dict[str, object]:
        """Return the same for machines."""
        paper = self.paper
        return {
            "family": self.family,
            "final": self.final,
            "early": self.early,
            "cost": self.cost,
            "paper": [paper.mean, paper.low, paper.high, paper.word],
            "within_budget": self.within_budget,
        }


def check(result: Result) -> Claims:
    """Check the claims in one family."""
    lean = result.cells[LEAN]
    return Claims(
        family=result.family,
        final=tuple(median(lean.finals) >= target for target in result.targets),
        early=tuple(lean.early >= target for target in result.targets),
        cost=tuple(
            lean.cost(target) <= result.cells[peer].cost()
            for peer, target in zip(PEERS, result.targets, strict=True)
        ),
        paper=difference(result.cells[DEFAULTS].finals, result.cells[PAPER].finals),
        within_budget=result.within_budget,
    )


def summary(results: Sequence[Result]) -> list[str]:
    """Return the claims as a table, a row for each family and one that counts."""
    checked = [check(result) for result in results]
    same = [one.paper.word == "same" for one in checked]
    columns = list(zip(*((*one.final, *one.early, *one.cost) for one in checked), strict=True))
    counted = "  ".join(f"{f'{sum(column)} of {len(checked)}':<8}" for column in (*columns, same))
    heads = f"  {'':<10} {'defaults  best      ' * 3}{'mean (95 % interval)':<28} {'':<7} (d) calls"
    return [
        f"claims     {'(a) final':<20}{'(b) at a third':<20}{'(e) cost':<20}(c) paper - defaults",
        heads,
        *(one.line() for one in checked),
        f"  {'kept':<10} {counted}".rstrip(),
    ]


def _kept(value: bool) -> str:
    return "kept" if value else "missed"
