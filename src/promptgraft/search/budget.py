"""The rollouts of a run: what is used, what is kept for later, and what is left."""

from __future__ import annotations

from promptgraft.search.ledger import Ledger
from promptgraft.search.stopping import RunStoppedError, StopReason


class RolloutBudget:
    """What the budget pays for, besides everything that is reserved.

    Args:
        ledger: what the parts of the run have used that are taken account of.
        reserve: rollouts that are kept for the end of the run.
    """

    def __init__(self, ledger: Ledger, *, reserve: int = 0) -> None:
        self._ledger = ledger
        self._reserve = reserve
        self._under_way = 0

    @property
    def used(self) -> int:
        """Rollouts used so far."""
        return self._ledger.rollouts

    def affords(self, rollouts: int) -> bool:
        """Tell whether there is room for that many more, besides everything that is kept."""
        return self._ledger.affords(rollouts + self._reserve + self._under_way)

    def require(self, rollouts: int, what: str) -> None:
        """Do nothing while there is room for that many more, besides everything that is kept.

        Raises:
            RunStoppedError: there is none, so that ``what`` cannot be done.
        """
        if not self.affords(rollouts):
            raise RunStoppedError(
                StopReason.BUDGET, f"{what}, which takes {rollouts} rollouts, more than are left"
            )

    def keep(self, rollouts: int) -> None:
        """Keep rollouts for branches under way, in the place of what was kept for them before."""
        self._under_way = rollouts

    def release(self, rollouts: int) -> None:
        """Make rollouts available that were kept for the end of the run."""
        self._reserve -= rollouts
