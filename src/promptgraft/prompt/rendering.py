"""From a template, overrides and values to the text that a model receives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from promptgraft.errors import BindingError
from promptgraft.overrides.body import Piece, Slot, spell
from promptgraft.overrides.types import (
    AppliedOverride,
    SectionOverride,
    SectionPath,
    SkippedOverride,
)
from promptgraft.overrides.validation import Resolution
from promptgraft.prompt.sections import MarkdownSection, SectionVisibility, show_section
from promptgraft.prompt.syntax import Values
from promptgraft.serde import field_names, shown

OutputT_co = TypeVar("OutputT_co", covariant=True)

_DEEPEST_HEADING = 6


@attrs.frozen
class Segment:
    """A stretch of rendered text.

    Attributes:
        text: the text.
        placeholder: the placeholder whose value it is; None for text of the prompt itself.
    """

    text: str
    placeholder: str | None = None


@attrs.frozen(kw_only=True)
class RenderedSection:
    """One section as the model receives it.

    Attributes:
        path: where it stands.
        title: its heading.
        segments: its text without the heading and without its children.
        overridden: whether the text is an override.
        summarized: whether the text is the summary.
    """

    path: SectionPath
    title: str
    segments: tuple[Segment, ...]
    overridden: bool = False
    summarized: bool = False

    @property
    def text(self) -> str:
        """The text of the section, without its heading."""
        return "".join(segment.text for segment in self.segments)

    @property
    def heading(self) -> str:
        """The heading as a Markdown line."""
        return f"{'#' * min(1 + len(self.path), _DEEPEST_HEADING)} {self.title}"


@attrs.frozen(kw_only=True)
class RenderedPrompt(Generic[OutputT_co]):
    """What a model receives, and which overrides made it so.

    Attributes:
        ns: namespace of the prompt.
        key: key of the prompt.
        sections: the sections in reading order.
        output_type: what the answer is parsed into; None for text.
        applied: overrides that replaced their source.
        skipped: overrides that are kept but were not applied, and why.
        text: all sections as one Markdown text.
    """

    ns: str
    key: str
    sections: tuple[RenderedSection, ...]
    output_type: type[OutputT_co] | None
    applied: tuple[AppliedOverride, ...]
    skipped: tuple[SkippedOverride, ...]
    text: str = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        blocks = []
        for section in self.sections:
            blocks.append(section.heading)
            if body := section.text.strip("\n"):
                blocks.append(body)
        object.__setattr__(self, "text", "\n\n".join(blocks))


@attrs.frozen
class PromptRendered:
    """A prompt was rendered for an evaluation."""

    prompt: RenderedPrompt[object]


class Bindings:
    """The bound parameters, looked up by field name.

    Raises:
        BindingError: a parameter is neither an attrs or dataclass instance nor a mapping.
    """

    def __init__(self, params: Sequence[object]) -> None:
        self._by_type: dict[type, Values] = {type(param): values_of(param) for param in params}
        self._ambiguous: set[str] = set()
        self._all: dict[str, object] = {}
        for values in self._by_type.values():
            self._ambiguous.update(self._all.keys() & values.keys())
            self._all.update(values)

    @property
    def all(self) -> Values:
        """Every value by field name."""
        return self._all

    def visible_to(self, section: MarkdownSection, path: SectionPath) -> Values:
        """Return the values that the placeholders of ``section`` are looked up in.

        Raises:
            BindingError: a value is missing or two parameters offer it.
        """
        if section.params_type is not None:
            return self._of_type(section.params_type, path)
        for name in section.source.placeholders:
            if name not in self._all and name not in section.source.opaque:
                raise self._missing(section, path, name)
        for name in section.source.reads:
            if name in self._ambiguous:
                raise BindingError(
                    f"{show_section(path)}: two bound parameters have a field `{name}`; "
                    "give the section a params_type"
                )
        return self._all

    def _of_type(self, kind: type, path: SectionPath) -> Values:
        if kind in self._by_type:
            return self._by_type[kind]
        bound = ", ".join(found.__name__ for found in self._by_type) or "nothing"
        raise BindingError(f"{show_section(path)} needs a bound `{kind.__name__}`; bound: {bound}")

    def _missing(self, section: MarkdownSection, path: SectionPath, name: str) -> BindingError:
        bound = ", ".join(f"`{known}`" for known in self._all) or "nothing"
        return BindingError(
            f"{show_section(path)} needs a value for `{spell(name, section.source.syntax)}`; "
            f"bound values: {bound}; bind a parameter with that field"
        )


def values_of(param: object) -> Values:
    """Return the fields of a parameter by name.

    Raises:
        BindingError: it is neither an attrs or dataclass instance nor a mapping of names.
    """
    if isinstance(param, Mapping) and all(isinstance(key, str) for key in param):
        return param
    names = field_names(type(param))
    if names is None or isinstance(param, type):
        raise BindingError(
            "bind: expected attrs or dataclass instances, or mappings with string keys; "
            f"found {shown(param)}"
        )
    return {name: getattr(param, name) for name in names}


def render_sections(
    sections: Sequence[tuple[SectionPath, MarkdownSection]],
    bindings: Bindings,
    resolution: Resolution,
) -> tuple[RenderedSection, ...]:
    """Render the sections that are enabled, parents before children.

    Raises:
        BindingError: a placeholder has no value.
        PromptRenderError: an opaque Jinja block does not render.
    """
    rendered: list[RenderedSection] = []
    hidden: SectionPath | None = None
    for path, section in sections:
        if hidden is not None and path[: len(hidden)] == hidden:
            continue
        hidden = None
        if section.enabled is not None and not section.enabled(bindings.all):
            hidden = path
            continue
        if _visibility(section, bindings.all) is SectionVisibility.SUMMARY:
            hidden = path
            rendered.append(_summary(path, section))
            continue
        rendered.append(_full(path, section, bindings, resolution.sections.get(path)))
    return tuple(rendered)


def _visibility(section: MarkdownSection, values: Values) -> SectionVisibility:
    if isinstance(section.visibility, SectionVisibility):
        return section.visibility
    return section.visibility(values)


def _summary(path: SectionPath, section: MarkdownSection) -> RenderedSection:
    segments = (Segment(section.summary or ""),)
    return RenderedSection(path=path, title=section.title, segments=segments, summarized=True)


def _full(
    path: SectionPath,
    section: MarkdownSection,
    bindings: Bindings,
    override: SectionOverride | None,
) -> RenderedSection:
    values = bindings.visible_to(section, path)
    source = section.source
    pieces = source.pieces if override is None else source.parse(override.body)
    texts = source.texts(values)

    def segment(piece: Piece) -> Segment:
        return Segment(texts[piece.name], piece.name) if isinstance(piece, Slot) else Segment(piece)

    return RenderedSection(
        path=path,
        title=section.title,
        segments=tuple(segment(piece) for piece in pieces),
        overridden=override is not None,
    )
