"""Projects whose model answers as models do: with thoughts, parts, fences, repairs and faults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console
from servers.threaded import QuietHandler, ThreadedServer

Message = dict[str, Any]
CHOICE = "output: {choices: [poetry, travel, cooking]}"
OBJECT = """output:
  fields:
    shelf: {choices: [poetry, travel, cooking]}
    copies: {type: integer, default: 1}"""
LABELS = "{name: shelf, kind: classification, labels: [poetry, travel, cooking]}"
USAGE: Message = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


class Chat:
    """A chat server, and what it was asked."""

    def __init__(self) -> None:
        self.answer: Callable[[str], Message] = lambda _: {"content": "travel"}
        self.usage: Any = USAGE
        self.asked: list[str] = []
        self.origin = ""

    def handler(self) -> type[QuietHandler]:
        chat = self

        class Handler(QuietHandler):
            def do_POST(self) -> None:  # noqa: N802 - the name is given by the base class
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                text = "\n".join(message["content"] for message in body["messages"])
                chat.asked.append(text)
                message = {"role": "assistant", **chat.answer(text)}
                reply = json.dumps(
                    {
                        "model": "m",
                        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                        "usage": chat.usage,
                    }
                ).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        return Handler


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    monkeypatch.chdir(tmp_path)
    found = Chat()
    with ThreadedServer(found.handler()) as server:
        found.origin = server.origin
        yield found


def write_project(
    chat: Chat,
    *,
    output: str = CHOICE,
    metric: str = LABELS,
    cases: int = 8,
    expected: Any = "travel",
    budget: int = 120,
) -> None:
    model = f'{{provider: openai, model: m, base_url: "{chat.origin}/v1", api_key: none}}'
    Path("job.md").write_text(
        f"---\nkey: shelf\n{output}\n---\n# Job\n\nName the shelf.\n\n"
        "# Note {#note .frozen}\n\n$note\n"
    )
    Path("promptgraft.yaml").write_text(
        "version: 1\nprompts: {shelf: job.md}\ndataset: {path: cases.jsonl}\n"
        f"splits: {{ratio: {{train: 0.5, validation: 0.5}}}}\nmetrics: [{metric}]\n"
        f"models:\n  task: {model}\n  judges: {{judge: {model}}}\n  reflection: {model}\n"
        f"optimizer: {{rollout_budget: {budget}}}\n"
    )
    lines = (
        {"id": f"n{n}", "input": {"note": f"note {n}: maps"}, "expected": expected}
        for n in range(cases)
    )
    Path("cases.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


THOUGHT = "<think>\nPoetry? Cooking? No, maps.\n</think>\n\n"
PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "poetry?"}]},
    {"type": "text", "text": "tra"},
    {"type": "text", "text": "vel"},
]


@pytest.mark.parametrize(
    ("output", "metric", "content"),
    [
        (CHOICE, LABELS, f"{THOUGHT}travel"),
        (CHOICE, LABELS, "Poetry? No.\n</think>\n\ntravel"),
        (CHOICE, LABELS, PARTS),
        (CHOICE, LABELS, "**Travel**."),
        (CHOICE, "{name: exact}", "```\nTravel\n```"),
        (CHOICE, "{name: exact}", "Answer: travel"),
        (CHOICE, "{name: length, max: 6}", '"travel"'),
        (CHOICE, '{name: regex, pattern: "travel", whole: true}', "It is travel."),
        ("output: text", "{name: exact}", f"{THOUGHT}travel"),
        ("output: text", "{name: exact}", PARTS),
    ],
)
def test_what_surrounds_an_answer_is_not_judged(
    output: str, metric: str, content: Any, chat: Chat, console: Console
) -> None:
    write_project(chat, output=output, metric=metric)
    chat.answer = lambda _: {"content": content}
    ended = console("eval", "--split", "all", "--fail-under", "1")
    assert (ended.code, ended.err) == (0, "")
    assert "8 of 8 answers pass" in ended.out
    assert len(chat.asked) == 8


@pytest.mark.parametrize("content", ["{'shelf': 'travel',}", '{"shelf": "travel", "copies": "2"}'])
def test_a_repair_is_said_and_a_prompt_can_refuse_it(
    content: str, chat: Chat, console: Console
) -> None:
    metric, expected = "{name: json_match, paths: [shelf]}", {"shelf": "travel"}
    chat.answer = lambda _: {"content": content}
    write_project(chat, output=OBJECT, metric=metric, expected=expected)
    ended = console("eval", "--split", "all", "--fail-under", "1")
    assert (ended.code, ended.err) == (0, "")
    assert "repaired    8 of 8 answers: " in ended.out

    write_project(chat, output=f"repair: false\n{OBJECT}", metric=metric, expected=expected)
    ended = console("eval", "--split", "all")
    assert ended.code == 1
    assert "8 of 8 answers could not be read: " in ended.out


@pytest.mark.parametrize("tokens", ["5", 5.5, -5, None, {"a": 1}])
def test_unreadable_token_counts_cost_no_answer(tokens: Any, chat: Chat, console: Console) -> None:
    write_project(chat)
    chat.usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
    ended = console("eval", "--split", "all", "--fail-under", "1")
    assert (ended.code, len(chat.asked)) == (0, 8)


def test_a_call_of_a_tool_that_the_prompt_does_not_have_is_refused_once(
    chat: Chat, console: Console
) -> None:
    write_project(chat)
    function = {"name": "find", "arguments": "{}"}
    call = {"id": "1", "type": "function", "function": function}
    chat.answer = lambda _: {"content": None, "tool_calls": [call]}
    ended = console("eval", "--split", "all")
    assert (ended.code, len(chat.asked)) == (1, 8)
    assert "`m` calls find, but the prompt has no tools" in ended.out


def test_an_answer_of_an_unknown_shape_is_asked_for_twice_not_eight_times(
    chat: Chat, console: Console
) -> None:
    write_project(chat, cases=2)
    chat.answer = lambda _: {"content": 5}
    ended = console("eval", "--split", "all")
    assert (ended.code, len(chat.asked)) == (4, 4)
    assert "the same twice, not tried again" in ended.out


def test_half_of_a_character_is_an_answer_like_any_other(chat: Chat, console: Console) -> None:
    write_project(chat, output="output: text", metric='{name: contains, texts: ["travel"]}')
    chat.answer = lambda _: {"content": "travel \ud83d"}
    ended = console("optimize", "--quiet")
    assert (ended.code, ended.err) == (1, "")
    assert re.search(r"validation +1\.000 +1\.000", ended.out)


def test_a_run_ends_after_the_baseline_if_no_answer_can_be_read(
    chat: Chat, console: Console
) -> None:
    write_project(chat, cases=60)
    chat.answer = lambda _: {"content": "I am happy to help!"}
    ended = console("optimize", "--quiet")
    said = (
        "20 of 20 answers could not be read: expected one of poetry, travel, cooking; found "
        "'I am happy to help!', which names none of them (case `n"
    )
    assert ended.code == 3
    assert said in ended.out
    assert said in ended.err
    assert "resume" not in ended.out + ended.err
    assert len(chat.asked) == 20

    evaluated = console("eval", "--split", "all")
    assert evaluated.code == 1
    assert "60 of 60 answers could not be read: " in evaluated.out
    assert json.loads(console("eval", "--split", "all", "--json").out)["gate"]["passed"] is False


def test_one_readable_answer_among_many_keeps_a_run_going(chat: Chat, console: Console) -> None:
    write_project(chat, cases=60)

    def answer(text: str) -> Message:
        if "```instruction" in text:
            return {"content": "```instruction\nName the shelf in one word.\n```"}
        return {"content": "travel" if any(f"note {n}:" in text for n in range(0, 60, 5)) else "Hm"}

    chat.answer = answer
    ended = console("optimize", "--quiet")
    assert "unreadable" not in ended.out
    assert len(chat.asked) > 30


def test_judges_and_reflections_that_think_aloud_are_understood(
    chat: Chat, console: Console
) -> None:
    new = "Name the shelf in lower case."

    def answer(text: str) -> Message:
        if "```instruction" in text:
            draft = "```instruction\nA draft.\n```"
            return {"content": f"<think>\n{draft}\n</think>\n```instruction\n{new}\n```"}
        if "category" in text and "reference" in text.lower():
            category = "correct" if "Answer A" in text else "wrong"
            verdict = json.dumps({"reason": "It was compared.", "category": category})
            return {"content": f'{THOUGHT}{{"category": "partly"}} is a draft.\n{verdict}'}
        return {"content": f"{THOUGHT}Answer {'A' if new in text else 'B'}"}

    chat.answer = answer
    write_project(
        chat,
        output="output: text",
        metric="{name: judge, kind: llm_final_response, judges: [judge]}",
        cases=12,
        budget=40,
    )
    ended = console("optimize", "--quiet")
    assert re.search(r"validation +0\.000 +1\.000 +\+1\.000", ended.out)
    assert new in next(Path("runs").rglob("report.html")).read_text()


def test_causes_that_explain_all_scores_are_said(chat: Chat, console: Console) -> None:
    write_project(chat, cases=20, output="output: text", metric="{name: exact}")
    lines = Path("cases.jsonl").read_text().splitlines()
    other = json.dumps({**json.loads(lines[0]), "id": "twin", "expected": "poetry"})
    Path("cases.jsonl").write_text("\n".join([*lines, other]))
    labels = "`n0` and `twin` ask the same and expect 'travel' and 'poetry'; no prompt can be right"
    assert labels in console("check").out
    chat.answer = lambda text: {"content": f"The shelf of {text[-20:]}"}
    ended = console("eval", "--split", "all")
    assert f"warning: {labels} on more than 20 of 21 cases" in ended.out
    assert "warning: metric `exact` gave all 21 answers the score 0" in ended.out


def test_a_judge_that_scores_no_answer_is_said_though_no_pass_requires_it(
    chat: Chat, console: Console
) -> None:
    judge = "{name: nice, kind: llm_rubric_response, judges: [judge], rubrics: [It is nice.]"
    write_project(chat, cases=20, metric=f"{{name: exact}}, {judge}, required: false}}", budget=40)
    chat.answer = lambda text: {"content": "travel"}
    said = "warning: metric `nice` scored none of 20 answers: the judge's replies are void"
    assert said in console("eval", "--split", "all").out
    ended = console("optimize", "--quiet")
    assert re.search(r"warning: metric `nice` scored none of \d\d answers: the judge", ended.out)


@pytest.mark.parametrize("score", ["1.0000000000000002", "0.9999999999999999", "1 + 1e-10"])
def test_rounding_errors_of_scores_are_undone(score: str, chat: Chat, console: Console) -> None:
    write_project(chat, metric="{name: m, kind: python, function: 'score.py:m'}")
    Path("score.py").write_text(f"def m(case, answer):\n    return {score}\n")
    ended = console("eval", "--split", "all", "--fail-under", "1")
    assert (ended.code, ended.err) == (0, "")
    assert "8 of 8 answers pass" in ended.out


@pytest.mark.parametrize(("score", "said"), [("-1e-17", "0.000"), ("1.001", "from 0 to 1")])
def test_scores_outside_of_the_range_are_still_refused(
    score: str, said: str, chat: Chat, console: Console
) -> None:
    write_project(chat, metric="{name: m, kind: python, function: 'score.py:m'}")
    Path("score.py").write_text(f"def m(case, answer):\n    return {score}\n")
    ended = console("eval", "--split", "all")
    assert said in ended.out + ended.err


def test_a_single_answer_that_cannot_be_read_passes_no_gate(chat: Chat, console: Console) -> None:
    write_project(chat, cases=2)
    chat.answer = lambda _: {"content": "<think>travel"}
    ended = console("eval", "--split", "validation")
    assert ended.code == 1
    assert "answers: 1 of 1 answers could not be used: " in ended.out
    assert "the reply ends with its thoughts; no answer follows them" in ended.out


def test_what_an_agent_hands_on_of_its_model_is_judged_without_thoughts(
    chat: Chat, console: Console
) -> None:
    write_project(chat, metric="{name: exact}")
    project = Path("promptgraft.yaml").read_text()
    lines = [line for line in project.splitlines() if not line.startswith("  task:")]
    text = "\n".join(lines).replace(
        "prompts: {shelf: job.md}",
        "prompts: {shelf: {files: {rules: rules.md}}}\nagent: {python: 'agent.py:call'}",
    )
    Path("promptgraft.yaml").write_text(text)
    Path("rules.md").write_text("Name the shelf.")
    Path("agent.py").write_text(f"def call(query, call):\n    return {THOUGHT!r} + 'travel'\n")
    ended = console("eval", "--split", "all", "--fail-under", "1")
    assert (ended.code, ended.err) == (0, ""), ended.out
