"""`promptgraft optimize` that is killed while its calls are in flight."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from cli.console import Console
from programs import Programs
from servers.behaviour import WELL, Answer, Asked, Behaviour, Break
from servers.loopback import KEY, MODEL, LoopbackServer
from servers.openai_chat import OpenAIChat

PROJECT = """
version: 1
prompts: {{task: 'prompts.py:TASK'}}
dataset: {{path: cases.jsonl}}
metrics: [{{name: exact}}]
models:
  task: {model}
  reflection: {model}
optimizer: {{rollout_budget: 80, minibatch_size: 3}}
workers: 2
"""
MODEL_OF_PROJECT = (
    "{{provider: openai, model: {model}, base_url: {address}, api_key: '${{CALLS_KEY}}', "
    "max_output_tokens: 1000, prices: {{input: 1, output: 10}}}}"
)
IN_FLIGHT = 2


def brain(asked: Asked) -> Answer:
    """Say whether the word stands in the rules; propose rules that know another word."""
    said = " ".join(asked.texts)
    if "word0" not in said.partition("Is it known?")[2]:
        return Answer(text="```instruction\nThe rules: word1 word2 Is it known?\n```")
    return Answer(text="known" if "word1" in said.split("Is it known?")[-1] else "unknown")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALLS_KEY", KEY)
    (tmp_path / "prompts.py").write_text(
        "from promptgraft import MarkdownSection, PromptTemplate\n"
        "RULES = MarkdownSection(title='Rules', key='rules', template='The rules: word1')\n"
        "ASKED = MarkdownSection(title='Is it known?', key='q', template='$q', overridable=False)\n"
        "TASK = PromptTemplate(ns='tests', key='task', sections=(RULES, ASKED))\n"
    )
    cases = "".join(
        f'{{"id": "{n}", "input": "case {n} word0 word{n % 3}", "expected": "known"}}\n'
        for n in range(40)
    )
    (tmp_path / "cases.jsonl").write_text(cases)
    return tmp_path


def test_two_calls_that_were_in_flight_at_a_kill_are_in_the_ledger_of_the_resumed_run(
    project: Path, console: Console, programs: Programs
) -> None:
    left, hanging = 9, threading.Semaphore(0)

    def script(asked: Asked) -> Behaviour:
        nonlocal left
        left -= 1
        if left >= 0:
            return WELL
        hanging.release()
        return Behaviour(breaks=Break.HANGS)

    with LoopbackServer(OpenAIChat(), brain=brain, script=script) as server:
        model = MODEL_OF_PROJECT.format(model=MODEL, address=server.base_url)
        text = PROJECT.format(model=model)
        (project / "promptgraft.yaml").write_text(text)
        with programs.started("-m", "promptgraft", "optimize", folder=project) as process:
            assert all(hanging.acquire(timeout=60) for _ in range(IN_FLIGHT))
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        # What no event tells of is in the journal, also while nobody resumes the run.
        [listed] = json.loads(console("runs", "--json").out)["runs"]
        shown_alone = json.loads(console("show", "latest", "--json").out)
        assert listed["state"] == "interrupted"
        assert listed["cost"] == shown_alone["cost"]
        answered = server.counts.requests - IN_FLIGHT
        assert answered == 9
        assert IN_FLIGHT * 0.01 < float(listed["cost"]) < IN_FLIGHT * 0.011 + answered * 0.002
        left = 10**6
        resumed = console("resume", "--json")
        assert resumed.code in (0, 1), resumed
        [*_, said] = [json.loads(line) for line in resumed.out.splitlines()]
        lost = [row for row in said["ledger"] if row["role"] == "sent, not answered"]
        assert [row["calls"] for row in lost] == [IN_FLIGHT]
        # Each at the price of its longest answer, at least: 1,000 tokens of output.
        assert IN_FLIGHT * 0.01 < float(lost[0]["cost"]) < IN_FLIGHT * 0.011
        made = sum(row["calls"] + row["retries"] for row in said["ledger"])
        assert made == server.counts.requests
        shown = console("resume").out
        assert "2 requests were sent and not answered" in shown
        page = next(project.glob("runs/*/report.html")).read_text("utf-8")
        assert "sent, not answered" in page
        assert "2 requests were sent and not answered" in page
