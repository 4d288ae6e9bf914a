"""A prompt as a target: its parts are modules, candidates are overlays, rollouts evaluate it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import attrs

from promptgraft.errors import BindingError, ConfigError, PromptgraftError, PromptRenderError
from promptgraft.overrides.documents import plain_entries
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance
from promptgraft.parts.descriptors import PromptDescriptor, SectionPath, show_path
from promptgraft.serde import digest_json, shown
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.merging import merged_entries, without_clashes
from promptgraft.targets.modules import Module
from promptgraft.targets.parts.examples import taken_keys
from promptgraft.targets.parts.part import PromptModule, View
from promptgraft.targets.prompt_rollout import PromptRollout
from promptgraft.targets.types import Candidate, GepaExample, ModuleDescription

_KEPT_VIEWS = 256


@attrs.frozen
class _Recent:
    override: PromptOverride
    view: View
    described: dict[Module, ModuleDescription] = attrs.field(factory=dict)


class _RecentViews:
    """Views of the latest overrides: steps look at parents and children again and again."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, _Recent] = OrderedDict()

    def of(self, override: PromptOverride, make: Callable[[PromptOverride], View]) -> View:
        # By identity, which is quick to compare; an override that is kept here keeps its own.
        recent = self._recent
        found = recent.get(id(override))
        if found is not None:
            recent.move_to_end(id(override))
            return found.view
        view = make(override)
        recent[id(override)] = _Recent(override, view)
        if len(recent) > _KEPT_VIEWS:
            recent.popitem(last=False)
        return view

    def described(self, override: PromptOverride) -> dict[Module, ModuleDescription]:
        """Return what was said of the modules of an override whose view was just looked at."""
        return self._recent[id(override)].described


@attrs.frozen(kw_only=True)
class PromptTarget:
    """Improves parts of one prompt.

    Attributes:
        rollout: tries candidates; holds the prompt and the overrides that lie under them.
        modules: what may be mutated.
        max_part_chars: how long a new text may be.
        max_prompt_chars: how long the rendered prompt of a candidate may be; None for no limit.
        max_task_examples: how many task examples a section may hold.
        store: where ``persist`` writes; None for nowhere.

    Raises:
        UnknownPartError: a module is no overridable part of the prompt.
        ConfigError: a part is longer now than a new text may be.
    """

    rollout: PromptRollout
    modules: tuple[PromptModule, ...]
    max_part_chars: int
    max_task_examples: int
    max_prompt_chars: int | None = None
    store: PromptOverridesStore | None
    _base_view: View = attrs.field(init=False, repr=False, eq=False)
    _views: _RecentViews = attrs.field(factory=_RecentViews, init=False, repr=False, eq=False)
    _rendered: set[str] = attrs.field(factory=set, init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        view = self._view(self.rollout.base)
        object.__setattr__(self, "_base_view", view)
        for module in self.modules:
            module.require(self.descriptor)
            length = len(module.text(view))
            if length > self.max_part_chars:
                raise ConfigError(
                    f"max_part_chars: {module.name} is {length} characters long now, more than "
                    f"the {self.max_part_chars} that a new text may have; raise the limit"
                )

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the prompt."""
        return self.rollout.prompt.descriptor

    @property
    def leaves_traces(self) -> bool:
        return bool(self.descriptor.tools)

    def baseline(self) -> Candidate:
        return self._candidate(self.rollout.base.holding(()), parents=())

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
        changed = second.override
        if keep_both:
            view = self._view(first.override)
            changed = without_clashes(
                base.override, first.override, changed, partial(taken_keys, view)
            )
        entries = merged_entries(base.override, first.override, changed)
        merged = self._candidate(self.rollout.base.holding(entries), parents=parents)
        view = self._view(merged.override)
        for container in self.descriptor.containers:
            held = len(view.task_examples(container.path))
            before = len(self._base_view.task_examples(container.path))
            if held > max(before, self.max_task_examples):
                raise InvalidProposalError(
                    RejectionReason.DOES_NOT_FIT,
                    f"section {show_path(container.path)} would hold {held} task examples; "
                    f"at most {self.max_task_examples} are allowed",
                )
        self._check_renders(merged, examples)
        return merged

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        view = self._view(candidate.override)
        described = self._views.described(candidate.override)
        found = described.get(module)
        if found is None:
            found = described[module] = _own(module).describe(view)
        return found

    def text(self, module: Module, candidate: Candidate) -> str:
        return _own(module).text(self._view(candidate.override))

    def additions(self, candidate: Candidate) -> Mapping[SectionPath, str]:
        added = candidate.override.added_task_examples
        return {path: example.objective for path, example in added.items()}

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        return _own(module).has_room(self._view(candidate.override))

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        view = self._view(candidate.override)
        part = _own(module)
        entry = part.edit(view, proposal)
        override = candidate.override.with_entries([entry])
        if not part.is_new:
            text = _text(self._view(override), part)
            if text == _text(view, part):
                raise InvalidProposalError(
                    RejectionReason.UNCHANGED, "the text is the same as the current one"
                )
            if text == _text(self._base_view, part):
                override = override.without(entry)  # back where the run began
        child = self._candidate(override, parents=parents, modules=(module,))
        self._check_renders(child, examples)
        return child

    def check_examples(self, examples: Sequence[GepaExample]) -> None:
        """Render the baseline for every example, so that nothing fails after the first call.

        Raises:
            BindingError: naming the example.
        """
        for example in examples:
            try:
                self.rollout.prompt_of(self.baseline()).bind(*example.params).render()
            except (BindingError, PromptRenderError) as error:
                raise BindingError(f"example `{example.id}`: {error}") from None

    def persist(self, candidate: Candidate, provenance: Provenance) -> bool:
        if self.store is None:
            return False
        self.store.upsert(self.descriptor, candidate.override, provenance=provenance)
        return True

    def _candidate(
        self,
        override: PromptOverride,
        *,
        parents: tuple[int, ...],
        modules: tuple[Module, ...] = (),
    ) -> Candidate:
        return Candidate(
            override=override,
            parents=parents,
            modules=modules,
            digest=digest_json(plain_entries(self.rollout.base.merged_with(override))),
        )

    def _view(self, override: PromptOverride) -> View:
        return self._views.of(override, self._new_view)

    def _new_view(self, override: PromptOverride) -> View:
        template = self.rollout.prompt.template
        merged = self.rollout.base.merged_with(override)
        return View(
            template=template,
            parts=template.settled(merged).parts,
            max_part_chars=self.max_part_chars,
            max_shown_chars=self.rollout.scoring.max_example_chars,
            max_task_examples=self.max_task_examples,
        )

    def _check_renders(self, candidate: Candidate, examples: Sequence[GepaExample]) -> None:
        for example in self._telling(examples):
            try:
                rendered = self.rollout.prompt_of(candidate).bind(*example.params).render()
            except PromptgraftError as error:
                raise InvalidProposalError(
                    RejectionReason.DOES_NOT_RENDER, f"with example `{example.id}`: {error}"
                ) from None
            length, longest = len(rendered.text), self.max_prompt_chars
            if longest is not None and length > longest:
                raise InvalidProposalError(
                    RejectionReason.TOO_LONG,
                    f"with example `{example.id}` the whole prompt has {length} characters; at "
                    f"most {longest} are allowed, so shorten it by {length - longest}",
                )
            self._rendered.add(example.id)

    def _telling(self, examples: Sequence[GepaExample]) -> Sequence[GepaExample]:
        """Return the examples that say something new when a candidate is rendered with them.

        An override only places what the slots of the source become, and has been parsed by now.
        So an example that has rendered with one candidate renders with all, and only lengths
        have to be looked at one by one.
        """
        if self.max_prompt_chars is not None:
            return examples
        return [example for example in examples if example.id not in self._rendered]


def _own(module: Module) -> PromptModule:
    if not isinstance(module, PromptModule):
        raise TypeError(f"module: expected a part of a prompt, found {shown(module)}")
    return module


def _text(view: View, module: PromptModule) -> str:
    """Return the text of a module, without the blank lines around it that nobody is shown."""
    return module.text(view).strip("\n")
