"""From a template, overrides and values to what a model receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from promptgraft.overrides.body import BodySyntax, Slot
from promptgraft.overrides.effective import effective_task_examples, effective_tool
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
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection, RenderedTool, Segment
from promptgraft.prompt.sections import MarkdownSection, SectionVisibility
from promptgraft.prompt.syntax import Values
from promptgraft.prompt.task_examples import TaskExamplesSection
from promptgraft.prompt.tools import Tool
from promptgraft.prompt.wording import Said, said_of_output, shown_outcome

OutputT = TypeVar("OutputT")


@attrs.frozen(kw_only=True)
class Settled:
    """What overrides make of a prompt, as far as no bound value has a say in it.

    Attributes:
        resolution: what applies, and what is skipped.
        said: what is said of the answer's fields, where overrides changed it, and of a choice.
        tools: the tools by name.
        examples: the task examples by the section that holds them.
        owners: each override that may be shown, with the section or tool that shows it; None
            for the answer's.
    """

    resolution: Resolution
    said: Said
    tools: Mapping[str, RenderedTool]
    examples: Mapping[SectionPath, tuple[RenderedSection, ...]]
    owners: tuple[tuple[str, str | None], ...]


def settle(descriptor: PromptDescriptor, walked: Walked, resolution: Resolution) -> Settled:
    """Return what is the same in every rendering with these overrides."""
    fresh = resolution.fresh
    said = said_of_output(descriptor, fresh)
    removed = fresh.removed_task_examples if fresh else {}
    return Settled(
        resolution=resolution,
        said=said,
        tools={
            tool.name: _tool(descriptor, tool, fresh)
            for _, section in walked
            for tool in section.tools
        },
        examples={
            found.path: tuple(_examples(descriptor, found.path, fresh, said))
            for found in descriptor.containers
        },
        owners=tuple(
            (entry.part, _owner(entry))
            for entry in (fresh.entries() if fresh else ())
            if not (isinstance(entry, TaskExampleOverride) and entry.path in removed)
        ),
    )


def render_prompt(
    descriptor: PromptDescriptor,
    walked: Walked,
    bindings: Bindings,
    settled: Settled,
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
    fresh = settled.resolution.fresh
    shown: set[str] = set()
    for path, section, visibility in _visible(walked, bindings):
        if visibility is SectionVisibility.SUMMARY:
            sections.append(_summary(path, section))
            continue
        body = _full(path, section, bindings, fresh)
        if section.tools:
            tools_here = [settled.tools[tool.name] for tool in section.tools]
            body = _with_calls(body, tools_here, syntax=section.source.syntax)
            tools.extend(tools_here)
            shown.update(tool_part(tool.name) for tool in section.tools)
        sections.append(body)
        if isinstance(section, TaskExamplesSection):
            sections.extend(settled.examples[path])
        if settled.owners:
            shown.add(section_part(path))
    used = {part for part, owner in settled.owners if owner is None or owner in shown}
    return RenderedPrompt(
        ns=descriptor.ns,
        key=descriptor.key,
        sections=tuple(sections),
        tools=tuple(tools),
        output_type=output_type,
        described=settled.said,
        applied=tuple(part for part in settled.resolution.applied if part.part in used),
        skipped=settled.resolution.skipped,
    )


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


def _visible(
    walked: Walked, bindings: Bindings
) -> Iterator[tuple[SectionPath, MarkdownSection, SectionVisibility]]:
    """Yield the sections that are enabled and do not stand below a summary or a disabled one."""
    hidden: SectionPath | None = None
    for path, section in walked:
        if hidden is not None and path[: len(hidden)] == hidden:
            continue
        hidden = None
        if section.enabled is not None and not section.enabled(bindings.all):
            hidden = path
            continue
        visibility = _visibility(section, bindings.all)
        if visibility is SectionVisibility.SUMMARY:
            hidden = path
        yield path, section, visibility


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
    override = None if fresh is None else fresh.sections.get(path)
    values = bindings.visible_to(section, path)
    source = section.source
    pieces = source.pieces if override is None else source.parse(override.body)
    texts = source.texts(values)
    segments = [
        Segment(texts[piece.name], piece.name) if isinstance(piece, Slot) else Segment(piece)
        for piece in pieces
    ]
    return RenderedSection(
        path=path,
        title=section.title,
        segments=tuple(segments),
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


def _with_calls(
    section: RenderedSection, tools: Sequence[RenderedTool], *, syntax: BodySyntax
) -> RenderedSection:
    """Return the section with the examples of its tools after its text."""
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
    """Return segments without the line breaks at their end."""
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
    descriptor: PromptDescriptor, path: SectionPath, fresh: PromptOverride | None, said: Said
) -> Iterator[RenderedSection]:
    for key, example in effective_task_examples(descriptor, path, fresh):
        blocks = [f"Objective: {example.objective}"]
        if example.steps:
            blocks.append("Steps:\n" + "\n".join(_calls(example.steps, named=True)))
        outcome = shown_outcome(example.outcome_json, descriptor.output_type, said)
        blocks.append(f"Outcome: {outcome}")
        yield RenderedSection(
            path=(*path, key),
            title=f"Example: {key}",
            segments=(Segment("\n\n".join(blocks)),),
        )
