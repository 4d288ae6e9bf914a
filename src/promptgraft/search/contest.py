"""Baseline and winner side by side on held-out examples, until it is clear which is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

import attrs

from promptgraft.evals.critical import ANSWERS, is_lost, is_settled
from promptgraft.evals.statistics import least_cases, mean, spent_error
from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.fresh import ERROR, LEVEL, HeldOut, RunVerdict, again_size, verdict_of
from promptgraft.search.ledger import RolloutBudget
from promptgraft.search.passing import Figures, Passing
from promptgraft.search.place import Phase, Place
from promptgraft.search.population import Population
from promptgraft.search.scores import Scorer
from promptgraft.serde import digest_text
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

_MOST_ROUNDS = 3
_SMALL = 16
_FIRST_ROUND = 0.8

_Sides = tuple[list[RolloutRecord], list[RolloutRecord]]
"""The answers of the baseline to an example, and those of the winner."""


Sides: TypeAlias = tuple[Figures, Figures]
"""What metrics say of the baseline and of the winner."""


def measure(
    population: Population,
    winner: int,
    examples: Sequence[GepaExample],
    *,
    scorer: Scorer,
    budget: RolloutBudget,
    seed: int,
) -> Asking[tuple[HeldOut, Sides]]:
    """Evaluate baseline and winner on held-out examples until it is clear which is better.

    The examples are taken in an order drawn by ``seed``. Both answer each of them side by side, so
    that a provider that changes meanwhile does so for both. A sequential test looks at the scores
    after half of the examples, and after all; while they leave it open, the examples are answered
    again, up to twice, as far as the budget has rollouts left over. Critical examples that score
    lower are asked again before they count. Examples that a resumed run
    does not have any more are not counted, others are evaluated then.
    """
    ordered = sorted(examples, key=lambda one: digest_text(f"{seed}/held-out/{one.id}"))
    half = len(ordered) // 2 if len(ordered) >= _SMALL else len(ordered)
    portions = [portion for portion in (ordered[:half], ordered[half:]) if portion]
    rounds, is_enough = 1, len(ordered) >= least_cases(LEVEL)
    kept = again_size(examples)
    while is_enough and rounds < _MOST_ROUNDS and budget.affords(2 * len(ordered) * rounds + kept):
        rounds += 1
    candidates = population.pool.candidates
    contest = _Contest(baseline=candidates[0], winner=candidates[winner], place=winner)
    known, spent = 0, [0.0]
    for number, portion in ((number, portion) for number in range(rounds) for portion in portions):
        yield from contest.ask(portion, number)
        known += len(portion)
        spent.append(spent_error(ERROR, _fraction(known / len(ordered), rounds)))
        share = spent[-1] - spent[-2]
        if contest.is_fixed:
            # The same scores as after the first round: one look at them, which may spend it all.
            share = ERROR - spent[len(portions) - 1]
        found = contest.scored(examples, scorer, share)
        is_clear = verdict_of(winner, found) in (RunVerdict.IMPROVED, RunVerdict.WORSE)
        if is_clear or contest.is_fixed:
            break
    figures = contest.figures(population.passing)
    yield from _confirm(contest, examples, scorer, budget)
    lost = contest.lost(examples, scorer)
    return attrs.evolve(found, lost=lost, rollouts=contest.rollouts), figures


def _confirm(
    contest: _Contest, examples: Sequence[GepaExample], scorer: Scorer, budget: RolloutBudget
) -> Asking[None]:
    """Ask critical examples until each has an answer, and those that score lower again."""
    for number in range(_MOST_ROUNDS, _MOST_ROUNDS + ANSWERS):
        open_ones = [one for one in examples if one.critical and contest.is_open(one, scorer)]
        if not open_ones or not budget.affords(2 * len(open_ones)):
            break
        yield from contest.ask(open_ones, number)


def _fraction(done: float, rounds: int) -> float:
    """Return how far the test is after some rounds; repeated answers tell less than new cases."""
    if rounds == 1:
        return done
    return _FIRST_ROUND * min(done, 1) + (1 - _FIRST_ROUND) * max(done - 1, 0) / (rounds - 1)


@attrs.frozen(kw_only=True)
class _Contest:
    """Baseline and winner side by side, with what they have answered so far."""

    baseline: Candidate
    winner: Candidate
    place: int
    answers: dict[str, _Sides] = attrs.field(factory=dict, init=False)

    def ask(self, portion: Sequence[GepaExample], number: int) -> Asking[None]:
        """Ask both, on every other example in the opposite order."""
        turns = [
            (is_winner, portion[start::2])
            for start in (0, 1)
            for is_winner in ((False, True) if start else (True, False))
        ]
        made = yield from Together(
            [
                Rollouts(
                    position=str(
                        Place(
                            phase=Phase.HELD_OUT,
                            candidate=self.place if is_winner else 0,
                            count=number,
                        )
                    ),
                    candidate=self.winner if is_winner else self.baseline,
                    examples=examples,
                    by_example=True,
                )
                for is_winner, examples in turns
            ],
            in_turns=True,
        )
        for (is_winner, examples), records in zip(turns, made, strict=True):
            for example, record in zip(examples, records, strict=True):
                self.answers.setdefault(example.id, ([], []))[is_winner].append(record)

    @property
    def is_fixed(self) -> bool:
        """Whether every repeated answer is the first one again."""
        sides = list(chain.from_iterable(self.answers.values()))
        again = [(side[0], other) for side in sides for other in side[1:]]
        return bool(again) and all(one.output_repr == two.output_repr for one, two in again)

    def figures(self, passing: Passing) -> Sides:
        """Return what metrics say of all answers of each side."""
        sides = list(self.answers.values())
        before, after = (
            passing.figures(chain.from_iterable(both[is_winner] for both in sides))
            for is_winner in (False, True)
        )
        return before, after

    @property
    def rollouts(self) -> int:
        """How many answers there are."""
        return sum(len(side) for sides in self.answers.values() for side in sides)

    def is_open(self, example: GepaExample, scorer: Scorer) -> bool:
        """Whether it takes more answers to say whether the winner is worse on an example."""
        before, after = self._both(example, scorer)
        return not (before and after) or not is_settled(before, after)

    def lost(self, examples: Sequence[GepaExample], scorer: Scorer) -> tuple[str, ...]:
        """Return the critical examples on which the winner is worse."""
        sides = {one.id: self._both(one, scorer) for one in examples if one.critical}
        return tuple(
            id_
            for id_, (before, after) in sides.items()
            if before and after and is_lost(before, after)
        )

    def _both(self, example: GepaExample, scorer: Scorer) -> tuple[list[float], list[float]]:
        before, after = (
            [score for one in side if (score := scorer.score(one)) is not None]
            for side in self.answers.get(example.id, ((), ()))
        )
        return before, after

    def scored(self, examples: Sequence[GepaExample], scorer: Scorer, spent: float) -> HeldOut:
        """Return the mean scores so far, in the order of ``examples``."""
        known = {one.id: self.answers[one.id] for one in examples if one.id in self.answers}
        before, after = (
            tuple(mean(map(scorer.score, sides[is_winner])) for sides in known.values())
            for is_winner in (False, True)
        )
        return HeldOut(
            ids=tuple(known),
            baseline_scores=before,
            winner_scores=after,
            spent=spent,
            rollouts=self.rollouts,
            is_fixed=self.is_fixed,
            chars=_mean_lengths(known.values()),
        )


def _mean_lengths(answers: Iterable[_Sides]) -> tuple[float, float]:
    before, after = zip(*answers, strict=True)
    return _mean_length(chain.from_iterable(before)), _mean_length(chain.from_iterable(after))


def _mean_length(records: Iterable[RolloutRecord]) -> float:
    return mean([float(len(one.output_repr)) for one in records]) or 0.0
