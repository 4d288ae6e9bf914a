"""Exceptions in code of the user's: never a fault in promptgraft, but one line that says where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.console import Console
from promptgraft.cli.exits import ExitCode

CASES = "\n".join(f'{{"id": "c{n}", "input": "q{n}", "expected": "a"}}' for n in range(20))
AGENT = """
class Broken:
    identity = "broken"
    def evaluate(self, prompt, *, session, deadline=None):
        return {}["adapter"]

class Judge:
    name, threshold = "mine", 1.0
    def judge(self, case, answer, *, session=None):
        return {}["judge"]

def metric(case, answer):
    return {}["metric"]

def agent(query, call):
    return {}["agent"]

def fine(query, call):
    return query

TEXTS = {"system": "Be brief."}
ADAPTER = Broken()
"""
AGENT_FILE = """version: 1
prompts: {desk: code.py:TEXTS}
agent: {python: code.py:fine}
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {reflection: {provider: offline}}
"""
MODEL_FILE = """version: 1
prompts: {desk: prompt.md}
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {task: {python: 'code.py:ADAPTER'}, reflection: {provider: offline}}
"""
PROMPT = "---\nns: a\nkey: desk\n---\n# Task {#task}\n\nAnswer $question.\n"


@pytest.fixture
def console(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Console:
    monkeypatch.chdir(tmp_path)
    return Console(capsys)


@pytest.mark.parametrize("command", ["optimize", "eval"])
@pytest.mark.parametrize(
    ("file", "line", "place"),
    [
        (MODEL_FILE, r"adapter `broken` on example `c\d+` raised KeyError: 'adapter'", 5),
        (
            AGENT_FILE.replace("code.py:fine", "code.py:agent, on_agent_error: stop"),
            r"cases.jsonl:\d+: agent `code.agent` .*`c\d+`: the agent raised KeyError: 'agent'",
            16,
        ),
        (
            AGENT_FILE.replace("name: exact", "name: python, function: 'code.py:metric'"),
            r"metric `python`.* case `c\d+`.* KeyError: 'metric'",
            13,
        ),
    ],
    ids=["adapter", "agent", "metric"],
)
def test_an_exception_in_code_of_the_user_names_file_line_and_case(
    console: Console, *, command: str, file: str, line: str, place: int
) -> None:
    for name, text in {
        "code.py": AGENT,
        "cases.jsonl": CASES,
        "prompt.md": PROMPT,
        "promptgraft.yaml": file,
    }.items():
        Path(name).write_text(text, "utf-8")
    ended = console(command, "--workers", "1")
    assert ended.code == ExitCode.WRONG_USE
    [said] = [one for one in ended.err.splitlines() if "KeyError" in one]
    assert re.search(line, said), said
    assert f"(code.py:{place})" in said
    assert "Traceback" not in ended.err


STORE_JOB = """
from promptgraft import GepaConfig, GepaExample, InMemoryPromptOverridesStore, OfflineAdapter
from promptgraft import OptimizationContext, OptimizationJob, RolloutFeedback, Texts

class Store(InMemoryPromptOverridesStore):
    def resolve(self, descriptor, tag="latest"):
        return {}["store"]

def job():
    config = GepaConfig(
        rollout_budget=20,
        minibatch_size=1,
        pareto_set_size=2,
        training_examples=[GepaExample(id=str(n), params=(n,)) for n in range(4)],
        feedback_fn=lambda *_: RolloutFeedback(score=0, feedback="no"),
    )
    texts = Texts({"task": "Say it."}, run=lambda texts, n: str(n), key="say")
    context = OptimizationContext(reflection_adapter=OfflineAdapter(), overrides_store=Store())
    return OptimizationJob(texts, context, config)
"""


def test_an_exception_in_a_store_of_the_user_is_no_fault_in_promptgraft(console: Console) -> None:
    Path("stored.py").write_text(STORE_JOB, "utf-8")
    ended = console("optimize", "stored.py:job")
    assert ended.code == ExitCode.WRONG_USE
    assert ended.err.endswith("promptgraft: stored.py:7 raised KeyError: 'store'\n")
    assert "Traceback" not in ended.err
