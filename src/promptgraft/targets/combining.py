"""Combines the changes of several candidates that were made from the same parent."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.types import Candidate, GepaExample, Module


@attrs.frozen(kw_only=True)
class Combination:
    """Several children in one candidate.

    Attributes:
        candidate: the candidate; it names the modules of all children that are in it.
        contributes: whether each child has changed anything in it, in their order.
    """

    candidate: Candidate
    contributes: tuple[bool, ...]


def combined(
    target: Target,
    onto: Candidate,
    children: Sequence[Candidate],
    *,
    base: Candidate,
    parents: tuple[int, ...],
    examples: Sequence[GepaExample],
    is_child: bool,
) -> Combination:
    """Return a candidate with the changes of several children, as far as they are compatible.

    A part that only one side changed is taken from that side. Texts that both sides changed are
    merged line by line; where both rewrote a line or an example, the earlier one wins.

    Args:
        target: what is improved.
        onto: what they are applied to: the first child, or another descendant of their parent.
        children: candidates made from ``base``, the most important first.
        base: their parent.
        parents: positions of the parents of the combination.
        examples: it must render with each of them.
        is_child: whether ``onto`` is one of the children.
    """
    modules = onto.modules if is_child else ()
    contributes = []
    for child in children:
        merged = _with_child(target, onto, child, base=base, parents=parents, examples=examples)
        contributes.append(merged is not None)
        if merged is not None:
            modules = tuple(dict.fromkeys((*modules, *child.modules)))
            onto = attrs.evolve(merged, modules=modules)
    return Combination(candidate=onto, contributes=tuple(contributes))


def _with_child(
    target: Target,
    onto: Candidate,
    child: Candidate,
    *,
    base: Candidate,
    parents: tuple[int, ...],
    examples: Sequence[GepaExample],
) -> Candidate | None:
    """Return ``onto`` with the changes of a child; None if that changes nothing."""
    try:
        merged = target.merge(base, onto, child, parents=parents, examples=examples, keep_both=True)
    except InvalidProposalError:
        return None
    # The merge has left these texts as `onto` has them where both sides changed them.
    for module in child.modules:
        text = _merged_text(target, module, (base, onto, child))
        if text is None:
            continue
        try:
            merged = target.graft(merged, module, text, parents=merged.parents, examples=examples)
        except InvalidProposalError:
            continue
    return None if merged.digest == onto.digest else merged


def _merged_text(
    target: Target, module: Module, sides: tuple[Candidate, Candidate, Candidate]
) -> str | None:
    """Return a text that both sides changed with the changes of both; None if it stays."""
    if module.is_example:
        return None
    before, first, second = (target.text(module, side) for side in sides)
    if before in (first, second):
        return None
    # Imported here, because most searches merge nothing.
    from promptgraft.targets.merge3 import merge3_onto

    return merge3_onto(before, first, second)
