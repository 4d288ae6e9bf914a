"""The JSON forms of parts that are more than one text: examples, and texts by name.

A question shows a part in its form, and the model replies in the same.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence

from promptgraft.ground.serde import Json, parse_json
from promptgraft.overrides.parts.examples import ToolCall, WorkedExample, json_line
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.json_reply import fields_in, listed_names, read_value, text_in, unfit

_ALIASES = "aliases"
_TOOL_EXAMPLE = ("description", "input", "output")
_STEP = ("tool", *_TOOL_EXAMPLE)
_NO_INPUT = (None, "", "none", "null", "nothing")
_TASK_EXAMPLE = ("objective", "steps", "outcome")
_KEY_CHARS = 64  # the longest key that a store takes
_KEY_GAP = re.compile(r"[^a-z0-9_]+")


def read_tool_example(text: str, tool_name: str, *, bare: Collection[str] = ()) -> ToolCall:
    """Return the example of the tool ``tool_name`` that a model wrote.

    Args:
        text: what it wrote.
        tool_name: the tool.
        bare: the tools without parameters, whose ``input`` may be missing, null or "none".

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    value = _with_input(read_value(text), tool_name, bare)
    return _read_call(fields_in(value, _TOOL_EXAMPLE), tool_name)


def write_tool_example(call: ToolCall) -> str:
    """Return an example of a tool in the form that :func:`read_tool_example` reads."""
    return _on_lines(_call(call))


def read_task_example(
    text: str, *, outcome_is_text: bool, has_tools: bool = True, bare: Collection[str] = ()
) -> tuple[str | None, WorkedExample]:
    """Return the task example that a model wrote, preceded by its key if it has one.

    Args:
        text: what it wrote.
        outcome_is_text: whether the outcome must be a text; else it is any JSON value.
        has_tools: whether there are tools; without any, ``steps`` are left out.
        bare: as :func:`read_tool_example` takes it.

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    value = read_value(text)
    if not has_tools and isinstance(value, dict):
        value["steps"] = []
    fields = fields_in(value, _TASK_EXAMPLE, optional=("key",))
    objective = text_in(fields["objective"], "objective")
    if not objective.strip():
        raise InvalidProposalError(RejectionReason.EMPTY, "objective: expected a text, found none")
    outcome = fields["outcome"]
    key = text_in(fields["key"], "key") if "key" in fields else None
    return key, WorkedExample(
        objective=objective,
        steps=tuple(_steps(fields["steps"], bare)),
        outcome_json=json_line(text_in(outcome, "outcome") if outcome_is_text else outcome),
    )


def write_task_example(example: WorkedExample, *, key: str | None = None) -> str:
    """Return a task example in the form that :func:`read_task_example` reads."""
    steps = [
        _on_one_line({"tool": json_line(step.tool_name), **_call(step)}) for step in example.steps
    ]
    fields = {} if key is None else {"key": json_line(key)}
    fields["objective"] = json_line(example.objective)
    fields["steps"] = "[\n    " + ",\n    ".join(steps) + "\n  ]" if steps else "[]"
    fields["outcome"] = example.outcome_json
    return _on_lines(fields)


def read_named_texts(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the text of each field that a model wrote one for; others are left out.

    ``aliases`` is a list of names, kept as :func:`write_names` writes it.

    Args:
        text: what it wrote.
        names: the fields that there are, such as ``description`` and ``param query``.

    Raises:
        InvalidProposalError: it names another field, or holds unusable characters.
    """
    texts = fields_in(read_value(text), (), optional=names)
    if not texts:
        detail = f"expected one of {listed_names(names)} at least, found an empty object"
        raise InvalidProposalError(RejectionReason.EMPTY, detail)
    return {
        name: write_names(_names(value)) if name == _ALIASES else text_in(value, name)
        for name, value in texts.items()
    }


def write_named_texts(texts: Mapping[str, str]) -> str:
    """Return texts by name in the form that :func:`read_named_texts` reads."""
    return _on_lines(
        {name: text if name == _ALIASES else json_line(text) for name, text in texts.items()}
    )


def read_names(text: str) -> tuple[str, ...]:
    """Return the names in a text that :func:`write_names` wrote."""
    return _names(parse_json(text, where=_ALIASES))


def write_names(names: Sequence[str]) -> str:
    """Return names as a JSON list in one line."""
    return json_line(list(names))


def fresh_key(proposed: str | None, used_keys: Collection[str]) -> str:
    """Return a key for a task example that resembles ``proposed`` and is not in ``used_keys``."""
    decomposed = unicodedata.normalize("NFKD", proposed or "")
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    stem = _KEY_GAP.sub("-", letters.casefold()).strip("-_")[:_KEY_CHARS].rstrip("-_") or "example"
    endings = (f"-{number}" for number in itertools.count(2))
    numbered = (f"{stem[: _KEY_CHARS - len(end)]}{end}" for end in endings)
    used = frozenset(used_keys)
    return next(key for key in itertools.chain([stem], numbered) if key not in used)


def _names(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise unfit(f"{_ALIASES}: expected a list of texts", value)
    names = tuple(text_in(item, _ALIASES) for item in value)
    if not all(map(str.strip, names)):
        raise unfit(f"{_ALIASES}: expected no empty name", value)
    return names


def _with_input(value: Json, tool: Json, bare: Collection[str]) -> Json:
    """Return a call; the input of a tool without parameters is normalized to an empty object."""
    if isinstance(value, dict) and isinstance(tool, str) and tool in bare:
        input_value = value.get("input")
        normalized = input_value.strip().casefold() if isinstance(input_value, str) else input_value
        return {**value, "input": {}} if normalized in _NO_INPUT else value
    return value


def _steps(value: Json, bare: Collection[str]) -> Iterator[ToolCall]:
    if not isinstance(value, list):
        raise unfit("steps: expected a list of objects", value)
    for number, item in enumerate(value, start=1):
        where = f"step {number}: "
        tool = item.get("tool") if isinstance(item, dict) else None
        fields = fields_in(_with_input(item, tool, bare), _STEP, where=where)
        yield _read_call(fields, text_in(fields["tool"], f"{where}tool"), where)


def _read_call(fields: Mapping[str, Json], tool_name: str, where: str = "") -> ToolCall:
    return ToolCall(
        tool_name=tool_name,
        description=text_in(fields["description"], f"{where}description"),
        input_json=json_line(fields["input"]),
        output_json=json_line(fields["output"]),
    )


def _call(call: ToolCall) -> dict[str, str]:
    return {
        "description": json_line(call.description),
        "input": call.input_json,
        "output": call.output_json,
    }


def _on_lines(fields: Mapping[str, str]) -> str:
    """Return a JSON object from values that are JSON already, with each field on a line."""
    lines = ",\n".join(f"  {json_line(name)}: {value}" for name, value in fields.items())
    return f"{{\n{lines}\n}}"


def _on_one_line(fields: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{json_line(name)}: {value}' for name, value in fields.items())}}}"
