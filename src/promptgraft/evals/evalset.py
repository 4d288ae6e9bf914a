"""One case of an EvalSet, in both dialects that exist."""

from __future__ import annotations

import attrs

from promptgraft.evals.pieces import (
    ANSWERING,
    ASKING,
    Object,
    Problems,
    a_flag,
    a_list,
    a_mapping,
    a_text,
    an_object,
    context,
    hints,
    message,
    tool_uses,
)
from promptgraft.evals.types import Answer, Case, ToolUse, Turn
from promptgraft.serde import Json, shown

# Read and left out: they say nothing of what is asked or expected.
_LEFT_OUT_OF_CASES = ("creation_timestamp", "final_session_state", "rubrics")
_LEFT_OUT_OF_TURNS = (
    "app_details",
    "creation_timestamp",
    "intermediate_responses",
    "invocation_id",
    "rubrics",
)
_CASE_KEYS = (
    "eval_id",
    "eval_mode",
    "conversation",
    "actual_conversation",
    "context_messages",
    "session_input",
    "critical",
    "hints",
    *_LEFT_OUT_OF_CASES,
)
_TURN_KEYS = ("user_content", "final_response", "intermediate_data", "tools", *_LEFT_OUT_OF_TURNS)


@attrs.frozen
class _Said:
    """One invocation: the question, and what came of it or should."""

    user: str | None
    answer: str | None
    tools: tuple[ToolUse, ...] | None


def is_eval_case(value: Json) -> bool:
    """Whether plain data looks like a case of an EvalSet rather than of a plain file."""
    if not isinstance(value, dict):
        return False
    return "evalId" in value or "eval_id" in value or isinstance(value.get("conversation"), list)


def eval_case_id(value: Object) -> Json:
    """Return what the case calls itself; None when it does not say."""
    return value.get("evalId", value.get("eval_id"))


def read_eval_case(value: Object, *, case_id: str, origin: str, problems: Problems) -> Case:
    """Return a case; what does not fit is noted in ``problems``."""
    found = an_object(value, "", _CASE_KEYS, problems)
    expected = _invocations(found, "conversation", problems)
    recorded = _invocations(found, "actual_conversation", problems)
    if _is_trace(found, problems):
        expected, recorded = _traced(expected, recorded, problems)
    elif recorded:
        problems.append('actual_conversation: only cases with eval_mode "trace" have one')
    turns = _turns(expected, problems)
    session = an_object(
        found.get("session_input", {}), "session_input", ("app_name", "user_id", "state"), problems
    )
    last = turns[-1] if turns else Turn(user="")
    return Case(
        id=case_id,
        input=last.user,
        expected=last.expected,
        tools=last.tools,
        turns=turns if len(turns) > 1 else (),
        context=context(found.get("context_messages"), "context_messages", problems),
        state=a_mapping(session.pop("state", None), "session_input.state", problems),
        recorded=_answer(recorded),
        hints=hints(found.get("hints"), "hints", problems),
        critical=a_flag(found.get("critical"), "critical", problems),
        fields=session,
        origin=origin,
    )


def _is_trace(found: Object, problems: Problems) -> bool:
    mode = found.get("eval_mode", "")
    if mode not in ("", "default", "trace"):
        problems.append(f'eval_mode: expected "trace" or nothing, found {shown(mode)}')
    return mode == "trace"


def _traced(
    expected: list[_Said], recorded: list[_Said], problems: Problems
) -> tuple[list[_Said], list[_Said]]:
    """Return what is expected and what was recorded of a case that was recorded."""
    if not recorded:  # the conversation itself is the recording; nothing is expected
        return [_Said(said.user, None, None) for said in expected], expected
    if not expected:
        return [_Said(said.user, None, None) for said in recorded], recorded
    if len(expected) != len(recorded):
        problems.append(
            f"actual_conversation: expected {len(expected)} turns as in conversation, "
            f"found {len(recorded)}"
        )
    return expected, recorded


def _turns(said: list[_Said], problems: Problems) -> tuple[Turn, ...]:
    if not said:
        problems.append("conversation: expected at least one turn")
    for index, one in enumerate(said):
        if one.user is None:
            problems.append(f"conversation[{index}]: lacks `user_content`")
    return tuple(Turn(user=s.user or "", expected=s.answer, tools=s.tools) for s in said)


def _answer(recorded: list[_Said]) -> Answer | None:
    if not recorded:
        return None
    return Answer(text=recorded[-1].answer or "", tools=recorded[-1].tools or ())


def _invocations(found: Object, key: str, problems: Problems) -> list[_Said]:
    items = enumerate(a_list(found.get(key), key, problems))
    return [_invocation(item, f"{key}[{index}]", problems) for index, item in items]


def _invocation(value: Json, at: str, problems: Problems) -> _Said:
    found = an_object(value, at, _TURN_KEYS, problems)
    user, answer = found.get("user_content"), found.get("final_response")
    if "tools" in found and "intermediate_data" in found:
        problems.append(f"{at}: expected either `tools` or `intermediate_data`")
    tools = tool_uses(found["tools"], f"{at}.tools", problems) if "tools" in found else None
    if "intermediate_data" in found:
        tools = _intermediate(found["intermediate_data"], f"{at}.intermediate_data", problems)
    return _Said(
        None if user is None else _text(user, f"{at}.user_content", ASKING, problems),
        None if answer is None else _text(answer, f"{at}.final_response", ANSWERING, problems),
        tools,
    )


def _text(value: Json, at: str, roles: frozenset[str], problems: Problems) -> str:
    return message(value, at, problems, roles=roles)[1]


def _intermediate(value: Json, at: str, problems: Problems) -> tuple[ToolUse, ...] | None:
    keys = ("tool_uses", "tool_responses", "intermediate_responses")
    found = an_object(value, at, keys, problems)
    if "tool_uses" not in found:
        return None
    uses = tool_uses(found["tool_uses"], f"{at}.tool_uses", problems)
    results = _results(found.get("tool_responses"), f"{at}.tool_responses", problems)
    calls = a_list(found["tool_uses"], at, [])
    ids = [call.get("id") if isinstance(call, dict) else None for call in calls]
    return tuple(
        attrs.evolve(use, result=results.get(key, use.result)) if isinstance(key, str) else use
        for use, key in zip(uses, ids, strict=True)
    )


def _results(value: Json, at: str, problems: Problems) -> Object:
    """Return the results of tools by the id of their call."""
    results: Object = {}
    for index, item in enumerate(a_list(value, at, problems)):
        where = f"{at}[{index}]"
        keys = ("id", "name", "response", "will_continue", "scheduling")
        found = an_object(item, where, keys, problems)
        results[a_text(found.get("id"), f"{where}.id", problems)] = found.get("response")
    return results
