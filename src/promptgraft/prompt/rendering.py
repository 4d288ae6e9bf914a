"""From a template, overrides and values to what a model receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import attrs

from promptgraft.overrides.body import Piece, Slot
from promptgraft.overrides.effective import (
    effective_field,
    effective_task_examples,
    effective_tool,
)
from promptgraft.overrides.entries import (
    Entry,
    OutputFieldOverride,
    SectionOverride,
    SectionPath,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
    section_part,
    tool_part,
)
from promptgraft.overrides.parts import PromptDescriptor, ToolCall
from promptgraft.overrides.resolution import Resolution
from promptgraft.overrides.types import PromptOverride
from promptgraft.prompt.binding import Bindings
from promptgraft.prompt.describing import Walked
from promptgraft.prompt.fields import Described
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection, RenderedTool, Segment
from promptgraft.prompt.sections import MarkdownSection, SectionVisibility
from promptgraft.prompt.syntax import Values
from promptgraft.prompt.task_examples import TaskExamplesSection
from promptgraft.prompt.tools import Tool
from promptgraft.serde import parse_json

OutputT = TypeVar("OutputT")


def render_prompt(
    descriptor: PromptDescriptor,
    walked: Walked,
    bindings: Bindings,
    resolution: Resolution,
    *,
    output_type: type[OutputT] | None,
) -> RenderedPrompt[OutputT]:
    """Render the sections that are enabled, parents before children, with tools and examples.

    Raises:
        BindingError: a placeholder has no value.
        PromptRenderError: an opaque Jinja block does not render.
    """
    sections: list[RenderedSection] = []
    tools: list[RenderedTool] = []
    fresh = resolution.fresh
    shown: set[str] = set()
    for path, section in _visible(walked, bindings):
        if _visibility(section, bindings.all) is SectionVisibility.SUMMARY:
            sections.append(_summary(path, section))
            continue
        tools_here = [_tool(descriptor, tool, fresh) for tool in section.tools]
        body = _full(path, section, bindings, fresh)
        sections.append(_with_calls(body, tools_here))
        tools.extend(tools_here)
        if isinstance(section, TaskExamplesSection):
            sections.extend(_examples(descriptor, path, fresh))
        shown.add(section_part(path))
        shown.update(tool_part(tool.name) for tool in section.tools)
    return RenderedPrompt(
        ns=descriptor.ns,
        key=descriptor.key,
        sections=tuple(sections),
        tools=tuple(tools),
        output_type=output_type,
        described=_described(descriptor, fresh),
        applied=tuple(part for part in resolution.applied if part.part in _used(fresh, shown)),
        skipped=resolution.skipped,
    )


def _used(fresh: PromptOverride | None, shown: set[str]) -> set[str]:
    """Return the overridden parts that the model really receives."""
    removed = fresh.removed_task_examples if fresh else {}
    return {
        entry.part
        for entry in (fresh.entries() if fresh else ())
        if (_owner(entry) is None or _owner(entry) in shown)
        and not (isinstance(entry, TaskExampleOverride) and entry.path in removed)
    }


def _owner(entry: Entry) -> str | None:
    """Return the section or tool that shows what an entry replaces; None for the answer's."""
    match entry:
        case SectionOverride():
            return entry.part
        case ToolOverride():
            return entry.part
        case ToolExampleOverride():
            return tool_part(entry.tool_name)
        case OutputFieldOverride():
            return None
        case _:
            return section_part(entry.path[:-1])


def _visible(walked: Walked, bindings: Bindings) -> Iterator[tuple[SectionPath, MarkdownSection]]:
    """Yield the sections that are enabled and do not stand below a summary or a disabled one."""
    hidden: SectionPath | None = None
    for path, section in walked:
        if hidden is not None and path[: len(hidden)] == hidden:
            continue
        hidden = None
        if section.enabled is not None and not section.enabled(bindings.all):
            hidden = path
            continue
        if _visibility(section, bindings.all) is SectionVisibility.SUMMARY:
            hidden = path
        yield path, section


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
    fresh: PromptOverride | None,
) -> RenderedSection:
    override = fresh.sections.get(path) if fresh else None
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


def _tool(
    descriptor: PromptDescriptor, tool: Tool[Any, Any], fresh: PromptOverride | None
) -> RenderedTool:
    effective = effective_tool(descriptor.tools_by_name[tool.name], fresh)
    return RenderedTool(
        tool=tool,
        description=effective.description,
        param_descriptions=effective.param_descriptions,
        examples=effective.examples,
    )


def _with_calls(section: RenderedSection, tools: Sequence[RenderedTool]) -> RenderedSection:
    """Return the section with the examples of its tools after its text."""
    blocks = [
        f"Example calls of `{tool.name}`:\n\n" + "\n".join(_calls(tool.examples))
        for tool in tools
        if tool.examples
    ]
    if not blocks:
        return section
    gap = "\n\n" if section.text else ""
    segment = Segment(gap + "\n\n".join(blocks))
    return attrs.evolve(section, segments=(*section.segments, segment))


def _calls(calls: Iterable[ToolCall], *, named: bool = False) -> Iterator[str]:
    for number, call in enumerate(calls, 1):
        name = f"`{call.tool_name}`: " if named else ""
        yield f"{number}. {name}{call.description}"
        yield f"   input: {call.input_json}"
        yield f"   output: {call.output_json}"


def _examples(
    descriptor: PromptDescriptor, path: SectionPath, fresh: PromptOverride | None
) -> Iterator[RenderedSection]:
    for key, example in effective_task_examples(descriptor, path, fresh):
        blocks = [f"Objective: {example.objective}"]
        if example.steps:
            blocks.append("Steps:\n" + "\n".join(_calls(example.steps, named=True)))
        blocks.append(f"Outcome: {_outcome(example.outcome_json)}")
        yield RenderedSection(
            path=(*path, key),
            title=f"Example: {key}",
            segments=(Segment("\n\n".join(blocks)),),
        )


def _outcome(outcome_json: str) -> str:
    value = parse_json(outcome_json, where="outcome")
    return value if isinstance(value, str) else outcome_json


def _described(descriptor: PromptDescriptor, fresh: PromptOverride | None) -> dict[str, Described]:
    """Return what overrides say of the answer's fields."""
    said: dict[str, Described] = {}
    for key, override in fresh.output_overrides.items() if fresh else ():
        field = descriptor.output_field(key)
        if field is not None:
            now = effective_field(field, override)
            said[key] = Described(now.description, aliases=now.aliases, values=now.values)
    return said
