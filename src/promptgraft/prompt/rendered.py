"""Rendered prompts, and parsing of answers into the output type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin

import attrs

from promptgraft.errors import PromptDefinitionError, UnknownPartError
from promptgraft.ground.content import Content, File, cut
from promptgraft.ground.notebook import Card, LongText, Shown
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.ground.text import counted
from promptgraft.overrides.parts.descriptors import SectionPath, show_path
from promptgraft.overrides.parts.examples import ToolCall
from promptgraft.overrides.types import AppliedOverride, SkippedOverride
from promptgraft.prompt.answers import Parsed, read_output
from promptgraft.prompt.fields import Described, options_of
from promptgraft.prompt.schema import JsonObject, check_round_trip, params_descriptions, schema_of
from promptgraft.prompt.sections import Role, Tool

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import TypeForm as TypeForm  # noqa: PLC0414 - for the modules above

    # A prompt without an output type is a `Prompt[object]`.
    OutputT_co = typing_extensions.TypeVar("OutputT_co", covariant=True, default=object)
else:  # loading `typing_extensions` takes longer than loading prompts
    TypeForm, OutputT_co = type, TypeVar("OutputT_co", covariant=True)

_DEEPEST_HEADING = 6


@attrs.frozen
class Segment:
    """A stretch of rendered text.

    Attributes:
        placeholder: the placeholder whose value it is; None for text of the prompt.
        file: the image or file whose name the text is; None for a text.
    """

    text: str
    placeholder: str | None = None
    file: File | None = None


@attrs.frozen(kw_only=True)
class RenderedSection:
    """One section as the model receives it.

    Attributes:
        path: its path of keys.
        title: its heading; empty for none.
        segments: its text, without heading and children.
        overridden: whether the text is an override.
        summarized: whether the text is the summary.
        calls: example calls of its tools, shown after its text; only in a plain section, whose
            text is passed to the agent without them.
        lead: what is sent before its text, such as a heading as it was written, with all line
            breaks; None for the usual heading and one empty line.
        role: ``system`` or ``user``: the message that it belongs to; None for the usual one.
    """

    path: SectionPath
    title: str
    segments: tuple[Segment, ...]
    overridden: bool = False
    summarized: bool = False
    calls: str = ""
    lead: str | None = None
    role: Role | None = None

    @property
    def text(self) -> str:
        """The text of the section, without its heading."""
        return "".join([segment.text for segment in self.segments])

    @property
    def heading(self) -> str:
        """The heading as a Markdown line; empty without a title."""
        if not self.title:
            return ""
        return f"{'#' * min(1 + len(self.path), _DEEPEST_HEADING)} {self.title}"


@attrs.frozen(kw_only=True)
class RenderedTool:
    """A tool as it is described to the model.

    Attributes:
        tool: the source, with types and handler.
        param_descriptions: the descriptions of its parameters, by name.
        examples: example calls, shown in the text of the prompt.
    """

    tool: Tool[Any, Any]
    description: str
    param_descriptions: Mapping[str, str]
    examples: tuple[ToolCall, ...]

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.tool.name

    @property
    def params_schema(self) -> JsonObject:
        """JSON Schema of the parameters with their descriptions."""
        kind = self.tool.params_type
        return schema_of(kind, params_descriptions(kind, self.param_descriptions))


@attrs.frozen(kw_only=True)
class RenderedPrompt(Shown, Generic[OutputT_co]):
    """A prompt as a model receives it, and the overrides that were applied.

    Attributes:
        ns: namespace of the prompt.
        key: key of the prompt.
        sections: the sections in reading order.
        tools: the tools that may be called.
        output_type: the type that the answer is parsed into; None for text.
        described: descriptions of the answer's fields by key, where overrides changed them, and
            that of a choice.
        repair: whether answers that are not strict JSON are repaired.
        applied: overrides that replaced their source.
        skipped: stored overrides that were not applied, and why.
        text: all sections as one Markdown text, with the names of images and files.
    """

    ns: str
    key: str
    sections: tuple[RenderedSection, ...]
    output_type: TypeForm[OutputT_co] | None
    tools: tuple[RenderedTool, ...] = ()
    described: Mapping[str, Described] = attrs.field(factory=dict)
    repair: bool = True
    applied: tuple[AppliedOverride, ...]
    skipped: tuple[SkippedOverride, ...]
    text: str = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        text = "".join([piece for pieces in _laid_out(self.sections) for piece in pieces])
        object.__setattr__(self, "text", text)

    @property
    def content(self) -> Content:
        """The text, cut at images and files, which stand in place of their names."""
        places: list[tuple[int, File]] = []
        start = 0
        for section, pieces in zip(self.sections, _laid_out(self.sections), strict=True):
            stripped = len(section.text) - len(section.text.lstrip("\n"))
            at = start + len(pieces[0]) - stripped
            for segment in section.segments:
                if segment.file is not None:
                    places.append((at, segment.file))
                at += len(segment.text)
            start += sum(map(len, pieces))
        return cut(self.text, places)

    @property
    def output_schema(self) -> JsonObject | None:
        """JSON Schema of the answer with descriptions of its fields; None for text."""
        if self.output_type is None or self.output_type is str:
            return None
        return schema_of(self.output_type, self.described)

    def parse(self, text: str) -> OutputT_co | None:
        """Parse an answer into the output type; None without an output type.

        Raises:
            OutputError: the text does not fit.
        """
        return self.read(text).output

    def read(self, text: str) -> Parsed[OutputT_co]:
        """Parse an answer, and say what was repaired in it; see :func:`read_output`.

        Raises:
            OutputError: the text does not fit.
        """
        return read_output(self.output_type, text, self.described, repair=self.repair)

    def __str__(self) -> str:
        return self.text

    def _card(self) -> Card:
        overridden = ", ".join(override_part.part for override_part in self.applied)
        skipped = ", ".join(
            f"{override_part.part} ({override_part.reason})" for override_part in self.skipped
        )
        return Card(
            title=f"{self.ns}/{self.key}",
            lead=f"as a model receives it: {counted(len(self.text), 'character')}",
            fields=(
                ("answer", show_type(self.output_type)),
                ("tools", ", ".join(tool.name for tool in self.tools) or "none"),
                ("overridden", overridden or "none"),
                ("not applied", skipped or "none"),
            ),
            blocks=(LongText(title="text", text=self.text, is_open=True),),
        )


def _laid_out(sections: Iterable[RenderedSection]) -> Iterator[tuple[str, str, str]]:
    """Yield what stands before the text of each section, the text, and its example calls."""
    has_text = False
    for section in sections:
        body, gap = section.text.strip("\n"), "\n\n" if has_text else ""
        if section.lead is not None:
            before = section.lead if has_text else section.lead.lstrip("\n")
        elif section.heading:
            before = f"{gap}{section.heading}" + ("\n\n" if body else "")
        else:
            before = gap if body else ""
        has_text = has_text or bool(before or body)
        calls = f"\n\n{section.calls}" if section.calls and has_text else section.calls
        has_text = has_text or bool(calls)
        yield before, body, calls


def show_type(output_type: Any) -> str:
    """Return a description of the output type for cards."""
    if output_type is None or output_type is str:
        return "text"
    if options := options_of(output_type):
        return f"one of {', '.join(options)}"
    is_class = isinstance(output_type, type) and not get_args(output_type)
    return output_type.__name__ if is_class else str(output_type).replace("typing.", "")


def text_of_section(rendered: RenderedPrompt[Any], key: str) -> str:
    """Return the own text of a section; for a plain one, exactly the source or the override.

    Args:
        rendered: the prompt.
        key: key of the section, or its whole path, such as ``rules/tone``.

    Raises:
        UnknownPartError: no such section is shown; the message lists the sections that are.
    """
    for section in rendered.sections:
        if show_path(section.path) == key:
            return section.text
    paths = [show_path(section.path) for section in rendered.sections]
    raise UnknownPartError(
        f"prompt `{rendered.ns}/{rendered.key}` shows no section `{key}`"
        f"{did_you_mean(key, paths)}; sections: {', '.join(paths) or 'none'}"
    )


@attrs.frozen
class PromptRendered:
    """A prompt was rendered for an evaluation."""

    prompt: RenderedPrompt[object]


def check_output_type(output_type: Any, where: str) -> None:
    """Refuse a value that is no type, and types whose values JSON cannot represent."""
    if output_type is None or output_type is str or options_of(output_type):
        return
    if not isinstance(output_type, type) and get_origin(output_type) is None:
        raise PromptDefinitionError(
            f"{where}: output_type: expected a type such as str, an Enum, a class or list[str], "
            f"found {shown(output_type)}"
        )
    check_round_trip(output_type, f"{where}: output_type")


def check_choice(described: Described, output_type: Any, where: str) -> None:
    """Refuse the description of a choice if there is none, or of a missing option."""
    if described == Described():
        return
    options = options_of(output_type)
    if not options or described.aliases:
        raise PromptDefinitionError(
            f"{where}: choice: only an answer that is a choice is described by it, and a choice "
            "has no aliases; describe the fields of a class with annotations"
        )
    for option in described.values:
        if option not in options:
            raise PromptDefinitionError(
                f"{where}: choice: there is no option {shown(option)}; options: "
                + ", ".join(options)
            )
