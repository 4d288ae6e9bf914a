"""Combines the accepted children of a step into one candidate, as far as they are compatible."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.algorithms.gepa.proposal import Proposal
from promptgraft.algorithms.gepa.three_way import woven_in
from promptgraft.search.acceptance import Compared
from promptgraft.search.algorithm import Kit
from promptgraft.search.events import ExampleGenerated, MutationAccepted
from promptgraft.search.population import Pool, Seen
from promptgraft.search.stops import Patience
from promptgraft.search.validation import Entry
from promptgraft.targets.base import InvalidProposalError, RejectionReason, Target
from promptgraft.targets.types import Candidate, GepaExample, Module


@attrs.frozen
class Combined:
    """The result of a step, before it is evaluated on the validation set.

    Attributes:
        step: the step.
        candidate: the combination of its accepted children.
        proposals: the proposals whose children are in it, best first.
        left_out: the accepted proposals whose children conflict with it.
        gained: the gain over the parent on a minibatch, summed over its examples; the mean over
            the combined children.
    """

    step: Step
    candidate: Candidate
    proposals: tuple[Proposal, ...]
    left_out: tuple[Proposal, ...]
    gained: float


@attrs.frozen
class Combiner:
    """Combines the changes of several children.

    Attributes:
        target: what is improved.
        examples: a candidate must render with each of them.
        seen: the candidates tried so far; combinations are added to it.
    """

    target: Target
    examples: Sequence[GepaExample]
    seen: Seen

    def combine(self, step: Step, pool: Pool) -> Combined:
        """Return the combination of the accepted children of a step.

        If their parent was expected to become the best candidate and did not, their changes are
        applied to the best candidate instead.
        """
        accepted = sorted(step.accepted, key=lambda one: -one[0].gain)
        children = [proposal.child for _, proposal in accepted]
        parent = pool.best if step.leads else step.parent
        own = pool.candidates[parent].digest == step.candidate.digest
        onto = attrs.evolve(children[0], parents=(parent,)) if own else pool.candidates[parent]
        # The best child is the base while its parent still leads; otherwise all are applied anew.
        others = children[1:] if own else children
        found, brought = onto, [False] * len(others)
        if others:
            together, brings = self.put_together(
                onto, others, base=step.candidate, parent=parent, is_child=own
            )
            # The combination may equal one of the children, none of which has raced yet.
            alike = {one.digest for one in others}
            if together.digest not in self.seen or together.digest in alike:
                found, brought = together, brings
        self.seen.add(found.digest)
        if own:
            brought = [True, *brought]
        split = list(zip(accepted, brought, strict=True))
        gains = [one.gain * len(one.batches[0]) for (one, _), brings in split if brings]
        return Combined(
            step,
            found,
            tuple(one for (_, one), brings in split if brings),
            tuple(one for (_, one), brings in split if not brings),
            # Each child was selected for its gain, so the sum would be biased upwards.
            sum(gains) / max(1, len(gains)),
        )

    def put_together(
        self,
        onto: Candidate,
        children: Sequence[Candidate],
        *,
        base: Candidate,
        parent: int,
        is_child: bool,
    ) -> tuple[Candidate, list[bool]]:
        """Return ``onto`` with the changes of the children, and which of them contributed.

        Args:
            onto: one of the children, or another descendant of their parent.
            children: candidates made from ``base``, best first.
            base: their parent.
            parent: position of the parent of the combination.
            is_child: whether ``onto`` is one of the children.
        """
        modules = onto.modules if is_child else ()
        brought = []
        for child in children:
            found = self._onto(onto, child, base, parent)
            brought.append(found is not None)
            if found is not None:
                modules = tuple(dict.fromkeys((*modules, *child.modules)))
                onto = attrs.evolve(found, modules=modules)
        return onto, brought

    def _onto(
        self, onto: Candidate, child: Candidate, base: Candidate, parent: int
    ) -> Candidate | None:
        """Return ``onto`` with the changes of a child; None if that changes nothing.

        A part that only one side changed is taken from that side. Texts that both sides changed
        are merged line by line; where both rewrote a line or an example, ``onto`` wins.
        """
        try:
            found = self.target.merge(
                base, onto, child, parents=(parent,), examples=self.examples, keep_both=True
            )
        except InvalidProposalError:
            return None
        # The merge has left these texts as `onto` has them where both sides changed them.
        for module in child.modules:
            found = self._with_lines(found, module, (base, onto, child))
        return None if found.digest == onto.digest else found

    def _with_lines(
        self, found: Candidate, module: Module, sides: tuple[Candidate, Candidate, Candidate]
    ) -> Candidate:
        """Return a candidate with a text merged line by line if both sides changed it."""
        if module.is_example:
            return found
        before, one, other = (self.target.text(module, side) for side in sides)
        text = None if before in (one, other) else woven_in(before, one, other)
        if text is None:
            return found
        try:
            return self.target.graft(
                found, module, text, parents=found.parents, examples=self.examples
            )
        except InvalidProposalError:
            return found


TWIN = "a proposal made at the same time has tried the same text"
"""Why a child is refused that equals another one."""


@attrs.define(kw_only=True)
class Step:
    """A step that has begun.

    Attributes:
        number: counts the steps from 1.
        parent: position of the parent of all its proposals; of the best candidate while the
            parent has not raced yet.
        candidate: the parent.
        leads: whether the parent was the best candidate when the step began, or was racing it.
        entry: how its result enters the population.
        largest: most rollouts that its proposals can use.
        accepted: the committed proposals whose children passed the acceptance test, with their
            comparisons.
        taught: the last committed proposal that could learn something; None if there is none.
        tried: whether it evaluated a child that no earlier proposal had tried.
    """

    number: int
    parent: int
    candidate: Candidate
    leads: bool
    entry: Entry
    largest: int = 0
    accepted: list[tuple[Compared, Proposal]] = attrs.field(factory=list)
    taught: Proposal | None = None
    tried: bool = False


def count_idle(taught: Proposal, patience: Patience) -> None:
    """Count a step that could have learned something but evaluated no new child.

    Args:
        taught: its last proposal that could learn something.
        patience: counts such steps, and ends the search after too many.

    Raises:
        RunStoppedError: there were too many in a row.
    """
    if not taught.modules:
        patience.idle("no part that may change was shown to the model")
    elif taught.compared is None:
        refusal = taught.rejections.all[-1]
        patience.refused(refusal.reason, refusal.detail)
    else:
        patience.refused(RejectionReason.DUPLICATE, TWIN)


def emit_accepted(kit: Kit, combined: Combined, position: int) -> None:
    """Emit events for the accepted proposals and for the new examples of their candidate."""
    pool, step, target = kit.population.pool, combined.step, kit.target
    # Only examples that are in neither the parent nor the candidate the changes were applied to.
    parents = (step.candidate, *(pool.candidates[one] for one in combined.candidate.parents))
    known = {path for one in parents for path in target.additions(one)}
    for path, objective in target.additions(combined.candidate).items():
        if path not in known:
            kit.emit(
                ExampleGenerated(
                    step=step.number,
                    candidate=position,
                    container_path=path[:-1],
                    key=path[-1],
                    objective=objective,
                )
            )
    for proposal in combined.proposals:
        if proposal.compared is None:
            continue
        kit.emit(
            MutationAccepted(
                step=step.number,
                candidate=position,
                parent=step.parent,
                module=proposal.child.changed,
                parent_score=proposal.compared.before,
                child_score=proposal.compared.after,
                pareto_mean=pool.estimate(position),
                best_pareto_mean=pool.estimate(pool.best),
            )
        )
