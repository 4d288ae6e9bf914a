"""The acceptance test: children compared with their parents, proposals accepted or rejected."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import chain
from typing import Protocol

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.gains import check_installed, paired_test
from promptgraft.ground.strict.checks import integer, number
from promptgraft.search import scores
from promptgraft.search.asks import Asking, Records, Rollouts
from promptgraft.search.events import Emit, MutationRejected
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.types import Candidate, GepaExample, Module, ModuleDescription, names_of


class Decision(StrEnum):
    """The decision of a policy on a comparison."""

    ACCEPT = "accept"
    REFUSE = "refuse"
    UNDECIDED = "undecided"


class AcceptancePolicy(Protocol):
    """Compares a child with its parent on a minibatch."""

    @property
    def max_repeats(self) -> int:
        """How often both may be evaluated again while a comparison is undecided."""
        ...

    def decide(self, before: Sequence[scores.Score], after: Sequence[scores.Score]) -> Decision:
        """Decide by the answers that both have a score for; there is at least one pair.

        Args:
            before: scores of the parent's answers.
            after: scores of the child's answers to the same examples, in the same order.
        """
        ...


def most_rollouts(policy: AcceptancePolicy, examples: int) -> int:
    """Return the most rollouts of a comparison on so many examples, all repeats included."""
    return 2 * examples * (1 + policy.max_repeats)


@attrs.frozen
class Strict:
    """Accepts a child if its mean on the minibatch is higher, as published."""

    max_repeats = 0

    def decide(self, before: Sequence[scores.Score], after: Sequence[scores.Score]) -> Decision:
        return Decision.ACCEPT if scores.beats(after, before) else Decision.REFUSE


@attrs.frozen
class MinGain:
    """Accepts a child if its mean on the minibatch is higher by at least ``gain``.

    Attributes:
        gain: at least 0; with 0 a tie is accepted.
    """

    gain: float = attrs.field(validator=number(least=0))

    max_repeats = 0

    def decide(self, before: Sequence[scores.Score], after: Sequence[scores.Score]) -> Decision:
        parent_mean, child_mean = scores.paired_means(before, after)
        gain = (child_mean or 0.0) - (parent_mean or 0.0)
        return Decision.ACCEPT if gain >= self.gain else Decision.REFUSE


@attrs.frozen(kw_only=True)
class Paired:
    """Accepts a child if a paired test over its answers is significant; for noisy scores.

    Parent and child are evaluated again on the same examples while the test is undecided.

    Attributes:
        level: significance level of each test, above 0 and below 1; the chance to accept a child
            that is no better is at most ``max_repeats + 1`` times as large.
        max_repeats: how often both are evaluated again, at least 0.
    """

    level: float = attrs.field(default=0.05, validator=number(above=0, below=1))
    max_repeats: int = attrs.field(default=3, validator=integer(0))

    def check_power(self, answers: int, mend: str) -> None:
        """Check that a comparison of this many answers can reach the level.

        Raises:
            ConfigError: it cannot, or the library for the test is not installed; ``mend`` says
                what to change.
        """
        check_installed()
        # The p of the exact one-sided test if the child is better on every answer.
        if 2.0**-answers > self.level:
            raise ConfigError(
                f"acceptance: with {answers} answers a comparison cannot reach level "
                f"{self.level:g}: the least p is {2.0**-answers:g}; {mend}"
            )

    def decide(self, before: Sequence[scores.Score], after: Sequence[scores.Score]) -> Decision:
        if not scores.beats(after, before):
            return Decision.REFUSE
        gain = paired_test(before, after)
        return Decision.ACCEPT if gain.p_value <= self.level else Decision.UNDECIDED


@attrs.frozen(kw_only=True)
class Compared:
    """The outcome of a comparison.

    Attributes:
        before: the parent's mean on the examples that both have a score for; None without any.
        after: the child's mean on the same examples.
        gain: the child's mean minus the parent's; 0 without any.
        refusal: why the child is not accepted, as a reason and in words; None if it is.
        batches: the rollouts that were compared, alternately the parent's and the child's.
    """

    before: scores.Score = None
    after: scores.Score = None
    gain: float = 0.0
    refusal: tuple[RejectionReason, str] | None = None
    batches: tuple[Records, ...]


@attrs.frozen(kw_only=True)
class Comparer:
    """Compares children with their parents.

    Attributes:
        policy: decides whether a child is better.
        scorer: scores rollouts.
        max_rollout_cost: US dollars that one rollout of a child may cost; None for no limit.
        where: how messages name the examples.
    """

    policy: AcceptancePolicy
    scorer: scores.Scorer
    max_rollout_cost: Decimal | None = None
    where: str = "its cases"

    def compare(
        self,
        position: str,
        pair: tuple[Candidate, Candidate],
        minibatch: Sequence[GepaExample],
        parent_records: Records,
    ) -> Asking[Compared]:
        """Compare the second of ``pair``, a child, with the first, whose rollouts are given."""
        parent, child = pair
        batches = [parent_records]
        compared: Compared | None = None
        repeat = 0
        while compared is None:
            where = f"{position}/again/{repeat}" if repeat else position
            if repeat:
                again = Rollouts(position=f"{where}/parent", candidate=parent, examples=minibatch)
                batches.append((yield from again))
            tried = Rollouts(position=f"{where}/child", candidate=child, examples=minibatch)
            batches.append((yield from tried))
            is_last = repeat == self.policy.max_repeats
            compared = self.judge(tuple(batches), minibatch, is_last=is_last)
            repeat += 1
        return compared

    def judge(
        self,
        batches: tuple[Records, ...],
        minibatch: Sequence[GepaExample],
        *,
        is_last: bool = True,
    ) -> Compared | None:
        """Return the outcome; None if it is undecided and both may be evaluated again."""
        limit = self.max_rollout_cost
        # Only the latest rollouts: those before were looked at in the previous round.
        if limit is not None and (expensive := _more_expensive(batches[-1], limit)):
            return Compared(refusal=(RejectionReason.TOO_DEAR, expensive), batches=batches)
        # By example: its scores in each repeat.
        score = self.scorer.score
        parent = [list(map(score, records)) for records in zip(*batches[::2], strict=True)]
        child = [list(map(score, records)) for records in zip(*batches[1::2], strict=True)]
        before, after = list(chain.from_iterable(parent)), list(chain.from_iterable(child))
        parent_mean, child_mean = scores.paired_means(before, after)
        # By the means of all repeats, because one answer to an example may be bad luck.
        lost = scores.critical_loss(
            [*map(scores.mean_score, parent)], [*map(scores.mean_score, child)], minibatch
        )
        refusal = None
        if parent_mean is None or child_mean is None:
            detail = f"{self.where}: no answer was scored for both the new text and the one before"
            refusal = RejectionReason.UNSCORED, detail
        elif lost is not None:
            detail = f"worse than the text before on the critical case `{lost}`"
            refusal = RejectionReason.NOT_BETTER, detail
        elif (decision := self.policy.decide(before, after)) is not Decision.ACCEPT:
            if decision is Decision.UNDECIDED and not is_last:
                return None
            chance = ": that may be chance" if decision is Decision.UNDECIDED else ""
            detail = (
                f"{child_mean:.3f} on {self.where}, the text before had {parent_mean:.3f}{chance}"
            )
            refusal = RejectionReason.NOT_BETTER, detail
        return Compared(
            before=parent_mean,
            after=child_mean,
            gain=(child_mean or 0.0) - (parent_mean or 0.0),
            refusal=refusal,
            batches=batches,
        )


def _more_expensive(records: Records, limit: Decimal) -> str:
    """Return a message about the first rollout that costs more than the limit; empty for none."""
    for record in records:
        cost = scores.task_cost(record)  # a float would be above a limit that it equals
        if cost is not None and cost > limit:
            return (
                f"a test call on case `{record.example_id}` cost {cost:.4f} US dollars, more "
                f"than max_rollout_cost {limit}"
            )
    return ""


@attrs.frozen
class Change:
    """A proposed text of a module, and the resulting child.

    Attributes:
        before: the parent's text of the module.
        text: the proposed text.
        candidate: the child, including earlier changes of the same proposal.
        reason: the model's reason in one line, if it gave one.
    """

    module: Module
    before: ModuleDescription
    text: str
    candidate: Candidate
    reason: str = ""


@attrs.define
class Rejections:
    """Collects and emits rejections."""

    step: int
    parent: int
    emit: Emit
    all: list[MutationRejected] = attrs.field(factory=list)

    def add(
        self,
        module: str,
        before: str,
        error: InvalidProposalError,
        *,
        text: str,
        compared: Compared | None = None,
        final: bool = True,
    ) -> None:
        """Add a rejection.

        Args:
            module: the name of the module, or several names.
            before: its current text; empty for several.
            error: why the proposal is rejected.
            text: the proposed text.
            compared: how the child compared with its parent, if it was evaluated.
            final: false if more of the same proposal follows.
        """
        rejection = MutationRejected(
            step=self.step,
            parent=self.parent,
            module=module,
            reason=error.reason,
            detail=error.detail,
            text=text,
            before=before,
            parent_score=compared.before if compared is not None else None,
            child_score=compared.after if compared is not None else None,
            final=final,
        )
        self.all.append(rejection)
        self.emit(rejection)

    def add_all(
        self, changes: Sequence[Change], reason: RejectionReason, detail: str, *, compared: Compared
    ) -> list[MutationRejected]:
        """Add the rejection of a child: one for each of its changes."""
        before = len(self.all)
        for change in changes:
            also_changed = names_of(changed.module for changed in changes if changed is not change)
            line = f"{detail}; changed together with {also_changed}" if also_changed else detail
            self.add(
                change.module.name,
                change.before.text,
                InvalidProposalError(reason, line),
                text=change.text,
                compared=compared,
                final=change is changes[-1],
            )
        return self.all[before:]
