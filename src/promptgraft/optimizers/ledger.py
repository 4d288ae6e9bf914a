"""What a run has used so far, by role."""

from __future__ import annotations

from enum import StrEnum

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage


class Role(StrEnum):
    """What a call was for."""

    TASK = "task"
    REFLECTION = "reflection"


@attrs.frozen(kw_only=True)
class RoleTotals:
    """Calls and tokens of one role."""

    calls: int = 0
    usage: Usage = NO_USAGE

    def plus(self, usage: Usage) -> RoleTotals:
        """Return the totals after one more call."""
        return RoleTotals(
            calls=self.calls + 1,
            usage=Usage(
                input_tokens=self.usage.input_tokens + usage.input_tokens,
                output_tokens=self.usage.output_tokens + usage.output_tokens,
                cached_tokens=self.usage.cached_tokens + usage.cached_tokens,
            ),
        )


class Ledger:
    """Counts every answer of a run, recorded before or made now.

    Args:
        rollout_budget: rollouts that the run may use; never exceeded.
    """

    def __init__(self, rollout_budget: int) -> None:
        self._budget = rollout_budget
        self._totals = {role: RoleTotals() for role in Role}

    def totals(self, role: Role) -> RoleTotals:
        """Return calls and tokens of ``role``."""
        return self._totals[role]

    def affords(self, rollouts: int) -> bool:
        """Tell whether the budget has room for that many more rollouts."""
        return self._totals[Role.TASK].calls + rollouts <= self._budget

    def count(self, role: Role, usage: Usage) -> None:
        """Add one answer."""
        self._totals[role] = self._totals[role].plus(usage)
