"""Accepted children of a step in one candidate, as far as their changes are compatible."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.algorithms.gepa.proposal import Proposal
from promptgraft.algorithms.gepa.steps import Step
from promptgraft.algorithms.gepa.three_way import woven_in
from promptgraft.search.pool import Pool
from promptgraft.search.seen import Seen
from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.modules import Module, is_example
from promptgraft.targets.types import Candidate, GepaExample


@attrs.frozen
class Combined:
    """What a step has come to, before it is evaluated on the validation set.

    Attributes:
        step: the step.
        candidate: what its accepted children make together.
        proposals: those whose children are in it, the best first.
        left_out: those whose children are not.
    """

    step: Step
    candidate: Candidate
    proposals: tuple[Proposal, ...]
    left_out: tuple[Proposal, ...]


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
        accepted = sorted(step.accepted, key=lambda proposal: -proposal.gain)
        children = [proposal.child for proposal in accepted]
        parent = pool.best if step.leads else step.parent
        own = pool.candidate(parent).digest == step.candidate.digest
        onto = attrs.evolve(children[0], parents=(parent,)) if own else pool.candidate(parent)
        others = children[1:] if own else children
        found, brought = self.put_together(
            onto, others, base=step.candidate, parent=parent, is_child=own
        )
        # One of the children may have all that the others have; it was in no race yet.
        fresh = found.digest not in self.seen or found.digest in {one.digest for one in others}
        if found is not onto and not fresh:
            found, brought = onto, [False] * len(others)
        self.seen.add(found.digest)
        if own:
            brought = [True, *brought]
        split = list(zip(accepted, brought, strict=True))
        return Combined(
            step,
            found,
            tuple(one for one, brings in split if brings),
            tuple(one for one, brings in split if not brings),
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
        if is_example(module):
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
