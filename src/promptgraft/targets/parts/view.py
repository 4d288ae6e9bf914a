"""A prompt as one candidate has it."""

from __future__ import annotations

import json

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.parts.descriptors import (
    OutputFieldDescriptor,
    PromptDescriptor,
    SectionPath,
    show_path,
)
from promptgraft.parts.effective import EffectiveParts, EffectiveTool
from promptgraft.parts.examples import WorkedExample, one_line
from promptgraft.parts.validation import check_text
from promptgraft.prompt.output import choices_of
from promptgraft.prompt.schema import NOTHING_SAID, describe, schema_of, type_name
from promptgraft.prompt.template import PromptTemplate
from promptgraft.prompt.wording import (
    Said,
    own_names,
    said_of_output,
    said_of_params,
    shown_names,
)
from promptgraft.serde import canonical_json, parse_json
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.formatting import clip


@attrs.frozen(kw_only=True)
class View:
    """A prompt as one candidate has it.

    Attributes:
        template: the source.
        parts: its parts, as the overrides of base and candidate leave them.
        max_part_chars: how long a new text may be.
        max_shown_chars: how much of a neighbour is shown.
        max_task_examples: how many examples a section may hold.
    """

    template: PromptTemplate[object]
    parts: EffectiveParts
    max_part_chars: int
    max_shown_chars: int
    max_task_examples: int

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the source."""
        return self.template.descriptor

    def body(self, path: SectionPath) -> str:
        """Return the text of a section."""
        body = self.parts.bodies.get(path)
        return self.template.section_body(path) if body is None else body

    def tool(self, name: str) -> EffectiveTool:
        """Return a tool as the candidate has it."""
        return self.parts.tools[name]

    def task_examples(self, container: SectionPath) -> dict[str, WorkedExample]:
        """Return the task examples of a section by key."""
        return {**self.parts.examples[container]}

    def shown_examples(self, container: SectionPath) -> dict[str, WorkedExample]:
        """Return the task examples of a section by key, outcomes as the model is shown them."""
        return {
            key: attrs.evolve(example, outcome_json=self._shown_outcome(example.outcome_json))
            for key, example in self.task_examples(container).items()
        }

    def own_outcome(self, outcome_json: str) -> str:
        """Return an outcome, under whatever names of its fields, as stores keep it.

        Raises:
            InvalidProposalError: two of the names are those of one field.
        """
        value = parse_json(outcome_json, where="outcome")
        kind = self.template.output_type
        try:
            return one_line(own_names(value, kind, self._said, where="outcome"))
        except DataFormatError as error:
            raise InvalidProposalError(RejectionReason.DOES_NOT_FIT, str(error)) from None

    def field(self, name: str) -> OutputFieldDescriptor:
        """Return a field of the answer as the source has it."""
        return next(field for field in self.descriptor.output_fields if field.field == name)

    def params_schema(self, name: str) -> str:
        """Return the JSON Schema of a tool's parameters, with what the candidate says of them."""
        kind = self.descriptor.tools_by_name[name].params_type
        said = said_of_params(kind, self.tool(name).param_descriptions)
        return canonical_json(schema_of(kind, said))

    def tool_schema(self, name: str) -> str:
        """Return a tool's description and the schemas of its parameters and its result."""
        result_type = self.descriptor.tools_by_name[name].result_type
        return (
            f"Tool `{name}`: {self.tool(name).description}\n"
            f"input: {self.params_schema(name)}\n"
            f"output: {canonical_json(schema_of(result_type))}"
        )

    def tool_schemas(self) -> str:
        """Return what :meth:`tool_schema` returns, for all tools."""
        return "\n\n".join(self.tool_schema(tool.name) for tool in self.descriptor.tools)

    def output(self) -> str:
        """Return what answers must look like, with what the candidate says of them."""
        kind = self.template.output_type
        choices = choices_of(kind)
        if choices is not None:
            meaning = describe(self._said.get(type_name(kind), NOTHING_SAID), choices)
            said = f"\nDescribed as: {one_line(meaning)}" if meaning else ""
            return f"One of: {', '.join(choices)}{said}"
        if kind is None or kind is str:
            return "Text."
        schema = json.dumps(schema_of(kind, self._said), ensure_ascii=False)
        return f"A JSON object of type {kind.__name__}, with this schema: {schema}"

    def neighbours(self, but: str, *, without: SectionPath | None = None) -> list[tuple[str, str]]:
        """Return name and text of the other parts that say anything.

        Left out are the part ``but``, and the task examples of the section ``without``.
        """
        parts = [
            (f"section {show_path(section.path)}", self.body(section.path))
            for section in self.descriptor.sections
        ]
        parts += [
            (f"tool {tool.name}", self.tool(tool.name).description)
            for tool in self.descriptor.tools
        ]
        for container in self.descriptor.containers:
            if container.path == without:
                continue
            for key, example in self.shown_examples(container.path).items():
                name = f"task example {show_path((*container.path, key))}"
                parts.append((name, f"{example.objective} → {example.outcome_json}"))
        return [
            (name, clip(text, self.max_shown_chars)) for name, text in parts if text and name != but
        ]

    @property
    def _said(self) -> Said:
        return said_of_output(self.descriptor, self.parts)

    def _shown_outcome(self, outcome_json: str) -> str:
        value = parse_json(outcome_json, where="outcome")
        return one_line(shown_names(value, self.template.output_type, self._said))

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
