"""Scores and objectives of rollouts; rollouts that the provider failed have none."""

from __future__ import annotations

import functools
import math
import operator
import statistics
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeAlias, overload

from promptgraft.errors import ConfigError, FeedbackError
from promptgraft.evals.spending import Role, Spending
from promptgraft.ground.serde import did_you_mean
from promptgraft.ground.strict.checks import ROUNDING, number
from promptgraft.targets.types import GepaExample, RolloutRecord, named_numbers_fault

Objectives = Mapping[str, float] | None
"""A rollout's value of each objective, higher is better; None if it is unscored."""

Score = float | None
"""A score on one example; None if the rollout is unscored."""

Row: TypeAlias = "array[float]"
"""Scores as doubles; unscored is ``UNSCORED``."""

UNSCORED = -math.inf
"""Lower than every score."""

BELOW_SCORES = -sys.float_info.max
"""The best score of a cell without scores; above ``UNSCORED``, so that nothing leads there."""


class Scores(Sequence[Score]):
    """The scores of a candidate in 8 bytes each, for large runs; equal to a tuple of scores.

    Attributes:
        row: the scores as doubles; do not modify it.
    """

    __slots__ = ("row",)

    def __init__(self, scores: Iterable[Score]) -> None:
        self.row: Row = array("d", [UNSCORED if score is None else score for score in scores])

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, place: int) -> Score: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Score, ...]: ...
    def __getitem__(self, place: int | slice) -> Score | tuple[Score, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        score = self.row[place]
        return None if score == UNSCORED else score

    def __iter__(self) -> Iterator[Score]:
        if UNSCORED not in self.row:
            return iter(self.row)
        return (None if score == UNSCORED else score for score in self.row)

    def __contains__(self, score: object) -> bool:
        return (UNSCORED if score is None else score) in self.row

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Scores):
            return self.row == other.row
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def packed(scores: Sequence[Score]) -> Row:
    """Return scores as a row, without copying one."""
    if isinstance(scores, array):
        return scores
    return scores.row if isinstance(scores, Scores) else Scores(scores).row


total_of: Callable[[Iterable[float]], float] = functools.partial(functools.reduce, operator.add)
"""The sum of at least one number, added in order: Python 3.12 has changed how ``sum`` rounds."""


def mean_score(scores: Sequence[Score]) -> Score:
    """Return the mean of the scores that are not None; None if there are none."""
    scored = [score for score in scores if score is not None]
    return total_of(scored) / len(scored) if scored else None


def paired_means(scores: Sequence[Score], others: Sequence[Score]) -> tuple[Score, Score]:
    """Return both means over the places where both have scores; None if there are none."""
    pairs = [
        (score, other_score)
        for score, other_score in zip(scores, others, strict=True)
        if score is not None and other_score is not None
    ]
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    return mean_score(before), mean_score(after)


def paired_gains(before: Sequence[Score], after: Sequence[Score]) -> list[float]:
    """Return the differences ``after`` - ``before`` where both have scores."""
    pairs = zip(before, after, strict=True)
    return [second - first for first, second in pairs if first is not None and second is not None]


def is_behind(gains: Sequence[float], *, margin: float = 0.0, errors: float = 0.5) -> bool:
    """Return whether the mean gain is below ``-margin`` by more than ``errors`` standard errors."""
    count = len(gains)
    # One gain says nothing about the spread.
    spread = statistics.stdev(gains) if count > 1 else 0.0
    return total_of(gains) / count < -margin - errors * spread / math.sqrt(count)


def beats(scores: Sequence[Score], others: Sequence[Score]) -> bool:
    """Return whether ``scores`` have the higher mean on the examples that both have scores for."""
    mean, other_mean = paired_means(scores, others)
    return mean is not None and other_mean is not None and mean > other_mean


def critical_loss(
    before: Sequence[Score], after: Sequence[Score], examples: Sequence[GepaExample]
) -> str | None:
    """Return the id of the first critical example on which ``after`` is worse; None if none is."""
    for example, first, second in zip(examples, before, after, strict=True):
        if example.critical and first is not None and second is not None and second < first:
            return example.id
    return None


SCORE = "score"
"""The objective for the score of the feedback function itself."""


def pick(objectives: Sequence[Mapping[str, float]], weights: Mapping[str, float]) -> int:
    """Return the position with the highest weighted sum of objectives; the older wins a tie."""

    def worth(position: int) -> float:
        scores = objectives[position]
        return total_of([0.0, *(by * scores.get(name, 0.0) for name, by in weights.items())])

    return max(range(len(objectives)), key=worth)


def weights_of(source: Mapping[str, float] | str, what: str = "weights") -> dict[str, float]:
    """Return weights by objective, given as a mapping or as ``"score=0.8,tokens=0.2"``.

    Raises:
        ConfigError: a weight is not a number above 0; ``what`` names the weights.
    """
    weights = _read_weights(source, what) if isinstance(source, str) else source
    if fault := named_numbers_fault(weights):
        raise ConfigError(f"{what}: {fault}")
    for name, weight in weights.items():
        number(above=0).hold(f"{what}: `{name}`", weight)
    return dict(weights)


def _read_weights(text: str, what: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in (piece.strip() for piece in text.split(",")):
        name, sign, digits = part.partition("=")
        try:
            weight = float(digits)
        except ValueError:
            sign, weight = "", 0.0
        if not sign:
            raise ConfigError(
                f"{what}: expected text such as 'score=0.8,tokens=0.2', found {part!r}"
            )
        if name.strip() in weights:
            raise ConfigError(f"{what}: `{name.strip()}` is named twice")
        weights[name.strip()] = weight
    return weights


def _of_task(worth: Callable[[Spending], int]) -> Callable[[RolloutRecord], int]:
    """Return a function that sums an amount over the task's calls of a rollout."""
    return lambda record: sum(worth(spent) for spent in record.spent if spent.role is Role.TASK)


_microseconds = _of_task(lambda spent: spent.microseconds)


def task_cost(record: RolloutRecord) -> Decimal | None:
    """Return the US dollars of the task's calls of a rollout, exactly; None if one is unknown."""
    total = Decimal(0)
    for spent in record.spent:
        if spent.role is Role.TASK:
            if spent.cost is None:
                return None
            total += spent.cost
    return total


def _dollars(record: RolloutRecord) -> float | None:
    cost = task_cost(record)
    return None if cost is None else float(cost)


AMOUNTS: Mapping[str, Callable[[RolloutRecord], float | None]] = {
    "tokens": _of_task(lambda spent: spent.tokens),
    "prompt_tokens": _of_task(lambda spent: spent.input_tokens),
    "completion_tokens": _of_task(lambda spent: spent.output_tokens),
    "cost": _dollars,
    "seconds": lambda record: _microseconds(record) / 1e6,
}
"""Objectives that are better if lower; every rollout has them."""


class SplitRollouts(NamedTuple):
    """Scored rollouts, by whether there is something to learn from them."""

    failures: tuple[RolloutRecord, ...]
    perfect: tuple[RolloutRecord, ...]


class Scorer:
    """Scores rollouts.

    Without weights the score is that of the feedback function; with weights it is the weighted
    mean of objectives. An amount ``a`` counts as ``b / (a + b)``, where ``b`` is the baseline's
    mean: one half for what the baseline uses, and more for less.

    An unusable answer has 0 in every objective: those of the baseline's feedback, those with a
    weight and those that are required.

    Args:
        weights: by objective; ``score`` is the feedback's own, ``tokens``,
            ``prompt_tokens``, ``completion_tokens``, ``cost`` and ``seconds`` are what the task's
            calls used, all others come from the feedback.
        also: amounts that are objectives without a weight.
        perfect_score: the highest weighted mean that an answer can have.

    Attributes:
        perfect: the score at which there is nothing left to learn.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        also: Iterable[str] = (),
        *,
        perfect_score: float = math.inf,
    ) -> None:
        self._weights = dict(weights)
        self.perfect = perfect_score
        self._amounts = AMOUNTS.keys() & {*weights, *also}
        self._usual: dict[str, float] = {}
        self._nothing = dict.fromkeys((SCORE, *weights), 0.0)

    def learn(self, records: Sequence[RolloutRecord]) -> None:
        """Learn from the baseline which objectives there are, and what amounts are usual.

        Raises:
            FeedbackError: an amount with a weight is not known.
        """
        for record in records:
            if record.feedback is not None:
                self._nothing |= dict.fromkeys(record.feedback.objectives, 0.0)
        for name in self._amounts:
            scored = [record for record in records if record.feedback is not None]
            mean = mean_score([_amount(name, record) for record in scored])
            self._usual[name] = mean or 0.0

    def require(self, names: Iterable[str], records: Sequence[RolloutRecord]) -> None:
        """Check that the baseline's rollouts have all required objectives.

        Raises:
            FeedbackError: no judged rollout has one of them.
        """
        # Answers with a fault have 0 in every objective, so they do not show which there are.
        judged = [
            scores for record in records if not record.fault and (scores := self.objectives(record))
        ]
        names_scored = sorted({name for scores in judged for name in scores})
        for name in names if judged else ():
            if name not in names_scored:
                raise FeedbackError(
                    f"required objective `{name}`: no feedback has it"
                    f"{did_you_mean(name, names_scored)}; "
                    f"there are {', '.join(names_scored)}"
                )
        self._nothing |= dict.fromkeys(names, 0.0)

    def score(self, record: RolloutRecord) -> Score:
        """Return the score of a rollout; None if it is unscored.

        Raises:
            FeedbackError: an objective with a weight is missing, or the mean is too high.
        """
        if record.feedback is None or not self._weights:
            return None if record.feedback is None else record.feedback.score
        return self._weighted(record, self.objectives(record) or {}, self._weights)

    def told(self, records: Iterable[RolloutRecord]) -> dict[str, str]:
        """Return what each score is made of, and the highest, in one line by example id.

        Scores without weights of which 1 is the highest need no words.
        """
        most = "" if self.perfect in (1, math.inf) else f"the highest score is {self.perfect:g}"
        if not self._weights:
            return {record.example_id: most for record in records} if most else {}
        lines: dict[str, str] = {}
        for record in records:
            scores = self.objectives(record) or {}
            parts = []
            for name, weight in self._weights.items():
                # An amount counts relative to the baseline, so what was used is shown too.
                amount = AMOUNTS[name](record) if name in self._amounts else None
                used = "" if amount is None else f" for {amount:.6g}"
                parts.append(f"{name} {scores.get(name, 0.0):.4g}{used} (weight {weight:g})")
            if (score := self.score(record)) is not None:
                mean = f"weighted mean {score:.4g}" + (f", {most}" if most else "")
                lines[record.example_id] = f"{', '.join(parts)}; {mean}"
        return lines

    def check(self, record: RolloutRecord) -> None:
        """Check that a rollout has a usable score, possibly before the baseline is known.

        Amounts, which are relative to the baseline, count as 0.

        Raises:
            FeedbackError: an objective with a weight is missing, or the score is too high.
        """
        if record.feedback is not None and not record.fault:
            scores = {SCORE: record.feedback.score, **record.feedback.objectives}
            scores |= dict.fromkeys(self._amounts, 0.0)
            self._weighted(record, scores, self._weights or {SCORE: 1.0})

    def _weighted(
        self, record: RolloutRecord, scores: Mapping[str, float], weights: Mapping[str, float]
    ) -> float:
        for name in weights:
            if name not in scores:
                names = sorted(scores)
                raise FeedbackError(
                    f"weights: the feedback on example `{record.example_id}` has no objective "
                    f"`{name}`{did_you_mean(name, list(scores))}; it has {', '.join(names)}"
                )
        whole = total_of(weights.values())
        score = total_of(weight * scores[name] for name, weight in weights.items()) / whole
        if score > self.perfect + ROUNDING:
            raise FeedbackError(
                f"feedback function on example `{record.example_id}`: the score {score:g} is above "
                f"objectives.perfect_score, {self.perfect:g}; set that to the highest score that "
                "an answer can have, or return lower scores"
            )
        return score

    def split(self, records: Iterable[RolloutRecord]) -> SplitRollouts:
        """Return the scored rollouts, those below the perfect score apart from the others."""
        scored = [
            (score, record) for record in records if (score := self.score(record)) is not None
        ]
        return SplitRollouts(
            failures=tuple(record for score, record in scored if score < self.perfect),
            perfect=tuple(record for score, record in scored if score >= self.perfect),
        )

    def objectives(self, record: RolloutRecord) -> Objectives:
        """Return a rollout's value of each objective, higher is better."""
        if record.feedback is None or record.fault:
            return None if record.feedback is None else self._nothing
        scores = {SCORE: record.feedback.score, **record.feedback.objectives}
        for name, usual in self._usual.items():
            amount = _amount(name, record)
            # If both are 0, it uses what the baseline uses: one half.
            scores[name] = usual / (amount + usual) if amount + usual else 0.5
        return scores


def _amount(name: str, record: RolloutRecord) -> float:
    amount = AMOUNTS[name](record)
    if amount is None:
        raise FeedbackError(
            f"weights: the {name} of example `{record.example_id}` is not known; give the adapter "
            "its prices or leave it out"
        )
    return amount
