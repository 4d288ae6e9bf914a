"""How much of D_pareto a candidate is tried on before the search goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from promptgraft.algorithms.gepa.members import Members
from promptgraft.algorithms.gepa.trials import Trials
from promptgraft.search.scores import Score
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

Records = list[RolloutRecord | None]
"""Rollouts by example of D_pareto; None where there was none."""


@attrs.frozen(kw_only=True)
class Entry:
    """The way of a step's child into the pool, as far as it is fixed when the step begins.

    Attributes:
        order: positions of the examples of D_pareto that it may be tried on, in that order.
        first: on how many of them it is tried before it may be dropped.
    """

    order: Sequence[int]
    first: int


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

    def begin(self, *, alone: bool) -> Entry:
        """Return the way into the pool of the child of a step that begins now.

        Args:
            alone: whether no other step is under way, and waits for it.
        """
        ...

    def needs(self, entries: Sequence[Entry]) -> list[int]:
        """Return the rollouts that ways into the pool can use, those of others included.

        They may become less while the search goes on, and never more.

        Args:
            entries: the ways, in order; each may bring another best candidate for those after it.
        """
        ...

    def take_in(
        self,
        position: str,
        candidate: Candidate,
        known: Records,
        *,
        step: int,
        entry: Entry,
        proposals: int = 1,
    ) -> int:
        """Try a candidate, take it in, and return its position.

        Args:
            position: where in the run.
            candidate: the candidate.
            known: its rollouts so far; they are not made again.
            step: number of the step.
            entry: its way into the pool.
            proposals: how many accepted proposals are in it.

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

    def begin(self, *, alone: bool) -> Entry:
        del alone
        return Entry(order=self.baseline, first=len(self._pareto))

    def needs(self, entries: Sequence[Entry]) -> list[int]:
        return [len(entry.order) for entry in entries]

    def take_in(
        self,
        position: str,
        candidate: Candidate,
        known: Records,
        *,
        step: int,
        entry: Entry,
        proposals: int = 1,
    ) -> int:
        del proposals
        records = list(known)
        places = [place for place in entry.order if known[place] is None]
        if places:
            examples = [self._pareto[place] for place in places]
            fill(records, places, self._trials.make(position, candidate, examples))
        return self._members.join(candidate, records, step=step)

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
