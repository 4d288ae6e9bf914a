"""Tool calls and worked examples as stores see them: texts, and values as one line of JSON.

So hashing, overriding and rendering need no types. Types are checked only when something is
written; values that do not fit raise ``DataFormatError`` with the path of each fault.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import HexDigest, Json, digest, parse_json, shown, unstructure
from promptgraft.ground.strict import structure


@attrs.frozen(kw_only=True)
class ToolCall:
    """One call of a tool, as an example shows it.

    Attributes:
        tool_name: the tool.
        description: when or why one would make the call.
        input_json: the parameters as one line of JSON.
        output_json: the result as one line of JSON.
    """

    tool_name: str
    description: str
    input_json: str
    output_json: str

    @property
    def content_hash(self) -> HexDigest:
        """SHA-256 over description, input and output."""
        return digest(plain_call(self))


@attrs.frozen(kw_only=True)
class WorkedExample:
    """A task example: objective, tool calls, outcome.

    Attributes:
        steps: the calls, in order.
        outcome_json: the answer as one line of JSON, even if it is a text.
    """

    objective: str
    steps: tuple[ToolCall, ...]
    outcome_json: str

    @property
    def content_hash(self) -> HexDigest:
        """SHA-256 over everything, the inputs and outputs of the steps included."""
        return digest(
            {
                "objective": self.objective,
                "steps": _plain_steps(self.steps),
                # Parsed, so that one value has one hash however its JSON is written.
                "outcome": parse_json(self.outcome_json, where="outcome"),
            }
        )

    @property
    def steps_json(self) -> str:
        """The steps in the form of overrides."""
        return show_steps(self.steps)


def show_steps(steps: Sequence[ToolCall]) -> str:
    """Return steps in the form of overrides."""
    return json_line(_plain_steps(steps))


def _plain_steps(steps: Sequence[ToolCall]) -> list[Json]:
    return [{"tool_name": step.tool_name, **plain_call(step)} for step in steps]


def plain_call(call: ToolCall) -> dict[str, Json]:
    """Return description, input and output of a call as plain data."""
    return {
        "description": call.description,
        "input": parse_json(call.input_json, where="input"),
        "output": parse_json(call.output_json, where="output"),
    }


def json_line(value: object) -> str:
    """Return a value as the one line of JSON that models are shown."""
    return json.dumps(unstructure(value), ensure_ascii=False)


def typed_json(text: str, kind: Any, *, where: str) -> str:
    """Return JSON that fits ``kind``, in one line and with every default filled in."""
    return json_line(structure(parse_json(text, where=where), kind, where=where))


@functools.lru_cache(maxsize=1024)
def stored_steps(steps_json: str) -> tuple[ToolCall, ...]:
    """Return stored steps, which were checked when they were written and read."""
    return read_stored_steps(steps_json, where="task example")


def read_stored_steps(steps_json: str, *, where: str) -> tuple[ToolCall, ...]:
    """Read steps, ``[{"tool_name", "description", "input", "output"}]``, whatever their types."""
    data = parse_json(steps_json, where=f"{where}: steps_json")
    if not isinstance(data, list):
        raise DataFormatError(f"{where}: steps_json: expected a list, found {shown(data)}")
    return tuple(_stored_step(entry, f"{where}: step {index}") for index, entry in enumerate(data))


def _stored_step(entry: Json, where: str) -> ToolCall:
    match entry:
        case {
            "tool_name": str(name),
            "description": str(description),
            "input": given,
            "output": result,
            # A pattern for mappings would ignore further keys.
            **others,
        } if not others:
            return ToolCall(
                tool_name=name,
                description=description,
                input_json=json_line(given),
                output_json=json_line(result),
            )
    raise DataFormatError(
        f"{where}: expected an object with tool_name, description, input and output, "
        f"found {shown(entry)}"
    )


def given(**fields: object) -> dict[str, Any]:
    """Return the fields that have a value, for ``attrs.evolve``; None keeps what is there."""
    return {name: value for name, value in fields.items() if value is not None}


def check_json(where: str, **texts: str | None) -> None:
    """Refuse texts that are not JSON; ignores None."""
    for name, text in texts.items():
        if text is not None:
            parse_json(text, where=f"{where}: {name}")
