"""The kinds of the values of cases in files: messages, tool calls, turns, recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from promptgraft.adapters.base import Usage
from promptgraft.errors import ConfigError
from promptgraft.evals.types import Answer, Message, Speaker, ToolUse, Turn
from promptgraft.ground.strict.checks import (
    ANYTHING,
    OBJECT,
    STRING,
    Check,
    Kind,
    check,
    money,
    number,
    one_of,
)
from promptgraft.ground.strict.kinds import (
    Key,
    Keys,
    either,
    keys_of,
    listed,
    named,
    record,
    record_of,
)
from promptgraft.ground.strict.nodes import Node

_SPEAKERS = {
    "assistant": Speaker.ASSISTANT,
    "model": Speaker.ASSISTANT,
    "system": Speaker.SYSTEM,
    "user": Speaker.USER,
}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


def _flag(value: object) -> bool | None:
    return _FLAGS.get(str(value).strip().lower()) if isinstance(value, (str, int)) else None


def _read_hints(node: Node) -> Mapping[str, str] | None:
    if isinstance(node.value, str):
        return {"": node.value} if node.value else {}
    return named(STRING).read(node)


FLAG: Check[bool] = check("true or false", _flag)
"""A boolean, also written as ``yes``, ``no``, ``1`` or ``0``."""
HINTS: Kind[Mapping[str, str]] = Kind(_read_hints)
"""Hints by metric; a bare text applies to all metrics."""


def _text_of_part(text: str | None = None, thought: object = None) -> str:
    if text is None and not thought:
        raise ConfigError("expected the key `text`, found none")
    # Recordings also hold what a model thought, which is no part of what it said.
    return "" if thought else text or ""


def _text_of(
    content: str | None = None,
    parts: tuple[str, ...] | None = None,
    role: str = "",  # noqa: ARG001 - its kind has checked it, and it is not kept
) -> str:
    if (content is None) == (parts is None):
        raise ConfigError("expected either `content` or `parts`")
    return "\n".join(text for text in parts or () if text) if content is None else content


def _message(*, role: str, **said: Any) -> Message:
    return Message(_SPEAKERS[role], _text_of(**said))


def _said(roles: tuple[str, ...], *, required: bool) -> Keys:
    part = record(_text_of_part, {"text": Key(STRING), "thought": Key(ANYTHING)}, aliases={})
    return {
        "role": Key(one_of(*roles), required=required),
        "content": Key(STRING),
        "parts": Key(listed(part)),
    }


def error_text(*roles: str) -> Kind[str]:
    """Return the kind of values that are a text or a message of one of these roles."""
    kind = record(_text_of, _said(roles, required=False), aliases={})
    return either("a text or a message", (str, STRING), (dict, kind))


MESSAGES: Kind[tuple[Message, ...]] = listed(
    record(_message, _said(tuple(_SPEAKERS), required=True), aliases={})
)
USE_KEYS = keys_of(ToolUse, special={"arguments": OBJECT, "result": ANYTHING})
USE_ALIASES = {"args": "arguments"}


TOOL_USES: Kind[tuple[ToolUse, ...]] = listed(
    record(ToolUse, USE_KEYS, aliases=USE_ALIASES, left_out=("id",))
)
TURNS: Kind[tuple[Turn, ...]] = listed(record_of(Turn, special={"tools": TOOL_USES}, aliases={}))
ANSWER: Kind[Answer] = either(
    "a text or an object with `text`",
    (str, Kind(lambda node: Answer(text=str(node.value)))),
    (
        dict,
        record_of(
            Answer,
            special={
                "output": ANYTHING,
                "tools": TOOL_USES,
                "usage": record_of(Usage),
                "cost": money(0, texts=True),
                "seconds": number(0, what="seconds"),
            },
            skip=("steps", "turns"),
            aliases={},
        ),
    ),
)
"""A recorded answer: a text, or an object with the fields of an answer."""
