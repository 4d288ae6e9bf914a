"""Overrides as people read them: which kind, in which order, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from promptgraft.overrides.effective import read_stored_steps
from promptgraft.overrides.entries import (
    AddedTaskExample,
    Entry,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts import ToolCall

KIND_NAMES: Mapping[type[Entry], str] = {
    SectionOverride: "section",
    ToolOverride: "tool",
    ToolExampleOverride: "tool example",
    TaskExampleOverride: "task example",
    AddedTaskExample: "added task example",
    RemovedTaskExample: "removed task example",
    OutputFieldOverride: "output field",
}
"""For each kind of entry, the words that the name of its part begins with."""

_ORDER = tuple(KIND_NAMES)
_STEP = "step "
_STEPS = "steps"

Said = Iterator[tuple[str, str | None]]


def in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries kind by kind, those of a kind by their keys."""
    return tuple(sorted(entries, key=_place))


def _place(entry: Entry) -> tuple[int, tuple[str, ...], int]:
    position = _ORDER.index(type(entry))
    match entry:
        case ToolOverride():
            return position, (entry.name,), 0
        case ToolExampleOverride():
            return position, (entry.tool_name,), entry.example_index
        case OutputFieldOverride():
            return position, (entry.field,), 0
        case _:
            return position, entry.path, 0


def show_entry(entry: Entry) -> str:
    """Return what an override says, as text for people: a body, or its fields line by line.

    Lines of a field after its first are indented. A removal says nothing.
    """
    if isinstance(entry, SectionOverride):
        return entry.body
    return _lines(said_by(entry))


def show_replaced(source: Entry, entry: Entry) -> str:
    """Return what of ``source``, the source of the same part, ``entry`` replaces."""
    if isinstance(source, SectionOverride):
        return source.body
    replaced = said_by(entry)
    whole_steps = getattr(entry, "steps_json", None) is not None
    return _lines(
        {
            label: text
            for label, text in said_by(source).items()
            if label in replaced or (whole_steps and label.startswith(_STEP))
        }
    )


def said_by(entry: Entry) -> Mapping[str, str]:
    """Return the texts of an override by what they are; what keeps the source's is left out."""
    return {label: text for label, text in _said_by(entry) if text is not None}


def _said_by(entry: Entry) -> Said:
    match entry:
        case SectionOverride():
            yield "body", entry.body
        case ToolOverride():
            yield "description", entry.description
            yield from _labelled("parameter", entry.param_descriptions)
        case ToolExampleOverride():
            yield "description", entry.description
            yield "input", entry.input_json
            yield "output", entry.output_json
        case TaskExampleOverride() | AddedTaskExample():
            yield from _example(entry)
        case OutputFieldOverride():
            aliases = entry.aliases
            yield "description", entry.description
            yield "aliases", None if aliases is None else json.dumps(aliases, ensure_ascii=False)
            yield from _labelled("option", entry.value_descriptions)
        case RemovedTaskExample():
            return


def _labelled(noun: str, texts: Mapping[str, str]) -> Said:
    for name in sorted(texts):
        yield f"{noun} {name}", texts[name]


def _example(entry: TaskExampleOverride | AddedTaskExample) -> Said:
    yield "objective", entry.objective
    if entry.steps_json is not None:
        steps = read_stored_steps(entry.steps_json, where=entry.part)
        if not steps:
            yield _STEPS, "none"
        for index, step in enumerate(steps):
            yield from _step(index, step)
    if isinstance(entry, TaskExampleOverride):
        for index in sorted(entry.step_overrides):
            yield from _step(index, entry.step_overrides[index])
    yield "outcome", entry.outcome_json


def _step(index: int, step: ToolCall | TaskStepOverride) -> Said:
    yield f"{_STEP}{index} tool", step.tool_name
    yield f"{_STEP}{index} description", step.description
    yield f"{_STEP}{index} input", step.input_json
    yield f"{_STEP}{index} output", step.output_json


def _lines(texts: Mapping[str, str]) -> str:
    # Indented, so that no text can look like the next field.
    return "\n".join(f"{label}: {text}".replace("\n", "\n  ") for label, text in texts.items())
