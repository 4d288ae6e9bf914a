"""Steps under way: begun in order, worked on as far as the budget goes, given back in order.

What the proposals of a step know is decided by its number alone: it begins when a step before it
has come to a candidate, or when that has raced. Its work waits until the budget is sure to pay for
it. So the budget decides how many steps there are and not what they do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol

import attrs

from promptgraft.algorithms.gepa.desk import Desks, Place
from promptgraft.algorithms.gepa.rounds import Round
from promptgraft.algorithms.gepa.work import Work
from promptgraft.search.overlap import Overlap, Task
from promptgraft.search.stopping import is_orderly


@attrs.define
class _Started:
    """A proposal; its task is None while it waits for the budget."""

    work: Work
    task: Task | None = None

    @property
    def has_ended(self) -> bool:
        return self.task is not None and self.task.ended

    @property
    def rollouts(self) -> int:
        """Rollouts that it has used, or else can use at most."""
        return self.work.desk.ledger.rollouts if self.has_ended else self.work.largest


@attrs.define
class _UnderWay:
    """A step with those of its proposals that are not committed yet."""

    round: Round
    waiting: deque[_Started]
    has_started: bool = False

    @property
    def rollouts(self) -> int:
        """Rollouts that its proposals can still use."""
        return sum(one.rollouts for one in self.waiting)


@attrs.frozen
class Ended:
    """A proposal whose work has ended.

    Attributes:
        round: its step.
        work: its work.
        error: what that ended with; None when it came to its own end.
        last: whether it is the last one of its step.
    """

    round: Round
    work: Work
    error: BaseException | None
    last: bool


class OpenStep(Protocol):
    """Begins a step."""

    def __call__(self, number: int, *, alone: bool) -> Round:
        """Begin step ``number``, ``alone`` or while others are under way."""
        ...


class Pipeline:
    """The steps of a search that are under way.

    Args:
        desks: know the settings, what has been used, and what the budget pays for.
        overlap: where proposals are worked on.
        open_step: begins a step.
        begin: begins a proposal of a step.
        needs: says how many rollouts ways into the pool can use: the next race's, and those of
            steps under way.
        merge: says how many rollouts a merge at a commit can use.
    """

    def __init__(
        self,
        desks: Desks,
        *,
        overlap: Overlap,
        open_step: OpenStep,
        begin: Callable[[Round, Place], Work],
        needs: Callable[[Sequence[Round]], tuple[int, list[int]]],
        merge: Callable[[], int],
    ) -> None:
        self._desks = desks
        self._overlap = overlap
        self._open = open_step
        self._begin = begin
        self._needs = needs
        self._merge = merge
        self._steps: deque[_UnderWay] = deque()
        self._begun = 0
        self._proposals = 0

    @property
    def next_needs(self) -> int:
        """Rollouts that the next step can use which the budget does not pay for."""
        _, entries = self._entries()
        return self._steps[0].round.largest + entries[0]

    def fill(self) -> None:
        """Begin as many steps as may be under way; one of them may race."""
        while len(self._steps) < max(1, self._desks.config.steps_at_once - 1):
            self._begun += 1
            found = self._open(self._begun, alone=not self._steps)
            under_way = _UnderWay(found, deque())
            self._steps.append(under_way)
            for index in range(self._desks.config.proposals_per_step):
                work = self._begin(found, self._place(index))
                found.works.append(work)
                under_way.waiting.append(_Started(work))

    def _place(self, index: int) -> Place:
        self._proposals += 1
        several = self._desks.config.proposals_per_step > 1
        return Place(
            number=self._proposals,
            key=f"step/{self._begun}/{index + 1}" if several else f"step/{self._begun}",
            earlier=[one.work.desk for one in self._all],
            allow=partial(self._allow_reflection, self._proposals),
            settled=partial(self._settle_before, self._proposals),
        )

    def go_on_beside(self) -> None:
        """Begin what may begin beside a race, of a step that is no longer under way."""
        if self._desks.config.steps_at_once > 1:
            self.fill()
            self._start()
            self._keep_whole()

    def next(self) -> Ended | None:
        """Return the next proposal once its work has ended; None when no step is paid for."""
        while True:
            self._start()
            if not self._steps or not self._steps[0].has_started:
                return None
            if self._steps[0].waiting[0].has_ended:
                return self._take()
            self._overlap.await_one()

    def _take(self) -> Ended:
        first = self._steps[0]
        found = first.waiting.popleft()
        if not first.waiting:
            self._steps.popleft()
        self._keep_whole()
        error = None if found.task is None else found.task.error
        return Ended(first.round, found.work, error, last=not first.waiting)

    def _start(self) -> None:
        """Start the work of steps whose turn it is, as far as the budget pays for all of it."""
        race, entries = self._entries()
        kept = race and race + self._merge()
        for step, entry in zip(self._steps, entries, strict=True):
            if not step.has_started:
                self._desks.trials.keep(kept)
                if self._fails() or not self._desks.trials.afford(step.round.largest + entry):
                    return
                self._start_step(step)
            kept += step.rollouts + entry + self._merge()

    def _start_step(self, step: _UnderWay) -> None:
        step.has_started = True
        for one in step.waiting:
            if self._fails():
                return
            one.task = self._overlap.start(one.work.run)

    def _entries(self) -> tuple[int, list[int]]:
        """Return the rollouts that the next race, and ways into the pool of steps, can use."""
        return self._needs([step.round for step in self._steps])

    @property
    def _all(self) -> Iterator[_Started]:
        return (one for step in self._steps for one in step.waiting)

    def _fails(self) -> bool:
        """Whether a proposal has ended with what ends the run, so that more would be in vain."""
        errors = (one.task.error for one in self._all if one.task is not None)
        return any(error is not None and not is_orderly(error) for error in errors)

    def _keep_whole(self) -> None:
        """Keep all that the steps under way can use, whatever they have used by now.

        So what is done beside them, where the budget pays for it, does not depend on time.
        """
        _, entries = self._entries()
        largest = sum(step.round.largest for step in self._steps) + sum(entries)
        self._desks.trials.keep(largest + len(self._steps) * self._merge())

    def leave(self) -> None:
        """Keep no more than what was used by steps that are given up."""
        started = [step.rollouts for step in self._steps if step.has_started]
        self._desks.trials.keep(sum(started))

    def _allow_reflection(self, number: int, waiting: int) -> None:
        """Wait until the proposals before have used few enough reflections, or too many.

        Args:
            number: who asks.
            waiting: reflections of its own that wait to be asked before.

        Raises:
            BudgetExhaustedError: too many.
        """
        whole = self._desks.whole
        if not whole.limits_reflections:
            return
        self._overlap.await_that(
            lambda: (
                whole.allows_reflection(self._reflections(number) + waiting)
                or all(one.has_ended for one in self._before(number))
            )
        )
        whole.check_reflections(self._reflections(number) + waiting)

    def _settle_before(self, number: int) -> None:
        """Wait until the work of the proposals before has ended."""
        self._overlap.await_that(lambda: all(one.has_ended for one in self._before(number)))

    def _before(self, number: int) -> list[_Started]:
        return list(takewhile(lambda one: one.work.number < number, self._all))

    def _reflections(self, number: int) -> int:
        """Return the reflections that are used before the next one of a proposal, at most."""
        before = self._before(number)
        most = self._desks.config.reflections_per_proposal
        own = next(one for one in self._all if one.work.number == number).work.desk.ledger
        return (
            self._desks.ledger.reflections
            + own.reflections
            + sum(one.work.desk.ledger.reflections if one.has_ended else most for one in before)
        )
