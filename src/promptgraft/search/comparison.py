"""A child compared with its parent on a minibatch, as often as the acceptance policy asks."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import attrs

from promptgraft.search.acceptance import AcceptancePolicy, Decision
from promptgraft.search.asks import Asking, Records, Rollouts
from promptgraft.search.objectives import AMOUNTS, Scorer
from promptgraft.search.scores import Score, mean_score, paired_means
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord


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
