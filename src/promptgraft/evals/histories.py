"""Calls of tools in the histories of agents, paired with what the tools answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import attrs

from promptgraft.adapters.base import ToolInvoked
from promptgraft.errors import DataFormatError
from promptgraft.evals.foreign import call_in_usual_form
from promptgraft.evals.types import ToolUse
from promptgraft.ground.serde import Json, unstructure
from promptgraft.prompt.sdk_replies import answer_in, history_in
from promptgraft.runtime.session import SessionProtocol

_Fields: TypeAlias = dict[str, Json]
_Read: TypeAlias = dict[tuple[int, int], tuple[object, Json]]
"""Values by their identity and depth, which keeps them alive, and what they are as JSON."""

_MOST_DEEP = 12
_WRAPPERS = (
    *("function_call", "functionCall", "toolUse"),
    *("function_response", "functionResponse", "toolResult"),
)
_CONTAINERS = (
    *("messages", "choices", "message", "data", "kwargs", "children"),
    *("content", "_content", "parts", "items"),
    *("tool_calls", "invalid_tool_calls", *_WRAPPERS),
)
"""Keys below which messages have calls and results."""
_IDS = ("tool_call_id", "toolCallId", "call_id", "tool_use_id", "toolUseId", "tool_id", "id")
_ARGUMENTS = ("arguments", "args")
_RESULTS = ("output", "result", "response", "content", "tool_output", "raw_output")
_RESULT_IDS = frozenset(_IDS) - {"id"}
_ROLES = {"system", "developer", "user", "assistant", "model", "tool", "function"}
_RESULT_ROLES = {"tool", "function", "tool_result", "tool-result"}
_ERRORS = ("is_error", "isError", "error", "tool_call_error")
_BAD = {"error", "failed", "retried", "retry-prompt"}
_TOOL_TYPE = "tool-"
"""What types of calls begin with in messages of the AI SDK."""


def tools_in(reply: object, turn: int = 0) -> tuple[ToolUse, ...]:
    """Return the calls of tools in the reply of an agent framework to a turn of a conversation."""
    history = _data(history_in(reply), _MOST_DEEP, {})
    return tools_of_history(
        since_last_question(history) if turn and isinstance(history, list) else history
    )


def answer_noting_tools(reply: object, session: SessionProtocol) -> object:
    """Return the answer in a reply, and tell the session of its calls of tools.

    A session that has been told of calls while they ran knows them already.
    """
    for use in () if session.select_all(ToolInvoked) else tools_in(reply):
        session.dispatch(ToolInvoked(name=use.name, params=dict(use.arguments), result=use.result))
    return answer_in(reply)


def is_history(values: list[Json]) -> bool:
    """Return whether values are messages or results of tools, and not calls alone."""
    return any(
        isinstance(value, dict)
        and (str(value.get("role")) in _ROLES or _is_result(value) or _is_langchain(value))
        for value in values
    )


def since_last_question(history: list[Json]) -> list[Json]:
    """Return the messages behind the last one that the user wrote."""
    questions = [number for number, message in enumerate(history) if _is_asked(message)]
    return history[questions[-1] + 1 :] if questions else history


def tools_of_history(history: Json) -> tuple[ToolUse, ...]:
    """Return the calls of tools in messages of any usual form, with their results.

    A call that stands in two places counts once. A result belongs to the call with its id, or else
    to the first one of its name, or of any, that has none.
    """
    uses: list[ToolUse] = []
    numbers: dict[str, int] = {}
    for part in _parts(history, _MOST_DEEP):
        use, id_given = _use(part), _id_of(part)
        number = numbers.get(id_given)
        if use is not None:
            # Some servers number the calls of each reply anew.
            if number is None or not _is_same(uses[number], use):
                numbers[id_given or f"#{len(uses)}"] = len(uses)
                uses.append(use)
            elif not uses[number].arguments:  # a part of a stream that has none yet
                uses[number] = use
            continue
        number = _first_open(uses, part) if number is None else number
        if number is not None:
            uses[number] = attrs.evolve(uses[number], result=_result_of(part))
    return tuple(uses)


def _is_same(before: ToolUse, use: ToolUse) -> bool:
    """Return whether two calls with one id are one call, of which a part may have come first."""
    is_part = not before.arguments or not use.arguments
    return before.name == use.name and (is_part or before.arguments == use.arguments)


def _data(value: object, depth: int, read: _Read) -> Json:
    """Return a value as JSON; what has no such form is a text."""
    place = id(value), depth
    if place not in read:  # objects may refer to each other in any number of ways
        read[place] = value, _data_of(value, depth, read)
    return read[place][1]


def _data_of(value: object, depth: int, read: _Read) -> Json:
    try:
        return unstructure(value)
    except DataFormatError:
        pass
    if depth and isinstance(value, (list, tuple)):
        return [_data(item, depth - 1, read) for item in value]
    fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", None)
    if depth and fields and not isinstance(value, type):
        return {str(name): _data(item, depth - 1, read) for name, item in fields.items()}
    return str(value)


def _parts(value: Json, depth: int) -> Iterator[_Fields]:
    """Yield the calls and results in messages, in their order."""
    if isinstance(value, list):
        for item in value:
            yield from _parts(item, depth)
    elif isinstance(value, dict) and "observations" in value:
        yield from _parts_of_step(value, depth)
    elif isinstance(value, dict):
        is_part = value.keys().isdisjoint(_WRAPPERS) and (_use(value) or _is_result(value))
        if is_part:
            yield value
        for key in () if is_part or not depth else _CONTAINERS:
            yield from _parts(value.get(key), depth - 1)


def _parts_of_step(step: _Fields, depth: int) -> Iterator[_Fields]:
    """Yield the calls of a step of smolagents, which has one text of what all of them gave."""
    calls = [*_parts(step.get("tool_calls") or step.get("model_output_message"), depth - 1)]
    yield from calls
    if calls:
        outcome = {key: step[key] for key in ("observations", "error") if step.get(key)}
        [result] = outcome.values() if len(outcome) == 1 else [outcome]
        yield {"tool_call_id": _id_of(calls[-1]), "result": result}


def _use(part: _Fields) -> ToolUse | None:
    """Return the call that a part of a message is; None for other parts."""
    kind = part.get("type")
    if isinstance(kind, str) and kind.startswith(_TOOL_TYPE) and "input" in part:
        part = {"name": kind.removeprefix(_TOOL_TYPE), **part}
    call = call_in_usual_form(part)
    if not isinstance(call, dict) or "role" in part or call.keys().isdisjoint(_ARGUMENTS):
        return None
    name, arguments = call.get("name"), call.get("arguments", call.get("args"))
    if not isinstance(name, str) or not name:
        return None
    if isinstance(arguments, dict) and arguments.keys() == {"args", "kwargs"}:  # LlamaIndex's
        positional, arguments = arguments["args"], arguments["kwargs"]
        arguments = arguments if not positional else {"args": positional, "kwargs": arguments}
    if not isinstance(arguments, dict):
        arguments = {} if arguments in (None, "") else {"arguments": arguments}
    result = _result_of(part) if "result" in call else None
    return ToolUse(name=name, arguments=arguments, result=result)


def _is_langchain(value: _Fields) -> bool:
    return "content" in value and str(value.get("type")) in {"human", "ai", "system"}


def _is_result(part: _Fields) -> bool:
    """Return whether a part that is no call says what a tool answered."""
    marks = (part.get("role"), part.get("type"), part.get("part_kind"))
    has_id = not _RESULT_IDS.isdisjoint(part) or "origin" in part
    has_name = isinstance(part.get("name"), str) and "response" in part  # Gemini's
    is_result = has_id or has_name or not _RESULT_ROLES.isdisjoint(map(str, marks))
    return is_result and any(key in part for key in _RESULTS)


def _id_of(part: _Fields) -> str:
    origin = part.get("origin")  # Haystack's
    ids = origin if isinstance(origin, dict) else part
    return next((str(ids[key]) for key in _IDS if ids.get(key)), "")


def _first_open(uses: list[ToolUse], part: _Fields) -> int | None:
    """Return the call without a result to which a result belongs that names no id of one."""
    waiting = [number for number, use in enumerate(uses) if use.result is None]
    name = part.get("name") or part.get("tool_name")
    named = [number for number in waiting if uses[number].name == name]
    return next(iter(named if name else waiting), None)


def _result_of(part: _Fields) -> Json:
    # Several frameworks have the text for the model beside the value.
    result = next((part[key] for key in _RESULTS if part.get(key) is not None), None)
    if isinstance(result, dict) and "raw_output" in result:
        return _result_of({key: result[key] for key in ("raw_output", "is_error") if key in result})
    states = {part.get("status"), part.get("outcome"), part.get("part_kind"), part.get("state")}
    is_error = any(part.get(key) for key in _ERRORS) or any(state in _BAD for state in states)
    text = _joined(result)
    return {"error": text} if is_error else text


def _joined(result: Json) -> Json:
    """Return the text or data of a result that is a list of parts, or one part."""
    if isinstance(result, dict) and result.keys() <= {"type", "value"}:
        return result.get("value")
    if not isinstance(result, list) or not result:
        return result
    texts = [item.get("text", item.get("json")) for item in result if isinstance(item, dict)]
    if len(texts) < len(result) or None in texts:
        return result
    if len(texts) == 1:
        return texts[0]
    return "\n".join(map(str, texts))


def _is_asked(message: Json) -> bool:
    """Return whether the user wrote a message; results of tools have the same role in some APIs."""
    if not isinstance(message, dict):
        return False
    is_human = _is_langchain(message) and message.get("type") == "human"
    is_user = message.get("role") == "user" or is_human
    return is_user and not any(True for _ in _parts(message, _MOST_DEEP))
