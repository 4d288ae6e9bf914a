"""What cases are made of, read from plain data: messages, tool calls, answers, hints.

Every reader notes what does not fit in a list of problems, with the path to it, and goes on.
Keys may be written in snake_case or camelCase; keys whose value is null count as absent.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal, InvalidOperation

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.errors import DataFormatError
from promptgraft.evals.reading import snake
from promptgraft.evals.types import Answer, Message, Speaker, ToolUse, Turn
from promptgraft.serde import Json, did_you_mean, shown, structure

Problems = list[str]
Object = dict[str, Json]

_SPEAKERS = {
    "system": Speaker.SYSTEM,
    "user": Speaker.USER,
    "assistant": Speaker.ASSISTANT,
    "model": Speaker.ASSISTANT,
}
ASKING = frozenset({"user"})
ANSWERING = frozenset({"model", "assistant"})
ANYBODY = frozenset(_SPEAKERS)
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def an_object(value: Json, at: str, known: Collection[str], problems: Problems) -> Object:
    """Return an object with its keys in snake_case; unknown and doubled keys are problems."""
    if not isinstance(value, dict):
        problems.append(f"{at}: expected an object, found {shown(value)}")
        return {}
    found: Object = {}
    where = f"{at}: " if at else ""
    for key, item in value.items():
        name = snake(key)
        if item is None:
            continue
        if name not in known:
            meant = did_you_mean(name, list(known))
            problems.append(f"{where}unknown field {shown(key)}{meant}")
        elif name in found:
            problems.append(f"{where}the field `{name}` occurs twice, in two ways of writing")
        else:
            found[name] = item
    return found


def a_list(value: Json, at: str, problems: Problems) -> list[Json]:
    """Return a list; None is an empty one."""
    if value is None or isinstance(value, list):
        return value or []
    problems.append(f"{at}: expected a list, found {shown(value)}")
    return []


def a_text(value: Json, at: str, problems: Problems) -> str:
    """Return a text."""
    if isinstance(value, str):
        return value
    what = "nothing" if value is None else shown(value)
    problems.append(f"{at}: expected a text, found {what}")
    return ""


def a_mapping(value: Json, at: str, problems: Problems) -> Object:
    """Return an object of any keys; None is an empty one."""
    if value is None or isinstance(value, dict):
        return value or {}
    problems.append(f"{at}: expected an object, found {shown(value)}")
    return {}


def a_flag(value: Json, at: str, problems: Problems) -> bool:
    """Return true or false; ``yes``, ``no``, ``1`` and ``0`` as people write them."""
    if value is None or value == "" or isinstance(value, bool):
        return bool(value)
    if isinstance(value, (str, int)) and str(value).strip().lower() in _FLAGS:
        return _FLAGS[str(value).strip().lower()]
    problems.append(f"{at}: expected true or false, found {shown(value)}")
    return False


def hints(value: Json, at: str, problems: Problems) -> dict[str, str]:
    """Return hints by metric; a bare text is one for all metrics."""
    if isinstance(value, str):
        return {"": value} if value else {}
    found = a_mapping(value, at, problems)
    return {key: a_text(text, f"{at}.{key}", problems) for key, text in found.items()}


def message(
    value: Json, at: str, problems: Problems, *, roles: Collection[str] = ANYBODY
) -> tuple[str, str]:
    """Return role and text of a message: ``content``, or the texts of its ``parts``."""
    if isinstance(value, str) and roles is not ANYBODY:
        return "", value
    found = an_object(value, at, ("role", "content", "parts"), problems)
    role = found.get("role", "")
    if role not in roles and (role != "" or roles is ANYBODY):
        wanted = ", ".join(f"`{known}`" for known in sorted(roles))
        problems.append(f"{at}.role: expected one of {wanted}, found {shown(role)}")
        role = ""
    if ("content" in found) == ("parts" in found):
        problems.append(f"{at}: expected either `content` or `parts`")
        return str(role), ""
    if "content" in found:
        return str(role), a_text(found["content"], f"{at}.content", problems)
    parts = enumerate(a_list(found["parts"], f"{at}.parts", problems))
    texts = [_part(part, f"{at}.parts[{index}]", problems) for index, part in parts]
    return str(role), "\n".join(text for text in texts if text)


def _part(value: Json, at: str, problems: Problems) -> str:
    before = len(problems)
    found = an_object(value, at, ("text", "thought"), problems)
    if len(problems) > before or found.get("thought"):
        return ""
    return a_text(found.get("text"), f"{at}.text", problems)


def context(value: Json, at: str, problems: Problems) -> tuple[Message, ...]:
    """Return messages that were said before."""
    found = []
    for index, item in enumerate(a_list(value, at, problems)):
        role, text = message(item, f"{at}[{index}]", problems)
        found.append(Message(_SPEAKERS.get(role, Speaker.USER), text))
    return tuple(found)


def tool_uses(value: Json, at: str, problems: Problems) -> tuple[ToolUse, ...]:
    """Return tool calls: ``name``, ``arguments`` or ``args``, and ``result``."""
    items = enumerate(a_list(value, at, problems))
    return tuple(_tool_use(item, f"{at}[{index}]", problems) for index, item in items)


def _tool_use(value: Json, at: str, problems: Problems) -> ToolUse:
    keys = ("id", "name", "arguments", "args", "result")
    found = an_object(value, at, keys, problems)
    if "arguments" in found and "args" in found:
        problems.append(f"{at}: expected either `arguments` or `args`")
    given = found.get("arguments", found.get("args"))
    return ToolUse(
        name=a_text(found.get("name"), f"{at}.name", problems),
        arguments=a_mapping(given, f"{at}.arguments", problems),
        result=found.get("result"),
    )


def turns(value: Json, at: str, problems: Problems) -> tuple[Turn, ...]:
    """Return the turns of a conversation: ``user``, ``expected``, ``tools``."""
    items = enumerate(a_list(value, at, problems))
    return tuple(_turn(item, f"{at}[{index}]", problems) for index, item in items)


def _turn(value: Json, at: str, problems: Problems) -> Turn:
    found = an_object(value, at, ("user", "expected", "tools"), problems)
    expected = found.get("expected")
    return Turn(
        user=a_text(found.get("user"), f"{at}.user", problems),
        expected=None if expected is None else a_text(expected, f"{at}.expected", problems),
        tools=tool_uses(found["tools"], f"{at}.tools", problems) if "tools" in found else None,
    )


def answer(value: Json, at: str, problems: Problems) -> Answer:
    """Return a recorded answer: a text, or an object with what is known of it."""
    if isinstance(value, str):
        return Answer(text=value)
    keys = ("text", "output", "tools", "usage", "cost", "seconds")
    found = an_object(value, at, keys, problems)
    return Answer(
        text=a_text(found.get("text"), f"{at}.text", problems),
        output=found.get("output"),
        tools=tool_uses(found.get("tools"), f"{at}.tools", problems),
        usage=_usage(found.get("usage"), f"{at}.usage", problems),
        cost=_cost(found.get("cost"), f"{at}.cost", problems),
        seconds=_seconds(found.get("seconds"), f"{at}.seconds", problems),
    )


def _usage(value: Json, at: str, problems: Problems) -> Usage:
    try:
        return NO_USAGE if value is None else structure(value, Usage, where=at)
    except DataFormatError as error:
        problems.extend(error.faults)
        return NO_USAGE


def _cost(value: Json, at: str, problems: Problems) -> Decimal | None:
    if value is None:
        return None
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            cost = Decimal(str(value))
        except InvalidOperation:
            cost = Decimal("NaN")
        if cost.is_finite() and cost >= 0:
            return cost
    problems.append(f"{at}: expected US dollars of at least 0, found {shown(value)}")
    return None


def _seconds(value: Json, at: str, problems: Problems) -> float | None:
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    problems.append(f"{at}: expected seconds of at least 0, found {shown(value)}")
    return None
