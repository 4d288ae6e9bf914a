"""Rendering of a template with overrides and values.

Missing, ambiguous and nameless values raise ``BindingError``, Jinja blocks that do not render
``PromptRenderError``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from promptgraft.errors import BindingError, user_errors
from promptgraft.ground.content import Content, File, cut_at
from promptgraft.ground.serde import did_you_mean, field_names, shown
from promptgraft.ground.text import raised
from promptgraft.overrides.parts.body import BodySyntax, Slot, spell
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    SectionPath,
    SectionVisibility,
    ToolDescriptor,
    section_part,
    summary_part,
    task_example_part,
    tool_part,
)
from promptgraft.overrides.parts.entry import EffectiveParts
from promptgraft.overrides.parts.examples import ToolCall, WorkedExample
from promptgraft.overrides.resolution import Resolution, effective_parts
from promptgraft.prompt.describing import Walked
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection, RenderedTool, Segment
from promptgraft.prompt.schema import FieldTexts, output_descriptions, shown_outcome
from promptgraft.prompt.sections import (
    MarkdownSection,
    Role,
    TaskExamplesSection,
    Tool,
    show_section,
)
from promptgraft.prompt.syntax import Values
from promptgraft.prompt.values import unshowable

T = TypeVar("T")


class Bindings:
    """The bound parameters, looked up by field name.

    Raises:
        BindingError: two have the same class, or one has no named values.
    """

    def __init__(self, params: Sequence[object]) -> None:
        self._by_type = {kind: values_of(param) for kind, param in by_class(params).items()}
        self._ambiguous: set[str] = set()
        self.all: dict[str, object] = {}
        for values in self._by_type.values():
            self._ambiguous.update(self.all.keys() & values.keys())
            self.all.update(values)

    def visible_to(self, section: MarkdownSection, path: SectionPath) -> Values:
        """Return the values in which the placeholders of ``section`` are looked up."""
        if (kind := section.params_type) is not None:
            if kind in self._by_type:
                return self._by_type[kind]
            bound = ", ".join(kind.__name__ for kind in self._by_type) or "nothing"
            raise BindingError(
                f"{show_section(path)} needs a bound `{kind.__name__}`; bound: {bound}"
            )
        # Only variables: an opaque block may test with `is defined`, else it fails when it renders.
        for name in section.source.variables:
            if name not in self.all:
                self._refuse_unbound(name, section, path)
        for name in section.source.reads:
            if name in self._ambiguous:
                raise BindingError(
                    f"{show_section(path)}: two bound parameters have a field `{name}`; "
                    "give the section a params_type"
                )
        return self.all

    def _refuse_unbound(self, name: str, section: MarkdownSection, path: SectionPath) -> None:
        """Raise a ``BindingError`` for a placeholder without a value, unless it is literal."""
        alike = [name_known for name_known in self.all if name_known.casefold() == name.casefold()]
        # A name like that of a value is a misspelled placeholder, not a variable of a shell.
        if name in section.source.written and not alike:
            return
        near = f" (did you mean `{alike[0]}`?)" if alike else did_you_mean(name, [*self.all])
        bound = ", ".join(f"`{name_known}`" for name_known in self.all) or "nothing"
        raise BindingError(
            f"{show_section(path)} needs a value for `{spell(name, section.source.syntax)}`{near}; "
            f"bound values: {bound}; bind a parameter with that field"
        )


def by_class(params: Sequence[object]) -> dict[type, object]:
    """Return parameters by class.

    Raises:
        BindingError: two have the same class.
    """
    by_type = {type(param): param for param in params}
    if len(by_type) < len(params):
        kinds = [type(param) for param in params]
        twice = next(kind for at, kind in enumerate(kinds) if kind in kinds[:at])
        raise BindingError(
            f"bind: expected one parameter of each class, found two of `{twice.__name__}`; put "
            "their values into one, or give them different classes"
        )
    return by_type


def values_of(param: object) -> Values:
    """Return the fields of a parameter by name."""
    if isinstance(param, Mapping) and all(isinstance(key, str) for key in param):
        return param
    names = field_names(type(param))
    if isinstance(param, File):
        raise BindingError(f"bind: expected values by name, found {param}; bind {{'name': …}}")
    if names is None or isinstance(param, type):
        raise BindingError(
            "bind: expected attrs or dataclass instances, or mappings with string keys; "
            f"found {shown(param)}"
        )
    return {name: getattr(param, name) for name in names}


def check_values(values: Values, shown_names: Container[str]) -> None:
    """Raise a ``BindingError`` for a value that has no text and that a placeholder shows."""
    for name, value in values.items():
        is_text = isinstance(value, str)
        if not is_text and name in shown_names and (fault := unshowable(value)):
            raise BindingError(f"bind: {name}: expected a text, an Image or a File, found {fault}")


OutputT = TypeVar("OutputT")


@attrs.frozen(kw_only=True)
class Resolved:
    """A prompt with overrides applied, as far as that does not depend on bound values.

    Attributes:
        resolution: which overrides apply, and which are skipped.
        parts: the parts with the overrides applied.
        said: descriptions of the answer's fields, where overrides changed them, and of a choice.
        tools: the tools by name.
        examples: the task examples by the section that holds them.
        owners: each override that may be shown, with the section or tool that shows it; None
            for overrides of the answer.
    """

    resolution: Resolution
    parts: EffectiveParts
    said: FieldTexts
    tools: Mapping[str, RenderedTool]
    examples: Mapping[SectionPath, tuple[RenderedSection, ...]]
    owners: tuple[tuple[str, str | None], ...]


def resolve(descriptor: PromptDescriptor, walked: Walked, resolution: Resolution) -> Resolved:
    """Return the result that all renderings with these overrides share."""
    entries = resolution.fresh.entries() if resolution.fresh else ()
    parts = effective_parts(descriptor, resolution.fresh)
    descriptions = output_descriptions(descriptor, parts)
    # Overrides of a removed or hidden example are not shown.
    gone = {entry.target for entry in entries if entry.target != entry.part}
    gone |= {task_example_part(path) for path in parts.visibility if parts.hides(path)}
    return Resolved(
        resolution=resolution,
        parts=parts,
        said=descriptions,
        tools={
            tool.name: _tool(tool, parts.tools[tool.name])
            for _, section in walked
            for tool in section.tools
        },
        examples={
            path: tuple(
                _examples(path, parts.shown_examples(path), descriptor.output_type, descriptions)
            )
            for path in parts.examples
        },
        owners=tuple((entry.part, entry.owner) for entry in entries if entry.part not in gone),
    )


def render_prompt(
    descriptor: PromptDescriptor,
    walked: Walked,
    bindings: Bindings | None,
    resolved: Resolved,
    *,
    output_type: Any,
    repair: bool = True,
) -> RenderedPrompt[Any]:
    """Render the sections that are enabled, parents before children, with tools and examples.

    Without ``bindings``, placeholders stay, and sections that depend on values are shown in full.
    """
    sections: list[RenderedSection] = []
    tools: list[RenderedTool] = []
    shown_parts: set[str] = set()
    roles: dict[SectionPath, Role | None] = {}
    for path, section, visibility in _visible(walked, bindings, resolved.parts):
        roles[path] = section.role or roles.get(path[:-1])
        if visibility is SectionVisibility.SUMMARY:
            sections.append(_summarized(path, section, resolved.parts.summaries.get(path)))
            shown_parts.add(summary_part(path))
            continue
        body = _full(path, section, bindings, resolved.parts.bodies.get(path))
        if section.tools:
            tools_here = [resolved.tools[tool.name] for tool in section.tools]
            body = _with_calls(body, tools_here, syntax=section.source.syntax)
            tools.extend(tools_here)
            shown_parts.update(tool_part(tool.name) for tool in section.tools)
        sections.append(body)
        if isinstance(section, TaskExamplesSection):
            sections.extend(resolved.examples[path])
        if resolved.owners:
            shown_parts.add(section_part(path))
    if any(roles.values()):
        # Task examples have no role of their own, but that of the section that holds them.
        sections = [
            attrs.evolve(section, role=roles.get(section.path, roles.get(section.path[:-1])))
            for section in sections
        ]
    used = {part for part, owner in resolved.owners if owner is None or owner in shown_parts}
    return RenderedPrompt(
        ns=descriptor.ns,
        key=descriptor.key,
        sections=tuple(sections),
        tools=tuple(tools),
        output_type=output_type,
        described=resolved.said,
        repair=repair,
        applied=tuple(part for part in resolved.resolution.applied if part.part in used),
        skipped=resolved.resolution.skipped,
    )


def _summarized(
    path: SectionPath, section: MarkdownSection, summary: str | None
) -> RenderedSection:
    """Return a section of which only the summary is shown: that of an override, if there is one."""
    text = (section.summary or "") if summary is None else summary
    return RenderedSection(
        path=path,
        title=section.title,
        segments=(Segment(text),),
        overridden=summary is not None,
        summarized=True,
        lead=section.lead,
    )


def _visible(
    walked: Walked, bindings: Bindings | None, parts: EffectiveParts
) -> Iterator[tuple[SectionPath, MarkdownSection, SectionVisibility]]:
    """Yield the enabled sections, except hidden ones and those below a summary or such a one."""
    hidden: SectionPath | None = None
    for path, section in walked:
        if hidden is not None and path[: len(hidden)] == hidden:
            continue
        hidden = None
        enabled, visibility = section.enabled, section.visibility
        if enabled and bindings and not _decided(path, "enabled", enabled, bindings):
            hidden = path
            continue
        if not isinstance(visibility, SectionVisibility):
            full = SectionVisibility.FULL
            visibility = _decided(path, "visibility", visibility, bindings) if bindings else full
        else:
            visibility = parts.visibility.get(path, SectionVisibility.FULL)
        if visibility is not SectionVisibility.FULL:
            hidden = path
        if visibility is not SectionVisibility.HIDDEN:
            yield path, section, visibility


def _decided(path: SectionPath, name: str, decide: Callable[[Values], T], bindings: Bindings) -> T:
    try:
        return decide(bindings.all)
    except user_errors() as error:
        raise BindingError(
            f"section `{'/'.join(path)}`: `{name}` raised {raised(error)}; expected a function "
            "of the bound values"
        ) from error


def _full(
    path: SectionPath, section: MarkdownSection, bindings: Bindings | None, body: str | None
) -> RenderedSection:
    source = section.source
    if bindings is None:
        # Named after any of them, because callers take a segment without a placeholder for fixed
        # text.
        slot = next((piece.name for piece in source.pieces if isinstance(piece, Slot)), None)
        # Spelled like an override: `$5`, not `$$5`. A Jinja template keeps its blocks.
        written = source.body if source.syntax is BodySyntax.DOLLAR else section.template
        written = written if body is None else source.as_template(body)
        segments = [Segment(written, slot)]
    else:
        pieces = source.pieces if body is None else source.parse(body)
        contents = source.contents(bindings.visible_to(section, path))
        segments = []
        for piece in pieces:
            if not isinstance(piece, Slot):
                segments.append(Segment(piece))
            elif isinstance(content := contents[piece.name], str):
                segments.append(Segment(content, piece.name))
            else:
                segments += _segments(content, piece.name)
    return RenderedSection(
        path=path,
        title=section.title,
        segments=tuple(segments),
        overridden=body is not None,
        lead=section.lead,
    )


def _segments(content: Content, placeholder: str) -> list[Segment]:
    return [
        Segment(str(piece), placeholder, piece if isinstance(piece, File) else None)
        for piece in content
    ]


def with_files(rendered: RenderedPrompt[OutputT], files: Iterable[File]) -> RenderedPrompt[OutputT]:
    """Return a prompt that shows files where a bound text has their name for the first time."""
    waiting = {str(file): file for file in files}
    sections = []
    for section in rendered.sections:
        segments: list[Segment] = []
        for segment in section.segments:
            if segment.placeholder is None or segment.file is not None:
                segments.append(segment)
                continue
            content = cut_at(segment.text, waiting.values())
            segments += _segments(content, segment.placeholder)
            for piece in content:
                waiting.pop(str(piece), None)
        sections.append(attrs.evolve(section, segments=tuple(segments)))
    return attrs.evolve(rendered, sections=tuple(sections))


def _tool(tool: Tool[Any, Any], effective: ToolDescriptor) -> RenderedTool:
    return RenderedTool(
        tool=tool,
        description=effective.description,
        param_descriptions=effective.param_descriptions,
        examples=effective.examples,
    )


def _with_calls(
    section: RenderedSection, tools: Sequence[RenderedTool], *, syntax: BodySyntax
) -> RenderedSection:
    blocks = [
        f"Example calls of `{tool.name}`:\n\n" + "\n".join(_calls(tool.examples))
        for tool in tools
        if tool.examples
    ]
    if not blocks:
        return section
    if syntax is BodySyntax.PLAIN:
        return attrs.evolve(section, calls="\n\n".join(blocks))
    before = _without_last_breaks(section.segments)
    segment = Segment(("\n\n" if before else "") + "\n\n".join(blocks))
    return attrs.evolve(section, segments=(*before, segment))


def _without_last_breaks(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    for at in range(len(segments) - 1, -1, -1):
        if text := segments[at].text.rstrip("\n"):
            return (*segments[:at], attrs.evolve(segments[at], text=text))
    return ()


def _calls(calls: Iterable[ToolCall], *, named: bool = False) -> Iterator[str]:
    for number, call in enumerate(calls, 1):
        name = f"`{call.tool_name}`: " if named else ""
        yield f"{number}. {name}{call.description}"
        yield f"   input: {call.input_json}"
        yield f"   output: {call.output_json}"


def _examples(
    path: SectionPath,
    examples: Mapping[str, WorkedExample],
    output_type: Any,
    field_texts: FieldTexts,
) -> Iterator[RenderedSection]:
    for key, example in examples.items():
        blocks = [f"Objective: {example.objective}"]
        if example.steps:
            blocks.append("Steps:\n" + "\n".join(_calls(example.steps, named=True)))
        outcome = shown_outcome(example.outcome_json, output_type, field_texts)
        blocks.append(f"Outcome: {outcome}")
        yield RenderedSection(
            path=(*path, key), title=f"Example: {key}", segments=(Segment("\n\n".join(blocks)),)
        )
