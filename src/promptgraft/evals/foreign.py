"""Cases and messages as other libraries have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promptgraft.ground.serde import Json

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
    # As `dumps`, `messages_to_dict` and a message itself write it.
    fields = value.get("kwargs" if "lc" in value else "data", value)
    if not isinstance(fields, dict) or "content" not in fields:
        return value
    kind = fields.get("type", value.get("type"))
    return _of_langchain(kind, fields) if isinstance(kind, str) and kind in _ROLES else value


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
