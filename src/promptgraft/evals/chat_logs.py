"""Turns of a conversation that was logged as the messages of a chat, with calls of tools."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.types import ToolUse, Turn
from promptgraft.ground.content import Content
from promptgraft.ground.serde import Json, parse_json
from promptgraft.ground.strict.checks import Kind
from promptgraft.ground.strict.nodes import Node

# An agent has its own prompt, and its tools answer anew.
_LEFT_OUT = ("developer", "function", "system", "tool", "function_call", "observation")
_USERS, _ASSISTANTS = ("user", "human"), ("assistant", "model", "gpt")
_ROLES = ("user", "assistant", "model", "human", "gpt", *_LEFT_OUT)
_TEXT_PARTS = ("text", "output_text")  # the second one of OpenAI's Responses API


def read_chat_log(log: Node, content: Kind[str | Content]) -> tuple[Turn, ...] | None:
    """Return a turn for each message of the user, or report faults and return None.

    What the assistant says last before the next message of the user is the expected answer, and
    all calls until then are the expected ones. Calls are as OpenAI or Anthropic record them;
    messages may also be those of ShareGPT, with ``from`` and ``value``. Other members of messages,
    such as times, are left out. ``content`` reads what the user says.
    """
    turns = list[Turn]()
    has_calls = False
    for message in log.items():
        role, content_said = (message.member(key) for key in _keys(message))
        if role.value in _USERS:
            if (message_text := _without_results(content_said)) is not None:
                turns.append(Turn(user=content.read(message_text) or ""))
        elif role.value in _ASSISTANTS:
            if not turns:
                message.fault("expected a message of the user first; `context` takes earlier ones")
                return None
            calls = tuple(_calls(message))
            has_calls = has_calls or bool(calls)
            turn = turns[-1]
            turns[-1] = attrs.evolve(
                turn,
                expected=_text(content_said) or turn.expected,
                tools=(*(turn.tools or ()), *calls),
            )
        elif role.value not in _LEFT_OUT:
            role.expected(f"one of {', '.join(f'`{name}`' for name in _ROLES)}")
    if not turns and log.is_right():
        log.fault("expected a message of the user")
    if not log.is_right():
        return None
    # A log without a call may be of an agent whose calls were not logged.
    return tuple(
        attrs.evolve(turn, tools=turn.tools or () if has_calls else None) for turn in turns
    )


def _keys(message: Node) -> tuple[str, str]:
    """Return the keys of the speaker and of what is said."""
    value = message.value
    is_sharegpt = isinstance(value, dict) and "from" in value and "role" not in value
    return ("from", "value") if is_sharegpt else ("role", "content")


def _parts(value: Json, *kinds: str) -> Iterator[tuple[int, dict[str, Json]]]:
    for at, part in enumerate(value if isinstance(value, list) else ()):
        if isinstance(part, dict) and part.get("type") in kinds:
            yield at, part


def _without_results(content: Node) -> Node | None:
    """Return what the user says; None if a message only hands results of tools to the model."""
    results = {at for at, _ in _parts(content.value, "tool_result")}
    if not results or not isinstance(content.value, list):
        return content
    rest = [part for at, part in enumerate(content.value) if at not in results]
    return Node(rest, content.path, content.source) if rest else None


def _text(content: Node) -> str:
    if isinstance(content.value, str):
        return content.value
    if content.value is not None and not isinstance(content.value, list):
        content.expected("a text or a list of parts")
    for part in content.items():
        if not isinstance(part.value, dict):
            part.expected("a part, such as `{type: text, text: …}`")
    texts = (part.get("text") for _, part in _parts(content.value, *_TEXT_PARTS))
    return "\n".join(text for text in texts if isinstance(text, str))


def _calls(message: Node) -> Iterator[ToolUse]:
    calls, content = message.member("tool_calls"), message.member("content")
    if calls.value is not None and not isinstance(calls.value, list):
        calls.expected("a list of calls")
    for call in calls.items():
        yield from _call(call.member("function"), "arguments")
    function_call = message.member("function_call")  # the older form of a single call
    if function_call.value is not None:
        yield from _call(function_call, "arguments")
    for at, _ in _parts(content.value, "tool_use"):
        yield from _call(content.items()[at], "input")


def _call(call: Node, arguments_key: str) -> Iterator[ToolUse]:
    name, arguments = call.member("name"), call.member(arguments_key)
    value = arguments.value
    if isinstance(value, str):
        try:
            value = parse_json(value or "{}", where="")
        except DataFormatError:
            value = None
    if not isinstance(name.value, str):
        name.expected("the name of a tool")
    elif not isinstance(value, dict):
        arguments.expected("an object, or JSON that holds one")
    else:
        yield ToolUse(name=name.value, arguments=value)
