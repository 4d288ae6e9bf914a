"""Rollouts as the steps of a run see them: counted, told of, and stopped when too many fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import attrs

from promptgraft.algorithms.gepa.events import GepaRolloutCompleted
from promptgraft.search.ledger import Ledger
from promptgraft.search.rollouts import Asked, RolloutRunner
from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

Emit = Callable[[object], None]

Batches = list[tuple[bool, ...]]
"""For each rollout of each batch, whether the provider failed it."""

UNSCORED_ALLOWANCE = 4
"""Rollouts that may stay unscored on top of the share, in any stretch of a run."""


class Trials:
    """Tries candidates for a run, or for one of its steps.

    Args:
        runner: makes rollouts.
        ledger: counts them.
        emit: is told of each.
        max_unscored_share: share of the rollouts that may stay unscored, 0 to 1.
        reserve: rollouts that are kept for the end of the run.
        order: of a step, what goes before it.

    Attributes:
        before: of a step, the rollouts that were used when it began.
        batches: for each rollout of each batch, whether the provider failed it.
    """

    def __init__(
        self,
        runner: RolloutRunner,
        *,
        ledger: Ledger,
        emit: Emit,
        max_unscored_share: float,
        reserve: int = 0,
        order: Order | None = None,
    ) -> None:
        self._runner = runner
        self._ledger = ledger
        self._emit = emit
        self._reserve = reserve
        self._share = max_unscored_share
        self._order = order or Order(FaultyStretch(max_unscored_share))
        self._under_way = 0
        self.before = self._order.used
        self.batches: Batches = []

    def step(
        self,
        runner: RolloutRunner,
        *,
        ledger: Ledger,
        emit: Emit,
        earlier: Sequence[Batches],
        settled: Callable[[], None],
    ) -> Trials:
        """Return what tries candidates for a step that begins now.

        Args:
            runner: makes its rollouts.
            ledger: counts them.
            emit: is told of each.
            earlier: the batches of the steps before it that are under way, as they grow.
            settled: waits until the work of these has ended.
        """
        self._fold(self)
        order = Order(self._order.stretch.copy(), self.used, earlier, settled)
        return Trials(runner, ledger=ledger, emit=emit, max_unscored_share=self._share, order=order)

    def take_over(self, step: Trials) -> None:
        """Take account of the rollouts of a step, which it has judged itself."""
        self._fold(self)
        self._fold(step)

    def _fold(self, trials: Trials) -> None:
        for faults in trials.batches:
            self._order.stretch.add(faults)
        if trials is self:
            self.batches = []

    def afford(self, rollouts: int) -> bool:
        """Tell whether the budget has room for that many more, besides all that is kept."""
        return self._ledger.affords(rollouts + self._reserve + self._under_way)

    def require(self, rollouts: int, what: str) -> None:
        """Do nothing while the budget has room for that many more, besides all that is kept.

        Raises:
            RunStoppedError: it has not, so that ``what`` cannot be done.
        """
        if not self.afford(rollouts):
            raise RunStoppedError(
                StopReason.BUDGET, f"{what}, which takes {rollouts} rollouts, more than are left"
            )

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

        Args:
            position: where in the run.
            candidate: who is tried.
            examples: what on.

        Raises:
            RunStoppedError: too many of the latest rollouts stayed unscored.
        """
        [records] = self.make_all(Asked(position=position, candidate=candidate, examples=examples))
        return records

    def make_all(self, *asked: Asked) -> list[tuple[RolloutRecord, ...]]:
        """Return the records of all that is asked for, made side by side.

        Raises:
            RunStoppedError: too many of the latest rollouts stayed unscored.
        """
        made = self._runner.run(*asked)
        used = self.used - sum(map(len, made))
        for one, records in zip(asked, made, strict=True):
            self._tell(one.position, records, used)
            used += len(records)
            self.batches.append(tuple([record.feedback is None for record in records]))
        every = [record for records in made for record in records]
        if said := [record.fault for record in every if record.feedback is None]:
            self._judge(said[-1])
        return made

    def _tell(self, position: str, records: Sequence[RolloutRecord], used: int) -> None:
        for index, record in enumerate(records):
            self._emit(
                GepaRolloutCompleted(
                    position=f"{position}/{index}",
                    record=record,
                    total_rollouts=used + index + 1,
                )
            )

    def _judge(self, last: str) -> None:
        """Judge the latest rollouts, in the order of steps, before anything goes on without them.

        Each batch is judged once, so what was found bearable is so when the run is resumed.
        """
        stretch = self._order.stretch_before()
        for faults in self.batches:
            stretch.add(faults)
        if stretch.is_too_faulty:
            raise RunStoppedError(
                StopReason.PROVIDER_FAILED,
                f"{stretch.unscored} of the latest {stretch.rollouts} rollouts stayed unscored; "
                f"the last: {last}",
            )


@attrs.frozen
class Order:
    """What goes before the rollouts of a step, or of a run.

    Attributes:
        stretch: the latest rollouts when it began.
        used: the rollouts that were used by then.
        earlier: the batches of the steps before it that were under way then, as they grow.
        settled: waits until the work of these has ended.
    """

    stretch: FaultyStretch
    used: int = 0
    earlier: Sequence[Batches] = ()
    settled: Callable[[], None] = lambda: None

    def stretch_before(self) -> FaultyStretch:
        """Return the latest rollouts before its own."""
        if self.earlier:
            self.settled()
        stretch = self.stretch.copy()
        for faults in chain.from_iterable(self.earlier):
            stretch.add(faults)
        return stretch


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

    def copy(self) -> FaultyStretch:
        """Return a stretch that goes on alone."""
        stretch = FaultyStretch(self._share)
        stretch.unscored, stretch.rollouts = self.unscored, self.rollouts
        return stretch

    def add(self, faults: Sequence[bool]) -> None:
        """Add rollouts in the order in which the run asked for them; True is unscored."""
        if not self.unscored and True not in faults:
            return
        for fault in faults:
            self.rollouts += 1
            self.unscored += fault
            if self.unscored <= self._share * self.rollouts:
                self.unscored = self.rollouts = 0

    @property
    def is_too_faulty(self) -> bool:
        """Whether more rollouts of the stretch are unscored than share and allowance permit."""
        return self.unscored > self._share * self.rollouts + self._allowance
