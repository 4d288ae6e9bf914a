"""A step: proposals that are made from the same parent, and what came of them."""

from __future__ import annotations

import attrs

from promptgraft.algorithms.gepa.proposal import Proposal
from promptgraft.search.stops import Patience
from promptgraft.search.validation import Entry
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import Candidate

TWIN = "a proposal of the same time has tried the same text"
"""Why a child is refused that another one equals."""


@attrs.define(kw_only=True)
class Step:
    """A step that has begun.

    Attributes:
        number: counts the steps from 1.
        parent: position of the parent of all its proposals; until it has raced, of the best one.
        candidate: the parent.
        leads: whether that was the best candidate when the step began, or raced it.
        entry: the way into the population of what comes of it.
        proposals: its proposals, in order.
        accepted: those whose children are better than the parent, of the proposals that were
            committed.
        tried: whether a child was tried that no proposal had tried before.
    """

    number: int
    parent: int
    candidate: Candidate
    leads: bool
    entry: Entry
    proposals: list[Proposal] = attrs.field(factory=list)
    accepted: list[Proposal] = attrs.field(factory=list)
    tried: bool = False

    @property
    def largest(self) -> int:
        """Rollouts that its proposals can use."""
        return sum(proposal.largest for proposal in self.proposals)

    @property
    def taught(self) -> list[Proposal]:
        """The proposals that could learn something."""
        return [proposal for proposal in self.proposals if proposal.taught]

    def count_idle(self, patience: Patience) -> None:
        """Count a step that could learn something and evaluated no new child.

        Raises:
            RunStoppedError: it was one too many.
        """
        last = self.taught[-1]
        if not last.modules:
            patience.idle("no part that may change was shown to the model")
        elif last.compared is None:
            refusal = last.rejections.all[-1]
            patience.refused(refusal.reason, refusal.detail)
        else:
            patience.refused(RejectionReason.DUPLICATE, TWIN)
