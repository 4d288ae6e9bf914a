"""What an optimizer may mutate: one class for each kind of part."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from promptgraft.overrides.entries import SectionPath, section_part, show_path


@attrs.frozen
class SectionModule:
    """The body of one section."""

    path: SectionPath

    kind = "section"

    @property
    def name(self) -> str:
        """How messages and meta-prompts name it."""
        return f"section {show_path(self.path)}"


@attrs.frozen
class ToolModule:
    """What is said of one tool and its parameters."""

    tool_name: str

    kind = "tool"

    @property
    def name(self) -> str:
        return f"tool {self.tool_name}"


@attrs.frozen
class ToolExampleModule:
    """One example of a tool."""

    tool_name: str
    example_index: int

    kind = "tool example"

    @property
    def name(self) -> str:
        return f"tool example {self.tool_name}/{self.example_index}"


@attrs.frozen
class TaskExampleModule:
    """One task example, of the source or added."""

    path: SectionPath

    kind = "task example"

    @property
    def name(self) -> str:
        return f"task example {show_path(self.path)}"


@attrs.frozen
class GenerationModule:
    """A section of task examples, as something that one more example may be written for."""

    container_path: SectionPath

    kind = "generated example"

    @property
    def name(self) -> str:
        return f"new task example in {show_path(self.container_path)}"


@attrs.frozen
class OutputFieldModule:
    """What is said of one field of the answer."""

    field: str

    kind = "output field"

    @property
    def name(self) -> str:
        return f"output field {self.field}"


Module = (
    SectionModule
    | ToolModule
    | ToolExampleModule
    | TaskExampleModule
    | GenerationModule
    | OutputFieldModule
)
"""What an optimizer may mutate; named ``name`` in messages and meta-prompts."""


def names_of(modules: Iterable[Module]) -> str:
    """Return the names of modules as one text."""
    return ", ".join(module.name for module in modules)


def is_example(module: Module) -> bool:
    """Tell whether a module is an example, which a rate of its own is kept for."""
    return isinstance(module, (ToolExampleModule, TaskExampleModule, GenerationModule))


def owner_of(module: Module) -> str | None:
    """Return the section or tool that shows a module to a model; None for the answer's fields."""
    match module:
        case SectionModule():
            return module.name
        case ToolModule() | ToolExampleModule():
            return f"tool {module.tool_name}"
        case TaskExampleModule():
            return section_part(module.path[:-1])
        case GenerationModule():
            return section_part(module.container_path)
        case OutputFieldModule():
            return None
