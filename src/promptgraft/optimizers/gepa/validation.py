"""How much of D_pareto a candidate is tried on before the search goes on with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from promptgraft.optimizers.gepa.members import Members
from promptgraft.optimizers.gepa.policies import Full, Racing, Validation
from promptgraft.optimizers.gepa.scores import Score, beats, paired_means
from promptgraft.optimizers.gepa.trials import Trials
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord

Records = list[RolloutRecord | None]
"""Rollouts by example of D_pareto; None where there was none."""


class Validator(Protocol):
    """Tries candidates on D_pareto, and takes them into the pool."""

    @property
    def largest(self) -> int:
        """Rollouts that taking in the next candidate can use."""
        ...

    @property
    def overhead(self) -> int:
        """Rollouts of other candidates that taking one in can use."""
        ...

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        """Return the examples that two members can be compared on, by their scores."""
        ...

    def take_in(self, position: str, candidate: Candidate, known: Records, *, step: int) -> int:
        """Take a candidate into the pool, and return its position there.

        Args:
            position: where in the run.
            candidate: the candidate.
            known: its rollouts so far; they are not made again.
            step: number of the step.

        Raises:
            RunStoppedError, LimitReachedError: the run ends.
        """
        ...

    def idle(self, step: int) -> None:
        """Use a step in which nothing can be learned."""
        ...

    def finish(self, step: int) -> None:
        """Settle who is best, at the end of the search."""
        ...


class FullValidator:
    """Tries every candidate on everything.

    Args:
        pareto: D_pareto.
        trials: makes rollouts.
        members: the pool.
    """

    def __init__(self, pareto: Sequence[GepaExample], *, trials: Trials, members: Members) -> None:
        self._pareto = pareto
        self._trials = trials
        self._members = members
        self.largest = len(pareto)
        self.overhead = 0

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        del second
        return range(len(first))

    def take_in(self, position: str, candidate: Candidate, known: Records, *, step: int) -> int:
        missing = [place for place, record in enumerate(known) if record is None]
        records = list(known)
        if missing:
            made = self._trials.make(position, candidate, [self._pareto[one] for one in missing])
            for place, record in zip(missing, made, strict=True):
                records[place] = record
        return self._members.join(candidate, records, step=step)

    def idle(self, step: int) -> None:
        del step

    def finish(self, step: int) -> None:
        del step


class RacingValidator:
    """Lets candidates race the best one; see :class:`Racing`.

    Args:
        policy: the settings.
        pareto: D_pareto.
        order: the positions of its examples in the order in which they are raced on.
        trials: makes rollouts.
        members: the pool.
    """

    def __init__(
        self,
        policy: Racing,
        pareto: Sequence[GepaExample],
        *,
        order: Sequence[int],
        trials: Trials,
        members: Members,
    ) -> None:
        self._policy = policy
        self._pareto = pareto
        # Nobody wins who has not been tried where it must not be worse.
        self._order = sorted(order, key=lambda place: not pareto[place].critical)
        self._critical = sum(example.critical for example in pareto)
        self._trials = trials
        self._members = members
        self._races = 0
        self._untried: dict[int, set[int]] = {0: set()}

    @property
    def largest(self) -> int:
        return self._depth + self.overhead

    @property
    def overhead(self) -> int:
        return len(self._missing(self._members.pool.best, self._depth))

    def common(self, first: Sequence[Score], second: Sequence[Score]) -> Sequence[int]:
        pairs = enumerate(zip(first, second, strict=True))
        return [place for place, pair in pairs if None not in pair]

    @property
    def _depth(self) -> int:
        policy = self._policy
        least = max(policy.first, self._critical)
        return min(len(self._order), least + policy.growth * self._races)

    def _missing(self, member: int, depth: int) -> list[int]:
        untried = self._untried[member]
        return [place for place in self._order[:depth] if place in untried]

    def take_in(self, position: str, candidate: Candidate, known: Records, *, step: int) -> int:
        pool = self._members.pool
        if not len(pool):
            # The baseline is what everything is measured by: it is tried on all of it.
            return self._members.join(candidate, known, step=step)
        self._extend_best(f"{position}/best", step)
        records = list(known)
        won = self._race(position, candidate, records)
        self._races += 1
        joined = self._members.join(candidate, records, step=step, crowned=won)
        self._untried[joined] = {place for place, record in enumerate(records) if record is None}
        return joined

    def idle(self, step: int) -> None:
        """Try the best one on more examples: it may be perfect on all of them."""
        if self._depth < len(self._order) or self.overhead:
            self._races += 1
            if self._trials.afford(self.overhead):
                self._extend_best(f"step/{step}/idle", step)

    def finish(self, step: int) -> None:
        pool = self._members.pool
        self._trials.release(self._policy.finals(len(self._pareto)))
        complete = [0]
        for position in self._promising():
            missing = self._missing(position, len(self._order))
            if not self._trials.afford(len(missing)):
                continue
            self._try_more(f"final/{position}", position, missing, step)
            if self._members.may_win(position, tried=len(self._order)):
                complete.append(position)
            if len(complete) > self._policy.finalists:
                break
        best = 0
        for position in complete:
            if beats(pool.scores_of(position), pool.scores_of(best)):
                best = position
        pool.crown(best)

    def _race(self, position: str, candidate: Candidate, records: Records) -> bool:
        """Try a candidate while it keeps up; return whether it is the best one now."""
        length = min(self._policy.first, self._depth)
        while True:
            places = self._order[:length]
            missing = [place for place in places if records[place] is None]
            made = self._trials.make(
                f"{position}/{length}", candidate, [self._pareto[place] for place in missing]
            )
            for place, record in zip(missing, made, strict=True):
                records[place] = record
            ahead = self._ahead(records, places)
            if ahead is None or ahead < 0:
                return False
            if length == self._depth:
                # A child of the best one was better on a minibatch; nobody else may win a tie.
                wins = ahead > 0 or self._members.pool.best in candidate.parents
                return wins and self._members.may_join_as_best(records)
            length = min(self._depth, 2 * length)

    def _ahead(self, records: Records, places: Sequence[int]) -> Score:
        """Return how far a candidate is above the best one; None when no example tells."""
        best = self._members.pool.scores_of(self._members.pool.best)
        own = self._members.scores([records[place] for place in places])
        one, other = paired_means(own, [best[place] for place in places])
        return None if one is None or other is None else one - other

    def _extend_best(self, position: str, step: int) -> None:
        best = self._members.pool.best
        self._try_more(position, best, self._missing(best, self._depth), step)

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
        """Return the candidates but the baseline: the best one first, then by what they gained.

        A gain is drawn towards nothing, as if it had been found on four examples more where there
        was none: a candidate that was tried on little has shown little.
        """
        pool = self._members.pool
        baseline = pool.scores_of(0)

        def gain(position: int) -> float:
            pairs = zip(pool.scores_of(position), baseline, strict=True)
            gains = [one - other for one, other in pairs if one is not None and other is not None]
            return sum(gains) / (len(gains) + 4)

        others = sorted((one for one in self._untried if one), key=lambda one: (-gain(one), one))
        return sorted(others, key=lambda one: one != pool.best)


def validator_of(
    validation: Validation,
    pareto: Sequence[GepaExample],
    *,
    order: Sequence[int],
    trials: Trials,
    members: Members,
) -> Validator:
    """Return what carries out a policy."""
    if isinstance(validation, Full):
        return FullValidator(pareto, trials=trials, members=members)
    return RacingValidator(validation, pareto, order=order, trials=trials, members=members)


def blank(pareto: Sequence[GepaExample]) -> Records:
    """Return no rollouts at all."""
    return [None] * len(pareto)
