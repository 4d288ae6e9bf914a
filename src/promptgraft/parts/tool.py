"""What is said of a tool and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.frozenmap import FrozenMap
from promptgraft.parts.descriptors import PromptDescriptor, PromptLike, find_tool
from promptgraft.parts.entry import (
    EffectiveParts,
    Entry,
    Said,
    Source,
    labelled,
    said_or_none,
)
from promptgraft.parts.examples import given
from promptgraft.parts.validation import check_said
from promptgraft.serde import HexDigest, shown


@attrs.frozen(kw_only=True)
class ToolOverride(Entry):
    """What is said of a tool and its parameters.

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
    held_in = "tool_overrides"
    listed = "tools"

    @property
    def key(self) -> str:
        return self.name

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (tool.name for tool in descriptor.tools if tool.overridable)

    def source(self, descriptor: PromptDescriptor) -> Source | None:
        return descriptor.tool(self.name)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[ToolOverride]:
        for tool in prompt.descriptor.tools:
            params = {name: text for name, text in tool.param_descriptions.items() if text.strip()}
            description = said_or_none(tool.description)
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
            check_said(self.description, f"{self.part}: description")
        for name, text in self.param_descriptions.items():
            if name not in tool.param_descriptions:
                known = ", ".join(f"`{param}`" for param in tool.param_descriptions)
                raise InvalidOverrideError(
                    f"{self.part}: there is no parameter {shown(name)}; parameters: {known}"
                )
            check_said(text, f"{self.part}: parameter `{name}`")
        return self

    def apply(self, parts: EffectiveParts) -> None:
        tool = parts.tools[self.name]
        params = {**tool.param_descriptions, **self.param_descriptions}
        parts.tools[self.name] = attrs.evolve(
            tool, **given(description=self.description), param_descriptions=params
        )

    def over(self, older: ToolOverride) -> ToolOverride:
        """Return both, field by field, as long as they were written for the same source."""
        if older.expected_hash != self.expected_hash:
            return self
        params = {**older.param_descriptions, **self.param_descriptions}
        return attrs.evolve(older, **given(description=self.description), param_descriptions=params)

    def said(self) -> Said:
        yield "description", self.description
        yield from labelled("parameter", self.param_descriptions)
