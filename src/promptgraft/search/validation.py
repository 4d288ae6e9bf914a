"""How much of the validation set a candidate is evaluated on before it joins the pool.

All of it (:class:`Validator`), or more and more while it keeps up with the best candidate
(:class:`RacingValidator`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import attrs

from promptgraft.ground.strict.checks import COUNT
from promptgraft.search.asks import Asking, Rollouts, Together, answered
from promptgraft.search.ledger import RolloutBudget
from promptgraft.search.population import Population
from promptgraft.search.scores import Score, beats, is_behind, paired_gains, total_of
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

RecordsByPlace = Mapping[int, RolloutRecord]
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
        return min(pareto, max(self.first, critical) + self.first * (races // self.every))

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


@attrs.frozen(kw_only=True)
class Entrant:
    """A candidate that is to be validated.

    Attributes:
        step: number of the step that made it.
        entry: how it is to be validated.
        records: its rollouts so far; they are not made again.
        proposals: number of accepted proposals that it contains.
        total_gain: its gain over its parent on training examples, summed over them.
    """

    candidate: Candidate
    step: int
    entry: PoolEntry
    records: RecordsByPlace = attrs.field(factory=dict)
    proposals: int = 1
    total_gain: float = 0.0


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

    def validate(self, position: str, entrant: Entrant) -> Asking[int]:
        """Validate a candidate, add it to the population, and return its position there.

        ``position`` is where in the run its rollouts are made.
        """
        records = dict(entrant.records)
        places = [place for place in entrant.entry.order if place not in records]
        if places:
            validation_records = yield from self._on(position, entrant.candidate, places)
            records.update(zip(places, validation_records, strict=True))
        return self._population.join(entrant.candidate, records, step=entrant.step)

    def _on(self, position: str, candidate: Candidate, places: Sequence[int]) -> Rollouts:
        """Return rollouts on the examples at some positions in the validation set."""
        examples = [self._examples[place] for place in places]
        return Rollouts(position=position, candidate=candidate, examples=examples)

    def evaluate_more_of_baseline(self, most: int) -> Asking[None]:
        """Evaluate the baseline on up to ``most`` examples, before the first step."""
        return answered(None)

    def deepen(self, step: int) -> Asking[bool]:
        """Evaluate the best candidate on more examples; return whether there were any."""
        return answered(False)

    def complete_best(self, step: int) -> Asking[None]:
        """Evaluate the best candidate on all remaining examples, if the budget allows."""
        return answered(None)

    def finish(self, step: int) -> Asking[None]:
        """Decide which candidate is the best, at the end of the search."""
        return answered(None)


_TRAINING_WEIGHT = 0.5
"""Weight of a gain on a training example, relative to one on a validation example."""
_DOUBT = 4
"""Examples without a gain that are added to the few on which a rival was evaluated."""


class RacingValidator(Validator):
    """Lets candidates race the incumbent, one after the other; see :class:`Racing`.

    Args:
        examples: the validation set.
        population: receives the candidates.
        policy: the settings.
        budget: what may be spent.
        seed: the seed of the run, which decides the order of the examples.
    """

    def __init__(
        self,
        examples: Sequence[GepaExample],
        population: Population,
        *,
        policy: Racing,
        budget: RolloutBudget,
        seed: int,
    ) -> None:
        super().__init__(examples, population)
        self._policy = policy
        order = random.Random(f"{seed}/order").sample(range(len(examples)), len(examples))
        # Critical examples first: no candidate may win without scores on them.
        self._order = sorted(order, key=lambda place: not examples[place].critical)
        self._critical = sum(example.critical for example in examples)
        self._kept = policy.finals(len(examples), self._critical)
        first = policy.baseline(len(examples), self._critical)
        self.baseline: Sequence[int] = self._order[:first]
        self._orders = random.Random(f"{seed}/races")
        self._budget = budget
        self._races = 0

    @property
    def overhead(self) -> int:
        """Rollouts that the incumbent lacks."""
        return len(self._lacking())

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        pairs = enumerate(zip(first, second, strict=True))
        return [place for place, pair in pairs if None not in pair]

    @property
    def _depth(self) -> int:
        return self._policy.depth(len(self._order), self._critical, self._races)

    def _lacking(self) -> list[int]:
        return self._missing(self._population.pool.best, within=self._order[: self._depth])

    def _missing(self, member: int, *, within: Sequence[int]) -> list[int]:
        lacking = self._population.missing[member].intersection(within)
        return [place for place in self._order if place in lacking] if lacking else []

    def begin(self, *, alone: bool) -> PoolEntry:
        # Drawn when the step begins: the order in which steps end must not decide who draws first.
        order = self._orders.sample(self._order[: self._depth], self._depth)
        # When other steps wait for it, a race is over sooner in one leg than in two.
        return PoolEntry(order=order, first=self._policy.first if alone else len(order))

    def needs(self, entries: Sequence[PoolEntry]) -> list[int]:
        # Races of equal depth take the same examples, and shallower ones a subset of them.
        depths = {len(entry.order): entry.order for entry in entries}
        missing = self._population.missing[self._population.pool.best]
        lacking = {depth: len(missing.intersection(order)) for depth, order in depths.items()}
        all_needs, least = [], len(self._order)
        for depth in (len(entry.order) for entry in entries):
            # Any earlier race may change the incumbent, which then has at least that race's depth.
            least = min(least, depth)
            all_needs.append(depth + max(lacking[depth], depth - least))
        return all_needs

    def validate(self, position: str, entrant: Entrant) -> Asking[int]:
        population, step = self._population, entrant.step
        incumbent, records = population.pool.best, dict(entrant.records)
        added: dict[int, RolloutRecord] = {}
        try:
            won = yield from self._race(position, entrant, records, added)
        finally:
            # Also if the race raises: these answers are paid for, and count for the incumbent.
            population.fill(incumbent, added, step=step)
        self._races += entrant.proposals
        return population.join(entrant.candidate, records, step=step, becomes_best=won)

    def _race(
        self,
        position: str,
        entrant: Entrant,
        records: dict[int, RolloutRecord],
        added: dict[int, RolloutRecord],
    ) -> Asking[bool]:
        """Evaluate a candidate while it keeps up with the incumbent; return whether it wins.

        Args:
            position: where in the run its rollouts are made.
            entrant: the candidate.
            records: its rollouts; those of the race are added.
            added: receives the rollouts of the incumbent on examples that it lacked.
        """
        population, pool = self._population, self._population.pool
        candidate, order = entrant.candidate, entrant.entry.order
        first = order[: entrant.entry.first]
        missing = [place for place in first if place not in records]
        lacking = self._missing(pool.best, within=order)
        best_records, first_records = yield from Together(
            [
                self._on(f"{position}/best", pool.candidates[pool.best], lacking),
                self._on(f"{position}/first", candidate, missing),
            ]
        )
        records.update(zip(missing, first_records, strict=True))
        added.update(zip(lacking, best_records, strict=True))
        before = list(pool.scores[pool.best])
        for place, score in zip(lacking, population.scores(best_records), strict=True):
            before[place] = score

        def gains(places: Sequence[int]) -> list[float]:
            after = population.scores([records[place] for place in places])
            return paired_gains([before[place] for place in places], after)

        # A child of the incumbent was better on a minibatch. Small changes affect few answers, so
        # neither set alone can tell whether they help.
        is_child = pool.best in candidate.parents
        ahead = _TRAINING_WEIGHT * entrant.total_gain if is_child else 0.0
        early = gains(first)
        # Without an example that both have a score for, nothing speaks for the candidate.
        if not early or is_behind(early, margin=ahead / len(early)):
            return False
        if rest := [place for place in order if place not in records]:
            rest_records = yield from self._on(f"{position}/rest", candidate, rest)
            records.update(zip(rest, rest_records, strict=True))
        whole = gains(order)
        wins = not is_behind(whole, margin=ahead / len(whole), errors=0.0)
        return wins and (is_child or total_of(whole) > 0)

    def evaluate_more_of_baseline(self, most: int) -> Asking[None]:
        places = self._missing(0, within=self._order[:most])
        if self._budget.affords(len(places)):
            yield from self._try_more({f"final/0/{len(places)}": (0, places)}, 0)

    def deepen(self, step: int) -> Asking[bool]:
        """Double the depth of races, and evaluate the incumbent to that depth."""
        best = self._population.pool.best
        if not self._population.missing[best] and self._depth == len(self._order):
            return False
        # Each `every` races add `first` examples, so these add at least the present depth.
        self._races += self._policy.every * -(-self._depth // self._policy.first)
        lacking = self._lacking()
        if not lacking:
            return False
        self._budget.require(len(lacking), "the best candidate is to be tried on more")
        yield from self._try_more({f"step/{step}/idle/{self._depth}": (best, lacking)}, step)
        return True

    def finish(self, step: int) -> Asking[None]:
        pool = self._population.pool
        self._budget.release(self._kept)
        waiting = self._promising()
        complete: list[int] = []
        while waiting and len(complete) < self._policy.finalists:
            # The baseline comes first, and is not a finalist.
            count = self._policy.finalists - len(complete) + (waiting[0] == 0)
            members = yield from self._complete(waiting[:count], step)
            complete += [
                member
                for member in members
                if member and self._population.may_win(member, tried=len(self._order))
            ]
            waiting = waiting[count:]
        best = 0
        for position in complete:
            # A tie is won by the more promising candidate, and by the baseline against all.
            if beats(pool.scores[position], pool.scores[best]):
                best = position
        pool.best = best

    def complete_best(self, step: int) -> Asking[None]:
        yield from self._complete([self._population.pool.best], step)

    def _complete(self, positions: Sequence[int], step: int) -> Asking[list[int]]:
        """Evaluate members on all remaining examples while the budget allows; return which."""
        by_count: dict[int, list[int]] = {}
        for position in positions:
            missing = self._missing(position, within=self._order)
            if self._budget.affords(sum(map(len, by_count.values())) + len(missing)):
                by_count[position] = missing
        yield from self._try_more(
            {
                f"final/{member}/{len(places)}": (member, places)
                for member, places in by_count.items()
            },
            step,
        )
        return list(by_count)

    def _try_more(
        self, places_by_position: Mapping[str, tuple[int, Sequence[int]]], step: int
    ) -> Asking[None]:
        """Evaluate members on more examples: by position in the run, the member and examples."""
        pool = self._population.pool
        unfinished = {
            position: (member, places)
            for position, (member, places) in places_by_position.items()
            if places
        }
        more_records = yield from Together(
            [
                self._on(position, pool.candidates[member], places)
                for position, (member, places) in unfinished.items()
            ]
        )
        for (member, places), records in zip(unfinished.values(), more_records, strict=True):
            self._population.fill(member, dict(zip(places, records, strict=True)), step=step)

    def _promising(self) -> list[int]:
        """Return the baseline, the incumbent, then the others by their gain over it.

        Gains are shrunk towards 0, as if there were ``_DOUBT`` more examples without any, because
        a candidate that was evaluated on few examples has shown little.
        """
        pool = self._population.pool
        best = pool.scores[pool.best]

        def gain(position: int) -> float:
            gains = paired_gains(best, pool.scores[position])
            return total_of([0.0, *gains]) / (len(gains) + _DOUBT)

        # Positions decide ties, so that a resumed run tries the same rivals.
        rivals = sorted(range(len(pool)), key=lambda member: (-gain(member), member))
        # The verdict needs exact means of the baseline and the best candidate, so they come first.
        return sorted(rivals, key=lambda member: (member != 0, member != pool.best))
