"""A race of candidates against the best one, on more and more of D_pareto."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import attrs

from promptgraft.optimizers.gepa.members import Members
from promptgraft.optimizers.gepa.policies import Racing
from promptgraft.optimizers.gepa.scores import Score, beats, paired_gains
from promptgraft.optimizers.gepa.trials import Trials
from promptgraft.optimizers.gepa.validation import Records, fill
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord

_SLACK = 0.5


@attrs.define(kw_only=True)
class Race:
    """A candidate's race against the best one, as both are when it begins.

    Attributes:
        policy: the settings.
        pareto: D_pareto.
        order: positions of its examples in the order in which this race takes them.
        members: scores rollouts.
        validator: takes the candidate in.
        position: position of the best one in the pool.
        best: the best one.
        scores: its scores; those that the race makes are filled in.
        lacking: examples that it is to be tried on.
        early: whether the best one is tried on them first, whatever comes of the step.
        found: its rollouts on them.
        records: the candidate's rollouts.
        won: whether the candidate is the best one now.
    """

    policy: Racing
    pareto: Sequence[GepaExample]
    order: Sequence[int]
    members: Members
    validator: RacingValidator
    position: int
    best: Candidate
    scores: list[Score]
    lacking: Sequence[int]
    early: bool
    found: dict[int, RolloutRecord] = attrs.field(factory=dict)
    records: Records = attrs.field(factory=list)
    won: bool = False

    @property
    def largest(self) -> int:
        return len(self.order) + len(self.lacking)

    def prepare(self, position: str, trials: Trials) -> None:
        if self.early:
            self._complete_best(position, trials)

    def enter(self, position: str, trials: Trials, candidate: Candidate, known: Records) -> None:
        if not self.early:
            self._complete_best(f"{position}/best", trials)
        self.records = list(known)
        self.won = self._race(position, trials, candidate)

    def settle(self, *, step: int) -> None:
        self.validator.settle(self, step=step)

    def admit(self, candidate: Candidate, *, step: int) -> int:
        return self.validator.admit(self, candidate, step=step)

    def _complete_best(self, position: str, trials: Trials) -> None:
        if not self.lacking:
            return
        made = trials.make(position, self.best, [self.pareto[place] for place in self.lacking])
        self.found = dict(zip(self.lacking, made, strict=True))
        for place, score in zip(self.lacking, self.members.scores(made), strict=True):
            self.scores[place] = score

    def _race(self, position: str, trials: Trials, candidate: Candidate) -> bool:
        """Try a candidate while it keeps up; return whether it is the best one now."""
        first = self.policy.first
        gains = self._leg(f"{position}/first", trials, candidate, self.order[:first])
        if not gains or is_behind(gains):
            return False
        if first < len(self.order):
            gains = self._leg(f"{position}/rest", trials, candidate, self.order)
        # A child of the best one was better on a minibatch; nobody else may win a tie.
        wins = sum(gains) > 0 or (sum(gains) == 0 and self.position in candidate.parents)
        return wins and self.members.may_join_as_best(self.records)

    def _leg(
        self, position: str, trials: Trials, candidate: Candidate, places: Sequence[int]
    ) -> list[float]:
        """Try a candidate where it has not been; return its gains in all of these places."""
        missing = [place for place in places if self.records[place] is None]
        examples = [self.pareto[place] for place in missing]
        fill(self.records, missing, trials.make(position, candidate, examples))
        return self.gains_on(self.scores, places)

    def gains_on(self, scores: Sequence[Score], places: Iterable[int]) -> list[float]:
        """Return how far the candidate is above some scores, where both have one."""
        chosen = list(places)
        own = self.members.scores([self.records[place] for place in chosen])
        return paired_gains([scores[place] for place in chosen], own)


def is_behind(gains: Sequence[float]) -> bool:
    """Tell whether gains are below 0 on the whole by more than half a standard error."""
    count = len(gains)
    spread = statistics.stdev(gains) if count > 1 else 0.0
    return sum(gains) / count < -_SLACK * spread / math.sqrt(count)


class RacingValidator:
    """Lets candidates race the best one; see :class:`Racing`.

    Where steps overlap, one of those under way tries the best candidate on what it lacks, and
    the others race only as far as it has been tried.

    Args:
        policy: the settings.
        pareto: D_pareto.
        order: the positions of its examples in the order in which races come to take them.
        trials: makes rollouts at once.
        members: the pool.
        race_order: returns positions in the order in which the next race takes them.
        overlapping: whether steps overlap.
    """

    def __init__(
        self,
        policy: Racing,
        pareto: Sequence[GepaExample],
        *,
        order: Sequence[int],
        trials: Trials,
        members: Members,
        race_order: Callable[[Sequence[int]], list[int]],
        overlapping: bool,
    ) -> None:
        self._policy = policy
        self._pareto = pareto
        # Nobody wins who has not been tried where it must not be worse.
        self._order = sorted(order, key=lambda place: not pareto[place].critical)
        self._critical = sum(example.critical for example in pareto)
        self._kept = policy.finals(len(pareto), self._critical)
        first = policy.baseline(len(pareto), self._critical)
        self.baseline = self._order[:first]
        self._race_order = race_order
        self._trials = trials
        self._members = members
        self._overlapping = overlapping
        self._completing = False
        self._races = 0
        self._untried: dict[int, set[int]] = {0: set(self._order[first:])}

    @property
    def overhead(self) -> int:
        """Rollouts that the best one lacks, if they are made at once."""
        return 0 if self._overlapping else len(self._lacking())

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        pairs = enumerate(zip(first, second, strict=True))
        return [place for place, pair in pairs if None not in pair]

    @property
    def _depth(self) -> int:
        return self._policy.depth(len(self._order), self._critical, self._races)

    def _lacking(self) -> list[int]:
        return self._missing(self._members.pool.best, self._depth)

    def _missing(self, member: int, depth: int) -> list[int]:
        untried = self._untried[member]
        return [place for place in self._order[:depth] if place in untried]

    def begin(self) -> Race:
        lacking = [] if self._completing else self._lacking()
        self._completing = self._completing or bool(lacking)
        return self._against_best(lacking)

    def _against_best(self, lacking: Sequence[int]) -> Race:
        pool = self._members.pool
        tried = [place not in self._untried[pool.best] for place in self._order[: self._depth]]
        known = tried.index(False) if False in tried else len(tried)
        return Race(
            policy=self._policy,
            pareto=self._pareto,
            order=self._race_order(self._order[: self._depth if lacking else known]),
            members=self._members,
            validator=self,
            position=pool.best,
            best=pool.candidate(pool.best),
            scores=list(pool.scores_of(pool.best)),
            lacking=lacking,
            early=self._overlapping,
        )

    def settle(self, entry: Race, *, step: int) -> None:
        """Take account of what the best one of a race was tried on."""
        self._completing = self._completing and not entry.lacking
        untried = self._untried[entry.position]
        fresh = {place: one for place, one in entry.found.items() if place in untried}
        untried.difference_update(fresh)
        self._members.fill(entry.position, fresh, step=step)

    def admit(self, entry: Race, candidate: Candidate, *, step: int) -> int:
        """Take the candidate of a race into the pool, and return its position there."""
        records = entry.records
        won = entry.won and self._is_still_ahead(entry)
        self._races += 1
        joined = self._members.join(candidate, records, step=step, crowned=won)
        self._untried[joined] = {place for place, record in enumerate(records) if record is None}
        return joined

    def _is_still_ahead(self, entry: Race) -> bool:
        """Tell whether a winner is above the best one, where that is another one by now."""
        best = self._members.pool.best
        if best == entry.position:
            return True
        return sum(entry.gains_on(self._members.pool.scores_of(best), self._order)) > 0

    def take_in(self, position: str, candidate: Candidate, known: Records, *, step: int) -> int:
        race = self._against_best([] if self._overlapping else self._lacking())
        race.enter(position, self._trials, candidate, known)
        self.settle(race, step=step)
        return self.admit(race, candidate, step=step)

    @property
    def estimates_best(self) -> bool:
        return bool(self._untried[self._members.pool.best])

    def deepen(self, step: int) -> bool:
        """Have races, and the best one, go on to twice as many examples."""
        if not self.estimates_best and self._depth == len(self._order):
            return False
        self._races += self._policy.every * -(-self._depth // self._policy.first)
        lacking = self._lacking()
        if self._overlapping or not lacking or not self._trials.afford(len(lacking)):
            return False
        best = self._members.pool.best
        self._try_more(f"step/{step}/idle/{self._depth}", best, lacking, step)
        return True

    def finish(self, step: int) -> None:
        pool = self._members.pool
        self._trials.release(self._kept)
        complete: list[int] = []
        for position in self._promising():
            missing = self._missing(position, len(self._order))
            if not self._trials.afford(len(missing)):
                continue
            self._try_more(f"final/{position}/{len(missing)}", position, missing, step)
            if position and self._members.may_win(position, tried=len(self._order)):
                complete.append(position)
            if len(complete) == self._policy.finalists:
                break
        best = 0
        for position in complete:
            if beats(pool.scores_of(position), pool.scores_of(best)):
                best = position
        pool.crown(best)

    def _try_more(self, position: str, member: int, places: Sequence[int], step: int) -> None:
        if not places:
            return
        made = self._trials.make(
            position,
            self._members.pool.candidate(member),
            [self._pareto[place] for place in places],
        )
        self._untried[member].difference_update(places)
        self._members.fill(member, dict(zip(places, made, strict=True)), step=step)

    def _promising(self) -> list[int]:
        """Return the baseline, the best one, then the others by how far they are above it.

        A gain is drawn towards nothing, as if it had been found on four examples more where there
        was none: a candidate that was tried on little has shown little.
        """
        pool = self._members.pool
        best = pool.scores_of(pool.best)

        def gain(position: int) -> float:
            gains = paired_gains(best, pool.scores_of(position))
            return sum(gains) / (len(gains) + 4)

        others = sorted(self._untried, key=lambda one: (-gain(one), one))
        return sorted(others, key=lambda one: (one != 0, one != pool.best))
