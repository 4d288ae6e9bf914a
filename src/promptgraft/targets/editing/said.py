"""What is said of tools and of the answer's fields: a few named texts."""

from __future__ import annotations

from promptgraft.overrides.effective import EffectiveField, effective_field
from promptgraft.overrides.entries import OutputFieldOverride, ToolOverride
from promptgraft.overrides.parts import OutputFieldDescriptor, ToolDescriptor
from promptgraft.targets.editing.view import View
from promptgraft.targets.example_text import read_said, write_said
from promptgraft.targets.loose_names import read_names, write_names
from promptgraft.targets.modules import OutputFieldModule, ToolModule
from promptgraft.targets.types import MetaPrompt, ModuleDescription

_DESCRIPTION = "description"
_ALIASES = "aliases"


def describe_tool(view: View, module: ToolModule, tool: ToolDescriptor) -> ModuleDescription:
    """Return what a reflector may know of a tool."""
    now = view.tool(tool.name)
    said = {_DESCRIPTION: now.description}
    said.update((_param(name), text) for name, text in now.param_descriptions.items())
    return ModuleDescription(
        name=module.name,
        meta_prompt=MetaPrompt.TOOL,
        title=tool.name,
        text=write_said(said),
        max_chars=view.max_part_chars,
        output=view.output(),
        neighbours=view.neighbours(module.name),
        schema=f"Parameters: {view.params_schema(tool)}",
    )


def edit_tool(view: View, tool: ToolDescriptor, text: str) -> ToolOverride:
    """Return the override that says of a tool what was proposed.

    Raises:
        InvalidProposalError: it names a parameter that there is not, or cannot be read.
    """
    view.check_length(text)
    names = [_DESCRIPTION, *(_param(name) for name in tool.param_descriptions)]
    said = read_said(text, names)
    now = view.tool(tool.name)
    params = {
        name: said.get(_param(name), before) for name, before in now.param_descriptions.items()
    }
    return ToolOverride(
        name=tool.name,
        expected_hash=tool.content_hash,
        description=said.get(_DESCRIPTION, now.description) or None,
        param_descriptions={name: text for name, text in params.items() if text},
    )


def describe_field(
    view: View, module: OutputFieldModule, field: OutputFieldDescriptor
) -> ModuleDescription:
    """Return what a reflector may know of a field of the answer."""
    now = _field_now(view, field)
    said = {_DESCRIPTION: now.description}
    if field.name:
        said[_ALIASES] = write_names(now.aliases)
    said.update((_value(option), now.values.get(option, "")) for option in field.options)
    return ModuleDescription(
        name=module.name,
        meta_prompt=MetaPrompt.OUTPUT_FIELD,
        title=field.field,
        text=write_said(said),
        max_chars=view.max_part_chars,
        output=view.output(),
        neighbours=view.neighbours(module.name),
    )


def edit_field(view: View, field: OutputFieldDescriptor, text: str) -> OutputFieldOverride:
    """Return the override that says of a field what was proposed.

    Raises:
        InvalidProposalError: it names an option that there is not, or cannot be read.
    """
    view.check_length(text)
    now = _field_now(view, field)
    names = [_DESCRIPTION, *([_ALIASES] if field.name else []), *map(_value, field.options)]
    said = read_said(text, names)
    aliases = read_names(said[_ALIASES], where=_ALIASES) if _ALIASES in said else now.aliases
    values = {
        option: said.get(_value(option), now.values.get(option, "")) for option in field.options
    }
    return OutputFieldOverride(
        field=field.field,
        expected_hash=field.content_hash,
        description=said.get(_DESCRIPTION, now.description) or None,
        aliases=aliases if field.name else None,
        value_descriptions={option: text for option, text in values.items() if text},
    )


def _field_now(view: View, field: OutputFieldDescriptor) -> EffectiveField:
    override = view.fresh.output_overrides.get(field.field) if view.fresh else None
    return effective_field(field, override)


def _param(name: str) -> str:
    return f"param {name}"


def _value(option: str) -> str:
    return f"value {option}"
