"""Rollouts as the steps of a run see them: counted, told of, and stopped when too many fail."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence

import attrs

from promptgraft.optimizers.gepa.events import GepaRolloutCompleted
from promptgraft.optimizers.ledger import Ledger
from promptgraft.optimizers.rollouts import RolloutRunner
from promptgraft.optimizers.stopping import RunStoppedError, StopReason
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord

Emit = Callable[[object], None]

UNSCORED_ALLOWANCE = 4
"""Rollouts that may stay unscored on top of the share, in any stretch of a run."""


@attrs.frozen
class Batch:
    """How the rollouts of a batch went.

    Attributes:
        faults: for each, what the provider said that failed it; None where it did not.
        is_new: whether any of the faults was not in the journal.
    """

    faults: tuple[str | None, ...]
    is_new: bool


class Trials:
    """Tries candidates for a run, or for one of its steps.

    Args:
        runner: makes rollouts.
        ledger: counts them.
        emit: is told of each.
        max_unscored_share: share of the rollouts that may stay unscored, 0 to 1.
        reserve: rollouts that are kept for the end of the run.
        before: of a step, the rollouts that were used when it began.

    Attributes:
        before: the same.
        batches: how each batch went.
    """

    def __init__(
        self,
        runner: RolloutRunner,
        *,
        ledger: Ledger,
        emit: Emit,
        max_unscored_share: float,
        reserve: int = 0,
        before: int = 0,
    ) -> None:
        self._runner = runner
        self._ledger = ledger
        self._emit = emit
        self._reserve = reserve
        self._share = max_unscored_share
        self._stretch = FaultyStretch(max_unscored_share)
        self._under_way = 0
        self.before = before
        self.batches: list[Batch] = []

    def step(self, runner: RolloutRunner, *, ledger: Ledger, emit: Emit) -> Trials:
        """Return what tries candidates for a step that begins now."""
        trials = Trials(
            runner, ledger=ledger, emit=emit, max_unscored_share=self._share, before=self.used
        )
        trials.resume(self._stretch)
        return trials

    def resume(self, stretch: FaultyStretch) -> None:
        """Go on behind the latest rollouts of others."""
        self._stretch = copy.copy(stretch)

    def take_over(self, step: Trials) -> None:
        """Take account of the rollouts of a step.

        Raises:
            RunStoppedError: too many of the latest rollouts stayed unscored.
        """
        for batch in step.batches:
            self._judge(batch)

    def afford(self, rollouts: int) -> bool:
        """Tell whether the budget has room for that many more, besides all that is kept."""
        return self._ledger.affords(rollouts + self._reserve + self._under_way)

    def keep(self, rollouts: int) -> None:
        """Keep rollouts for the steps that are under way; no longer what was kept before."""
        self._under_way = rollouts

    def release(self, rollouts: int) -> None:
        """Make rollouts available that were kept for the end of the run."""
        self._reserve -= rollouts

    def check(self) -> None:
        """Do nothing while there is money.

        Raises:
            BudgetExhaustedError: there is none left.
        """
        self._ledger.check()

    @property
    def used(self) -> int:
        """Rollouts used so far; in a step, those before it and its own."""
        return self.before + self._ledger.rollouts

    def make(
        self, position: str, candidate: Candidate, examples: Sequence[GepaExample]
    ) -> tuple[RolloutRecord, ...]:
        """Return one record for each example, in their order.

        Raises:
            RunStoppedError: too many of the latest rollouts stayed unscored.
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
        faults = tuple(record.fault if record.feedback is None else None for record in records)
        batch = Batch(faults, any(faults[index] is not None for index in self._runner.asked))
        self.batches.append(batch)
        self._judge(batch)
        return records

    def _judge(self, batch: Batch) -> None:
        """Take account of a batch."""
        self._stretch.add(fault is not None for fault in batch.faults)
        said = [fault for fault in batch.faults if fault is not None]
        # Where the journal holds all of them, the run has gone on without these answers before.
        if batch.is_new and self._stretch.is_too_faulty:
            stretch = self._stretch
            raise RunStoppedError(
                StopReason.PROVIDER_FAILED,
                f"{stretch.unscored} of the latest {stretch.rollouts} rollouts stayed unscored; "
                f"the last: {said[-1]}",
            )


class FaultyStretch:
    """The latest rollouts of a run, from where its unscored ones began to exceed their share.

    A run may go on while, in every stretch of it, at most ``share`` of the rollouts and
    ``UNSCORED_ALLOWANCE`` more are unscored. So one fault says nothing in a small batch, and
    a provider that dies after a thousand good rollouts is noticed as soon as one that never
    lived. It is enough to watch one stretch: no other one that ends here is worse. A share of
    0 has no allowance: the first fault is too many.

    Args:
        share: share of the rollouts that may stay unscored, 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._allowance = UNSCORED_ALLOWANCE if share else 0
        self.unscored = 0
        self.rollouts = 0

    def add(self, faults: Iterable[bool]) -> None:
        """Add rollouts in the order in which the run asked for them; True is unscored."""
        for fault in faults:
            self.rollouts += 1
            self.unscored += fault
            if self.unscored <= self._share * self.rollouts:
                self.unscored = self.rollouts = 0

    @property
    def is_too_faulty(self) -> bool:
        """Whether more rollouts of the stretch are unscored than share and allowance permit."""
        return self.unscored > self._share * self.rollouts + self._allowance
