"""Comparison of baseline and winner on held-out examples, until it is clear which is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

import attrs

from promptgraft.evals.gains import ANSWERS, is_lost, is_settled, least_cases, mean, spent_error
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import digest_text
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Rollouts, Together
from promptgraft.search.gaming import Pair, signs
from promptgraft.search.place import Phase, Place
from promptgraft.search.verdict import (
    ERROR,
    LEVEL,
    Figures,
    HeldOut,
    HiddenScores,
    RunVerdict,
    again_size,
    case_of,
    verdict_of,
)
from promptgraft.targets.base import texts_of
from promptgraft.targets.types import GepaExample, RolloutRecord

_MOST_ROUNDS = 3
"""Most times that the examples are answered."""
_FEW, _MOST_ROUNDS_OF_FEW = 30, 5
"""Up to how many examples are few, and the most times that these are answered."""
_SMALL = 16
"""Number of examples below which there is no look after half of them."""
_FIRST_ROUND = 0.5
"""Share of the error that may be spent before answers are repeated."""
_EARLY = 0.02 * ERROR
"""Error that the look after half of the examples may spend: it stops at overwhelming gains only."""

_CLEAR = (RunVerdict.IMPROVED, RunVerdict.WORSE, RunVerdict.LOST_CRITICAL)

_Sides = tuple[list[RolloutRecord], list[RolloutRecord]]
"""The answers of the baseline to an example, and those of the winner."""

_Look = tuple[Sequence[GepaExample], int, float]
"""What is answered for a look, how often it was before, and the error that may be spent by then."""

Sides: TypeAlias = tuple[Figures, Figures]
"""The figures of the baseline and of the winner."""


def measure(
    kit: Kit,
    winner: int,
    examples: Sequence[GepaExample],
    *,
    seed: int,
    metrics: Sequence[Metric] = (),
) -> Asking[tuple[HeldOut, Sides]]:
    """Evaluate baseline and winner on held-out examples until it is clear which is better.

    The examples are taken in an order drawn by ``seed``. Both candidates answer them in turn, so
    that a provider that changes meanwhile affects both. A sequential test looks at the scores
    after half of the examples, and after all. While it is undecided, the examples are answered
    again, up to twice, and few examples up to four times, if the budget has rollouts left; it then
    looks at the scores after each round. Critical examples on which the winner
    scores lower are repeated before they count. Examples that a resumed run no longer has are
    not counted; new ones are evaluated then. If the winner is better, its answers are looked
    through for signs that it games the ``metrics``.
    """
    # Nothing follows that rollouts would have to be reserved for, except for critical examples.
    kit.budget.release(kit.budget.reserve)
    rounds = _rounds(kit, examples)
    looks = _looks(examples, rounds, seed)
    comparison = _Comparison(kit=kit, winner=winner, examples=examples)
    spent, spent_early = 0.0, _EARLY if len(looks) > rounds else 0.0
    for portion, number, spent_then in looks:
        yield from comparison.ask(portion, number)
        share, spent = spent_then - spent, spent_then
        if comparison.is_fixed:
            # The scores are those of the first round, so the one remaining look at them may
            # spend the whole error.
            share = ERROR - spent_early
        scores = comparison.scored(share)
        is_clear = verdict_of(winner, scores) in _CLEAR
        if is_clear or comparison.is_fixed:
            break
    figures = comparison.figures()
    is_better = verdict_of(winner, scores) is RunVerdict.IMPROVED
    scores = attrs.evolve(
        scores,
        hidden=comparison.hidden(scores.ids),
        signs=comparison.signs(metrics) if is_better and metrics else (),
    )
    # After these, which must not contain answers that were repeated for losing.
    yield from comparison.confirm()
    return attrs.evolve(scores, lost=comparison.lost(), rollouts=comparison.rollouts), figures


def _rounds(kit: Kit, examples: Sequence[GepaExample]) -> int:
    """Return how many times the budget pays for both answers to each example."""
    cases = {case_of(example.id, example.family) for example in examples}
    # With fewer cases no gain can be shown, however often they are answered.
    if len(cases) < least_cases(LEVEL):
        return 1
    most = _MOST_ROUNDS_OF_FEW if len(examples) <= _FEW else _MOST_ROUNDS
    again, round_size, rounds = again_size(examples), 2 * len(examples), 1
    while rounds < most and kit.budget.affords((rounds + 1) * round_size + again):
        rounds += 1
    return rounds


def _looks(examples: Sequence[GepaExample], rounds: int, seed: int) -> list[_Look]:
    """Return the looks after half of the examples, after all, and after each further round."""
    # By digest, so that an example that is added leaves the order of the others alone.
    ordered = sorted(examples, key=lambda one: digest_text(f"{seed}/held-out/{one.id}"))
    count = len(ordered)
    # Half of a small set can hardly show anything, and a look spends error.
    half = count // 2 if count >= _SMALL else 0
    looks: list[_Look] = [(ordered[:half], 0, _EARLY)] if half else []
    for number in range(rounds):
        # Repeated answers say less than new cases, so one round is half of the test.
        share = _FIRST_ROUND + (1 - _FIRST_ROUND) * number / (rounds - 1) if rounds > 1 else 1.0
        looks.append((ordered if number else ordered[half:], number, spent_error(ERROR, share)))
    return looks


@attrs.frozen(kw_only=True)
class _Comparison:
    """The answers of baseline and winner so far."""

    kit: Kit
    winner: int
    examples: Sequence[GepaExample]
    answers: dict[str, _Sides] = attrs.field(factory=dict, init=False, hash=False)

    def ask(self, portion: Sequence[GepaExample], number: int) -> Asking[None]:
        """Evaluate both on examples, alternating which of them begins."""
        candidates = self.kit.population.pool.candidates
        turns = [
            (candidate, portion[start::2])
            for start in (0, 1)
            for candidate in ((self.winner, 0), (0, self.winner))[start]
        ]
        share_records = yield from Together(
            [
                Rollouts(
                    # Both halves of a candidate have it; keys are by example, so none collide.
                    position=str(Place(phase=Phase.HELD_OUT, candidate=candidate, count=number)),
                    candidate=candidates[candidate],
                    examples=examples,
                    by_example=True,
                )
                for candidate, examples in turns
            ],
            in_turns=True,
        )
        for (candidate, examples), records in zip(turns, share_records, strict=True):
            for example, record in zip(examples, records, strict=True):
                self.answers.setdefault(example.id, ([], []))[candidate > 0].append(record)

    def confirm(self) -> Asking[None]:
        """Evaluate critical examples without an answer, and repeat those that score lower."""
        # Numbered after the last possible round, so that positions are not used twice.
        for number in range(_MOST_ROUNDS_OF_FEW, _MOST_ROUNDS_OF_FEW + ANSWERS):
            both = (
                (example, *self._both(example)) for example in self.examples if example.critical
            )
            unsettled = [
                example
                for example, before, after in both
                if not (before and after) or not is_settled(before, after)
            ]
            if not unsettled or not self.kit.budget.affords(2 * len(unsettled)):
                break
            yield from self.ask(unsettled, number)

    @property
    def is_fixed(self) -> bool:
        """Whether every repeated answer equals the first one."""
        sides = list(chain.from_iterable(self.answers.values()))
        # Without a repeat nothing is known: different examples may have one answer.
        again = [(side[0], repeat) for side in sides for repeat in side[1:]]
        return bool(again) and all(first.output_repr == two.output_repr for first, two in again)

    def figures(self) -> Sides:
        """Return the figures of each side over all its answers."""
        rules = self.kit.population.pass_rules
        before, after = map(chain.from_iterable, zip(*self.answers.values(), strict=True))
        return rules.figures(before), rules.figures(after)

    def signs(self, metrics: Sequence[Metric]) -> tuple[str, ...]:
        """Return the signs that the first answers to the examples game the metrics."""
        pairs = []
        for example in self.examples:
            case, sides = example.label, self.answers.get(example.id)
            if not isinstance(case, Case) or sides is None:
                continue
            before, after = (side[0] for side in sides)
            pair = Pair(
                case=case,
                before=before.output_repr,
                after=after.output_repr,
                gains=_gains(before, after),
            )
            pairs.append(pair)
        target = self.kit.target
        return signs(pairs, metrics, "\n".join(texts_of(target, target.baseline()).values()))

    def hidden(self, ids: Sequence[str]) -> tuple[HiddenScores, ...]:
        """Return what hidden metrics score on the examples with these ids."""
        both = [self.answers[id_] for id_ in ids]
        return tuple(
            HiddenScores(
                metric=metric,
                baseline_scores=tuple(_mean_of(metric, before) for before, _ in both),
                winner_scores=tuple(_mean_of(metric, after) for _, after in both),
            )
            for metric in self.kit.population.pass_rules.hidden
        )

    @property
    def rollouts(self) -> int:
        """Number of answers so far."""
        return sum(len(side) for sides in self.answers.values() for side in sides)

    def lost(self) -> tuple[str, ...]:
        """Return the critical examples on which the winner is worse."""
        both = ((example.id, *self._both(example)) for example in self.examples if example.critical)
        return tuple(
            id_ for id_, before, after in both if before and after and is_lost(before, after)
        )

    def _both(self, example: GepaExample) -> tuple[list[float], list[float]]:
        before, after = (
            [score for record in side if (score := self.kit.scorer.score(record)) is not None]
            for side in self.answers.get(example.id, ((), ()))
        )
        return before, after

    def scored(self, spent: float) -> HeldOut:
        """Return the mean scores so far, in the order of ``examples``."""
        answered = [example for example in self.examples if example.id in self.answers]
        families = tuple(example.family for example in answered)
        before, after = zip(*(self.answers[example.id] for example in answered), strict=True)
        return HeldOut(
            ids=tuple(example.id for example in answered),
            baseline_scores=tuple(mean(map(self.kit.scorer.score, side)) for side in before),
            winner_scores=tuple(mean(map(self.kit.scorer.score, side)) for side in after),
            spent=spent,
            spent_on_cases=spent,
            rollouts=self.rollouts,
            is_fixed=self.is_fixed,
            chars=(_mean_length(before), _mean_length(after)),
            families=families if any(families) else (),
            answers=tuple(map(len, after)),
        )


def _mean_of(metric: str, records: Sequence[RolloutRecord]) -> float | None:
    """Return the mean score of a metric over answers to an example; an unusable one scores 0."""
    scores = []
    for record in records:
        verdicts = {verdict.metric: verdict.score for verdict in record.verdicts}
        scores.append(verdicts.get(metric, 0.0 if record.fault and record.feedback else None))
    return mean(scores)


def _gains(before: RolloutRecord, after: RolloutRecord) -> dict[str, float]:
    """Return how much more each visible metric scores for the second answer."""
    earlier, later = (
        {} if record.feedback is None else record.feedback.objectives for record in (before, after)
    )
    return {name: later[name] - earlier[name] for name in later if name in earlier}


def _mean_length(sides: Iterable[Iterable[RolloutRecord]]) -> float:
    records = chain.from_iterable(sides)
    return mean([float(len(record.output_repr)) for record in records]) or 0.0
