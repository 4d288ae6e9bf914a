"""Changing one prompt: proposals become overrides, and overrides are merged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial

import attrs

from promptgraft.ground.serde import Json
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.descriptors import SectionPath, show_path
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.types import PromptOverride
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.targets.base import InvalidProposalError, RejectionReason, longest_text
from promptgraft.targets.part import PromptPart, View
from promptgraft.targets.part_kinds import taken_keys
from promptgraft.targets.replies import fresh_key
from promptgraft.targets.types import Module, ModuleDescription

_KEPT_VIEWS = 256


@attrs.frozen
class _Recent:
    override: PromptOverride
    view: View
    described: dict[Module, ModuleDescription] = attrs.field(factory=dict, hash=False)


@attrs.frozen(kw_only=True)
class PromptGrafting:
    """One prompt with the overrides in force; changes of candidates apply on top of them.

    Attributes:
        prompt: the source.
        base: the overrides in force.
        max_part_chars: maximum length of a new text, or twice that of the one in force if longer.
        max_shown_chars: how much of a neighbour is shown.
        max_task_examples: how many task examples a section may hold.
    """

    prompt: Prompt[object]
    base: PromptOverride
    max_part_chars: int
    max_shown_chars: int
    max_task_examples: int
    _recent: OrderedDict[int, _Recent] = attrs.field(
        factory=OrderedDict, init=False, repr=False, eq=False
    )
    _bounds: dict[PromptPart, int] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def require(self, part: PromptPart) -> None:
        """Refuse a part that cannot be changed.

        Raises:
            UnknownPartError: it is no overridable part of the prompt.
        """
        part.require(self.view(self.base))

    def _bounded(self, view: View, part: PromptPart) -> View:
        bound = self._bounds.get(part)
        if bound is None:
            # Of the text in force at first: relative to its parent, a text could double each step.
            present = part.text(self.view(self.base))
            bound = self._bounds[part] = longest_text(self.max_part_chars, present)
        same = bound == view.max_part_chars
        return view if same else attrs.evolve(view, max_part_chars=bound)

    def view(self, override: PromptOverride) -> View:
        """Return the prompt with changes; recent views are cached."""
        return self._look(override).view

    def describe(
        self, module: Module, part: PromptPart, override: PromptOverride
    ) -> ModuleDescription:
        """Return what the reflection model may know about a part, named like ``module``."""
        recent = self._look(override)
        description = recent.described.get(module)
        if description is None:
            description = part.describe(self._bounded(recent.view, part))
            # The same part of one of several prompts has the name of the prompt before its own.
            if description.name != module.name:
                description = attrs.evolve(description, name=module.name)
            if isinstance(self.prompt, TextsPrompt):
                description = attrs.evolve(description, answers=self._answers(recent.view))
            recent.described[module] = description
        return description

    def _answers(self, view: View) -> str:
        """Return what is known of the answers of a prompt of texts; empty for nothing."""
        answers_known = self.prompt.answers if isinstance(self.prompt, TextsPrompt) else None
        if answers_known is None:
            return ""
        paths = (section.path for section in self.prompt.descriptor.sections)
        return answers_known({show_path(path): view.body(path) for path in paths})

    def in_force(self, override: PromptOverride) -> Json:
        """Return what is in force with changes, as plain data."""
        return plain_lists(self.base.merged_with(override).entries())

    def graft(self, override: PromptOverride, part: PromptPart, text: str) -> PromptOverride:
        """Return changes with a proposed text of a part.

        Raises:
            InvalidProposalError: the text cannot be used, or is the present one.
        """
        view = self.view(override)
        entries = part.edits(self._bounded(view, part), text)
        changed = override.with_entries(entries)
        if changed.visibilities:
            self._check_shown(self.view(changed))
        if part.is_new:
            return changed
        after = _text(self.view(changed), part)
        if after == _text(view, part):
            raise InvalidProposalError(
                RejectionReason.UNCHANGED, "the text is the same as the current one"
            )
        # A reverted part leaves no entry, so that equal candidates have equal digests.
        base = self.view(self.base)
        gone = entries if after == _text(base, part) else part.reverted(base, entries)
        return changed.without(*gone) if gone else changed

    def merge(
        self,
        ancestor: PromptOverride,
        better: PromptOverride,
        other: PromptOverride,
        *,
        keep_both: bool,
    ) -> PromptOverride:
        """Return the three-way merge of changes; see ``Target.merge``.

        Raises:
            InvalidProposalError: a section would show too many task examples, or nothing is shown.
        """
        if keep_both:
            taken_by_better = partial(taken_keys, self.view(better))
            other = without_clashes(ancestor, better, other, taken_by_better)
        merged = self.base.holding(merged_entries(ancestor, better, other))
        self._check_shown(self.view(merged))
        return merged

    def _check_shown(self, view: View) -> None:
        """Refuse a prompt with more task examples in a section than allowed, or without a text."""
        base = self.view(self.base)
        for container in self.prompt.descriptor.containers:
            count = len(view.parts.shown_examples(container.path))
            # The source may hold more than the limit already.
            if count > max(len(base.task_examples(container.path)), self.max_task_examples):
                raise InvalidProposalError(
                    RejectionReason.DOES_NOT_FIT,
                    f"section {show_path(container.path)} would hold {count} task examples; "
                    f"at most {self.max_task_examples} are allowed",
                )
        sections = self.prompt.descriptor.sections
        if view.parts.visibility and not any(
            view.is_shown(section.path) and view.body(section.path).strip() for section in sections
        ):
            raise InvalidProposalError(
                RejectionReason.DOES_NOT_FIT, "no text of the prompt would be shown; show a section"
            )

    def _look(self, override: PromptOverride) -> _Recent:
        # Steps look at the same parents and children again and again. The key is the identity,
        # which is fast to compare; it stays valid because the cache keeps the override alive.
        recent_prompt = self._recent.get(id(override))
        if recent_prompt is not None:
            self._recent.move_to_end(id(override))
            return recent_prompt
        template = self.prompt.template
        view = View(
            template=template,
            parts=template.resolved(self.base.merged_with(override)).parts,
            max_part_chars=self.max_part_chars,
            max_shown_chars=self.max_shown_chars,
            max_task_examples=self.max_task_examples,
        )
        recent_prompt = self._recent[id(override)] = _Recent(override, view)
        if len(self._recent) > _KEPT_VIEWS:
            self._recent.popitem(last=False)
        return recent_prompt


def _text(view: View, part: PromptPart) -> str:
    """Return the text of a part, without the blank lines around it, which are never shown."""
    return part.text(view).strip("\n")


def merged_entries(
    ancestor: PromptOverride, better: PromptOverride, other: PromptOverride
) -> tuple[Entry, ...]:
    """Return the entries of a merge: each part is taken from the side that changed it.

    A part that both changed is taken from ``better``, one that neither changed from the ancestor.
    Reverting a part counts as changing it.
    """
    before, best, rest = (
        {(type(entry), entry.key): entry for entry in override.entries()}
        for override in (ancestor, better, other)
    )
    merged: list[Entry] = []
    for key in dict.fromkeys([*before, *best, *rest]):
        chosen = rest.get(key) if best.get(key) == before.get(key) else best.get(key)
        if chosen is not None:
            merged.append(chosen)
    return tuple(merged)


def without_clashes(
    base: PromptOverride,
    onto: PromptOverride,
    child: PromptOverride,
    taken: Callable[[SectionPath], Collection[str]],
) -> PromptOverride:
    """Return a child whose new examples have unique keys.

    A new example that ``onto`` already has under any key is left out.

    Args:
        base: the common ancestor.
        onto: the override that the child is merged with.
        child: the child.
        taken: returns the keys that a new example of a section of ``onto`` cannot have.
    """
    base_added, onto_added = base.added_task_examples, onto.added_task_examples
    contents = {attrs.evolve(example, example_key="") for example in onto_added.values()}
    changed = child
    for path, added in child.added_task_examples.items():
        if path in base_added or onto_added.get(path) == added:
            continue
        if attrs.evolve(added, example_key="") in contents:
            changed = changed.without(added)
        elif path in onto_added:
            keys = {*taken(path[:-1])}
            keys.update(
                added_path[-1]
                for added_path in changed.added_task_examples
                if added_path[:-1] == path[:-1]
            )
            renamed = attrs.evolve(added, example_key=fresh_key(added.example_key, keys))
            changed = changed.without(added).with_entries([renamed])
    return changed
