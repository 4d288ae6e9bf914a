"""Cases, messages and calls of tools as other libraries have them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, parse_json

_PAIR = 2
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "function",
}
"""Roles by what LangChain calls the kinds of its messages."""
_CALLS = ("functionCall", "function_call")
_WRAPPERS = (*_CALLS, "function", "toolUse")
"""Keys below which Gemini, OpenAI and Bedrock have a call."""
_CALL_KEYS = {
    "name": ("name", "tool", "tool_name", "toolName", "action"),
    "arguments": (
        *("arguments", "args", "input", "parameters"),
        *("tool_input", "toolInput", "tool_args", "tool_kwargs", "action_input", "raw_input"),
        *("input_parameters", "inputParameters"),
    ),
    "result": ("result", "output", "observation", "tool_output", "raw_output"),
}
_OWN_KEYS = {"name", "arguments", "args", "result", "id"}
_NOT_OF_CALLS = {
    *("id", "type", "index", "status", "kind", "part_kind"),
    *("call_id", "tool_call_id", "toolCallId", "toolUseId"),
}
_RESULTS = ("functionResponse", "function_response")


def as_mapping(item: Any) -> Any:
    """Return a pair, a named tuple, or an example of DSPy with marked inputs, as a mapping.

    Others are returned as they are.
    """
    if isinstance(item, tuple):
        if hasattr(item, "_asdict"):
            return item._asdict()
        return {"input": item[0], "expected": item[1]} if len(item) == _PAIR else item
    if not (hasattr(item, "with_inputs") and hasattr(item, "labels")):
        return item
    try:
        inputs, labels = dict(item.inputs()), dict(item.labels())
    except ValueError:  # nothing is marked
        return item
    [expected] = labels.values() if len(labels) == 1 else [labels or None]
    return {"input": inputs, "expected": expected}


def in_usual_form(value: Json) -> Json:
    """Return a message, or a list of them, with `role` and `content`; other values as they are."""
    if isinstance(value, list):
        return [in_usual_form(item) for item in value]
    if not isinstance(value, dict) or "role" in value:
        return _of_gemini(value) if isinstance(value, dict) else value
    # The forms that `dumps`, `messages_to_dict` and a message itself write.
    fields = value.get("kwargs" if "lc" in value else "data", value)
    if not isinstance(fields, dict) or "content" not in fields:
        return value
    kind = fields.get("type", value.get("type"))
    return _of_langchain(kind, fields) if isinstance(kind, str) and kind in _ROLES else value


def call_in_usual_form(value: Json) -> Json:
    """Return a call of a tool with `name`, `arguments` and `result`, and keys that mean neither.

    Arguments in a text of JSON become an object. Definitions of tools stay as they are.
    """
    if not isinstance(value, dict):
        return value
    is_text = any(isinstance(value.get(key), str) for key in ("arguments", "args"))
    if value.keys() <= _OWN_KEYS and not is_text:
        return value
    members = dict(value)
    for key in _WRAPPERS:
        inner = value.get(key)
        # The definition of a function has a schema of its arguments, or none.
        if isinstance(inner, dict) and (key != "function" or "arguments" in inner):
            members = {**members, **inner}
            del members[key]
    call: dict[str, Json] = {}
    for member, names in _CALL_KEYS.items():
        used = [key for key in names if key in members and not _is_schema(members[key])]
        if used:
            call[member] = members.pop(used[0])
    if isinstance(arguments := call.get("arguments"), str):
        with contextlib.suppress(DataFormatError):
            call["arguments"] = parse_json(arguments or "{}", where="")
    return call | {key: members[key] for key in members if key not in _NOT_OF_CALLS}


def _is_schema(value: Json) -> bool:
    return isinstance(value, dict) and ("properties" in value or value.get("type") == "object")


def _of_langchain(kind: str, fields: Mapping[str, Json]) -> Json:
    calls = fields.get("tool_calls")
    items = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return _message(_ROLES[kind], fields["content"], items)


def _of_gemini(value: dict[str, Json]) -> Json:
    """Return a message whose `parts` are texts and calls of functions; others as they are."""
    parts = value.get("parts")
    if "content" in value or not isinstance(parts, list):
        return value
    members = [part for part in parts if isinstance(part, dict)]
    if any(key in part for part in members for key in _RESULTS):
        return _message("tool", "", [])
    calls = [*_called(members)]
    texts = [part["text"] for part in members if not part.get("thought") and "text" in part]
    # The reader of parts has the others, such as images.
    is_plain = len(members) == len(parts) and all({"text", *_CALLS} & {*part} for part in members)
    if not is_plain or not all(isinstance(text, str) for text in texts):
        return value
    return _message(value["role"], "\n".join(map(str, texts)), calls)


def _called(parts: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    for call in (part[key] for part in parts for key in _CALLS if key in part):
        if isinstance(call, dict):
            yield call


def _message(role: Json, content: Json, calls: list[dict[str, Json]]) -> Json:
    functions: list[Json] = [
        {"function": {"name": call.get("name"), "arguments": call.get("args")}} for call in calls
    ]
    return {"role": role, "content": content, **({"tool_calls": functions} if functions else {})}
