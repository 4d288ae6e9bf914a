"""Children of one parent in one candidate: what each has changed, as far as it goes together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from promptgraft.algorithms.gepa.merge import merged_entries
from promptgraft.algorithms.gepa.three_way import woven_in
from promptgraft.overrides.types import PromptOverride
from promptgraft.targets.base import InvalidProposalError, Target
from promptgraft.targets.example_text import fresh_key
from promptgraft.targets.modules import Module, is_example
from promptgraft.targets.types import Candidate, GepaExample


@attrs.frozen
class Gathering:
    """Puts the changes of candidates onto others.

    Attributes:
        target: what is improved.
        parent: what the candidates were made from.
        examples: what a candidate must render with.
    """

    target: Target
    parent: Candidate
    examples: Sequence[GepaExample]

    def together(
        self,
        onto: Candidate,
        children: Iterable[Candidate],
        *,
        parents: tuple[int, ...],
        modules: tuple[Module, ...],
    ) -> tuple[Candidate, list[bool]]:
        """Return ``onto`` with the changes of children, and which of them brought any.

        A part that only one side has changed is taken from that side. In a text that both have
        changed their lines are put together; an example that both have changed, and lines that
        both have rewritten, stay as they are.

        Args:
            onto: one of the children, or another candidate that came of the parent.
            children: candidates made from the parent, the best first.
            parents: positions of the parents of what comes of it.
            modules: what of ``onto`` counts as changed.
        """
        brought = []
        for child in children:
            found = self._with(onto, child, parents)
            brought.append(found is not None)
            if found is not None:
                modules = tuple(dict.fromkeys((*modules, *child.modules)))
                onto = attrs.evolve(found, modules=modules)
        return onto, brought

    def _with(
        self, onto: Candidate, child: Candidate, parents: tuple[int, ...]
    ) -> Candidate | None:
        """Return ``onto`` with the changes of a child; None when there is nothing to change."""
        changed = self._without_clashes(onto, child.override)
        entries = merged_entries(self.parent.override, onto.override, changed)
        try:
            found = self.target.combine(entries, parents=parents, examples=self.examples)
        except InvalidProposalError:
            return None
        for module in child.modules:
            found = self._woven(found, module, onto, child)
        return None if found.digest == onto.digest else found

    def _without_clashes(self, onto: Candidate, child: PromptOverride) -> PromptOverride:
        """Return a child's changes, each new example under a key that no other one has.

        A new example that is there already, under whatever key, is left out.
        """
        known, held = self.parent.override.added_task_examples, onto.override.added_task_examples
        contents = {attrs.evolve(one, example_key="") for one in held.values()}
        changed = child
        for path, added in child.added_task_examples.items():
            if path in known or held.get(path) == added:
                continue
            if attrs.evolve(added, example_key="") in contents:
                changed = changed.without(added)
            elif path in held:
                taken = {*self.target.taken_keys(path[:-1], onto)}
                taken.update(
                    one[-1] for one in changed.added_task_examples if one[:-1] == path[:-1]
                )
                renamed = attrs.evolve(added, example_key=fresh_key(added.example_key, taken))
                changed = changed.without(added).with_entries([renamed])
        return changed

    def _woven(
        self, found: Candidate, module: Module, onto: Candidate, child: Candidate
    ) -> Candidate:
        """Return a candidate with the lines of a text that two others have both changed."""
        if is_example(module):
            return found
        sides = (self.parent, onto, child)
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
