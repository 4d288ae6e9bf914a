"""Steps under way: begun in order, worked on as far as the budget goes, given back in order.

What a step knows is decided by its number alone: it begins when the one is committed that is
``proposals_per_step`` before it. Its work waits until the budget is sure to pay for it. So the
budget decides how many steps there are and not what they do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import takewhile

import attrs

from promptgraft.optimizers.gepa.desk import Desks, Place
from promptgraft.optimizers.gepa.work import Work
from promptgraft.optimizers.overlap import Overlap, Task
from promptgraft.optimizers.stopping import is_orderly


@attrs.define
class UnderWay:
    """A step that has begun.

    Attributes:
        work: its work.
        task: that work in progress; None while it waits for the budget.
    """

    work: Work
    task: Task | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the work is done."""
        return self.task is not None and self.task.ended

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used, or else can use at most."""
        if self.task is None:
            return 0
        return self.work.desk.ledger.rollouts if self.task.ended else self.work.largest


class Pipeline:
    """The steps of a search that are under way.

    Args:
        size: how many.
        overlap: where they are worked on.
        desks: know what has been used, and what the budget pays for.
        begin: begins a step.
        merge: says how many rollouts a merge at a commit can use.
    """

    def __init__(
        self,
        size: int,
        *,
        overlap: Overlap,
        desks: Desks,
        begin: Callable[[Place], Work],
        merge: Callable[[], int],
    ) -> None:
        self._size = size
        self._overlap = overlap
        self._desks = desks
        self._begin = begin
        self._merge = merge
        self._steps: deque[UnderWay] = deque()
        self._begun = 0

    @property
    def next_needs(self) -> int:
        """Rollouts that the next step can use which the budget does not pay for."""
        return self._steps[0].work.largest

    def fill(self) -> None:
        """Begin as many steps as may be under way."""
        while len(self._steps) < self._size:
            self._begun += 1
            place = Place(
                number=self._begun,
                earlier=[step.work.desk for step in self._steps],
                allow=partial(self._allow_reflection, self._begun),
                settled=partial(self._settle_before, self._begun),
            )
            self._steps.append(UnderWay(self._begin(place)))

    def next(self) -> UnderWay | None:
        """Return the next step once its work has ended; None when the budget pays for no more."""
        while True:
            self._start()
            if not self._steps or self._steps[0].task is None:
                return None
            if self._steps[0].has_ended:
                found = self._steps.popleft()
                self._keep(merges=self._count_started() - 1)
                return found
            self._overlap.await_one()

    def _start(self) -> None:
        """Start the work of steps whose turn it is, as far as the budget pays for all of it."""
        for step in self._steps:
            if step.task is not None:
                continue
            self._keep(merges=self._count_started())
            if self._is_failing or not self._desks.trials.afford(step.work.largest):
                return
            step.task = self._overlap.start(step.work.run)

    def _count_started(self) -> int:
        return sum(step.task is not None for step in self._steps)

    @property
    def _is_failing(self) -> bool:
        """Whether a step has ended with what ends the run, so that more would be in vain."""
        errors = (step.task.error for step in self._steps if step.task is not None)
        return any(error is not None and not is_orderly(error) for error in errors)

    def _keep(self, *, merges: int) -> None:
        """Keep the rollouts of the steps under way, and of the merges at so many commits."""
        kept = sum(step.rollouts for step in self._steps)
        self._desks.trials.keep(kept + max(0, merges) * self._merge())

    def _allow_reflection(self, number: int) -> None:
        """Wait until the steps before have used few enough reflections, or too many.

        Raises:
            BudgetExhaustedError: too many.
        """
        whole = self._desks.whole
        self._overlap.await_that(
            lambda: (
                whole.allows_reflection(self._reflections(number))
                or all(step.has_ended for step in self._before(number))
            )
        )
        whole.check_reflections(self._reflections(number))

    def _settle_before(self, number: int) -> None:
        """Wait until the work of the steps before has ended."""
        self._overlap.await_that(lambda: all(step.has_ended for step in self._before(number)))

    def _before(self, number: int) -> list[UnderWay]:
        return list(takewhile(lambda step: step.work.number < number, self._steps))

    def _reflections(self, number: int) -> int:
        """Return the reflections that are used before the next one of a step, at most."""
        before = self._before(number)
        most = self._desks.config.reflections_per_step
        own = self._steps[len(before)].work.desk.ledger.reflections
        return (
            self._desks.ledger.reflections
            + own
            + sum(step.work.desk.ledger.reflections if step.has_ended else most for step in before)
        )
