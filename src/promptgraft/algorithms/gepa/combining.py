"""Accepted children of a step in one candidate, as far as their changes are compatible."""

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
    """What a step has come to, before it is evaluated on the validation set.

    Attributes:
        step: the step.
        candidate: what its accepted children make together.
        proposals: those whose children are in it, the best first.
        left_out: those whose children are not.
        gained: how far the children in it are above their parent on their minibatches: the sum
            over the examples of one, the mean over the children.
    """

    step: Step
    candidate: Candidate
    proposals: tuple[Proposal, ...]
    left_out: tuple[Proposal, ...]
    gained: float


@attrs.frozen
class Combiner:
    """Puts the changes of several children together.

    Attributes:
        target: what is improved.
        examples: what a candidate must render with.
        seen: candidates that were tried; what is made here is added.
    """

    target: Target
    examples: Sequence[GepaExample]
    seen: Seen

    def combine(self, step: Step, pool: Pool) -> Combined:
        """Return the candidate that the accepted children of a step make.

        They are put onto the best candidate, when their parent was to be that and is not.
        """
        accepted = sorted(step.accepted, key=lambda one: -one[0].gain)
        children = [proposal.child for _, proposal in accepted]
        parent = pool.best if step.leads else step.parent
        own = pool.candidates[parent].digest == step.candidate.digest
        onto = attrs.evolve(children[0], parents=(parent,)) if own else pool.candidates[parent]
        others = children[1:] if own else children
        found, brought = onto, [False] * len(others)
        if others:
            together, brings = self.put_together(
                onto, others, base=step.candidate, parent=parent, is_child=own
            )
            # One of the children may have all that the others have; it was in no race yet.
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
            # Each was chosen for its gain, so the sum would promise more than they hold together.
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
        """Return ``onto`` with the changes of children, and which of them brought any.

        Args:
            onto: one of the children, or another candidate that came of their parent.
            children: candidates made from ``base``, the best first.
            base: their parent.
            parent: position of the parent of what comes of it.
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
        """Return ``onto`` with the changes of a child; None when there is nothing to change.

        A part that only one side has changed is taken from that side. In a text that both have
        changed their lines are put together; an example that both have changed, and lines that
        both have rewritten, stay as they are.
        """
        try:
            found = self.target.merge(
                base, onto, child, parents=(parent,), examples=self.examples, keep_both=True
            )
        except InvalidProposalError:
            return None
        for module in child.modules:
            found = self._with_lines(found, module, (base, onto, child))
        return None if found.digest == onto.digest else found

    def _with_lines(
        self, found: Candidate, module: Module, sides: tuple[Candidate, Candidate, Candidate]
    ) -> Candidate:
        """Return a candidate with the lines of a text that two of ``sides`` have changed."""
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
        largest: rollouts that its proposals can use.
        accepted: those whose children are better than the parent, of the proposals that were
            committed, each after its comparison.
        taught: the latest committed proposal that could learn something; None without any.
        tried: whether a child was tried that no earlier proposal had tried.
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
    """Count a step that could learn something and evaluated no new child.

    Args:
        taught: its last proposal that could learn something.
        patience: how long the search continues so.

    Raises:
        RunStoppedError: it was one too many.
    """
    if not taught.modules:
        patience.idle("no part that may change was shown to the model")
    elif taught.compared is None:
        refusal = taught.rejections.all[-1]
        patience.refused(refusal.reason, refusal.detail)
    else:
        patience.refused(RejectionReason.DUPLICATE, TWIN)


def tell_accepted(kit: Kit, combined: Combined, position: int) -> None:
    """Emit that proposals were accepted, and the new examples of the candidate that they make."""
    pool, step, target = kit.population.pool, combined.step, kit.target
    # Examples that neither the parent has nor what the changes were put onto.
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
