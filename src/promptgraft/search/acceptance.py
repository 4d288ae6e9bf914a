"""Comparing a child with its parent on a minibatch, as often as the acceptance policy asks."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Protocol

import attrs

from promptgraft.evals.statistics import paired_test
from promptgraft.search.asks import Asking, Records, Rollouts
from promptgraft.search.scores import AMOUNTS, Score, Scorer, mean_score, paired_means
from promptgraft.strict.checks import COUNT, integer, number
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord


class Decision(StrEnum):
    """What a policy makes of a comparison."""

    ACCEPT = "accept"
    REFUSE = "refuse"
    UNDECIDED = "undecided"


class AcceptancePolicy(Protocol):
    """Compares a child with its parent on a minibatch."""

    @property
    def max_repeats(self) -> int:
        """How often both may be tried again while a comparison is undecided."""
        ...

    @property
    def confirmations(self) -> int:
        """Fresh answers to each example that a winner is confirmed with; 0 for none."""
        ...

    @property
    def level(self) -> float:
        """How often chance alone may confirm a winner, 0 to 1."""
        ...

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        """Decide on the answers that both have a score for; there is at least one pair.

        Args:
            before: scores of the parent's answers.
            after: scores of the child's answers to the same examples, in the same order.
        """
        ...


@attrs.frozen
class Strict:
    """A child is better when its mean on the minibatch is higher; as published."""

    max_repeats = 0
    confirmations = 0
    level = 1.0

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        return Decision.ACCEPT if _gain(before, after) > 0 else Decision.REFUSE


@attrs.frozen
class MinGain:
    """A child is better when its mean on the minibatch is higher by at least ``gain``.

    Attributes:
        gain: above 0.
    """

    gain: float = attrs.field(validator=number(above=0))

    max_repeats = 0
    confirmations = 0
    level = 1.0

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        return Decision.ACCEPT if _gain(before, after) >= self.gain else Decision.REFUSE


@attrs.frozen(kw_only=True)
class Paired:
    """A child is better when a paired test over answers says so; for scores with noise.

    Parent and child are tried again on the same examples while the test cannot tell, and the
    winner of the run is confirmed against the baseline on fresh answers: the best of many
    candidates looks better than it is.

    Attributes:
        level: the test's, above 0 and below 1.
        max_repeats: how often both are tried again, at least 0.
        confirmations: fresh answers of baseline and winner to each example of D_pareto, at
            least 1.
    """

    level: float = attrs.field(default=0.05, validator=number(above=0, below=1))
    max_repeats: int = attrs.field(default=3, validator=integer(0))
    confirmations: int = attrs.field(default=1, validator=COUNT)

    def decide(self, before: Sequence[Score], after: Sequence[Score]) -> Decision:
        if _gain(before, after) <= 0:
            return Decision.REFUSE
        found = paired_test(before, after)
        return Decision.ACCEPT if found.p_value <= self.level else Decision.UNDECIDED


def _gain(before: Sequence[Score], after: Sequence[Score]) -> float:
    one, other = paired_means(before, after)
    return (other or 0.0) - (one or 0.0)


@attrs.frozen(kw_only=True)
class Compared:
    """How a comparison ended.

    Attributes:
        before: the parent's mean on the examples that both have a score for; None without any.
        after: the child's.
        refusal: why the child is not better, with the reason; None when it is.
        records: the child's rollouts on the minibatch, the latest ones.
        batches: all rollouts of both that were compared, in the order in which they were made.
    """

    before: Score = None
    after: Score = None
    refusal: tuple[RejectionReason, str] | None = None
    records: tuple[RolloutRecord, ...] = ()
    batches: tuple[tuple[RolloutRecord, ...], ...] = ()


@attrs.frozen(kw_only=True)
class Comparer:
    """Compares children with their parents.

    Attributes:
        policy: says when a child is better.
        scorer: gives rollouts their scores.
        max_rollout_cost: US dollars that one rollout of a child may cost; None for no limit.
    """

    policy: AcceptancePolicy
    scorer: Scorer
    max_rollout_cost: Decimal | None = None

    def compare(
        self,
        position: str,
        pair: tuple[Candidate, Candidate],
        minibatch: Sequence[GepaExample],
        parent_records: Records,
    ) -> Asking[Compared]:
        """Evaluate the second of ``pair`` against the first, whose rollouts are known already."""
        batches = [parent_records]
        compared = yield from self._compare(position, pair, minibatch, batches)
        return attrs.evolve(compared, batches=tuple(batches))

    def _compare(
        self,
        position: str,
        pair: tuple[Candidate, Candidate],
        minibatch: Sequence[GepaExample],
        batches: list[Records],
    ) -> Asking[Compared]:
        """Compare, and append every batch of rollouts that it takes to those of the parent."""
        before = _Answers(len(minibatch))
        after = _Answers(len(minibatch))
        before.add(self._scores(batches[0]))
        repeat = 0
        while True:
            ours = _position(position, repeat, "child")
            records = yield from Rollouts(position=ours, candidate=pair[1], examples=minibatch)
            batches.append(records)
            after.add(self._scores(records))
            if expensive := self._too_expensive(records):
                return Compared(refusal=(RejectionReason.TOO_DEAR, expensive))
            compared = self._judge(before, after, minibatch)
            if compared is not None:
                return attrs.evolve(compared, records=records)
            if repeat == self.policy.max_repeats:
                return _undecided(before.all, after.all)
            repeat += 1
            theirs = _position(position, repeat, "parent")
            again = yield from Rollouts(position=theirs, candidate=pair[0], examples=minibatch)
            batches.append(again)
            before.add(self._scores(again))

    def _judge(
        self, before: _Answers, after: _Answers, minibatch: Sequence[GepaExample]
    ) -> Compared | None:
        """Return the outcome; None while it is undecided."""
        one, other = paired_means(before.all, after.all)
        if one is None or other is None:
            detail = "no example of the minibatch was scored for both parent and child"
            return Compared(refusal=(RejectionReason.UNSCORED, detail))
        if worse := _worse_where_critical(before.means, after.means, minibatch):
            return Compared(before=one, after=other, refusal=(RejectionReason.NOT_BETTER, worse))
        match self.policy.decide(before.all, after.all):
            case Decision.ACCEPT:
                return Compared(before=one, after=other)
            case Decision.REFUSE:
                detail = f"{other:.3f} on the minibatch, the parent had {one:.3f}"
                refusal = (RejectionReason.NOT_BETTER, detail)
                return Compared(before=one, after=other, refusal=refusal)
        return None

    def _scores(self, records: Sequence[RolloutRecord]) -> list[Score]:
        return [self.scorer.score(record) for record in records]

    def _too_expensive(self, records: Sequence[RolloutRecord]) -> str:
        """Return which rollout costs too much; empty when none does."""
        limit = self.max_rollout_cost
        for record in records if limit is not None else ():
            cost = AMOUNTS["cost"](record)
            if limit is not None and cost is not None and cost > limit:
                return (
                    f"a rollout on example `{record.example_id}` cost {cost:.4f} US dollars, more "
                    f"than max_rollout_cost {limit}"
                )
        return ""


def critical_loss(
    before: Sequence[Score], after: Sequence[Score], examples: Sequence[GepaExample]
) -> str | None:
    """Return the id of a critical example on which ``after`` is worse; None when there is none."""
    for example, one, other in zip(examples, before, after, strict=True):
        if example.critical and one is not None and other is not None and other < one:
            return example.id
    return None


def _worse_where_critical(
    before: Sequence[Score], after: Sequence[Score], examples: Sequence[GepaExample]
) -> str:
    lost = critical_loss(before, after, examples)
    return "" if lost is None else f"worse than the parent on the critical example `{lost}`"


class _Answers:
    """Scores of repeated answers to the same examples."""

    def __init__(self, examples: int) -> None:
        self._scores: list[list[Score]] = [[] for _ in range(examples)]

    def add(self, scores: Sequence[Score]) -> None:
        for held, score in zip(self._scores, scores, strict=True):
            held.append(score)

    @property
    def all(self) -> list[Score]:
        """Every answer's score, example by example."""
        return [score for scores in self._scores for score in scores]

    @property
    def means(self) -> list[Score]:
        return [mean_score(scores) for scores in self._scores]


def _position(position: str, repeat: int, side: str) -> str:
    return f"{position}/{side}" if not repeat else f"{position}/again/{repeat}/{side}"


def _undecided(before: Sequence[Score], after: Sequence[Score]) -> Compared:
    one, other = paired_means(before, after)
    detail = f"{other:.3f} on the minibatch, the parent had {one:.3f}: that may be chance"
    refusal = (RejectionReason.NOT_BETTER, detail)
    return Compared(before=one, after=other, refusal=refusal)
