"""Prompts as a target: parts are modules, candidates are overrides, rollouts evaluate prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from promptgraft.adapters.base import check_serves
from promptgraft.errors import (
    BindingError,
    ConfigError,
    DataFormatError,
    PromptgraftError,
    PromptRenderError,
)
from promptgraft.ground.content import kinds_of_files
from promptgraft.ground.serde import Json, digest_json, shown
from promptgraft.overrides.resolution import left_by, uncovered
from promptgraft.overrides.types import PromptOverride, Provenance
from promptgraft.overrides.winner_store import WinnerStore
from promptgraft.prompt.rendering import values_of
from promptgraft.targets.base import Identity, InvalidProposalError, RejectionReason
from promptgraft.targets.estimating import Estimate, estimated
from promptgraft.targets.grafting import PromptGrafting
from promptgraft.targets.judging import MetricFeedback
from promptgraft.targets.part import PartOf, PromptPart
from promptgraft.targets.prompt_rollout import CheckedFlow, CheckedFunction, PromptRollout, too_long
from promptgraft.targets.types import (
    Candidate,
    GepaExample,
    Module,
    ModuleDescription,
    plain_changes,
    read_changes,
)


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
    store: WinnerStore | None
    identity: Identity = attrs.field()
    _prompts: Mapping[str, PromptGrafting] = attrs.field(init=False, repr=False, eq=False)
    _rendered: set[str] = attrs.field(factory=set, init=False, repr=False, eq=False)
    # Of `check`; an argument, so that a copy with other overrides has the same.
    _limited: list[GepaExample] = attrs.field(factory=list, repr=False, eq=False)

    @identity.default
    def _names(self) -> Identity:
        return Identity(name=", ".join(self.rollout.prompts))

    @_prompts.default
    def _graftings(self) -> Mapping[str, PromptGrafting]:
        return {
            address: PromptGrafting(
                prompt=prompt,
                base=self.rollout.base[address],
                max_part_chars=self.max_part_chars,
                max_shown_chars=self.rollout.scoring.max_example_chars,
                max_task_examples=self.max_task_examples,
            )
            for address, prompt in self.rollout.prompts.items()
        }

    def __attrs_post_init__(self) -> None:
        for module in self.modules:
            address, part = self._find(module)
            self._prompts[address].require(part)

    def baseline(self) -> Candidate:
        return self._candidate(
            {address: prompt.base.holding(()) for address, prompt in self._prompts.items()}
        )

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        address, part = self._find(module)
        return self._prompts[address].describe(module, part, _change(candidate, address))

    def text(self, module: Module, candidate: Candidate) -> str:
        address, part = self._find(module)
        return part.text(self._prompts[address].view(_change(candidate, address)))

    def has_room(self, module: Module, candidate: Candidate) -> bool:
        address, part = self._find(module)
        return part.has_room(self._prompts[address].view(_change(candidate, address)))

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        address, part = self._find(module)
        change = self._prompts[address].graft(_change(candidate, address), part, proposal)
        child = self._candidate(
            {**candidate.overrides, address: change}, parents=parents, modules=(module,)
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
        rendered = [prompt.bind(*example.copy().params).render() for example in examples]
        feedback = self.rollout.scoring.feedback_fn
        is_answer = isinstance(feedback, MetricFeedback) and feedback.wants_expected
        return estimated(
            prompt.template,
            rendered,
            examples,
            is_answer=is_answer,
            adapter=self.rollout.adapter,
        )

    def check(self, examples: Sequence[GepaExample]) -> None:
        """Render the baseline: a single prompt for every example, several without values.

        Raises:
            BindingError: naming the example, or a placeholder in another syntax.
            ConfigError: shared parameters cannot be copied, the prompt is too long, or the
                function that answers does not take the parameters of an example.
        """
        self.rollout.prompts_of(self.baseline())
        if self.rollout.flow is not None:
            if fault := self._too_long(self.baseline()):
                raise ConfigError(f"guards.max_prompt_chars: {fault}")
            if isinstance(self.rollout.flow, CheckedFlow):
                for example in _of_each_shape(examples):
                    self.rollout.flow.check(self.rollout.prompts, example.params)
            return
        [prompt] = self.rollout.prompts_of(self.baseline()).values()
        for example in examples:
            try:
                length = len(prompt.bind(*example.copy().params).render().text)
            except (BindingError, PromptRenderError) as error:
                raise BindingError(f"example `{example.id}`: {error}") from None
            if self.max_prompt_chars is not None and length > self.max_prompt_chars:
                raise ConfigError(
                    f"guards.max_prompt_chars: with example `{example.id}` the prompt has {length} "
                    f"characters now, more than the {self.max_prompt_chars} that it may have; "
                    "raise the limit or shorten the source"
                )
        if self.max_prompt_chars is not None:
            self._limited[:] = examples
        self._check_reads(examples[0])
        if isinstance(self.rollout.adapter, CheckedFunction):
            for example in _of_each_shape(examples):
                self.rollout.adapter.check_bound(prompt.bind(*example.copy().params))
        params = [example.params for example in examples]
        for place in kinds_of_files(params):
            rendered = prompt.bind(*examples[place].copy().params).render()
            check_serves(self.rollout.adapter, rendered)

    def _check_reads(self, example: GepaExample) -> None:
        """Refuse a prompt that reads no value of its examples but names one in braces."""
        [prompt] = self.rollout.prompts.values()
        hints = prompt.template.lookalikes()
        if not hints:
            return
        read = {name for _, section in prompt.template.walked for name in section.source.reads}
        names = {name for param in example.params for name in values_of(param)}
        if not names & read and (name := next((name for name in hints if name in names), None)):
            raise BindingError(
                f"example `{example.id}`: the prompt has no placeholder `{name}`; {hints[name]}"
            )

    @property
    def in_force(self) -> Json:
        return plain_changes(self.rollout.base)

    def over(self, in_force: Json) -> PromptTarget:
        base = self.rollout.base
        read = Candidate(changes=read_changes(in_force, "latest", where="base")).overrides
        if read.keys() != base.keys():
            raise DataFormatError(
                f"expected overrides of {', '.join(base)}, found {shown(in_force)}"
            )
        # What is in force has no tag, and each prompt may have its own.
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

    def _find(self, module: Module) -> tuple[str, PromptPart]:
        """Return the address of a module's prompt, and its part there."""
        match module:
            case PartOf() if module.address in self._prompts:
                return module.address, module.part
            case PromptPart() if len(self._prompts) == 1:
                return next(iter(self._prompts)), module
        raise TypeError(f"module: expected a part of {self.identity.name}, found {shown(module)}")

    def _candidate(
        self,
        changes: Mapping[str, PromptOverride],
        *,
        parents: tuple[int, ...] = (),
        modules: tuple[Module, ...] = (),
    ) -> Candidate:
        in_force: dict[str, Json] = {
            address: prompt.in_force(changes[address]) for address, prompt in self._prompts.items()
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
                prompt.bind(*example.copy().params).render()
            except PromptgraftError as error:
                raise InvalidProposalError(
                    RejectionReason.DOES_NOT_RENDER, f"with example `{example.id}`: {error}"
                ) from None
            self._rendered.add(example.id)
        longest = self.max_prompt_chars
        if longest is not None:
            # Of every example, since the candidate may win; which one is not for the reflector.
            lengths = (
                len(prompt.bind(*example.copy().params).render().text)
                for example in self._limited or examples
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


def _change(candidate: Candidate, address: str) -> PromptOverride:
    change = candidate.changes.get(address)
    if not isinstance(change, PromptOverride):
        raise TypeError(f"candidate: expected one of `{address}`, found {shown(candidate)}")
    return change
