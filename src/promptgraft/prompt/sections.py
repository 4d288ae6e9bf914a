"""Sections, the parts of a prompt that people write, with their tools and examples."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

import attrs

from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.ground.functions import call_fault
from promptgraft.ground.serde import field_names, shown, unstructure
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.checks import FLAG
from promptgraft.overrides.parts.body import BodySyntax, spell
from promptgraft.overrides.parts.descriptors import (
    SectionDescriptor,
    SectionPath,
    SectionVisibility,
    hash_section,
    show_path,
)
from promptgraft.overrides.parts.validation import check_key, check_section_key
from promptgraft.prompt.fields import fields_of
from promptgraft.prompt.schema import check_round_trip
from promptgraft.prompt.syntax import SectionSource, Values, compile_source, given

ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")

Role: TypeAlias = Literal["system", "user"]
"""The message of a chat that a section belongs to."""

# The function names that both OpenAI and Anthropic accept.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _listed(items: object, kind: type[ItemT], what: str) -> tuple[ItemT, ...]:
    """Return a list of one class as the tuple that prompts keep; refuse anything else."""
    if isinstance(items, Iterable) and not isinstance(items, str):
        listing = tuple(items)
        if all(isinstance(item, kind) for item in listing):
            return listing
    mend = f"; write [{items!r}]" if isinstance(items, str) else ""
    raise PromptDefinitionError(f"{what}: expected a list of {what}, found {shown(items)}{mend}")


def _as_examples(examples: Iterable[ToolExample[Any, Any]]) -> tuple[ToolExample[Any, Any], ...]:
    return _listed(examples, ToolExample, "examples")


def _as_tools(tools: Iterable[Tool[Any, Any]]) -> tuple[Tool[Any, Any], ...]:
    return _listed(tools, Tool, "tools")


def as_sections(sections: Iterable[MarkdownSection]) -> tuple[MarkdownSection, ...]:
    """Return the sections as the tuple that templates keep; refuse what is no list of sections."""
    return _listed(sections, MarkdownSection, "sections")


def _check_texts(where: str, **texts: object) -> None:
    for name, text in texts.items():
        if not isinstance(text, str):
            raise PromptDefinitionError(f"{where}: {name}: expected a text, found {shown(text)}")


@attrs.frozen(kw_only=True)
class ToolExample(Generic[ParamsT, ResultT]):
    """One call of a tool, shown to the model.

    Attributes:
        description: when or why to make this call.
        input: the parameters.
        output: the result of the tool for them.
    """

    description: str
    input: ParamsT = attrs.field(hash=False)
    output: ResultT = attrs.field(hash=False)


@attrs.frozen(kw_only=True)
class Tool(Generic[ParamsT, ResultT]):
    """A function that a model may call.

    Attributes:
        name: letters, digits, `_` and `-`, up to 64.
        description: what it does and when to use it.
        params_type: attrs class, dataclass or pydantic model of its parameters; ``Described``
            annotations describe them, or ``Field`` of pydantic.
        result_type: type of its result: ``str``, None, an attrs class, a dataclass, ...
        handler: the function, plain or ``async``; None for a tool that is only described.
        examples: calls that are shown to the model.
        overridable: whether stores may replace description and examples.

    Raises:
        PromptDefinitionError: the name is invalid, ``params_type`` is not a class with fields, a
            type does not survive JSON, or an example does not fit the types.
    """

    name: str
    description: str
    params_type: type[ParamsT]
    result_type: type[ResultT]
    handler: Callable[[ParamsT], ResultT | Awaitable[ResultT]] | None = None
    examples: tuple[ToolExample[ParamsT, ResultT], ...] = attrs.field(
        default=(), converter=_as_examples
    )
    overridable: bool = attrs.field(default=True, validator=FLAG)

    def __attrs_post_init__(self) -> None:
        _check_texts("tool", name=self.name)
        if not _TOOL_NAME.fullmatch(self.name):
            raise PromptDefinitionError(
                f"tool name: expected 1 to 64 letters, digits, `_` or `-`, found {shown(self.name)}"
            )
        _check_texts(f"tool `{self.name}`", description=self.description)
        if field_names(self.params_type) is None:
            raise PromptDefinitionError(
                f"tool `{self.name}`: params_type: expected an attrs class or dataclass, "
                f"found {shown(self.params_type)}"
            )
        if fault := call_fault(self.handler, "params"):
            raise PromptDefinitionError(f"tool `{self.name}`: handler: {fault}")
        check_round_trip(self.params_type, f"tool `{self.name}`: params_type")
        check_round_trip(self.result_type, f"tool `{self.name}`: result_type")
        for index, example in enumerate(self.examples):
            where = f"tool `{self.name}`: example {index}"
            check_value(example.input, self.params_type, where=f"{where}: input")
            check_value(example.output, self.result_type, where=f"{where}: output")

    @property
    def param_descriptions(self) -> dict[str, str]:
        """The description of each parameter, by name."""
        return {field.name: field.described.description for field in fields_of(self.params_type)}


def check_value(value: object, kind: Any, *, where: str) -> None:
    """Refuse a value that is not of type ``kind``, or does not survive JSON."""
    try:
        plain = unstructure(value)
    except DataFormatError as error:
        raise PromptDefinitionError(f"{where}: {error}") from None
    try:
        restored = structure(plain, kind, where=where)
    except DataFormatError as error:
        raise PromptDefinitionError(str(error)) from None
    if restored != value:
        raise PromptDefinitionError(
            f"{where}: {shown(value)} does not survive JSON; it comes back as {shown(restored)}"
        )


def _as_placeholders(names: Iterable[str]) -> tuple[str, ...]:
    return _listed(names, str, "placeholders")


@attrs.frozen(kw_only=True)
class MarkdownSection:
    """A headed piece of a prompt.

    Attributes:
        title: the heading; empty for none.
        key: identifier of the section among its siblings.
        template: the text, with placeholders in the chosen syntax.
        syntax: ``"dollar"`` for ``string.Template`` (``$name``), ``"format"`` for ``str.format``
            (``{name}``, ``{{`` for a brace), ``"jinja"`` for Jinja2 (sandboxed; undefined names are
            errors), ``"plain"`` for literal text that is passed on unchanged.
        placeholders: literal strings of a plain text, such as ``{query}``, that overrides must
            keep; only the agent that receives the text replaces them.
        children: sections below this one, rendered after its text.
        enabled: decides from the bound values whether the section is rendered at all.
        summary: plain text without placeholders, shown instead of template and children if the
            visibility is a summary.
        visibility: full, summary or hidden, or a function of the bound values that returns one.
            A hidden section is not rendered, and neither is anything below it.
        overridable: whether stores may replace the text and the summary.
        params_type: class of the bound parameter in which placeholders are looked up, and against
            which they are checked on construction; without it, all bound parameters are used.
        tools: tools that the model may call while this section is shown in full; their
            examples are shown after its text, and are not part of it if it is plain.
        fault: returns in one line why a text is not allowed as an override here, empty if it is;
            None if any text is. Pickled with the section.
        role: ``"system"`` or ``"user"``: the message that the section and those below it belong
            to. By default, sections before the first one with a bound value are the system's.
        lead: what is sent before the text in place of the heading and one empty line.

    Raises:
        InvalidIdentifierError: ``key`` is not an identifier.
        PromptDefinitionError: the template does not parse, names a field that
            ``params_type`` does not have, or siblings share a key; a plain text lacks a
            placeholder, or has a ``params_type``.
    """

    title: str
    key: str
    template: str = ""
    syntax: BodySyntax | Literal["dollar", "jinja", "format", "plain"] = "dollar"
    placeholders: tuple[str, ...] = attrs.field(default=(), converter=_as_placeholders)
    children: tuple[MarkdownSection, ...] = attrs.field(default=(), converter=as_sections)
    enabled: Callable[[Values], bool] | None = None
    summary: str | None = None
    visibility: SectionVisibility | Callable[[Values], SectionVisibility] = SectionVisibility.FULL
    overridable: bool = attrs.field(default=True, validator=FLAG)
    params_type: type | None = None
    tools: tuple[Tool[Any, Any], ...] = attrs.field(default=(), converter=_as_tools)
    fault: Callable[[str], str] | None = attrs.field(default=None, eq=False, repr=False)
    role: Role | None = None
    lead: str | None = None

    def __attrs_post_init__(self) -> None:
        where = f"section `{self.key}`"
        check_section_key(self.key)
        _check_texts(where, title=self.title, template=self.template)
        # A list, because `in BodySyntax` raises TypeError for a string before Python 3.12.
        if self.syntax not in list(BodySyntax):
            raise PromptDefinitionError(
                f"{where}: syntax: expected 'dollar', 'jinja', 'format' or 'plain', "
                f"found {shown(self.syntax)}"
            )
        if self.role is not None and self.role not in get_args(Role):
            raise PromptDefinitionError(
                f"{where}: role: expected 'system' or 'user', found {shown(self.role)}"
            )
        _ = self.source  # parsed once; its faults are those of the section
        check_siblings(self.children, where)
        self._check_visibility(where)
        self._check_params_type(where)

    @cached_property
    def source(self) -> SectionSource:
        """The text, parsed."""
        where, syntax = f"section `{self.key}`", BodySyntax(self.syntax)
        return compile_source(self.template, syntax, where=where, placeholders=self.placeholders)

    def _check_visibility(self, where: str) -> None:
        if self.enabled is not None and not callable(self.enabled):
            raise PromptDefinitionError(
                f"{where}: enabled: expected a function of the bound values, "
                f"found {shown(self.enabled)}"
            )
        if not isinstance(self.visibility, SectionVisibility) and not callable(self.visibility):
            raise PromptDefinitionError(
                f"{where}: visibility: expected a SectionVisibility or a function that returns "
                f"one, found {shown(self.visibility)}"
            )
        needs_none = (SectionVisibility.FULL, SectionVisibility.HIDDEN)
        if self.summary is None and self.visibility not in needs_none:
            raise PromptDefinitionError(
                f"{where}: the visibility may be a summary, but there is no summary; add one"
            )

    def _check_params_type(self, where: str) -> None:
        if self.params_type is None:
            return
        names = field_names(self.params_type)
        if self.source.syntax is BodySyntax.PLAIN:
            raise PromptDefinitionError(
                f"{where}: params_type: expected none in a plain section, which takes no "
                "values; leave it out"
            )
        if names is None:
            raise PromptDefinitionError(
                f"{where}: params_type: expected an attrs class or dataclass, "
                f"found {shown(self.params_type)}"
            )
        folded = {field.casefold() for field in names}
        for name in self.source.reads:
            if name in self.source.written and name.casefold() not in folded:
                continue
            if name not in names:
                raise PromptDefinitionError(
                    f"{where}: placeholder `{name}` is not a field of "
                    f"`{self.params_type.__name__}`; fields: {', '.join(names)}"
                )

    def descriptor(self, path: SectionPath) -> SectionDescriptor:
        """Return what stores see of this section at ``path``."""
        syntax = BodySyntax(self.syntax)
        return SectionDescriptor(
            path=path,
            content_hash=hash_section(self.template, syntax, self.placeholders),
            syntax=syntax,
            placeholders=self.source.placeholders,
            overridable=self.overridable,
            summary=self.summary,
            fault=self.fault,
            visibility=self.visibility
            if isinstance(self.visibility, SectionVisibility)
            else SectionVisibility.FULL,
            needed=next(_needs(self, "it"), ""),
        )


def plain_section(
    key: str,
    content: str | bytes,
    placeholders: Iterable[str] = (),
    *,
    title: str = "",
    where: str = "",
) -> MarkdownSection:
    """Return a section whose text is literally ``content``.

    Args:
        key: identifier of the section among its siblings.
        content: the text, or the bytes of its file; byte order mark, line ends and empty lines are
            part of the text.
        placeholders: strings in the text that overrides must keep.
        title: the heading in the text of the whole prompt.
        where: the name of the file in messages; by default that of the section.

    Raises:
        DataFormatError: the bytes are not UTF-8; the message names the first invalid one.
        InvalidIdentifierError: ``key`` is not an identifier.
        PromptDefinitionError: a placeholder is not printable, or not in the text.
    """
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataFormatError(
                f"{where or f'section `{key}`'}: expected UTF-8, found the byte "
                f"0x{content[error.start]:02X} at offset {error.start}; save the file as UTF-8"
            ) from None
    return MarkdownSection(
        title=title, key=key, template=content, syntax="plain", placeholders=placeholders
    )


def check_siblings(sections: tuple[MarkdownSection, ...], where: str) -> None:
    """Refuse siblings with the same key, which would share overrides."""
    keys: set[str] = set()
    for section in sections:
        if section.key in keys:
            raise PromptDefinitionError(f"{where}: two sections have the key `{section.key}`")
        keys.add(section.key)


def show_section(path: SectionPath) -> str:
    """Return the name of a section in messages."""
    return f"section `{show_path(path)}`"


@attrs.frozen(kw_only=True)
class TaskStep:
    """One tool call of a worked example.

    Attributes:
        tool_name: the tool.
        example: the reason for the call, its input and its output.
    """

    tool_name: str
    example: ToolExample[object, object]


@attrs.frozen(kw_only=True)
class TaskExample:
    """A worked example.

    Attributes:
        key: identifier of the example in its section.
        objective: the task.
        steps: the tool calls, in order.
        outcome: the answer: a text, or an instance of the prompt's output type.
        overridable: whether stores may replace or remove it.
        hidden: whether it is not shown unless an override shows it.

    Raises:
        InvalidIdentifierError: ``key`` is not an identifier.
    """

    key: str
    objective: str
    steps: tuple[TaskStep, ...] = attrs.field(default=(), converter=tuple[TaskStep, ...])
    outcome: object = attrs.field(hash=False)
    overridable: bool = attrs.field(default=True, validator=FLAG)
    hidden: bool = attrs.field(default=False, validator=FLAG)

    def __attrs_post_init__(self) -> None:
        check_key(self.key, "task example key")


@attrs.frozen(kw_only=True)
class TaskExamplesSection(MarkdownSection):
    """A section with worked examples; a prompt may have several.

    Attributes:
        examples: the examples, in the order in which they are shown.

    Raises:
        PromptDefinitionError: two examples, or an example and a child, share a key.
    """

    examples: tuple[TaskExample, ...] = attrs.field(default=(), converter=tuple[TaskExample, ...])

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        keys = {child.key for child in self.children}
        for example in self.examples:
            if example.key in keys:
                raise PromptDefinitionError(
                    f"section `{self.key}`: two parts have the key `{example.key}`"
                )
            keys.add(example.key)


def _needs(section: MarkdownSection, name: str) -> Iterator[str]:
    """Yield reasons why a section must be shown as it is, with all that is below it."""
    for tool in section.tools:
        yield f"{name} offers the tool `{tool.name}`"
    for placeholder in section.source.placeholders:
        yield f"{name} has the placeholder `{spell(placeholder, section.source.syntax)}`"
    if section.source.syntax is BodySyntax.PLAIN or section.fault:
        yield f"the text of {name} is read by its name"
    if not isinstance(section.visibility, SectionVisibility):
        yield f"a function decides how {name} is shown"
    for example in section.examples if isinstance(section, TaskExamplesSection) else ():
        if not example.overridable:
            yield f"its example `{example.key}` may not be overridden"
    for child in section.children:
        if not child.overridable:
            yield f"`{child.key}` below it may not be overridden"
        yield from _needs(child, f"`{child.key}` below it")


def if_given(title: str, key: str, *, before: str = "") -> MarkdownSection:
    """Return a section that shows the value ``key``, omitted if it is empty."""
    lead = f"{before}\n\n" if before else ""
    return MarkdownSection(title=title, key=key, template=f"{lead}${key}", enabled=given(key))


REFUSED = MarkdownSection(
    title="Refused attempt",
    key="problem",
    template=(
        "Your previous reply could not be used: $problem\n\n$previous\n\nMend that and reply again."
    ),
    enabled=given("problem"),
)
"""Tells the model why its previous reply was refused; omitted at the first attempt."""
