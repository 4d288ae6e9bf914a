"""Logs of chats with tools as cases of several turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from promptgraft import Dataset
from promptgraft.errors import DataFormatError
from promptgraft.evals.types import ToolUse, Turn

FIND = ToolUse(name="find", arguments={"id": "7"})
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "You are kind.", "ts": "2026-01-31T10:00:00Z"},
    {"role": "user", "content": [{"type": "text", "text": "Where is 7?"}], "name": "Zoë"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "find", "arguments": '{"id":"7"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"days": 3}'},
    {"role": "assistant", "content": "On its way.", "refusal": None},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You are welcome."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "Where is 7?"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look it up."},
            {"type": "tool_use", "id": "c1", "name": "find", "input": {"id": "7"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "3"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "On its way."}]},
    {"role": "user", "content": [{"type": "text", "text": "Thanks!"}]},
    {"role": "assistant", "content": "You are welcome."},
]


OPENAI_BEFORE_TOOLS: list[dict[str, Any]] = [
    OPENAI[1],
    {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "find", "arguments": '{"id":"7"}'},
    },
    {"role": "function", "name": "find", "content": '{"days": 3}'},
    {"role": "assistant", "content": [{"type": "output_text", "text": "On its way."}]},
    *OPENAI[5:],
]


CALL = {"id": "c1", "name": "find", "args": {"id": "7"}, "type": "tool_call"}
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "system", "content": "You are kind.", "additional_kwargs": {}},
    {"type": "human", "content": [{"type": "text", "text": "Where is 7?"}], "id": "m1"},
    {"type": "ai", "content": "", "tool_calls": [CALL], "response_metadata": {}},
    {"type": "tool", "content": "3", "tool_call_id": "c1"},
    {"type": "ai", "content": "On its way."},
    {"type": "human", "content": "Thanks!"},
    {"type": "ai", "content": "You are welcome.", "tool_calls": []},
]
LANGCHAIN_DUMPED = [{"lc": 1, "type": "constructor", "kwargs": said} for said in LANGCHAIN]
LANGCHAIN_DICTS = [
    {"type": said["type"], "data": {key: said[key] for key in said if key != "type"}}
    for said in LANGCHAIN
]
GEMINI: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "Where"}, {"text": "is 7?"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"id": "7"}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "find", "response": {"days": 3}}}]},
    {"role": "model", "parts": [{"text": "Soon?", "thought": True}, {"text": "On its way."}]},
    {"role": "user", "parts": [{"text": "Thanks!"}]},
    {"role": "model", "parts": [{"text": "You are welcome."}]},
]


def load(folder: Path, *logs: object) -> Dataset:
    """Return the data set of a file of logs, one a line, as a service writes them."""
    rows = [{"trace_id": f"t{n}", "messages": log, "env": "prod"} for n, log in enumerate(logs)]
    path = folder / "logs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return Dataset.load(path, fields={"id": "trace_id", "turns": "messages"}, keep=["env"])


@pytest.mark.parametrize(
    "log",
    [
        OPENAI,
        OPENAI_BEFORE_TOOLS,
        ANTHROPIC,
        LANGCHAIN,
        LANGCHAIN_DUMPED,
        LANGCHAIN_DICTS,
        GEMINI,
    ],
    ids=[
        "openai",
        "openai-before-tools",
        "anthropic",
        "langchain",
        "langchain-dumped",
        "langchain-dicts",
        "gemini",
    ],
)
def test_a_log_has_a_turn_for_each_message_of_the_user(tmp_path: Path, log: object) -> None:
    (case,) = load(tmp_path, log)
    first, second = case.turns
    assert (first.expected, first.tools) == ("On its way.", (FIND,))
    assert second == Turn(user="Thanks!", expected="You are welcome.", tools=())
    assert "Where is 7?" in str(first.user).replace("\n", " ")


def test_a_log_without_calls_expects_none_and_forbids_none(tmp_path: Path) -> None:
    (case,) = load(tmp_path, OPENAI[5:])
    assert (case.input, case.expected, case.tools) == ("Thanks!", "You are welcome.", None)


def test_a_log_of_sharegpt_has_a_turn_for_each_message_of_the_human(tmp_path: Path) -> None:
    pairs = [
        ("system", "You are kind."),
        ("human", "Where is 7?"),
        ("function_call", "{}"),
        ("observation", "3"),
        ("gpt", "On its way."),
        ("human", "Thanks!"),
        ("gpt", "You are welcome."),
    ]
    [case] = load(tmp_path, [{"from": speaker, "value": text} for speaker, text in pairs])
    assert case.turns == (
        Turn(user="Where is 7?", expected="On its way."),
        Turn(user="Thanks!", expected="You are welcome."),
    )
    with pytest.raises(DataFormatError, match=r"messages\[0\]\.from: expected one of `user`"):
        load(tmp_path, [{"from": "narrator", "value": "One day"}])


def test_faults_of_a_log_are_named_by_their_messages(tmp_path: Path) -> None:
    call = {"function": {"name": "find", "arguments": "{id: 7"}}
    logs = [
        [{"role": "assistant", "content": "Hello!"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}],
        [{"role": "bot", "content": "a"}],
        [{"role": ["user"], "content": "a"}],
        [{"role": "system", "content": "a"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": 7}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": "find"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": ["b"]}],
    ]
    with pytest.raises(DataFormatError) as caught:
        load(tmp_path, *logs)
    greeting, arguments, role, listed_role, *others = caught.value.faults
    assert "case `t0`: messages[0]: expected a message of the user first; " in greeting
    assert "messages[1].tool_calls[0].function.arguments: expected an object" in arguments
    assert "messages[0].role: expected one of `user`, `assistant`, " in role
    assert "messages[0].role: expected one of `user`, `assistant`, " in listed_role
    nobody, number, calls, part = others
    assert "messages: expected a message of the user" in nobody
    assert "messages[1].content: expected a text or a list of parts, found 7" in number
    assert "messages[1].tool_calls: expected a list of calls, found" in calls
    assert "messages[1].content[0]: expected a part, such as " in part


def test_what_the_user_says_beside_results_of_tools_begins_a_turn(tmp_path: Path) -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "3"}
    log = [
        *ANTHROPIC[:2],
        {"role": "user", "content": [result, {"type": "text", "text": "And 8?"}]},
    ]
    (case,) = load(tmp_path, log)
    first, second = case.turns
    assert (first.expected, first.tools) == ("I look it up.", (FIND,))
    assert "And 8?" in str(second.user)
    assert "tool_result" not in str(second.user)
