"""Overrides of the descriptions of tools, and of their examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, shown
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    find_tool,
    tool_part,
)
from promptgraft.overrides.parts.entry import (
    EffectiveParts,
    Entry,
    LabelledTexts,
    PartSource,
    SourcePart,
    labelled,
    text_or_none,
)
from promptgraft.overrides.parts.examples import check_json, given, typed_json
from promptgraft.overrides.parts.validation import check_not_blank, check_texts


@attrs.frozen(kw_only=True)
class ToolOverride(Entry):
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
    param_descriptions: Mapping[str, str] = attrs.field(factory=dict, converter=FrozenMap[str, str])

    kind = replaces = "tool"
    with_overrides = "tool_overrides"
    listed = "tools"

    @property
    def key(self) -> str:
        return self.name

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (tool.name for tool in descriptor.tools if tool.overridable)

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        return descriptor.tool(self.name)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[ToolOverride]:
        for tool in prompt.descriptor.tools:
            params = {name: text for name, text in tool.param_descriptions.items() if text.strip()}
            description = text_or_none(tool.description)
            if description or params:
                yield cls(
                    name=tool.name,
                    expected_hash=tool.content_hash,
                    description=description,
                    param_descriptions=params,
                )

    def checked(self, descriptor: PromptDescriptor) -> ToolOverride:
        tool = find_tool(descriptor.tools_by_name, self.name, where=self.part)
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

    def apply(self, parts: EffectiveParts) -> None:
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

    def labelled_texts(self) -> LabelledTexts:
        yield "description", self.description
        yield from labelled("parameter", self.param_descriptions)


@attrs.frozen
class ToolExampleOverride(Entry):
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
        return tool_part(self.tool_name)

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        for tool in descriptor.tools:
            if tool.overridable:
                yield from (f"{tool.name}/{index}" for index in range(len(tool.examples)))

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        tool = descriptor.tool(self.tool_name)
        call = descriptor.tool_example(*self.key)
        return PartSource(call.content_hash, tool.overridable) if tool and call else None

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[ToolExampleOverride]:
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

    def checked(self, descriptor: PromptDescriptor) -> ToolExampleOverride:
        tool = find_tool(descriptor.tools_by_name, self.tool_name, where=self.part)
        if (self.description, self.input_json, self.output_json) == (None, None, None):
            raise InvalidOverrideError(f"{self.part}: replaces nothing; give a field")
        check_texts(self.part, self.description, self.input_json, self.output_json)
        return attrs.evolve(
            self,
            input_json=_typed(self.input_json, tool.params_type, f"{self.part}: input"),
            output_json=_typed(self.output_json, tool.result_type, f"{self.part}: output"),
        )

    def apply(self, parts: EffectiveParts) -> None:
        tool = parts.tools[self.tool_name]
        calls = list(tool.examples)
        fields = given(
            description=self.description, input_json=self.input_json, output_json=self.output_json
        )
        calls[self.example_index] = attrs.evolve(calls[self.example_index], **fields)
        parts.tools[self.tool_name] = attrs.evolve(tool, examples=tuple(calls))

    def labelled_texts(self) -> LabelledTexts:
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
