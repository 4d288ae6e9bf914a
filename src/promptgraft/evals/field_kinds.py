"""The kinds of values that fields of cases have, in plain files and in EvalSets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.errors import ConfigError
from promptgraft.evals.types import Answer, Message, Speaker, ToolUse, Turn
from promptgraft.ground.content import Content, File, is_content
from promptgraft.ground.serde import Json
from promptgraft.ground.strict import checks, kinds
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
    return kinds.named(checks.STRING).read(node)


FLAG: checks.Check[bool] = checks.check("true or false", _flag)
"""A boolean, also written as ``yes``, ``no``, ``1`` or ``0``."""
HINTS: checks.Kind[Mapping[str, str]] = checks.Kind(_read_hints)
"""Hints by metric; a bare text applies to all metrics."""


def _text_of_part(text: str | None = None, thought: object = None) -> str:
    if text is None and not thought:
        raise ConfigError("expected the key `text`, found none")
    # Recordings also hold what a model thought, which is no part of what it said.
    return "" if thought else text or ""


def _read_content(node: Node) -> str | Content | None:
    """Read a text, or a list of texts, images and files, of which parts of messages are made."""
    if not isinstance(node.value, list):
        return checks.STRING.read(node)
    pieces = [_PIECE.read(item) for item in node.items()]
    return _joined([piece for piece in pieces if piece is not None])


def _read_piece(node: Node) -> str | File | None:
    value: object = node.value
    if isinstance(value, (str, File)):
        return value
    match value:
        case {"type": "text" | "input_text", "text": str(text)}:
            return text
        case {"type": str(kind)}:
            node.fault(f"expected a text, an image or a file, found {kind}")
        case _:
            node.expected("a text, an image or a file")
    return None


def _joined(pieces: Sequence[str | File]) -> str | Content:
    filled = tuple(piece for piece in pieces if piece != "")
    return filled if is_content(filled) else "\n".join(map(str, filled))


def are_parts(value: Json) -> TypeGuard[list[Json]]:
    """Return whether a list holds parts of one message, rather than messages."""
    return isinstance(value, list) and any(map(_is_part, value))


def _is_part(value: object) -> bool:
    said = in_usual_form(value) if isinstance(value, dict) else value
    if isinstance(said, dict):
        return "type" in said and "role" not in said
    return isinstance(value, (str, File))


def in_usual_form(value: Json) -> Json:
    """Return a message, or a list of them, with `role` and `content`; other values as they are."""
    items = value if isinstance(value, list) else [value]
    if all(not isinstance(item, dict) or {"role", "content"} <= item.keys() for item in items):
        return value
    return _in_usual_form(value)


def defines_tool(value: Json) -> bool:
    """Return whether a value is the definition of a tool, and not a call of one."""
    marks = {"function", "parameters", "input_schema", "inputSchema", "description"}
    call = _in_usual_form(value, is_call=True)
    keys = call.keys() if isinstance(call, dict) else set[str]()
    return not marks.isdisjoint(keys) and keys.isdisjoint({"arguments", "result"})


def _in_usual_form(value: Json, *, is_call: bool = False) -> Json:
    from promptgraft.evals import foreign  # most files hold nothing of others

    return foreign.call_in_usual_form(value) if is_call else foreign.in_usual_form(value)


_PIECE: checks.Kind[str | File] = checks.Kind(_read_piece)
CONTENT: checks.Kind[str | Content] = checks.Kind(_read_content)
"""A text, or a list of texts, images and files."""


def content_of(
    content: str | Content | None = None,
    parts: tuple[str | File, ...] | None = None,
    role: str = "",  # noqa: ARG001 - its kind has checked it, and it is not kept
) -> str | Content:
    """Return the content of a message, of which exactly one key has it."""
    if (content is None) == (parts is None):
        raise ConfigError("expected either `content` or `parts`")
    return _joined(parts or ()) if content is None else content


def _message(*, role: str, **said: Any) -> Message:
    return Message(_SPEAKERS[role], content_of(**said))


def said_keys(roles: tuple[str, ...], *, required: bool) -> kinds.Keys:
    """Return the keys of a message by one of these roles."""
    part = kinds.record(
        _text_of_part,
        {"text": kinds.Key(checks.STRING), "thought": kinds.Key(checks.ANYTHING)},
        aliases={},
    )
    return {
        "role": kinds.Key(checks.one_of(*roles), required=required),
        "content": kinds.Key(CONTENT),
        "parts": kinds.Key(kinds.listed(kinds.either("a part", (File, _PIECE), (dict, part)))),
    }


_MESSAGES: checks.Kind[tuple[Message, ...]] = kinds.listed(
    kinds.record(_message, said_keys(tuple(_SPEAKERS), required=True), aliases={})
)
MESSAGES: checks.Kind[tuple[Message, ...]] = checks.Kind(
    lambda node: _MESSAGES.read(attrs.evolve(node, value=in_usual_form(node.value))),
    _MESSAGES.schema,
)
USE_KEYS = kinds.keys_of(ToolUse, special={"arguments": checks.OBJECT, "result": checks.ANYTHING})
USE_ALIASES = {"args": "arguments"}
_TOOL_USES: checks.Kind[tuple[ToolUse, ...]] = kinds.listed(
    kinds.record(ToolUse, USE_KEYS, aliases=USE_ALIASES, left_out=("id",))
)


def _read_uses(node: Node) -> tuple[ToolUse, ...] | None:
    if isinstance(node.value, list):
        calls = [_in_usual_form(value, is_call=True) for value in node.value]
        node = attrs.evolve(node, value=calls)
    return _TOOL_USES.read(node)


TOOL_USES: checks.Kind[tuple[ToolUse, ...]] = checks.Kind(_read_uses, _TOOL_USES.schema)
_OWN_TURNS: checks.Kind[tuple[Turn, ...]] = kinds.listed(
    kinds.record_of(Turn, special={"user": CONTENT, "tools": TOOL_USES}, aliases={})
)


_SPEAKER_KEYS = {"role", "from"}


def _read_turns(node: Node) -> tuple[Turn, ...] | None:
    node = attrs.evolve(node, value=in_usual_form(node.value))
    # Turns of our own name no speaker.
    if any(
        isinstance(item.value, dict) and _SPEAKER_KEYS & item.value.keys() for item in node.items()
    ):
        # Most files hold no chats.
        from promptgraft.evals.chat_logs import read_chat_log

        return read_chat_log(node, CONTENT)
    return _OWN_TURNS.read(node)


TURNS: checks.Kind[tuple[Turn, ...]] = checks.Kind(_read_turns, _OWN_TURNS.schema)
"""Turns, or the messages of a chat log."""
ANSWER: checks.Kind[Answer] = kinds.either(
    "a text or an object with `text`",
    (str, checks.Kind(lambda node: Answer(text=str(node.value)))),
    (
        dict,
        kinds.record_of(
            Answer,
            special={
                "output": checks.ANYTHING,
                "tools": TOOL_USES,
                "usage": kinds.record_of(Usage),
                "cost": checks.money(0, texts=True),
                "seconds": checks.number(0, what="seconds"),
            },
            skip=("steps", "turns"),
            aliases={},
        ),
    ),
)
"""A recorded answer: a text, or an object with the fields of an answer."""
