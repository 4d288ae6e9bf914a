"""How much of the validation set a candidate is evaluated on before the search builds on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.search.asks import Asking, Rollouts, answered
from promptgraft.search.population import Population
from promptgraft.search.scores import Score
from promptgraft.strict.checks import COUNT
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

Partial = Mapping[int, RolloutRecord]
"""Rollouts by the position of their example in the validation set."""


@attrs.frozen
class Full:
    """Every candidate is tried on the whole validation set; as published."""

    ranks = True

    def baseline(self, pareto: int, critical: int) -> int:
        """Return the validation examples that the baseline is tried on first."""
        del critical
        return pareto

    def entries(
        self, pareto: int, critical: int, candidates: int, *, merges: int, each: int
    ) -> int:
        """Return the rollouts on the validation set that so many candidates and merges can use."""
        del critical, each
        return (candidates + merges) * pareto

    def finals(self, pareto: int, critical: int) -> int:
        """Return the rollouts that are kept for the end of a search."""
        del pareto, critical
        return 0


@attrs.frozen(kw_only=True)
class Racing:
    """A candidate races the best one: it is evaluated on more examples only while it keeps up.

    It is evaluated on ``first`` examples, and dropped if its mean is below that of the best one on
    the same examples by more than half a standard error; else on as many as races take: ``first``
    at the beginning, and as many more after every ``every`` accepted proposals that have raced,
    together or alone. It is the best one from then on if its mean is higher on them, or the same
    and it is a child of the best one. To a child of the best one, each gain on the minibatches
    that it was accepted on counts half as much as one in the race.

    Each race takes the examples in another order, so that luck of the best one on a few of them
    does not keep all others out. At the end of the search the baseline and the most promising
    candidates are evaluated on the whole validation set, and the one with the highest mean wins.
    After the intensification of SMAC (Hutter, Hoos and Leyton-Brown 2011) and FocusedILS (Hutter
    et al. 2009).

    Attributes:
        first: examples that a race begins with, at least 1.
        every: proposals after which races take ``first`` examples more, at least 1.
        finalists: candidates that are evaluated on the whole validation set at the end, at least
            1: the best one for certain, the others as far as rollouts are left.
    """

    first: int = attrs.field(default=4, validator=COUNT)
    every: int = attrs.field(default=8, validator=COUNT)
    finalists: int = attrs.field(default=3, validator=COUNT)

    ranks = False

    def baseline(self, pareto: int, critical: int) -> int:
        """Return the validation examples that the baseline is tried on first."""
        return min(pareto, max(self.first, critical))

    def depth(self, pareto: int, critical: int, races: int) -> int:
        """Return the validation examples that a race takes after so many others, at most."""
        more = self.first * (races // self.every)
        return min(pareto, self.baseline(pareto, critical) + more)

    def entries(
        self, pareto: int, critical: int, candidates: int, *, merges: int, each: int
    ) -> int:
        """Return the rollouts on the validation set that so many candidates and merges can use.

        Those are included that the best one is evaluated on because races take more. Each
        candidate may bring ``each`` accepted proposals, which races count.
        """
        # From some race on all take the whole validation set.
        growing = max(0, -(-(self.every * pareto - merges) // each))
        raced = range(merges, merges + each * min(candidates, growing), each)
        depths = [self.depth(pareto, critical, race) for race in raced]
        rest = (candidates - len(depths)) * pareto
        last = merges + each * (candidates - 1) if candidates else merges - 1
        late = self.depth(pareto, critical, max(0, last)) - self.baseline(pareto, critical)
        return sum(depths) + rest + late + merges * pareto

    def finals(self, pareto: int, critical: int) -> int:
        """Return the rollouts that are kept for the end of a search."""
        return 2 * (pareto - self.baseline(pareto, critical))


Validation = Full | Racing
"""How much of the validation set candidates are tried on."""


@attrs.frozen(kw_only=True)
class Entry:
    """The way of a step's child into the population, as far as it is fixed when the step begins.

    Attributes:
        order: positions of the examples that it may be evaluated on, in that order.
        first: on how many of them it is evaluated before it may be dropped.
    """

    order: Sequence[int]
    first: int


class Validator:
    """Evaluates candidates on the whole validation set, and takes them into the population.

    Args:
        examples: the validation set.
        population: takes in the candidates.

    Attributes:
        baseline: positions of the examples that the baseline is evaluated on before the first step.
    """

    def __init__(self, examples: Sequence[GepaExample], population: Population) -> None:
        self._examples = examples
        self._population = population
        self.baseline: Sequence[int] = range(len(examples))

    @property
    def overhead(self) -> int:
        """Rollouts of other candidates that taking in one at once can use."""
        return 0

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        """Return the examples that two candidates can be compared on, by their scores."""
        del second
        return range(len(first))

    def begin(self, *, alone: bool) -> Entry:
        """Return the way into the population of the child of a step that begins now.

        Args:
            alone: whether no other step is under way that waits for it.
        """
        del alone
        return Entry(order=self.baseline, first=len(self.baseline))

    def needs(self, entries: Sequence[Entry]) -> list[int]:
        """Return the rollouts that ways into the population can use, those of others included.

        They may become fewer while the search proceeds, and never more.

        Args:
            entries: the ways, in order; each may bring another best candidate for those after it.
        """
        return [len(entry.order) for entry in entries]

    def take_in(
        self,
        position: str,
        candidate: Candidate,
        known: Partial,
        *,
        step: int,
        entry: Entry,
        proposals: int = 1,
        gained: float = 0.0,
        crowned: bool | None = None,
    ) -> Asking[int]:
        """Evaluate a candidate, take it in, and return its position.

        Args:
            position: where in the run.
            candidate: the candidate.
            known: its rollouts so far; they are not made again.
            step: number of the step.
            entry: its way into the population.
            proposals: how many accepted proposals are in it.
            gained: how far it is above its parent on training examples, the sum over them.
            crowned: whether it takes the place of the best one, unless something else keeps it from
                winning; None where its scores decide.
        """
        del proposals, gained
        records = dict(known)
        places = [place for place in entry.order if place not in known]
        if places:
            examples = [self._examples[place] for place in places]
            made = yield from Rollouts(position=position, candidate=candidate, examples=examples)
            records.update(zip(places, made, strict=True))
        joined = self._population.join(candidate, records, step=step)
        if crowned and self._population.may_replace_best(records):
            self._population.pool.best = joined
        return joined

    @property
    def estimates_best(self) -> bool:
        """Whether the best candidate was not evaluated on the whole validation set yet."""
        return False

    def deepen(self, step: int) -> Asking[bool]:
        """Have the best candidate evaluated on more; return whether that was done at once."""
        del step
        return answered(False)

    def complete_best(self, step: int) -> Asking[None]:
        """Have the best candidate evaluated on all that it lacks, if that can be paid for."""
        del step
        return answered(None)

    def finish(self, step: int) -> Asking[None]:
        """Settle which candidate is the best, at the end of the search."""
        del step
        return answered(None)
