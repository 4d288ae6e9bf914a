"""Prompts as a target: parts are modules, candidates are overrides, rollouts evaluate prompts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import attrs

from promptgraft import errors
from promptgraft.adapters.abilities import check_serves
from promptgraft.evals.causes import compares_expected
from promptgraft.ground.content import kinds_of_files
from promptgraft.ground.serde import Json, digest_json, shown
from promptgraft.ground.text import listed
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.descriptors import SectionPath, show_path
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.resolution import left_by, uncovered
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance
from promptgraft.overrides.winner_store import UpsertStore
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.rendering import values_of
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.targets.base import Identity, InvalidProposalError, RejectionReason, longest_text
from promptgraft.targets.estimating import Estimate, estimated, text_chars
from promptgraft.targets.judging import metrics_of
from promptgraft.targets.part import PartOf, PromptPart, View
from promptgraft.targets.part_json import fresh_key
from promptgraft.targets.part_kinds import taken_keys
from promptgraft.targets.prompt_rollout import (
    CheckedFlow,
    CheckedFunction,
    PromptRollout,
    too_long,
    unseen_parts,
)
from promptgraft.targets.types import (
    Candidate,
    GepaExample,
    Module,
    ModuleDescription,
    plain_changes,
    read_changes,
)

_KEPT_VIEWS = 256  # candidates


@attrs.frozen(kw_only=True)
class PromptGrafting:
    """One prompt with the overrides in force; changes of candidates apply on top of them.

    Attributes:
        address: ``namespace/key`` of the prompt.
        prompt: the source.
        base: the overrides in force.
        max_part_chars: maximum length of a new text, or twice that of the one in force if longer.
        max_shown_chars: how much of a neighbour is shown.
        max_task_examples: how many task examples a section may hold.
    """

    address: str
    prompt: Prompt[object]
    base: PromptOverride
    max_part_chars: int
    max_shown_chars: int
    max_task_examples: int
    _recent: OrderedDict[int, tuple[PromptOverride, View]] = attrs.field(
        factory=OrderedDict, init=False, repr=False, eq=False
    )
    _bounds: dict[PromptPart, int] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def _bounded(self, view: View, part: PromptPart) -> View:
        bound = self._bounds.get(part)
        if bound is None:
            # Bounded by the first text in force: relative to its parent it could double each step.
            present = part.text(self.view(self.base))
            bound = self._bounds[part] = longest_text(self.max_part_chars, present)
        same = bound == view.max_part_chars
        return view if same else attrs.evolve(view, max_part_chars=bound)

    def view(self, override: PromptOverride) -> View:
        """Return the prompt with changes; recent views are cached."""
        # Steps look at the same parents and children again and again. The key is the identity,
        # which is fast to compare; it stays valid because the cache keeps the override alive.
        if id(override) in self._recent:
            self._recent.move_to_end(id(override))
            return self._recent[id(override)][1]
        template = self.prompt.template
        view = View(
            template=template,
            parts=template.resolved(self.base.merged_with(override)).parts,
            max_part_chars=self.max_part_chars,
            max_shown_chars=self.max_shown_chars,
            max_task_examples=self.max_task_examples,
        )
        self._recent[id(override)] = override, view
        if len(self._recent) > _KEPT_VIEWS:
            self._recent.popitem(last=False)
        return view

    def describe(
        self, module: Module, part: PromptPart, override: PromptOverride
    ) -> ModuleDescription:
        """Return what the reflection model may know about a part, named like ``module``."""
        view = self.view(override)
        description = view.described.get(module)
        if description is None:
            description = part.describe(self._bounded(view, part))
            # The same part of one of several prompts has the name of the prompt before its own.
            if description.name != module.name:
                description = attrs.evolve(description, name=module.name)
            if isinstance(self.prompt, TextsPrompt):
                answers = ""
                if self.prompt.answers is not None:
                    paths = (section.path for section in self.prompt.descriptor.sections)
                    texts = {show_path(path): view.body(path) for path in paths}
                    answers = self.prompt.answers(texts)
                description = attrs.evolve(description, answers=answers)
            view.described[module] = description
        return description

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
        base = self.view(self.base)
        # The blank lines around a text are never shown.
        before, after, in_force = (
            part.text(state).strip("\n") for state in (view, self.view(changed), base)
        )
        if after == before:
            raise InvalidProposalError(
                RejectionReason.UNCHANGED, "the text is the same as the current one"
            )
        # A reverted part leaves no entry, so that equal candidates have equal digests.
        gone = entries if after == in_force else part.reverted(base, entries)
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
    used_keys: Callable[[SectionPath], Collection[str]],
) -> PromptOverride:
    """Return a child whose new examples have unique keys.

    A new example that ``onto`` already has under any key is left out.

    Args:
        base: the common ancestor.
        onto: the override that the child is merged with.
        child: the child.
        used_keys: returns the keys that a new example of a section of ``onto`` cannot have.
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
            keys = {*used_keys(path[:-1])}
            keys.update(
                added_path[-1]
                for added_path in changed.added_task_examples
                if added_path[:-1] == path[:-1]
            )
            renamed = attrs.evolve(added, example_key=fresh_key(added.example_key, keys))
            changed = changed.without(added).with_entries([renamed])
    return changed


@attrs.frozen(kw_only=True)
class PromptTarget:
    """Improves parts of one prompt, or of several that are answered together.

    Attributes:
        rollout: evaluates candidates; has the prompts and the overrides in force.
        modules: what may change: parts of the only prompt, or :class:`PartOf` one of several.
        max_part_chars: maximum length of a new text, or twice that of the one in force if longer.
        max_prompt_chars: maximum length of a candidate's rendered prompt; None for no limit.
        max_task_examples: how many task examples a section may hold.
        store: where ``persist`` writes; None for nowhere.
        identity: the identity; by default only the names of the prompts.

    Raises:
        UnknownPartError: a module is not an overridable part of its prompt.
    """

    rollout: PromptRollout
    modules: tuple[Module, ...]
    max_part_chars: int
    max_task_examples: int
    max_prompt_chars: int | None = None
    store: PromptOverridesStore | UpsertStore | None
    identity: Identity = attrs.field()
    _prompts: Mapping[str, PromptGrafting] = attrs.field(init=False, repr=False, eq=False)
    _rendered: set[str] = attrs.field(factory=set, init=False, repr=False, eq=False)
    _lengths: dict[str, int] = attrs.field(factory=dict, init=False, repr=False, eq=False)
    # Set by `check`; an argument, so that a copy with other overrides shares it.
    _limited: list[GepaExample] = attrs.field(factory=list, repr=False, eq=False)

    @identity.default
    def _names(self) -> Identity:
        return Identity(name=", ".join(self.rollout.prompts))

    @_prompts.default
    def _graftings(self) -> Mapping[str, PromptGrafting]:
        return {
            address: PromptGrafting(
                address=address,
                prompt=prompt,
                base=self.rollout.base[address],
                max_part_chars=self.max_part_chars,
                max_shown_chars=self.rollout.scoring.max_example_chars,
                max_task_examples=self.max_task_examples,
            )
            for address, prompt in self.rollout.prompts.items()
        }

    def __attrs_post_init__(self) -> None:
        baseline = self.baseline()
        for module in self.modules:
            prompt, part, override = self._at(module, baseline)
            part.require(prompt.view(override))

    def baseline(self) -> Candidate:
        return self._candidate(
            {address: prompt.base.holding(()) for address, prompt in self._prompts.items()}
        )

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        prompt, part, override = self._at(module, candidate)
        return prompt.describe(module, part, override)

    def text(self, module: Module, candidate: Candidate) -> str:
        prompt, part, override = self._at(module, candidate)
        return part.text(prompt.view(override))

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        prompt, part, override = self._at(module, candidate)
        return part.has_room(prompt.view(override))

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        prompt, part, override = self._at(module, candidate)
        grafted = {prompt.address: prompt.graft(override, part, proposal)}
        child = self._candidate(
            {**candidate.overrides, **grafted}, parents=parents, modules=(module,)
        )
        self._check_renders(child, examples)
        return child

    def merge(
        self,
        base: Candidate,
        first: Candidate,
        second: Candidate,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
        keep_both: bool = False,
    ) -> Candidate:
        changes = {
            address: prompt.merge(
                *(_change(side, address) for side in (base, first, second)), keep_both=keep_both
            )
            for address, prompt in self._prompts.items()
        }
        merged = self._candidate(changes, parents=parents)
        self._check_renders(merged, examples)
        return merged

    def additions(self, candidate: Candidate) -> Mapping[tuple[str, ...], str]:
        return {
            path if len(self._prompts) == 1 else (address, *path): example.objective
            for address, override in candidate.overrides.items()
            for path, example in override.added_task_examples.items()
            if path not in self._prompts[address].base.added_task_examples
        }

    def estimate(self, examples: Sequence[GepaExample]) -> Estimate:
        if self.rollout.flow is not None:
            tools = (prompt.prompt.descriptor.tools for prompt in self._prompts.values())
            return Estimate(leaves_traces=any(tools), steps=self.rollout.max_steps)
        [prompt] = self.rollout.prompts_of(self.baseline()).values()
        lengths = [
            self._lengths[example.id]
            if example.id in self._lengths
            else text_chars(_rendered_with(prompt, example), self.rollout.adapter)
            for example in examples
        ]
        return estimated(
            prompt.template,
            lengths,
            examples,
            longest=_rendered_with(prompt, examples[lengths.index(max(lengths))]),
            is_answer=compares_expected(metrics_of(self.rollout.scoring.feedback_fn)),
            adapter=self.rollout.adapter,
        )

    def check(self, examples: Sequence[GepaExample]) -> None:
        """Render the baseline: a single prompt for every example, several without values.

        Raises:
            BindingError: naming the example, or a placeholder in another syntax.
            ConfigError: shared parameters cannot be copied, the prompt is too long, nothing can
                change, or the function that answers does not take the parameters of an example.
        """
        self.rollout.prompts_of(self.baseline())
        if self.rollout.flow is not None:
            if fault := self._too_long(self.baseline()):
                raise errors.ConfigError(f"guards.max_prompt_chars: {fault}")
            if isinstance(self.rollout.flow, CheckedFlow):
                for example in _of_each_shape(examples):
                    self.rollout.flow.check(self.rollout.prompts, example.params)
            return
        [prompt] = self.rollout.prompts_of(self.baseline()).values()
        unseen: list[set[str]] = []
        for example in examples:
            try:
                rendered = _rendered_with(prompt, example)
            except (errors.BindingError, errors.PromptRenderError) as error:
                raise errors.BindingError(f"example `{example.id}`: {error}") from None
            unseen.append(set(unseen_parts(prompt.descriptor, rendered)))
            # For the estimate, which would render them again.
            self._lengths[example.id] = text_chars(rendered, self.rollout.adapter)
            length = len(rendered.text)
            if self.max_prompt_chars is not None and length > self.max_prompt_chars:
                raise errors.ConfigError(
                    f"guards.max_prompt_chars: with example `{example.id}` the prompt has {length} "
                    f"characters now, more than the {self.max_prompt_chars} that it may have; "
                    "raise the limit or shorten the source"
                )
        if self.max_prompt_chars is not None:
            self._limited[:] = examples
        self._check_changeable(set.intersection(*unseen))
        self._check_reads(examples[0])
        if isinstance(self.rollout.adapter, CheckedFunction):
            for example in _of_each_shape(examples):
                self.rollout.adapter.check_bound(prompt.bind(*example.copy().params))
        params = [example.params for example in examples]
        for place in kinds_of_files(params):
            rendered = _rendered_with(prompt, examples[place])
            check_serves(self.rollout.adapter, rendered)

    def _check_changeable(self, unseen: Collection[str]) -> None:
        """Refuse a run in which no part can change.

        Args:
            unseen: what no example shows.
        """
        baseline, names = self.baseline(), listed(module.name for module in self.modules)
        shown_modules = [
            module
            for module in self.modules
            if module.owner not in unseen and (module.is_new or self.has_room(module, baseline))
        ]
        if not shown_modules:
            raise errors.ConfigError(
                f"no example shows a part that may change ({names}); name another part, or add "
                "examples that show it"
            )
        if not any(self.has_room(module, baseline) for module in shown_modules):
            raise errors.ConfigError(
                f"max_task_examples_per_section: {names}: there are as many task examples as "
                "this allows; raise it, or name another part"
            )

    def _check_reads(self, example: GepaExample) -> None:
        """Refuse a prompt that reads no value of its examples but names one in braces."""
        [prompt] = self.rollout.prompts.values()
        hints = prompt.template.lookalikes()
        if not hints:
            return
        read = {name for _, section in prompt.template.walked for name in section.source.reads}
        names = {name for param in example.params for name in values_of(param)}
        if not names & read and (name := next((name for name in hints if name in names), None)):
            raise errors.BindingError(
                f"example `{example.id}`: the prompt has no placeholder `{name}`; {hints[name]}"
            )

    @property
    def in_force(self) -> Json:
        return plain_changes(self.rollout.base)

    def over(self, in_force: Json) -> PromptTarget:
        base = self.rollout.base
        read = Candidate(changes=read_changes(in_force, "latest", where="base")).overrides
        if read.keys() != base.keys():
            raise errors.DataFormatError(
                f"expected overrides of {', '.join(base)}, found {shown(in_force)}"
            )
        # The recorded overrides have no tag, and each prompt may have its own.
        overrides = {
            address: attrs.evolve(override, tag=base[address].tag)
            for address, override in read.items()
        }
        return attrs.evolve(self, rollout=attrs.evolve(self.rollout, base=overrides))

    def persist(
        self, candidate: Candidate, provenance: Provenance, *, pool: Sequence[Candidate]
    ) -> bool:
        if self.store is None:
            return False
        written, expected, removed = [], [], []
        for address, change in candidate.overrides.items():
            descriptor, base = self._prompts[address].prompt.descriptor, self._prompts[address].base
            # The store may hold an earlier winner of this run, from before it was resumed. What
            # that left is taken back, and what it had replaced is restored.
            in_store = self.store.resolve(descriptor, change.tag) or change.holding(())
            leftover = left_by((_change(candidate, address) for candidate in pool), base, in_store)
            given_back = uncovered(descriptor, base, leftover)
            if change or leftover:
                written.append((descriptor, given_back.merged_with(change)))
                entries = base.without(*given_back.entries()).entries()
                # The store refuses the write if others have changed these parts meanwhile.
                expected.append(base.holding([*entries, *leftover.entries()]))
                removed.append(leftover)
        self.store.upsert_all(written, provenance=provenance, expected=expected, removed=removed)
        return True

    def _at(
        self, module: Module, candidate: Candidate
    ) -> tuple[PromptGrafting, PromptPart, PromptOverride]:
        """Return the prompt of a module, its part there, and what a candidate changes in it."""
        match module:
            case PartOf() if module.address in self._prompts:
                address, part = module.address, module.part
                return self._prompts[address], part, _change(candidate, address)
            case PromptPart() if len(self._prompts) == 1:
                [(address, prompt)] = self._prompts.items()
                return prompt, module, _change(candidate, address)
        raise TypeError(f"module: expected a part of {self.identity.name}, found {shown(module)}")

    def _candidate(
        self,
        changes: Mapping[str, PromptOverride],
        *,
        parents: tuple[int, ...] = (),
        modules: tuple[Module, ...] = (),
    ) -> Candidate:
        # A change that repeats the base makes no other candidate.
        in_force: dict[str, Json] = {
            address: plain_lists(prompt.base.merged_with(changes[address]).entries())
            for address, prompt in self._prompts.items()
        }
        return Candidate(
            changes=changes, parents=parents, modules=modules, digest=digest_json(in_force)
        )

    def _check_renders(self, candidate: Candidate, examples: Sequence[GepaExample]) -> None:
        if self.rollout.flow is not None:
            # Their parameters are known only when they are evaluated.
            if fault := self._too_long(candidate):
                raise InvalidProposalError(RejectionReason.TOO_LONG, fault)
            return
        [prompt] = self.rollout.prompts_of(candidate).values()
        for example in examples:
            # Overrides have been parsed by now and can only place the values of the source's
            # slots. So an example that renders with one candidate renders with all.
            if example.id in self._rendered:
                continue
            try:
                _rendered_with(prompt, example)
            except errors.PromptgraftError as error:
                raise InvalidProposalError(
                    RejectionReason.DOES_NOT_RENDER, f"with example `{example.id}`: {error}"
                ) from None
            self._rendered.add(example.id)
        longest = self.max_prompt_chars
        if longest is not None:
            # With every example, because the candidate may win; the reflector is not told which.
            lengths = (
                len(_rendered_with(prompt, example).text) for example in self._limited or examples
            )
            if (length := max(lengths, default=0)) > longest:
                raise InvalidProposalError(
                    RejectionReason.TOO_LONG,
                    f"with the longest example the whole prompt has {length} characters; at most "
                    f"{longest} are allowed, so shorten it by {length - longest}",
                )

    def _too_long(self, candidate: Candidate) -> str:
        """Return a message if one of several prompts is too long even without values."""
        if self.max_prompt_chars is None:
            return ""
        prompts = self.rollout.prompts_of(candidate).values()
        filled_prompts = (prompt.with_placeholders() for prompt in prompts)
        return next(
            filter(None, (too_long(prompt, self.max_prompt_chars) for prompt in filled_prompts)), ""
        )


def _of_each_shape(examples: Sequence[GepaExample]) -> Iterable[GepaExample]:
    """Return the first example with each sequence of types of parameters."""
    shapes: dict[tuple[type, ...], GepaExample] = {}
    for example in examples:
        shapes.setdefault(tuple(map(type, example.params)), example)
    return shapes.values()


def _rendered_with(prompt: Prompt[object], example: GepaExample) -> RenderedPrompt[object]:
    return prompt.bind(*example.copy().params).render()


def _change(candidate: Candidate, address: str) -> PromptOverride:
    change = candidate.changes.get(address)
    if not isinstance(change, PromptOverride):
        raise TypeError(f"candidate: expected one of `{address}`, found {shown(candidate)}")
    return change
