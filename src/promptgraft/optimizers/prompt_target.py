"""A prompt as a target: its parts are modules, candidates are overlays, rollouts evaluate it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.errors import (
    BindingError,
    ConfigError,
    InvalidOverrideError,
    PromptgraftError,
    PromptRenderError,
)
from promptgraft.optimizers.formatting import clip
from promptgraft.optimizers.prompt_rollout import PromptRollout
from promptgraft.optimizers.snapshot import override_to_plain
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.optimizers.types import (
    Candidate,
    GepaExample,
    Module,
    ModuleDescription,
)
from promptgraft.overrides.body import marker_names, parse_body, spell, write_body
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.overrides.types import (
    PromptDescriptor,
    Provenance,
    SectionDescriptor,
    SectionOverride,
    SectionPath,
    show_path,
)
from promptgraft.overrides.validation import (
    check_text,
    lost_placeholders,
    require_section,
    resolve_override,
)
from promptgraft.prompt.output import choices_of
from promptgraft.serde import digest


@attrs.frozen(kw_only=True)
class PromptTarget:
    """Improves sections of one prompt.

    Attributes:
        rollout: tries candidates; holds the prompt and the overrides that lie under them.
        modules: what may be mutated.
        max_part_chars: how long a new text may be.
        store: where ``persist`` writes; None for nowhere.
    """

    rollout: PromptRollout
    modules: tuple[Module, ...]
    max_part_chars: int
    store: PromptOverridesStore | None

    def __attrs_post_init__(self) -> None:
        for module in self.modules:
            require_section(self.descriptor, module.path)
            length = len(self._body(self.baseline(), module.path))
            if length > self.max_part_chars:
                raise ConfigError(
                    f"max_part_chars: {module.name} is {length} characters long now, more than "
                    f"the {self.max_part_chars} that a new text may have; raise the limit"
                )

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the prompt."""
        return self.rollout.prompt.descriptor

    def baseline(self) -> Candidate:
        return self._candidate({}, parents=(), module=None)

    def describe(self, module: Module, candidate: Candidate) -> ModuleDescription:
        section = require_section(self.descriptor, module.path)
        source = self.rollout.prompt.template.section(module.path)
        neighbours = [
            (f"section {show_path(other.path)}", self._body(candidate, other.path))
            for other in self.descriptor.sections
            if other.path != module.path
        ]
        return ModuleDescription(
            name=module.name,
            title=source.title,
            text=self._body(candidate, module.path),
            placeholders=tuple(spell(name, section.syntax) for name in section.placeholders),
            opaque={
                spell(name, section.syntax): text for name, text in source.source.opaque.items()
            },
            max_chars=self.max_part_chars,
            output=_describe_output(self.rollout.prompt.template.output_type),
            neighbours=[
                (name, clip(text, self.rollout.scoring.max_example_chars))
                for name, text in neighbours
                if text
            ],
        )

    def graft(
        self,
        candidate: Candidate,
        module: Module,
        proposal: str,
        *,
        parents: tuple[int, ...],
        examples: Sequence[GepaExample],
    ) -> Candidate:
        section = require_section(self.descriptor, module.path)
        current = self._body(candidate, module.path)
        body = self._checked_body(section, current, proposal)
        entry = SectionOverride(path=module.path, expected_hash=section.content_hash, body=body)
        sections = {**candidate.override.sections, module.path: entry}
        if _reads_as(body, self._body(self.baseline(), module.path)):
            del sections[module.path]  # back where the run began: nothing to override
        child = self._candidate(sections, parents=parents, module=module)
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
        sections: Mapping[SectionPath, SectionOverride],
        *,
        parents: tuple[int, ...],
        module: Module | None,
    ) -> Candidate:
        override = attrs.evolve(self.rollout.base, sections=sections)
        return Candidate(
            override=override,
            parents=parents,
            module=module,
            digest=digest(override_to_plain(self.rollout.base.merged_with(override))),
        )

    def _body(self, candidate: Candidate, path: SectionPath) -> str:
        """Return the text of a section as the candidate has it."""
        merged = resolve_override(
            self.descriptor, self.rollout.base.merged_with(candidate.override)
        ).sections
        return merged[path].body if path in merged else self.rollout.prompt.section_body(path)

    def _checked_body(self, section: SectionDescriptor, current: str, proposal: str) -> str:
        names = frozenset(section.placeholders)
        self._check_text(proposal)
        body = write_body(parse_body(proposal, section.syntax, names), section.syntax, names)
        self._check_text(body)
        if lost := lost_placeholders(section, body):
            markers = ", ".join(spell(name, section.syntax) for name in lost)
            raise InvalidProposalError(
                RejectionReason.LOST_PLACEHOLDER, f"the text lost the placeholders {markers}"
            )
        known = names | marker_names(current, section.syntax)
        if invented := sorted(marker_names(body, section.syntax) - known):
            markers = ", ".join(spell(name, section.syntax) for name in invented)
            raise InvalidProposalError(
                RejectionReason.INVENTED_PLACEHOLDER,
                f"the text uses {markers}, which nothing will replace; leave that out",
            )
        if _reads_as(body, current):
            raise InvalidProposalError(
                RejectionReason.UNCHANGED, "the text is the same as the current one"
            )
        return body

    def _check_text(self, text: str) -> None:
        if len(text) > self.max_part_chars:
            raise InvalidProposalError(
                RejectionReason.TOO_LONG,
                f"the text has {len(text)} characters; at most {self.max_part_chars} are allowed",
            )
        try:
            check_text(text, "the text")
        except InvalidOverrideError as error:
            raise InvalidProposalError(RejectionReason.UNUSABLE_TEXT, str(error)) from None

    def _check_renders(self, candidate: Candidate, examples: Sequence[GepaExample]) -> None:
        for example in examples:
            try:
                self.rollout.prompt_of(candidate).bind(*example.params).render()
            except PromptgraftError as error:
                raise InvalidProposalError(
                    RejectionReason.DOES_NOT_RENDER, f"with example `{example.id}`: {error}"
                ) from None


def _reads_as(text: str, other: str) -> bool:
    """Tell whether a prompt shows both texts alike: it shows no blank lines around them."""
    return text.strip("\n") == other.strip("\n")


def _describe_output(output_type: type | None) -> str:
    choices = choices_of(output_type)
    if choices is not None:
        return f"One of: {', '.join(choices)}"
    if output_type is None or output_type is str:
        return "Text."
    return f"A JSON object of type {output_type.__name__}."
