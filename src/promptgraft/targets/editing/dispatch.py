"""One way in for all kinds of modules."""

from __future__ import annotations

from promptgraft.errors import CallerError
from promptgraft.overrides.body import shown_body
from promptgraft.overrides.checks import (
    checked_entry,
    require_container,
    require_output_field,
    require_section,
    require_task_example,
    require_tool,
    require_tool_example,
)
from promptgraft.overrides.entries import AddedTaskExample, Entry
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.editing.examples import (
    check_is_new,
    describe_generation,
    describe_task_example,
    describe_tool_example,
    edit_generation,
    edit_task_example,
    edit_tool_example,
)
from promptgraft.targets.editing.said import (
    describe_field,
    describe_tool,
    edit_field,
    edit_tool,
)
from promptgraft.targets.editing.sections import describe_section, edit_section
from promptgraft.targets.editing.view import View
from promptgraft.targets.modules import (
    GenerationModule,
    Module,
    OutputFieldModule,
    SectionModule,
    TaskExampleModule,
    ToolExampleModule,
    ToolModule,
)
from promptgraft.targets.types import ModuleDescription


def require_module(descriptor: PromptDescriptor, module: Module) -> None:
    """Refuse a module that the prompt does not have.

    Raises:
        UnknownPartError: there is no such part, or it may not be overridden; the message
            lists what exists.
    """
    match module:
        case SectionModule():
            require_section(descriptor, module.path)
        case ToolModule():
            require_tool(descriptor, module.tool_name)
        case ToolExampleModule():
            require_tool_example(descriptor, module.tool_name, module.example_index)
        case TaskExampleModule():
            require_task_example(descriptor, module.path)
        case GenerationModule():
            require_container(descriptor, module.container_path)
        case OutputFieldModule():
            require_output_field(descriptor, module.field)


def describe_module(view: View, module: Module) -> ModuleDescription:
    """Return what a reflector may know of a module."""
    descriptor = view.descriptor
    match module:
        case SectionModule():
            return describe_section(view, module, require_section(descriptor, module.path))
        case ToolModule():
            return describe_tool(view, module, require_tool(descriptor, module.tool_name))
        case ToolExampleModule():
            return describe_tool_example(view, module, require_tool(descriptor, module.tool_name))
        case TaskExampleModule():
            return describe_task_example(view, module)
        case GenerationModule():
            return describe_generation(view, module)
        case OutputFieldModule():
            return describe_field(view, module, require_output_field(descriptor, module.field))


def text_of(view: View, module: Module) -> str:
    """Return the text that :func:`describe_module` gives, without the rest of what it says."""
    if isinstance(module, SectionModule):
        section = require_section(view.descriptor, module.path)
        return shown_body(view.body(module.path), section.syntax)
    return describe_module(view, module).text


def edit_module(view: View, module: Module, text: str) -> Entry:
    """Return the override that a proposal for a module amounts to, checked like a write.

    Raises:
        InvalidProposalError: it cannot be read, or does not fit the module.
    """
    try:
        entry = checked_entry(view.descriptor, _edit(view, module, text))
    except CallerError as error:
        raise InvalidProposalError(RejectionReason.DOES_NOT_FIT, str(error)) from None
    if isinstance(module, GenerationModule) and isinstance(entry, AddedTaskExample):
        check_is_new(view, entry)
    return entry


def _edit(view: View, module: Module, text: str) -> Entry:
    descriptor = view.descriptor
    match module:
        case SectionModule():
            return edit_section(view, module, require_section(descriptor, module.path), text)
        case ToolModule():
            return edit_tool(view, require_tool(descriptor, module.tool_name), text)
        case ToolExampleModule():
            source = require_tool_example(descriptor, module.tool_name, module.example_index)
            return edit_tool_example(view, module, source, text)
        case TaskExampleModule():
            return edit_task_example(view, module, text)
        case GenerationModule():
            return edit_generation(view, module, text)
        case OutputFieldModule():
            return edit_field(view, require_output_field(descriptor, module.field), text)
