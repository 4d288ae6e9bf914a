"""The parts of a prompt as overrides leave them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.parts.descriptors import PromptDescriptor, SectionPath
from promptgraft.parts.examples import ToolCall, WorkedExample


@attrs.frozen(kw_only=True)
class EffectiveTool:
    """What a model is told of a tool.

    Attributes:
        name: the tool.
        description: what it does.
        param_descriptions: what each parameter means.
        examples: calls that are shown.
    """

    name: str
    description: str
    param_descriptions: Mapping[str, str]
    examples: tuple[ToolCall, ...]


@attrs.frozen(kw_only=True)
class EffectiveField:
    """What a model is told of a field of the answer."""

    description: str
    aliases: tuple[str, ...]
    values: Mapping[str, str]


@attrs.frozen(kw_only=True)
class EffectiveParts:
    """The parts of a prompt as overrides leave them; overrides put themselves in.

    Attributes:
        bodies: the bodies of sections that are replaced.
        tools: all tools, by name.
        examples: the task examples by key, for each section that holds some.
        fields: what is said of each field of the answer.
    """

    bodies: dict[SectionPath, str] = attrs.field(factory=dict)
    tools: dict[str, EffectiveTool]
    examples: dict[SectionPath, dict[str, WorkedExample]]
    fields: dict[str, EffectiveField]

    @classmethod
    def of_source(cls, descriptor: PromptDescriptor) -> EffectiveParts:
        """Return the parts as the source has them."""
        examples: dict[SectionPath, dict[str, WorkedExample]] = {
            container.path: {} for container in descriptor.containers
        }
        for found in descriptor.task_examples:
            examples[found.path[:-1]][found.path[-1]] = found.example
        return cls(
            tools={
                tool.name: EffectiveTool(
                    name=tool.name,
                    description=tool.description,
                    param_descriptions=tool.param_descriptions,
                    examples=tool.examples,
                )
                for tool in descriptor.tools
            },
            examples=examples,
            fields={
                field.field: EffectiveField(
                    description=field.description, aliases=field.aliases, values=field.values
                )
                for field in descriptor.output_fields
            },
        )
