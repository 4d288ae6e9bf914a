"""How much of the validation set a candidate is evaluated on before it joins the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.ground.strict.checks import COUNT
from promptgraft.search.asks import Asking, Rollouts, answered
from promptgraft.search.population import Population
from promptgraft.search.scores import Score
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

Partial = Mapping[int, RolloutRecord]
"""Rollouts by the position of their example in the validation set."""


@attrs.frozen
class Full:
    """Evaluate every candidate on the whole validation set, as published."""

    ranks = True

    def baseline(self, pareto: int, critical: int) -> int:
        """Return how many validation examples the baseline is evaluated on first."""
        return pareto

    def entries(
        self, pareto: int, critical: int, candidates: int, *, merges: int, each: int
    ) -> int:
        """Return how many rollouts on the validation set these candidates and merges can use."""
        return (candidates + merges) * pareto

    def finals(self, pareto: int, critical: int) -> int:
        """Return how many rollouts are reserved for the end of a search."""
        return 0


@attrs.frozen(kw_only=True)
class Racing:
    """Let a candidate race the incumbent: it is evaluated on more examples only while it keeps up.

    It is evaluated on ``first`` examples, and dropped if its mean on them is below that of the
    incumbent by more than half a standard error. Otherwise it is evaluated on the full depth of
    the race: ``first`` examples initially, and ``first`` more for every ``every`` accepted
    proposals that have raced, alone or combined. It becomes the incumbent if its mean is higher,
    or equal and it is a child of the incumbent. For a child of the incumbent, each gain on the
    minibatches that it was accepted on counts half as much as a gain in the race.

    Each race takes the examples in a different order, so that luck of the incumbent on a few of
    them does not keep all others out. At the end of the search the baseline and the most promising
    candidates are evaluated on the whole validation set, and the one with the highest mean wins.
    Modelled on the intensification of SMAC (Hutter, Hoos and Leyton-Brown 2011) and FocusedILS
    (Hutter et al. 2009).

    Attributes:
        first: examples that a race begins with, at least 1.
        every: accepted proposals after which races take ``first`` more examples, at least 1.
        finalists: candidates that are evaluated on the whole validation set at the end, at least
            1: the incumbent always, the others while rollouts are left.
    """

    first: int = attrs.field(default=4, validator=COUNT)
    every: int = attrs.field(default=8, validator=COUNT)
    finalists: int = attrs.field(default=3, validator=COUNT)

    ranks = False

    def baseline(self, pareto: int, critical: int) -> int:
        """Return how many validation examples the baseline is evaluated on first."""
        return min(pareto, max(self.first, critical))

    def depth(self, pareto: int, critical: int, races: int) -> int:
        """Return how many validation examples a race takes at most after ``races`` others."""
        more = self.first * (races // self.every)
        return min(pareto, self.baseline(pareto, critical) + more)

    def entries(
        self, pareto: int, critical: int, candidates: int, *, merges: int, each: int
    ) -> int:
        """Return how many rollouts on the validation set these candidates and merges can use.

        Includes those of the incumbent when races become deeper. Each candidate may contain
        ``each`` accepted proposals, all of which count as races.
        """
        # From this race on, each takes the whole validation set.
        growing = max(0, -(-(self.every * pareto - merges) // each))
        raced = range(merges, merges + each * min(candidates, growing), each)
        depths = [self.depth(pareto, critical, race) for race in raced]
        rest = (candidates - len(depths)) * pareto
        last = merges + each * (candidates - 1) if candidates else merges - 1
        late = self.depth(pareto, critical, max(0, last)) - self.baseline(pareto, critical)
        return sum(depths) + rest + late + merges * pareto

    def finals(self, pareto: int, critical: int) -> int:
        """Return how many rollouts are reserved for the end of a search."""
        # For the incumbent and the baseline.
        return 2 * (pareto - self.baseline(pareto, critical))


Validation = Full | Racing
"""How much of the validation set candidates are evaluated on."""


@attrs.frozen(kw_only=True)
class PoolEntry:
    """How a step's child is to be validated, decided when the step begins.

    Attributes:
        order: positions of the examples that it may be evaluated on, in that order.
        first: how many of them it is evaluated on before it may be dropped.
    """

    order: Sequence[int]
    first: int


class Validator:
    """Evaluates candidates on the whole validation set, and adds them to the population.

    Args:
        examples: the validation set.
        population: receives the candidates.

    Attributes:
        baseline: positions of the examples that the baseline is evaluated on before the first step.
    """

    def __init__(self, examples: Sequence[GepaExample], population: Population) -> None:
        self._examples = examples
        self._population = population
        self.baseline: Sequence[int] = range(len(examples))

    @property
    def overhead(self) -> int:
        """Rollouts of other candidates that validating a candidate now can use."""
        return 0

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        """Return the positions of the examples on which two candidates can be compared."""
        return range(len(first))

    def begin(self, *, alone: bool) -> PoolEntry:
        """Return how the child of a step that begins now is to be validated.

        Args:
            alone: whether no other running step waits for it.
        """
        return PoolEntry(order=self.baseline, first=len(self.baseline))

    def needs(self, entries: Sequence[PoolEntry]) -> list[int]:
        """Return how many rollouts each validation can use, including those of other candidates.

        The numbers may shrink while the search proceeds, but never grow.

        Args:
            entries: the validations, in order; each may change the incumbent for later ones.
        """
        return [len(entry.order) for entry in entries]

    def validate(
        self,
        position: str,
        candidate: Candidate,
        known: Partial,
        *,
        step: int,
        entry: PoolEntry,
        proposals: int = 1,
        total_gain: float = 0.0,
    ) -> Asking[int]:
        """Validate a candidate, add it to the population, and return its position.

        Args:
            position: where in the run.
            candidate: the candidate.
            known: its rollouts so far; they are not made again.
            step: number of the step.
            entry: how it is to be validated.
            proposals: number of accepted proposals that it contains.
            total_gain: its gain over its parent on training examples, summed over them.
        """
        records = dict(known)
        places = [place for place in entry.order if place not in known]
        if places:
            examples = [self._examples[place] for place in places]
            validation_records = yield from Rollouts(
                position=position, candidate=candidate, examples=examples
            )
            records.update(zip(places, validation_records, strict=True))
        return self.admit(candidate, records, step=step)

    def admit(
        self, candidate: Candidate, records: Partial, *, step: int, becomes_best: bool = False
    ) -> int:
        """Add a candidate with its rollouts to the population, and return its position.

        Args:
            candidate: the candidate.
            records: its rollouts; no others are made.
            step: number of the step.
            becomes_best: whether it becomes the best one, provided that it may win.
        """
        return self._population.join(candidate, records, step=step, becomes_best=becomes_best)

    def evaluate_more_of_baseline(self, most: int) -> Asking[None]:
        """Evaluate the baseline on up to ``most`` examples, before the first step."""
        return answered(None)

    @property
    def estimates_best(self) -> bool:
        """Whether the best candidate has not been evaluated on the whole validation set yet."""
        return False

    def deepen(self, step: int) -> Asking[bool]:
        """Evaluate the best candidate on more examples; return whether there were any."""
        return answered(False)

    def complete_best(self, step: int) -> Asking[None]:
        """Evaluate the best candidate on all remaining examples, if the budget allows."""
        return answered(None)

    def finish(self, step: int) -> Asking[None]:
        """Decide which candidate is the best, at the end of the search."""
        return answered(None)
