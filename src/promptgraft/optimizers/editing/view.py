"""A prompt as one candidate has it."""

from __future__ import annotations

import json

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.optimizers.formatting import clip
from promptgraft.optimizers.target import InvalidProposalError, RejectionReason
from promptgraft.overrides.effective import (
    EffectiveTool,
    effective_task_examples,
    effective_tool,
)
from promptgraft.overrides.entries import SectionPath, show_path
from promptgraft.overrides.parts import PromptDescriptor, WorkedExample
from promptgraft.overrides.types import PromptOverride
from promptgraft.overrides.validation import check_text
from promptgraft.prompt.output import choices_of
from promptgraft.prompt.schema import schema_of
from promptgraft.prompt.template import PromptTemplate


@attrs.frozen(kw_only=True)
class View:
    """A prompt as one candidate has it.

    Attributes:
        template: the source.
        fresh: the overrides that apply, the base's and the candidate's; None for none.
        max_part_chars: how long a new text may be.
        max_shown_chars: how much of a neighbour is shown.
        max_task_examples: how many examples a section may hold.
    """

    template: PromptTemplate[object]
    fresh: PromptOverride | None
    max_part_chars: int
    max_shown_chars: int
    max_task_examples: int

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the source."""
        return self.template.descriptor

    def body(self, path: SectionPath) -> str:
        """Return the text of a section."""
        override = self.fresh.sections.get(path) if self.fresh else None
        return override.body if override else self.template.section_body(path)

    def tool(self, name: str) -> EffectiveTool:
        """Return a tool as the candidate has it."""
        return effective_tool(self.descriptor.tools_by_name[name], self.fresh)

    def task_examples(self, container: SectionPath) -> dict[str, WorkedExample]:
        """Return the task examples of a section by key."""
        return dict(effective_task_examples(self.descriptor, container, self.fresh))

    def output(self) -> str:
        """Return what answers must look like, in words."""
        kind = self.template.output_type
        choices = choices_of(kind)
        if choices is not None:
            return f"One of: {', '.join(choices)}"
        if kind is None or kind is str:
            return "Text."
        schema = json.dumps(schema_of(kind), ensure_ascii=False)
        return f"A JSON object of type {kind.__name__}, with this schema: {schema}"

    def neighbours(self, but: str) -> list[tuple[str, str]]:
        """Return name and text of the other parts that say anything."""
        parts = [
            (f"section {show_path(section.path)}", self.body(section.path))
            for section in self.descriptor.sections
        ]
        parts += [
            (f"tool {tool.name}", self.tool(tool.name).description)
            for tool in self.descriptor.tools
        ]
        for container in self.descriptor.containers:
            for key, example in self.task_examples(container.path).items():
                name = f"task example {show_path((*container.path, key))}"
                parts.append((name, f"{example.objective} → {example.outcome_json}"))
        return [
            (name, clip(text, self.max_shown_chars)) for name, text in parts if text and name != but
        ]

    def check_length(self, text: str) -> None:
        """Refuse a text that is too long, or that UTF-8 cannot hold.

        Raises:
            InvalidProposalError: with the limit.
        """
        if len(text) > self.max_part_chars:
            raise InvalidProposalError(
                RejectionReason.TOO_LONG,
                f"the text has {len(text)} characters; at most {self.max_part_chars} are allowed",
            )
        try:
            check_text(text, "the text")
        except InvalidOverrideError as error:
            raise InvalidProposalError(RejectionReason.UNUSABLE_TEXT, str(error)) from None
