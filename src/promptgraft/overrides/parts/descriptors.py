"""The parts of a prompt as stores see them: names, texts and hashes.

Values of users' types are kept as the one-line JSON that models see, so that hashing, overriding
and rendering need no types. Types are checked only when something is written; values that do not
fit raise ``DataFormatError``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, digest, shown
from promptgraft.ground.text import clip
from promptgraft.overrides.parts.body import BodySyntax, kept_names, parse_body
from promptgraft.overrides.parts.examples import (
    ToolCall,
    WorkedExample,
    json_line,
    read_stored_steps,
    show_steps,
    typed_json,
)

_SHOWN_CHARS = 80

SectionPath = tuple[str, ...]
"""Keys from the outermost section to the part itself; written `policies/refunds`."""

NO_INTERFACE = HexDigest("")


class SectionVisibility(StrEnum):
    """Whether a section or an example is rendered in full, as its summary, or not at all."""

    FULL = "full"
    SUMMARY = "summary"
    HIDDEN = "hidden"


def show_path(path: SectionPath) -> str:
    """Return the path as messages write it: ``policies/refunds``."""
    return "/".join(path)


def section_part(path: SectionPath) -> str:
    """Return a section as messages name it: ``section policies/refunds``."""
    return f"section {show_path(path)}"


def summary_part(path: SectionPath) -> str:
    """Return the summary of a section as messages name it: ``summary policies/refunds``."""
    return f"summary {show_path(path)}"


def task_example_part(path: SectionPath) -> str:
    """Return a task example as messages name it: ``task example guide/sqli``."""
    return f"task example {show_path(path)}"


def tool_part(name: str) -> str:
    """Return a tool as messages name it: ``tool search``."""
    return f"tool {name}"


def hash_section(template: str, syntax: BodySyntax, placeholders: Iterable[str] = ()) -> HexDigest:
    """Hash what an override of a section replaces: its template and how it is read.

    Args:
        template: the source.
        syntax: how it is written.
        placeholders: those of a plain text, in any order; in other syntaxes they are part of the
            template.
    """
    named = {"placeholders": sorted(set(placeholders))} if placeholders else {}
    return digest({"syntax": syntax, "template": template, **named})


def fold_name(name: str) -> str:
    """Return the normalized name of a field, by which answers are read."""
    return re.sub(r"[-_ ]", "", name).casefold()


@attrs.frozen(kw_only=True)
class SectionDescriptor:
    """What a store needs to know of a section.

    Attributes:
        path: the path of the section.
        content_hash: SHA-256 over the source template, its syntax and, for a plain section, its
            placeholders.
        syntax: how placeholders are spelled in the source and in override bodies.
        placeholders: names that an override body must keep, in order of appearance; for a plain
            section the strings themselves.
        overridable: whether the author allows overrides.
        summary: the summary of the section; None for none.
        fault: returns why a text cannot be used in the section, empty if it can; None if any can.
        visibility: how the source renders it; full where a function decides.
        needed: why it must be shown as it is, with all that is below it; empty if it need not.
    """

    path: SectionPath
    content_hash: HexDigest
    syntax: BodySyntax
    placeholders: tuple[str, ...] = ()
    overridable: bool = True
    summary: str | None = None
    fault: Callable[[str], str] | None = attrs.field(default=None, eq=False, repr=False)
    visibility: SectionVisibility = SectionVisibility.FULL
    needed: str = ""

    def has_text(self, body: str) -> bool:
        """Return whether ``body`` says anything beside its placeholders."""
        pieces = parse_body(body, self.syntax, frozenset(self.placeholders))
        return any(isinstance(piece, str) and piece.strip() for piece in pieces)

    def lost(self, body: str) -> tuple[str, ...]:
        """Return the placeholders of the source that ``body`` does not keep, in source order."""
        names_kept = kept_names(body, self.syntax, frozenset(self.placeholders))
        return tuple(name for name in self.placeholders if name not in names_kept)


@attrs.frozen(kw_only=True)
class ToolDescriptor:
    """What a store needs to know of a tool.

    Attributes:
        name: the tool.
        description: its source description.
        param_descriptions: source descriptions of all parameters.
        examples: its source examples.
        params_type: type of the parameters; like ``result_type`` not compared, because reading a
            file again defines new types.
        result_type: type of the result.
        overridable: whether the author allows overrides.
    """

    name: str
    description: str
    param_descriptions: Mapping[str, str] = attrs.field(converter=FrozenMap[str, str])
    examples: tuple[ToolCall, ...] = ()
    params_type: Any = attrs.field(repr=False, eq=False)
    result_type: Any = attrs.field(repr=False, eq=False)
    overridable: bool = True

    @functools.cached_property
    def content_hash(self) -> HexDigest:
        """SHA-256 over the descriptions."""
        return digest({"description": self.description, "params": dict(self.param_descriptions)})

    def call(self, description: str, input_json: str, output_json: str, *, where: str) -> ToolCall:
        """Return an example call whose values fit the tool's types."""
        return ToolCall(
            tool_name=self.name,
            description=description,
            input_json=typed_json(input_json, self.params_type, where=f"{where}: input"),
            output_json=typed_json(output_json, self.result_type, where=f"{where}: output"),
        )


@attrs.frozen(kw_only=True)
class TaskExampleDescriptor:
    """What a store needs to know of a task example.

    Attributes:
        path: the path of its section and its key.
        example: the source.
        overridable: whether the author allows overrides.
        visibility: whether the source shows it: full or hidden.
    """

    path: SectionPath
    example: WorkedExample
    overridable: bool = True
    visibility: SectionVisibility = SectionVisibility.FULL

    @functools.cached_property
    def content_hash(self) -> HexDigest:
        """SHA-256 over the source."""
        return self.example.content_hash


@attrs.frozen(kw_only=True)
class ContainerDescriptor:
    """A section that holds task examples.

    Attributes:
        path: the section.
        taken: keys that an added example may not have.
        overridable: whether examples may be added.
    """

    path: SectionPath
    taken: tuple[str, ...]
    overridable: bool = True


@attrs.frozen(kw_only=True)
class OutputFieldDescriptor:
    """What a store needs to know of a field of the answer.

    Attributes:
        field: ``Review.severity``; the type's name if the answer is a choice.
        name: the field's own name; empty for a choice.
        siblings: names and aliases of the other fields, which its own aliases may not repeat; not
            compared, because they are not a property of this field.
        description: its source description.
        aliases: other names in the source.
        options: the options of a choice.
        values: source descriptions of the options.
    """

    field: str
    name: str = ""
    siblings: frozenset[str] = attrs.field(default=frozenset(), eq=False)
    description: str = ""
    aliases: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    values: Mapping[str, str] = attrs.field(factory=dict, converter=FrozenMap[str, str])

    overridable = True

    @functools.cached_property
    def content_hash(self) -> HexDigest:
        """SHA-256 over descriptions, aliases and options of the source."""
        return digest(
            {
                "field": self.field,
                "description": self.description,
                "aliases": self.aliases,
                "options": self.options,
                "values": dict(self.values),
            }
        )


def taken_aliases(field: OutputFieldDescriptor, aliases: Sequence[str]) -> tuple[str, ...]:
    """Return the aliases that belong to another field, or that the field already has."""
    # Most overrides give no alias, and a class may have many fields.
    siblings = {fold_name(name) for name in field.siblings} if aliases else set()
    return tuple(
        alias
        for index, alias in enumerate(aliases)
        if alias in (field.name, *aliases[:index]) or fold_name(alias) in siblings
    )


def find_tool(tools: Mapping[str, ToolDescriptor], name: str, *, where: str) -> ToolDescriptor:
    """Return the tool of that name."""
    if name in tools:
        return tools[name]
    names = ", ".join(f"`{tool}`" for tool in tools) or "none"
    raise DataFormatError(f"{where}: there is no tool {shown(name)}; tools: {names}")


@attrs.frozen(kw_only=True)
class PromptDescriptor:
    """The identity of a prompt and the hashes of its parts.

    Attributes:
        ns: namespace.
        key: key in the namespace.
        sections: sections in reading order.
        tools: tools in reading order.
        task_examples: task examples of the source in reading order.
        containers: sections that hold task examples.
        output_fields: fields of the answer.
        output_type: type of the answer; None for text.
        interface_hash: SHA-256 over what task examples depend on: the types of tools and answer.
    """

    ns: str
    key: str
    sections: tuple[SectionDescriptor, ...]
    tools: tuple[ToolDescriptor, ...] = ()
    task_examples: tuple[TaskExampleDescriptor, ...] = ()
    containers: tuple[ContainerDescriptor, ...] = ()
    output_fields: tuple[OutputFieldDescriptor, ...] = ()
    output_type: Any = attrs.field(default=None, repr=False, hash=False)
    interface_hash: HexDigest = NO_INTERFACE

    @functools.cached_property
    def tools_by_name(self) -> Mapping[str, ToolDescriptor]:
        """The tools by name."""
        return FrozenMap((tool.name, tool) for tool in self.tools)

    @functools.cached_property
    def _sections(self) -> dict[SectionPath, SectionDescriptor]:
        return {section.path: section for section in self.sections}

    @functools.cached_property
    def _task_examples(self) -> dict[SectionPath, TaskExampleDescriptor]:
        return {example.path: example for example in self.task_examples}

    @functools.cached_property
    def _containers(self) -> dict[SectionPath, ContainerDescriptor]:
        return {container.path: container for container in self.containers}

    @functools.cached_property
    def _output_fields(self) -> dict[str, OutputFieldDescriptor]:
        return {output_field.field: output_field for output_field in self.output_fields}

    def section(self, path: SectionPath) -> SectionDescriptor | None:
        """Return the section at ``path``, or None."""
        return self._sections.get(path)

    def tool(self, name: str) -> ToolDescriptor | None:
        """Return the tool of that name, or None."""
        return self.tools_by_name.get(name)

    def tool_example(self, name: str, index: int) -> ToolCall | None:
        """Return the example of a tool at a position, or None."""
        tool = self.tools_by_name.get(name)
        if tool is None or type(index) is not int:  # True is an integer, but no position
            return None
        return tool.examples[index] if 0 <= index < len(tool.examples) else None

    def task_example(self, path: SectionPath) -> TaskExampleDescriptor | None:
        """Return the task example of the source at ``path``, or None."""
        return self._task_examples.get(path)

    @property
    def not_in_full(self) -> dict[SectionPath, SectionVisibility]:
        """How the source shows the sections and task examples that it does not show in full."""
        sections = [(section.path, section.visibility) for section in self.sections]
        examples = [(example.path, example.visibility) for example in self.task_examples]
        return {
            path: visibility
            for path, visibility in (*sections, *examples)
            if visibility is not SectionVisibility.FULL
        }

    def subtree_hash(self, path: SectionPath) -> HexDigest:
        """Return the SHA-256 over the sources of a section and of all that is below it."""
        depth = len(path)
        below = [section for section in self.sections if section.path[:depth] == path]
        examples = [example for example in self.task_examples if example.path[:depth] == path]
        return digest(
            [
                [[list(part.path), part.content_hash, part.summary] for part in below],
                [[list(example.path), example.content_hash] for example in examples],
            ]
        )

    def container(self, path: SectionPath) -> ContainerDescriptor | None:
        """Return the section that holds task examples at ``path``, or None."""
        return self._containers.get(path)

    def output_field(self, field: str) -> OutputFieldDescriptor | None:
        """Return the field of the answer, or None."""
        return self._output_fields.get(field)

    def checked_steps(self, steps_json: str, *, where: str) -> str:
        """Return steps in one line, if each fits the types of its tool."""
        calls = []
        for index, step in enumerate(read_stored_steps(steps_json, where=where)):
            at = f"{where}: step {index}"
            tool = find_tool(self.tools_by_name, step.tool_name, where=at)
            calls.append(tool.call(step.description, step.input_json, step.output_json, where=at))
        return show_steps(calls)

    def checked_outcome(self, outcome_json: str, *, where: str) -> str:
        """Return an outcome in one line, if it is of the prompt's output type."""
        kind = str if self.output_type is None else self.output_type
        try:
            return typed_json(outcome_json, kind, where=f"{where}: outcome")
        except DataFormatError as error:
            # The most common slip: the text itself, instead of the text as JSON.
            if kind is str and not outcome_json.lstrip().startswith(('"', "{", "[")):
                raise DataFormatError(
                    f"{error}; a text is JSON only in quotation marks: write "
                    f"{clip(json_line(outcome_json), _SHOWN_CHARS, around=' ')}"
                ) from None
            raise


class PromptLike(Protocol):
    """The part of a prompt's interface that stores use."""

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the source."""
        ...

    def section_body(self, path: SectionPath) -> str:
        """Return the source of a section, spelled as an override body.

        Raises:
            UnknownPartError: when there is no such section.
        """
        ...

    def as_written(self, path: SectionPath, body: str) -> str:
        """Return an override body of a section as the author of the prompt would write it."""
        ...
