"""The kinds of overrides: each replaces one part of a prompt, bound to the hash of its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import HexDigest, shown

SectionPath = tuple[str, ...]
"""Keys from the outermost section to the part itself; written `policies/refunds`."""


def show_path(path: SectionPath) -> str:
    """Return the path as messages write it: ``policies/refunds``."""
    return "/".join(path)


def section_part(path: SectionPath) -> str:
    """Return a section as messages name it: ``section policies/refunds``."""
    return f"section {show_path(path)}"


def tool_part(name: str) -> str:
    """Return a tool as messages name it: ``tool search``."""
    return f"tool {name}"


def _texts(values: Mapping[str, str]) -> Mapping[str, str]:
    return FrozenMap(values)


def _steps(steps: Mapping[int, TaskStepOverride]) -> Mapping[int, TaskStepOverride]:
    return FrozenMap(steps)


def _names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise InvalidOverrideError(f"aliases: expected a list of texts, found {shown(names)}")
    return None if names is None else tuple(names)


@attrs.frozen(kw_only=True)
class SectionOverride:
    """A body that replaces the body of one section.

    Attributes:
        path: the section.
        expected_hash: the content hash of the source that the body was written for.
        body: text in the language of :mod:`promptgraft.overrides.body`.
    """

    path: SectionPath
    expected_hash: HexDigest
    body: str

    @property
    def key(self) -> SectionPath:
        return self.path

    @property
    def part(self) -> str:
        return section_part(self.path)

    @property
    def target(self) -> str:
        return self.part


@attrs.frozen(kw_only=True)
class ToolOverride:
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
    param_descriptions: Mapping[str, str] = attrs.field(factory=dict, converter=_texts)

    @property
    def key(self) -> str:
        return self.name

    @property
    def part(self) -> str:
        return tool_part(self.name)

    @property
    def target(self) -> str:
        return self.part


@attrs.frozen(kw_only=True)
class ToolExampleOverride:
    """One example of a tool.

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

    @property
    def key(self) -> tuple[str, int]:
        return (self.tool_name, self.example_index)

    @property
    def part(self) -> str:
        return f"tool example {self.tool_name}/{self.example_index}"

    @property
    def target(self) -> str:
        return self.part


@attrs.frozen(kw_only=True)
class TaskStepOverride:
    """One step of a task example; None keeps what the source has.

    Attributes:
        step_index: position among the steps, from 0.
        tool_name: the tool that is called.
        description: why.
        input_json: parameters as JSON.
        output_json: result as JSON.
    """

    step_index: int
    tool_name: str | None = None
    description: str | None = None
    input_json: str | None = None
    output_json: str | None = None


@attrs.frozen(kw_only=True)
class TaskExampleOverride:
    """One task example: single fields and steps of it, or all of its steps.

    Attributes:
        path: the example: its section's path and its key.
        expected_hash: hash of the source example, steps included.
        objective: None keeps the source's.
        outcome_json: the outcome as JSON; None keeps the source's.
        step_overrides: single steps by position.
        steps_json: all steps, ``[{"tool_name", "description", "input", "output"}]``; excludes
            ``step_overrides``.
    """

    path: SectionPath
    expected_hash: HexDigest
    objective: str | None = None
    outcome_json: str | None = None
    step_overrides: Mapping[int, TaskStepOverride] = attrs.field(factory=dict, converter=_steps)
    steps_json: str | None = None

    @property
    def key(self) -> SectionPath:
        return self.path

    @property
    def part(self) -> str:
        return f"task example {show_path(self.path)}"

    @property
    def target(self) -> str:
        return self.part


@attrs.frozen(kw_only=True)
class AddedTaskExample:
    """A task example that the source does not have.

    Attributes:
        container_path: the section that it is appended to.
        example_key: its key there.
        expected_hash: hash of the tools and the output type that it was written for.
        objective: what is asked.
        outcome_json: the outcome as JSON.
        steps_json: the steps, ``[{"tool_name", "description", "input", "output"}]``.
    """

    container_path: SectionPath
    example_key: str
    expected_hash: HexDigest
    objective: str
    outcome_json: str
    steps_json: str

    @property
    def path(self) -> SectionPath:
        return (*self.container_path, self.example_key)

    @property
    def key(self) -> SectionPath:
        return self.path

    @property
    def part(self) -> str:
        return f"added task example {show_path(self.path)}"

    @property
    def target(self) -> str:
        return f"section of task examples {show_path(self.container_path)}"


@attrs.frozen(kw_only=True)
class RemovedTaskExample:
    """A task example of the source that is not shown.

    Attributes:
        path: the example.
        expected_hash: hash of the source example.
    """

    path: SectionPath
    expected_hash: HexDigest

    @property
    def key(self) -> SectionPath:
        return self.path

    @property
    def part(self) -> str:
        return f"removed task example {show_path(self.path)}"

    @property
    def target(self) -> str:
        return f"task example {show_path(self.path)}"


@attrs.frozen(kw_only=True)
class OutputFieldOverride:
    """What is said of a field of the answer.

    Attributes:
        field: the field: ``Review.severity``; the type's name for an answer that is a choice.
        expected_hash: hash of what the source says of it, and of its options.
        description: None keeps the source's.
        aliases: other names, the first one shown to the model; None keeps the source's.
        value_descriptions: what options mean; options left out keep the source's.
    """

    field: str
    expected_hash: HexDigest
    description: str | None = None
    aliases: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    value_descriptions: Mapping[str, str] = attrs.field(factory=dict, converter=_texts)

    @property
    def key(self) -> str:
        return self.field

    @property
    def part(self) -> str:
        return f"output field {self.field}"

    @property
    def target(self) -> str:
        return self.part


Entry = (
    SectionOverride
    | ToolOverride
    | ToolExampleOverride
    | TaskExampleOverride
    | AddedTaskExample
    | RemovedTaskExample
    | OutputFieldOverride
)
"""An override of any kind: bound to ``expected_hash``, filed under ``key`` within its kind,
called ``part`` in messages, and replacing ``target``."""
