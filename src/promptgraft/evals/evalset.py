"""Cases of EvalSet files, in both of their dialects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals import field_kinds
from promptgraft.evals.types import (
    SCENARIO,
    Answer,
    Case,
    Message,
    Scenario,
    ToolUse,
    Turn,
    TurnAnswered,
)
from promptgraft.ground.content import Content, in_words
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import ANYTHING, OBJECT, STRING, Kind, check
from promptgraft.ground.strict.kinds import Key, either, keys_of, listed, record, record_of
from promptgraft.ground.strict.nodes import Node


@attrs.frozen(kw_only=True)
class _Intermediate:
    """The tool calls of an invocation with their ids, and results with the ids of their calls."""

    tool_uses: tuple[tuple[Json, ToolUse], ...] | None = attrs.field(default=None, hash=False)
    tool_responses: tuple[tuple[str, Json], ...] = attrs.field(default=(), hash=False)

    @property
    def tools(self) -> tuple[ToolUse, ...] | None:
        """The calls with their results; None if the file does not mention calls."""
        results: dict[Json, Json] = dict(self.tool_responses)
        if self.tool_uses is None:
            return None
        return tuple(
            # An id is any JSON here, and a list cannot be looked up.
            attrs.evolve(use, result=results.get(id_, use.result)) if isinstance(id_, str) else use
            for id_, use in self.tool_uses
        )


@attrs.frozen(kw_only=True)
class _Invocation:
    """One invocation: a question and its answer, recorded or expected."""

    user_content: str | Content | None = None
    final_response: str | None = None
    tools: tuple[ToolUse, ...] | None = None
    intermediate_data: _Intermediate | None = None

    def __attrs_post_init__(self) -> None:
        if self.tools is not None and self.intermediate_data is not None:
            raise ConfigError("expected either `tools` or `intermediate_data`")

    @property
    def called(self) -> tuple[ToolUse, ...] | None:
        """The recorded or expected tool calls; None if the file does not mention any."""
        return self.tools if self.intermediate_data is None else self.intermediate_data.tools


@attrs.frozen(kw_only=True)
class _Found:
    """The plain content of a case."""

    eval_mode: str = ""
    conversation: tuple[_Invocation, ...] = ()
    actual_conversation: tuple[_Invocation, ...] = ()
    context_messages: tuple[Message, ...] = ()
    session_input: Mapping[str, Json] = attrs.field(factory=dict, hash=False)
    conversation_scenario: Scenario | None = None
    critical: bool = False
    hints: Mapping[str, str] = attrs.field(factory=dict)


def _content_by(*roles: str) -> Kind[str | Content]:
    """Return the kind of values that are a text, content, or a message of one of these roles."""
    kind = record(field_kinds.content_of, field_kinds.said_keys(roles, required=False), aliases={})
    return either("a text or a message", ((str, list), field_kinds.CONTENT), (dict, kind))


def _read_text(node: Node) -> str | None:
    content = _content_by("assistant", "model").read(node)
    if content is None or isinstance(content, str):
        return content
    node.fault("expected a text, found an image or a file; an answer is a text")
    return None


_ANSWER_TEXT: Kind[str] = Kind(_read_text)


def _use(*, id: Json = None, **said: Any) -> tuple[Json, ToolUse]:  # noqa: A002
    return id, ToolUse(**said)


_RESPONSE: Kind[tuple[str, Json]] = record(
    lambda id, response=None: (id, response),  # noqa: A006
    {"id": Key(STRING, required=True), "response": Key(ANYTHING)},
    aliases={},
    left_out=("name", "will_continue", "scheduling"),
)
_SESSION: Kind[dict[str, Json]] = record(
    dict, {"app_name": Key(ANYTHING), "user_id": Key(ANYTHING), "state": Key(OBJECT)}, aliases={}
)
_USE_KEYS = {**field_kinds.USE_KEYS, "id": Key(ANYTHING)}
_SAID = keys_of(
    _Invocation,
    special={
        "user_content": _content_by("user"),
        "final_response": _ANSWER_TEXT,
        "tools": field_kinds.TOOL_USES,
        "intermediate_data": record_of(
            _Intermediate,
            special={
                "tool_uses": listed(record(_use, _USE_KEYS, aliases=field_kinds.USE_ALIASES)),
                "tool_responses": listed(_RESPONSE),
            },
            aliases={},
            left_out=("intermediate_responses",),
        ),
    },
)


def _invocations(*, asked: bool) -> Kind[tuple[_Invocation, ...]]:
    keys = {**_SAID, "user_content": Key(_content_by("user"), required=asked)}
    # Known keys that have no bearing on a case; any other unknown key is a fault.
    left_out = (
        "app_details",
        "creation_timestamp",
        "intermediate_responses",
        "invocation_id",
        "rubrics",
    )
    return listed(record(_Invocation, keys, aliases={}, left_out=left_out))


_CASE = record_of(
    _Found,
    special={
        "eval_mode": check(
            "`trace` or nothing", lambda mode: mode if mode in ("", "default", "trace") else None
        ),
        "conversation": _invocations(asked=True),
        "actual_conversation": _invocations(asked=False),
        "context_messages": field_kinds.MESSAGES,
        "session_input": _SESSION,
        "conversation_scenario": record_of(Scenario, aliases={}, left_out=("user_persona",)),
        "critical": field_kinds.FLAG,
        "hints": field_kinds.HINTS,
    },
    aliases={},
    left_out=("eval_id", "creation_timestamp", "final_session_state", "rubrics"),
)


def read_eval_case(node: Node, *, case_id: str, origin: str) -> Case | None:
    """Return a case, or note its faults and return None."""
    eval_case = _CASE.read(node)
    if eval_case is None:
        return None
    expected, recorded = eval_case.conversation, eval_case.actual_conversation
    if eval_case.eval_mode == "trace":
        expected, recorded = _traced(expected, recorded, node)
    elif recorded:
        node.member("actual_conversation").fault('only cases with eval_mode "trace" have one')
    scenario = eval_case.conversation_scenario
    if scenario is not None and (expected or recorded):
        node.member(SCENARIO).fault("expected either this or a `conversation`, found both")
    elif scenario is not None:
        expected = (_Invocation(user_content=scenario.starting_prompt),)
    elif not expected:
        node.member("conversation").fault("expected at least one turn, found none")
    for turn, expected_turn in zip(
        node.member("actual_conversation").items(), expected, strict=False
    ):
        if expected_turn.user_content is None:
            turn.fault("expected the key `user_content`, found none")
    if not node.is_right():
        return None
    turns = tuple(
        Turn(user=s.user_content or "", expected=s.final_response, tools=s.called) for s in expected
    )
    session = {**eval_case.session_input}
    state = session.pop("state", None)
    return Case(
        id=case_id,
        input=turns[-1].user,
        expected=turns[-1].expected,
        tools=turns[-1].tools,
        turns=turns if len(turns) > 1 else (),
        context=eval_case.context_messages,
        state=state if isinstance(state, dict) else {},
        recorded=_answer(turns, recorded),
        hints=eval_case.hints,
        critical=eval_case.critical,
        fields=session if scenario is None else {**session, SCENARIO: attrs.asdict(scenario)},
        origin=origin,
    )


def _traced(
    expected: tuple[_Invocation, ...], recorded: tuple[_Invocation, ...], node: Node
) -> tuple[tuple[_Invocation, ...], tuple[_Invocation, ...]]:
    """Return the expected and the recorded turns of a case in trace mode."""
    if not recorded:  # the conversation is the recording, and nothing is expected
        return tuple(_Invocation(user_content=turn.user_content) for turn in expected), expected
    if not expected:
        return tuple(_Invocation(user_content=turn.user_content) for turn in recorded), recorded
    if len(expected) != len(recorded):
        node.member("actual_conversation").fault(
            f"expected {len(expected)} turns as in conversation, found {len(recorded)}"
        )
    return expected, recorded


def _answer(turns: tuple[Turn, ...], recorded: tuple[_Invocation, ...]) -> Answer | None:
    answers = [Answer(text=turn.final_response or "", tools=turn.called or ()) for turn in recorded]
    if len(answers) < 2:
        return answers[0] if answers else None
    played = zip(turns, answers, strict=True)
    return attrs.evolve(
        answers[-1], turns=tuple(TurnAnswered(query=in_words(t.user), answer=a) for t, a in played)
    )
