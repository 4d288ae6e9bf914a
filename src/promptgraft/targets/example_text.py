"""The texts in which a reflection model is shown, and writes back, parts with several fields.

A field is a line ``name: value``; values are texts or JSON, and may go over several lines.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.parts.examples import ToolCall, WorkedExample, one_line
from promptgraft.serde import Json, shown
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.loose_fields import FieldKind, FieldNames, Fields, foreign_to
from promptgraft.targets.loose_json import unquoted
from promptgraft.targets.loose_lines import Lines, block_header
from promptgraft.targets.loose_names import read_names, write_names
from promptgraft.targets.loose_reply import (
    by_name,
    empty_fault,
    json_of,
    put,
    read_fields,
    refusing,
    reply_body,
    required,
    text_json,
    text_of,
    whole_reply,
)

_ALIASES = "aliases"
_KEY_CHARS = 64
_KEY_GAP = re.compile(r"[^a-z0-9_]+")

_TOOL_EXAMPLE = {
    "description": FieldKind.TEXT,
    "input": FieldKind.JSON,
    "output": FieldKind.JSON_OR_TEXT,
}
_STEP = {"tool": FieldKind.WORD, **_TOOL_EXAMPLE}
_TASK_EXAMPLE = {
    "key": FieldKind.WORD,
    "objective": FieldKind.TEXT,
    "steps": FieldKind.STEPS,
    "outcome": FieldKind.JSON_OR_TEXT,
}
_STEPS = {**_TASK_EXAMPLE, **_STEP, "tool_name": FieldKind.WORD}
_TOOL_EXAMPLE_NAMES = FieldNames(_TOOL_EXAMPLE)
_TASK_EXAMPLE_NAMES = FieldNames(_TASK_EXAMPLE)
_STEP_NAMES = FieldNames((*_STEP, "tool_name"))


@attrs.frozen(kw_only=True)
class ToolExampleText:
    """An example of a tool, as a model wrote it.

    Attributes:
        description: when or why one would make the call.
        input_json: the parameters as one line of JSON.
        output_json: the result as one line of JSON.
    """

    description: str
    input_json: str
    output_json: str


@attrs.frozen(kw_only=True)
class StepText:
    """A step of a task example, as a model wrote it.

    Attributes:
        tool_name: the tool.
        description: why it is called.
        input_json: the parameters as one line of JSON.
        output_json: the result as one line of JSON.
    """

    tool_name: str
    description: str
    input_json: str
    output_json: str


@attrs.frozen(kw_only=True)
class TaskExampleText:
    """A task example, as a model wrote it.

    Attributes:
        key: how the model named it, in whatever form.
        objective: what is asked.
        steps: the calls, in order.
        outcome_json: the answer as one line of JSON, also when it is a text.
    """

    key: str | None
    objective: str
    steps: tuple[StepText, ...]
    outcome_json: str


def read_tool_example(text: str) -> ToolExampleText:
    """Return the example of a tool that a model wrote.

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    with refusing():
        body = reply_body(text)
        found = whole_reply(body, _TOOL_EXAMPLE_NAMES)
        if found is None:
            found = read_fields(Fields(body, _TOOL_EXAMPLE))
        return ToolExampleText(
            description=text_of(found, "description"),
            input_json=json_of(found, "input"),
            output_json=json_of(found, "output"),
        )


def write_tool_example(call: ToolCall) -> str:
    """Return an example of a tool in the form that :func:`read_tool_example` reads."""
    return "\n".join(_call_lines(call))


def read_task_example(text: str, *, outcome_is_text: bool) -> TaskExampleText:
    """Return the task example that a model wrote; a key is optional.

    ``outcome_is_text`` takes the outcome as it stands; otherwise it is JSON, or a bare text.

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    with refusing():
        body = reply_body(text)
        found = whole_reply(body, _TASK_EXAMPLE_NAMES)
        if found is None:
            outcome = FieldKind.TEXT if outcome_is_text else FieldKind.JSON_OR_TEXT
            found = _read_task_fields(body, outcome)
        objective = text_of(found, "objective")
        if not objective.strip():
            raise empty_fault("objective: expected a text, found none")
        as_json = text_json if outcome_is_text else json_of
        return TaskExampleText(
            key=text_of(found, "key") if found.get("key") is not None else None,
            objective=objective,
            steps=_steps(found),
            outcome_json=as_json(found, "outcome"),
        )


def write_task_example(example: WorkedExample, *, key: str | None = None) -> str:
    """Return a task example in the form that :func:`read_task_example` reads."""
    lines = [] if key is None else [f"key: {key}"]
    lines.append(_text_field("objective", example.objective))
    lines.append("steps:" if example.steps else "steps: []")
    for step in example.steps:
        lines += [f"  - tool: {step.tool_name}", *_call_lines(step, pad="    ")]
    return "\n".join([*lines, f"outcome: {example.outcome_json}"])


def read_said(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the text of each field that a model wrote one for; others are left out.

    ``aliases`` are names as :func:`promptgraft.targets.loose_names.write_names` writes them.

    Args:
        text: what it wrote.
        names: the fields that there are, such as ``description`` and ``param query``.

    Raises:
        InvalidProposalError: it names another field, or holds unusable characters.
    """
    with refusing():
        body = reply_body(text)
        found = whole_reply(body, FieldNames(names))
        if found is None:
            kinds = {
                name: FieldKind.NAMES if name == _ALIASES else FieldKind.TEXT for name in names
            }
            found = read_fields(Fields(body, kinds, is_foreign=foreign_to(names)))
        if not found:
            raise empty_fault("expected a line `name: text`, found only comments")
        return {name: _said(name, value) for name, value in found.items()}


def write_said(said: Mapping[str, str]) -> str:
    """Return texts by name in the form that :func:`read_said` reads."""
    text = "\n".join(
        _text_field(name, value) if value else f"{name}:" for name, value in said.items()
    )
    try:
        is_clear = read_said(text, said) == said
    except InvalidProposalError:
        is_clear = False
    # Names may be anything, the options of a choice among them; JSON can hold all of them.
    return text if is_clear else one_line(dict(said))


def fresh_key(wanted: str | None, taken: Collection[str]) -> str:
    """Return a key for a task example that is like ``wanted``, and none of ``taken``."""
    decomposed = unicodedata.normalize("NFKD", wanted or "")
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    stem = _KEY_GAP.sub("-", letters.casefold()).strip("-_")[:_KEY_CHARS].rstrip("-_") or "example"
    numbered = (f"{stem[: _KEY_CHARS - len(end)]}{end}" for end in _endings())
    used = frozenset(taken)
    return next(key for key in itertools.chain([stem], numbered) if key not in used)


def _endings() -> Iterator[str]:
    return (f"-{number}" for number in itertools.count(2))


def _read_task_fields(text: str, outcome: FieldKind) -> dict[str, Json]:
    top = {**_TASK_EXAMPLE, "outcome": outcome}
    fields = Fields(text, top)
    found: dict[str, Json] = {}
    steps: list[dict[str, Json]] = []
    while head := fields.head():
        if head.name in top:
            fields.kinds = {**_STEPS, **top} if head.name == "steps" else top
            put(found, head.name, fields.value(head))
            if found.get("steps") is not None:
                fields.kinds = top
            continue
        name = "tool" if head.name == "tool_name" else head.name
        if not steps or (name in steps[-1] and (head.bulleted or name == "tool")):
            steps.append({})
        put(steps[-1], name, fields.value(head), f"step {len(steps)}: ")
    if steps:
        found["steps"] = [*steps]
    return found


def _steps(found: Mapping[str, Json]) -> tuple[StepText, ...]:
    steps = required(found, "steps")
    if steps is None:
        raise empty_fault("steps: expected items that begin with `- tool: NAME`, or `[]`")
    if not isinstance(steps, list):
        raise DataFormatError(f"steps: expected a list, found {shown(steps)}")
    return tuple(_step(step, f"step {index}: ") for index, step in enumerate(steps, start=1))


def _step(value: Json, where: str) -> StepText:
    found = by_name(value, _STEP_NAMES, where)
    return StepText(
        tool_name=text_of(found, "tool", where),
        description=text_of(found, "description", where),
        input_json=json_of(found, "input", where),
        output_json=json_of(found, "output", where),
    )


def _said(name: str, value: Json) -> str:
    if name == _ALIASES:
        return write_names(read_names(value, where=name))
    return "" if value is None else text_of({name: value}, name)


def _call_lines(call: ToolCall, pad: str = "") -> list[str]:
    return [
        f"{pad}{_text_field('description', call.description, pad)}",
        f"{pad}input: {call.input_json}",
        f"{pad}output: {call.output_json}",
    ]


def _text_field(name: str, text: str, pad: str = "") -> str:
    """Return a field in the plainest form that reads back as it is."""
    rows = [] if "\r" in text else text.split("\n")
    if len(rows) == 1 and text and unquoted(text.strip()) == text and not block_header(text):
        return f"{name}: {text}"
    if len(rows) > 1 and (header := block_header("|")):
        block = "\n".join(f"{pad}  {row}" if row else "" for row in rows)
        if Lines(block).block(header) == text:
            return f"{name}: |\n{block}"
    return f"{name}: {one_line(text)}"
