"""Overrides of sections, of tools and their examples, and of fields of the answer."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.ground.serde import HexDigest, digest_text, shown
from promptgraft.overrides.parts import descriptors, entry
from promptgraft.overrides.parts.body import spell
from promptgraft.overrides.parts.examples import check_json, given, typed_json
from promptgraft.overrides.parts.validation import check_not_blank, check_text, check_texts


@attrs.frozen(kw_only=True)
class SectionOverride(entry.PathEntry):
    """A body that replaces the body of one section.

    Attributes:
        path: the section.
        expected_hash: the content hash of the source that the body was written for.
        body: text in the language of :mod:`promptgraft.overrides.parts.body`.
    """

    path: descriptors.SectionPath
    expected_hash: HexDigest
    body: str

    kind = replaces = "section"
    with_overrides = listed = "sections"
    is_text = True

    @classmethod
    def known(cls, descriptor: descriptors.PromptDescriptor) -> Iterator[str]:
        return (
            descriptors.show_path(section.path)
            for section in descriptor.sections
            if section.overridable
        )

    def source(self, descriptor: descriptors.PromptDescriptor) -> entry.SourcePart | None:
        return descriptor.section(self.path)

    @classmethod
    def sources(cls, prompt: descriptors.PromptLike) -> Iterator[SectionOverride]:
        for section in prompt.descriptor.sections:
            body = prompt.section_body(section.path)
            yield cls(path=section.path, expected_hash=section.content_hash, body=body)

    def checked(self, descriptor: descriptors.PromptDescriptor) -> SectionOverride:
        # May be blank, unlike a summary: a section may consist of its heading and its children.
        check_text(self.body, self.part)
        section = descriptor.section(self.path)
        if section and (lost := section.lost(self.body)):
            names = ", ".join(f"`{spell(name, section.syntax)}`" for name in lost)
            raise InvalidOverrideError(
                f"{self.part} lost the placeholder {names}; keep it in the body"
            )
        if section and section.fault and (fault := section.fault(self.body)):
            raise InvalidOverrideError(f"{self.part}: {fault}")
        return self

    def misfit(self, descriptor: descriptors.PromptDescriptor) -> entry.SkipReason | None:
        section = descriptor.section(self.path)
        # A document may hold a body that was never checked against the source.
        return entry.SkipReason.LOST_PLACEHOLDER if section and section.lost(self.body) else None

    def apply(self, parts: entry.EffectiveParts) -> None:
        parts.bodies[self.path] = self.body

    def as_written(self, prompt: descriptors.PromptLike) -> SectionOverride:
        source = prompt.descriptor.section(self.path)
        # Names of blocks are those of the source that it was written for.
        if source is None or self.expected_hash not in (entry.UNBOUND, source.content_hash):
            return self
        return attrs.evolve(self, body=prompt.as_written(self.path, self.body))

    def labelled_texts(self) -> entry.LabelledTexts:
        yield "body", self.body


@attrs.frozen(kw_only=True)
class SummaryOverride(entry.PathEntry):
    """A text that replaces the summary of a section.

    Attributes:
        path: the section.
        expected_hash: hash of the summary that it was written for.
        summary: the text; no values are inserted into it.
    """

    path: descriptors.SectionPath
    expected_hash: HexDigest
    summary: str

    kind = replaces = "summary"
    with_overrides = listed = "summaries"
    is_text = True

    @classmethod
    def known(cls, descriptor: descriptors.PromptDescriptor) -> Iterator[str]:
        return (
            descriptors.show_path(section.path)
            for section in descriptor.sections
            if section.overridable and section.summary is not None
        )

    def source(self, descriptor: descriptors.PromptDescriptor) -> entry.SourcePart | None:
        section = descriptor.section(self.path)
        if section is None or section.summary is None:
            return None
        return entry.PartSource(digest_text(section.summary), section.overridable)

    @classmethod
    def sources(cls, prompt: descriptors.PromptLike) -> Iterator[SummaryOverride]:
        for section in prompt.descriptor.sections:
            if section.summary is not None and section.summary.strip():
                written_for = digest_text(section.summary)
                yield cls(path=section.path, expected_hash=written_for, summary=section.summary)

    def checked(self, descriptor: descriptors.PromptDescriptor) -> SummaryOverride:
        check_not_blank(self.summary, self.part)
        return self

    def apply(self, parts: entry.EffectiveParts) -> None:
        parts.summaries[self.path] = self.summary

    def labelled_texts(self) -> entry.LabelledTexts:
        yield "summary", self.summary


_IN_WORDS = {
    descriptors.SectionVisibility.FULL: "shown",
    descriptors.SectionVisibility.SUMMARY: "shown as its summary",
    descriptors.SectionVisibility.HIDDEN: "no longer shown",
}


@attrs.frozen(kw_only=True)
class VisibilityOverride(entry.PathEntry):
    """Whether a section, with all that is below it, or a task example of the source is shown.

    Attributes:
        path: the section or the task example.
        expected_hash: hash of the example, or of the section and all that is below it.
        visibility: full, hidden or, for a section that has one, its summary.
    """

    path: descriptors.SectionPath
    expected_hash: HexDigest
    visibility: descriptors.SectionVisibility

    kind = "visibility"
    replaces = "section or task example"
    with_overrides = listed = "visibilities"
    is_text = True

    @property
    def target(self) -> str:
        # It replaces no text, so other overrides of the section stay in force.
        return self.part

    @property
    def owner(self) -> None:
        return None

    @classmethod
    def known(cls, descriptor: descriptors.PromptDescriptor) -> Iterator[str]:
        sections = (
            section.path
            for section in descriptor.sections
            if section.overridable and not section.needed
        )
        examples = (example.path for example in descriptor.task_examples if example.overridable)
        return map(descriptors.show_path, (*sections, *examples))

    def source(self, descriptor: descriptors.PromptDescriptor) -> entry.SourcePart | None:
        section = descriptor.section(self.path)
        if section is None:
            return descriptor.task_example(self.path)
        may_change = section.overridable and not section.needed
        return entry.PartSource(descriptor.subtree_hash(self.path), may_change)

    def needed(self, descriptor: descriptors.PromptDescriptor) -> str:
        section = descriptor.section(self.path)
        return "" if section is None else section.needed

    def counterpart(self, prompt: descriptors.PromptLike) -> VisibilityOverride | None:
        descriptor = prompt.descriptor
        part = descriptor.section(self.path) or descriptor.task_example(self.path)
        return None if part is None else attrs.evolve(self, visibility=part.visibility)

    def checked(self, descriptor: descriptors.PromptDescriptor) -> VisibilityOverride:
        possible = visibilities(descriptor, self.path)
        # A set, because `in` raises TypeError for what cannot be hashed.
        if not any(self.visibility == visibility for visibility in possible):
            raise InvalidOverrideError(
                f"{self.part}: expected {' or '.join(possible)}, found {shown(self.visibility)}"
            )
        return attrs.evolve(self, visibility=descriptors.SectionVisibility(self.visibility))

    def misfit(self, descriptor: descriptors.PromptDescriptor) -> entry.SkipReason | None:
        # The summary is part of the hash of a section; a document may hold any value.
        fits = self.visibility in visibilities(descriptor, self.path)
        return None if fits else entry.SkipReason.UNKNOWN_PART

    def apply(self, parts: entry.EffectiveParts) -> None:
        parts.visibility[self.path] = self.visibility

    def labelled_texts(self) -> entry.LabelledTexts:
        yield "visibility", _IN_WORDS[self.visibility]


def visibilities(
    descriptor: descriptors.PromptDescriptor, path: descriptors.SectionPath
) -> tuple[descriptors.SectionVisibility, ...]:
    """Return how a section or a task example may be shown."""
    section = descriptor.section(path)
    has_summary = section is not None and bool((section.summary or "").strip())
    return tuple(
        visibility
        for visibility in descriptors.SectionVisibility
        if has_summary or visibility is not descriptors.SectionVisibility.SUMMARY
    )


@attrs.frozen(kw_only=True)
class ToolOverride(entry.Entry):
    """An override of the descriptions of a tool and its parameters.

    Attributes:
        name: the tool.
        expected_hash: hash of its source description and parameter descriptions.
        description: the new description; None keeps the source's.
        param_descriptions: new descriptions by parameter; others keep the source's.
    """

    name: str
    expected_hash: HexDigest
    description: str | None = None
    param_descriptions: Mapping[str, str] = attrs.field(factory=dict, converter=entry.frozen_texts)

    kind = replaces = "tool"
    with_overrides = "tool_overrides"
    listed = "tools"

    @property
    def key(self) -> str:
        return self.name

    @classmethod
    def known(cls, descriptor: descriptors.PromptDescriptor) -> Iterator[str]:
        return (tool.name for tool in descriptor.tools if tool.overridable)

    def source(self, descriptor: descriptors.PromptDescriptor) -> entry.SourcePart | None:
        return descriptor.tool(self.name)

    @classmethod
    def sources(cls, prompt: descriptors.PromptLike) -> Iterator[ToolOverride]:
        for tool in prompt.descriptor.tools:
            params = {name: text for name, text in tool.param_descriptions.items() if text.strip()}
            description = entry.text_or_none(tool.description)
            if description or params:
                yield cls(
                    name=tool.name,
                    expected_hash=tool.content_hash,
                    description=description,
                    param_descriptions=params,
                )

    def checked(self, descriptor: descriptors.PromptDescriptor) -> ToolOverride:
        tool = descriptors.find_tool(descriptor.tools_by_name, self.name, where=self.part)
        if self.description is None and not self.param_descriptions:
            raise InvalidOverrideError(f"{self.part}: replaces nothing; give a description")
        if self.description is not None:
            check_not_blank(self.description, f"{self.part}: description")
        for name, text in self.param_descriptions.items():
            if name not in tool.param_descriptions:
                names = ", ".join(f"`{param}`" for param in tool.param_descriptions)
                raise InvalidOverrideError(
                    f"{self.part}: there is no parameter {shown(name)}; parameters: {names}"
                )
            check_not_blank(text, f"{self.part}: parameter `{name}`")
        return self

    def apply(self, parts: entry.EffectiveParts) -> None:
        tool = parts.tools[self.name]
        params = {**tool.param_descriptions, **self.param_descriptions}
        parts.tools[self.name] = attrs.evolve(
            tool, **given(description=self.description), param_descriptions=params
        )

    def over(self, older: ToolOverride) -> ToolOverride:
        """Return both merged field by field, if they were written for the same source."""
        # Merged, texts for another source would count as written for this one.
        if older.expected_hash != self.expected_hash:
            return self
        params = {**older.param_descriptions, **self.param_descriptions}
        return attrs.evolve(older, **given(description=self.description), param_descriptions=params)

    def labelled_texts(self) -> entry.LabelledTexts:
        yield "description", self.description
        yield from entry.labelled("parameter", self.param_descriptions)


@attrs.frozen
class ToolExampleOverride(entry.Entry):
    """An override of one example of a tool.

    Attributes:
        tool_name: the tool.
        example_index: position among the tool's examples, from 0.
        expected_hash: hash of the source example, input and output included.
        description: None keeps the source's.
        input_json: parameters as JSON; None keeps the source's.
        output_json: result as JSON; None keeps the source's.
    """

    tool_name: str
    example_index: int
    expected_hash: HexDigest
    description: str | None = None
    input_json: str | None = None
    output_json: str | None = None

    kind = replaces = "tool example"
    with_overrides = "tool_example_overrides"
    listed = "tool_examples"

    @property
    def key(self) -> tuple[str, int]:
        return (self.tool_name, self.example_index)

    @property
    def owner(self) -> str:
        return descriptors.tool_part(self.tool_name)

    @classmethod
    def known(cls, descriptor: descriptors.PromptDescriptor) -> Iterator[str]:
        for tool in descriptor.tools:
            if tool.overridable:
                yield from (f"{tool.name}/{index}" for index in range(len(tool.examples)))

    def source(self, descriptor: descriptors.PromptDescriptor) -> entry.SourcePart | None:
        tool = descriptor.tool(self.tool_name)
        call = descriptor.tool_example(*self.key)
        return entry.PartSource(call.content_hash, tool.overridable) if tool and call else None

    @classmethod
    def sources(cls, prompt: descriptors.PromptLike) -> Iterator[ToolExampleOverride]:
        for tool in prompt.descriptor.tools:
            for index, call in enumerate(tool.examples):
                yield cls(
                    tool_name=tool.name,
                    example_index=index,
                    expected_hash=call.content_hash,
                    description=call.description,
                    input_json=call.input_json,
                    output_json=call.output_json,
                )

    def checked(self, descriptor: descriptors.PromptDescriptor) -> ToolExampleOverride:
        tool = descriptors.find_tool(descriptor.tools_by_name, self.tool_name, where=self.part)
        if (self.description, self.input_json, self.output_json) == (None, None, None):
            raise InvalidOverrideError(f"{self.part}: replaces nothing; give a field")
        check_texts(self.part, self.description, self.input_json, self.output_json)
        return attrs.evolve(
            self,
            input_json=_typed(self.input_json, tool.params_type, f"{self.part}: input"),
            output_json=_typed(self.output_json, tool.result_type, f"{self.part}: output"),
        )

    def apply(self, parts: entry.EffectiveParts) -> None:
        tool = parts.tools[self.tool_name]
        calls = list(tool.examples)
        fields = given(
            description=self.description, input_json=self.input_json, output_json=self.output_json
        )
        calls[self.example_index] = attrs.evolve(calls[self.example_index], **fields)
        parts.tools[self.tool_name] = attrs.evolve(tool, examples=tuple(calls))

    def labelled_texts(self) -> entry.LabelledTexts:
        yield "description", self.description
        yield "input", self.input_json
        yield "output", self.output_json

    def check_stored(self, where: str) -> None:
        if self.example_index < 0:
            raise DataFormatError(
                f"{where}: example_index: expected at least 0, found {shown(self.example_index)}"
            )
        super().check_stored(where)
        check_json(where, input_json=self.input_json, output_json=self.output_json)


def _typed(text: str | None, kind: Any, where: str) -> str | None:
    return None if text is None else typed_json(text, kind, where=where)


def _names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    value: object = names  # users may pass anything, whatever the annotation says
    if isinstance(value, str) or not (value is None or isinstance(value, Iterable)):
        raise InvalidOverrideError(f"aliases: expected a list of texts, found {shown(names)}")
    return None if names is None else tuple(names)


@attrs.frozen(kw_only=True)
class OutputFieldOverride(entry.Entry):
    """An override of the description, aliases and options of a field of the answer.

    Attributes:
        field: the field: ``Review.severity``; the type's name if the answer is a choice.
        expected_hash: hash of its source descriptions, aliases and options.
        description: None keeps the source's.
        aliases: other names, the first of which the model sees; None keeps the source's.
        value_descriptions: descriptions of options; others keep the source's.
    """

    field: str
    expected_hash: HexDigest
    description: str | None = None
    aliases: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    value_descriptions: Mapping[str, str] = attrs.field(factory=dict, converter=entry.frozen_texts)

    kind = replaces = "output field"
    with_overrides = "output_overrides"
    listed = "output_fields"

    @property
    def key(self) -> str:
        return self.field

    @property
    def owner(self) -> None:
        return None

    @classmethod
    def known(cls, descriptor: descriptors.PromptDescriptor) -> Iterator[str]:
        return (output_field.field for output_field in descriptor.output_fields)

    def source(self, descriptor: descriptors.PromptDescriptor) -> entry.SourcePart | None:
        return descriptor.output_field(self.field)

    @classmethod
    def sources(cls, prompt: descriptors.PromptLike) -> Iterator[OutputFieldOverride]:
        for output_field in prompt.descriptor.output_fields:
            values = {option: text for option, text in output_field.values.items() if text.strip()}
            description = entry.text_or_none(output_field.description)
            if description or output_field.aliases or values:
                yield cls(
                    field=output_field.field,
                    expected_hash=output_field.content_hash,
                    description=description,
                    aliases=output_field.aliases or None,
                    value_descriptions=values,
                )

    def checked(self, descriptor: descriptors.PromptDescriptor) -> OutputFieldOverride:
        field = descriptor.output_field(self.field)
        if field is None:
            return self
        if (self.description, self.aliases) == (None, None) and not self.value_descriptions:
            raise InvalidOverrideError(f"{self.part}: replaces nothing; give a description")
        if self.description is not None:
            check_not_blank(self.description, f"{self.part}: description")
        for option, text in self.value_descriptions.items():
            if option not in field.options:
                raise InvalidOverrideError(
                    f"{self.part}: there is no option {shown(option)}; options: "
                    + (", ".join(field.options) or "none")
                )
            check_not_blank(text, f"{self.part}: option `{option}`")
        if self.aliases and not field.name:
            raise InvalidOverrideError(f"{self.part}: an answer that is a choice has no aliases")
        aliases = self.aliases or ()
        for alias in aliases:
            check_not_blank(alias, f"{self.part}: alias")
        if taken_names := descriptors.taken_aliases(field, aliases):
            raise InvalidOverrideError(f"{self.part}: the name {shown(taken_names[0])} is taken")
        return self

    def misfit(self, descriptor: descriptors.PromptDescriptor) -> entry.SkipReason | None:
        field = descriptor.output_field(self.field)
        is_taken = field is not None and descriptors.taken_aliases(field, self.aliases or ())
        return entry.SkipReason.NAME_TAKEN if is_taken else None

    def claims(self) -> Mapping[Hashable, str]:
        # Names need to differ only within a class.
        owner = self.field.rpartition(".")[0]
        return {(owner, descriptors.fold_name(alias)): alias for alias in self.aliases or ()}

    def apply(self, parts: entry.EffectiveParts) -> None:
        now = parts.fields[self.field]
        parts.fields[self.field] = attrs.evolve(
            now,
            **given(description=self.description, aliases=self.aliases),
            values={**now.values, **self.value_descriptions},
        )

    def labelled_texts(self) -> entry.LabelledTexts:
        aliases = self.aliases
        yield "description", self.description
        yield "aliases", None if aliases is None else json.dumps(aliases, ensure_ascii=False)
        yield from entry.labelled("option", self.value_descriptions)
