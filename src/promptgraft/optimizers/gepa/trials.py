"""Rollouts as the steps of a run see them: counted, told of, and stopped when too many fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from promptgraft.optimizers.gepa.events import GepaRolloutCompleted
from promptgraft.optimizers.ledger import Ledger, Role
from promptgraft.optimizers.rollouts import RolloutRunner
from promptgraft.optimizers.stopping import RunStoppedError, StopReason
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord

Emit = Callable[[object], None]


class Trials:
    """Tries candidates for the steps of a run.

    Args:
        runner: makes rollouts.
        ledger: counts them.
        emit: is told of each.
        max_unscored_share: share of a batch that may stay unscored, 0 to 1.
    """

    def __init__(
        self, runner: RolloutRunner, *, ledger: Ledger, emit: Emit, max_unscored_share: float
    ) -> None:
        self._runner = runner
        self._ledger = ledger
        self._emit = emit
        self._max_unscored_share = max_unscored_share
        self.unscored = 0

    def afford(self, rollouts: int) -> bool:
        """Tell whether the budget has room for that many more rollouts."""
        return self._ledger.affords(rollouts)

    @property
    def used(self) -> int:
        """Rollouts used so far."""
        return self._ledger.totals(Role.TASK).calls

    def make(
        self, position: str, candidate: Candidate, examples: Sequence[GepaExample]
    ) -> tuple[RolloutRecord, ...]:
        """Return one record for each example, in their order.

        Raises:
            RunStoppedError: too many of them stayed unscored.
        """
        records = self._runner.run(position, candidate, examples)
        used = self.used - len(records)
        for index, record in enumerate(records):
            self._emit(
                GepaRolloutCompleted(
                    position=f"{position}/{index}",
                    record=record,
                    total_rollouts=used + index + 1,
                )
            )
        faults = [record for record in records if record.feedback is None]
        self.unscored += len(faults)
        if len(faults) > self._max_unscored_share * len(records):
            raise RunStoppedError(
                StopReason.PROVIDER_FAILED,
                f"{len(faults)} of {len(records)} rollouts stayed unscored; "
                f"the last: {faults[-1].fault}",
            )
        return records
