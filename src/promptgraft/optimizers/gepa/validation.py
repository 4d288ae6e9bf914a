"""How much of D_pareto a candidate is tried on before the search goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from promptgraft.optimizers.gepa.members import Members
from promptgraft.optimizers.gepa.scores import Score
from promptgraft.optimizers.gepa.trials import Trials
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord

Records = list[RolloutRecord | None]
"""Rollouts by example of D_pareto; None where there was none."""


class Entry(Protocol):
    """A child's way into the pool, from what is known when its step begins."""

    @property
    def largest(self) -> int:
        """Rollouts that it can use."""
        ...

    def prepare(self, position: str, trials: Trials) -> None:
        """Make what other steps wait for; before there is a child."""
        ...

    def enter(self, position: str, trials: Trials, candidate: Candidate, known: Records) -> None:
        """Try a candidate.

        Args:
            position: where in the run.
            trials: makes rollouts.
            candidate: the candidate.
            known: its rollouts so far; they are not made again.

        Raises:
            RunStoppedError, LimitReachedError: the run ends.
        """
        ...

    def settle(self, *, step: int) -> None:
        """Take account of what was found on the way, whether a candidate has entered or not."""
        ...

    def admit(self, candidate: Candidate, *, step: int) -> int:
        """Take the candidate that has entered into the pool, and return its position there."""
        ...


class Validator(Protocol):
    """Tries candidates on D_pareto, and takes them into the pool."""

    @property
    def overhead(self) -> int:
        """Rollouts of other candidates that taking in one at once can use."""
        ...

    @property
    def baseline(self) -> Sequence[int]:
        """Positions of the examples that the baseline is tried on before the first step."""
        ...

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        """Return the examples that two members can be compared on, by their scores."""
        ...

    def begin(self) -> Entry:
        """Return the way into the pool of a step's child; to be settled when the step ends."""
        ...

    def take_in(self, position: str, candidate: Candidate, known: Records, *, step: int) -> int:
        """Try a candidate and take it in at once, and return its position.

        Raises:
            RunStoppedError, LimitReachedError: the run ends.
        """
        ...

    @property
    def estimates_best(self) -> bool:
        """Whether the best candidate was not tried on all of D_pareto yet."""
        ...

    def deepen(self, step: int) -> bool:
        """Have the best candidate tried on more; return whether that was done at once."""
        ...

    def finish(self, step: int) -> None:
        """Settle who is best, at the end of the search."""
        ...


@attrs.define(kw_only=True)
class FullEntry:
    """Tries a candidate on everything."""

    pareto: Sequence[GepaExample]
    members: Members
    records: Records = attrs.field(factory=list)

    @property
    def largest(self) -> int:
        return len(self.pareto)

    def prepare(self, position: str, trials: Trials) -> None:
        pass

    def enter(self, position: str, trials: Trials, candidate: Candidate, known: Records) -> None:
        places = [place for place, record in enumerate(known) if record is None]
        self.records = list(known)
        if places:
            made = trials.make(position, candidate, [self.pareto[place] for place in places])
            fill(self.records, places, made)

    def settle(self, *, step: int) -> None:
        pass

    def admit(self, candidate: Candidate, *, step: int) -> int:
        return self.members.join(candidate, self.records, step=step)


class FullValidator:
    """Tries every candidate on everything.

    Args:
        pareto: D_pareto.
        trials: makes rollouts at once.
        members: the pool.
    """

    def __init__(self, pareto: Sequence[GepaExample], *, trials: Trials, members: Members) -> None:
        self._pareto = pareto
        self._trials = trials
        self._members = members
        self.overhead = 0
        self.baseline = range(len(pareto))

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        del second
        return range(len(first))

    def begin(self) -> FullEntry:
        return FullEntry(pareto=self._pareto, members=self._members)

    def take_in(self, position: str, candidate: Candidate, known: Records, *, step: int) -> int:
        entry = self.begin()
        entry.enter(position, self._trials, candidate, known)
        return entry.admit(candidate, step=step)

    @property
    def estimates_best(self) -> bool:
        return False

    def deepen(self, step: int) -> bool:
        del step
        return False

    def finish(self, step: int) -> None:
        del step


def fill(records: Records, places: Sequence[int], made: Sequence[RolloutRecord]) -> None:
    """Put rollouts in their places."""
    for place, record in zip(places, made, strict=True):
        records[place] = record


def placed(made: Sequence[RolloutRecord], places: Sequence[int], *, of: int) -> Records:
    """Return rollouts in their places among so many."""
    records: Records = [None] * of
    fill(records, places, made)
    return records
