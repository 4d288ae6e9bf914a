"""The pipeline of steps: begun in order, run as the budget allows, committed in order.

Whatever a step depends on is fixed when it begins, and it begins at a fixed point: when an earlier
step has led to a result, or when that result has been validated. Its work waits until the budget is
certain to cover it. So the budget decides how many steps there are, never what they do, and a run
with a larger budget continues a smaller one.

An algorithm in steps is a :class:`Stepping` search: ``begin``, ``commit`` and ``close`` are called
in the order of the steps, ``work`` runs beside other work, and ``conclude`` validates the result of
a complete step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import attrs

from promptgraft.errors import BudgetExhaustedError, PromptgraftError
from promptgraft.search import asks
from promptgraft.search.algorithm import Kit
from promptgraft.search.events import RoundStarted
from promptgraft.search.stopping import RunStoppedError, StopReason, is_orderly
from promptgraft.search.validation import PoolEntry, Validator

T = TypeVar("T")

Stop = RunStoppedError | BudgetExhaustedError
"""Why no further step begins; steps under way are still completed."""


class StepAttempt(Protocol):
    """A part of a step that runs beside others."""

    @property
    def largest(self) -> int:
        """Most rollouts that it can use."""
        ...


AttemptT = TypeVar("AttemptT", bound=StepAttempt)


@attrs.define(kw_only=True, eq=False)
class Step(Generic[AttemptT]):
    """A step that has begun.

    Attributes:
        number: counts the steps from 1.
        parent: position of the candidate that it begins with; the next free one for a candidate
            that is being validated.
        entry: how its result is to be validated.
        attempts: its parts, in the order in which they are committed; at least one.
        waiting: those that are not committed yet, each in a branch.
        has_started: whether the budget covers it, so that its branches run.
    """

    number: int
    parent: int = 0
    entry: PoolEntry
    attempts: Sequence[AttemptT] = ()
    waiting: deque[tuple[AttemptT, asks.Branch[None]]] = attrs.field(factory=deque, init=False)
    has_started: bool = attrs.field(default=False, init=False)

    @property
    def largest(self) -> int:
        """Most rollouts that its attempts can use, those that are committed included."""
        return sum(attempt.largest for attempt in self.attempts)


StepT = TypeVar("StepT", bound=Step[Any])


class Stepping(ABC, Generic[StepT, AttemptT]):
    """A search in steps.

    Attributes:
        steps: steps made, for the reasons to stop.
        proposals: proposals evaluated, for the reasons to stop.
    """

    steps: int
    proposals: int = 0

    @property
    def pending(self) -> PoolEntry | None:
        """How a result that is not validated yet is to be validated; None if there is none."""
        return None

    @property
    def most_after(self) -> int:
        """Most rollouts that a step can use after the validation of its result."""
        return 0

    @abstractmethod
    def begin(self, number: int, *, ahead: int) -> StepT:
        """Begin a step, while ``ahead`` attempts of earlier steps are under way."""

    @abstractmethod
    def work(self, attempt: AttemptT) -> asks.Asking[None]:
        """Do a part of a step. It changes nothing that other parts see."""

    @abstractmethod
    def commit(self, attempt: AttemptT, ended: asks.Asking[None]) -> asks.Asking[None]:
        """Learn from an attempt.

        Args:
            attempt: the attempt.
            ended: takes over its counts and events; raises what has ended it.
        """

    @abstractmethod
    def close(self, step: StepT) -> asks.Asking[None]:
        """Determine the result of a step whose attempts are committed."""

    @abstractmethod
    def conclude(self) -> asks.Asking[None]:
        """Validate the pending result, if there is one."""

    def gives_back(self) -> bool:
        """Release reserved rollouts that are not needed; return whether there were any."""
        return False


@attrs.define(kw_only=True)
class Pipeline(Generic[StepT, AttemptT]):
    """Runs the steps of a search.

    Attributes:
        kit: what it works with.
        validator: knows how many rollouts validations can use.
        at_once: how many steps may be under way, including the one in validation.
        most_questions: how many questions an attempt can ask.
    """

    search: Stepping[StepT, AttemptT]
    kit: Kit
    validator: Validator
    at_once: int = 1
    most_questions: int
    _steps: deque[StepT] = attrs.field(factory=deque, init=False)
    _begun: int = attrs.field(default=0, init=False)
    _is_broken: bool = attrs.field(default=False, init=False)

    def run(self) -> asks.Asking[None]:
        """Make steps until there is a reason to stop, then raise it."""
        search = self.search
        stop = yield from self._reason_to_stop()
        while True:
            if stop is None:
                yield from self._fill()
            first = yield from self._first_ended()
            if first is None:
                # Rollouts that were reserved for the end may pay for further steps.
                if stop is None and search.gives_back():
                    continue
                raise stop or self._out_of_budget()
            at_commit = yield from self._unless_stopped(self._commit(first))
            stop = stop or at_commit
            if not first.waiting:
                if stop is None and self.at_once > 1:
                    # Steps that may run beside the validation of the result.
                    yield from self._fill()
                    yield from self._start()
                    self._reserve_whole()
                at_end = yield from self._unless_stopped(search.conclude())
                stop = stop or at_end or (yield from self._reason_to_stop())

    def or_broken(self, part: asks.Asking[T] | asks.Join[T]) -> asks.Asking[T]:
        """Run a part of a step; if it fails, no further step is closed.

        A larger budget would have completed it, and a resumed run must take the same path.
        """
        try:
            return (yield from part)
        except PromptgraftError:
            self._is_broken = True
            raise

    def _fill(self) -> asks.Asking[None]:
        """Begin steps until as many are under way as may be; one more may be in validation."""
        # One place is left for the step in validation.
        while len(self._steps) < max(1, self.at_once - 1):
            self._begun += 1
            ahead = sum(len(step.waiting) for step in self._steps)
            step = self.search.begin(self._begun, ahead=ahead)
            self._steps.append(step)
            for attempt in step.attempts:
                work = self.search.work(attempt)
                branch = yield from asks.Start(
                    work, most_questions=self.most_questions, released=False
                )
                step.waiting.append((attempt, branch))

    def _first_ended(self) -> asks.Asking[StepT | None]:
        """Wait for the first attempt; None if the budget does not cover the next step."""
        while True:
            yield from self._start()
            if not self._steps or not self._steps[0].has_started:
                return None
            first = self._steps[0]
            _, branch = first.waiting[0]
            if branch.has_ended:
                return first
            yield from asks.AnyEnded()

    def _commit(self, step: StepT) -> asks.Asking[None]:
        """Commit the first attempt of the first step, and close the step after its last one."""
        attempt, branch = step.waiting.popleft()
        if not step.waiting:
            self._steps.popleft()
        self._reserve_whole()
        # If one attempt of a step failed, the result of the step is unknown.
        yield from self.search.commit(attempt, self.or_broken(asks.Join(branch)))
        if not step.waiting and not self._is_broken:
            yield from self.search.close(step)

    def _start(self) -> asks.Asking[None]:
        """Start the steps in order, as far as the budget covers each of them completely."""
        pending, needs = self._validation_rollouts()
        # Something may follow a validation, such as a merge, which is reserved with it.
        reserved = pending + self.search.most_after if pending else 0
        for step, validation in zip(tuple(self._steps), needs, strict=True):
            if not step.has_started:
                self.kit.budget.in_flight = reserved
                # A small step must not overtake a large one: with a larger budget the large one
                # would have come first.
                if step.largest + validation > self.kit.budget.left:
                    return
                step.has_started = True
                self.kit.emit(RoundStarted(step=step.number, current=step.parent))
                for _, branch in step.waiting:
                    branches = (
                        branch for under_way in self._steps for _, branch in under_way.waiting
                    )
                    if any(begun.error and not is_orderly(begun.error) for begun in branches):
                        return  # an error that ends the run: further work would be wasted
                    yield from asks.Release(branch)
            reserved += validation + self.search.most_after
            for attempt, branch in step.waiting:
                reserved += branch.rollouts if branch.has_ended else attempt.largest

    def _validation_rollouts(self) -> tuple[int, list[int]]:
        """Return most rollouts of the pending validation, and of those of steps under way."""
        entries = [step.entry for step in self._steps]
        pending = self.search.pending
        if pending is None:
            return 0, self.validator.needs(entries)
        first, *later = self.validator.needs([pending, *entries])
        return first, later

    def _reserve_whole(self) -> None:
        """Reserve everything that the steps under way can use, whatever they have used so far.

        Otherwise what the budget allows beside them would depend on timing.
        """
        _, needs = self._validation_rollouts()
        largest = sum(step.largest for step in self._steps) + sum(needs)
        self.kit.budget.in_flight = largest + len(self._steps) * self.search.most_after

    def _out_of_budget(self) -> RunStoppedError:
        """Return the stop for a next step that may need more than the budget has left."""
        _, needs = self._validation_rollouts()
        needed = self._steps[0].largest + needs[0]
        budget = self.kit.budget
        whole, reserved = budget.whole, budget.reserve
        for_later = f"; {reserved} were kept for the tests after the search" if reserved else ""
        return RunStoppedError(
            StopReason.BUDGET,
            f"one more step may take {needed} test calls, and {whole - budget.used - reserved} of "
            f"{whole} are left for steps{for_later}",
        )

    def _unless_stopped(self, part: asks.Asking[None]) -> asks.Asking[Stop | None]:
        """Run a part of the search, and return the stop if it ends the search in good order."""
        try:
            yield from part
        except (RunStoppedError, BudgetExhaustedError) as error:
            if not is_orderly(error):
                raise
            return error
        return None

    def _reason_to_stop(self) -> asks.Asking[Stop | None]:
        """Return why no further step begins; a stop that rests on estimates is verified first."""
        search, population = self.search, self.kit.population
        pool = population.pool
        while True:
            estimated = bool(population.missing[pool.best])
            standing = asks.Standing(pool, search.steps, search.proposals, estimated=estimated)
            outlook = yield from asks.Checkpoint(standing)
            if outlook.stop is not None or not outlook.is_close:
                return outlook.stop
            try:
                if not (yield from self.or_broken(self.validator.deepen(search.steps))):
                    return None
            except RunStoppedError as stop:
                return stop
