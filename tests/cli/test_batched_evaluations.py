"""`promptgraft eval` with a model that answers in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.console import Console
from programs import Programs
from servers.batches import BatchServer
from servers.behaviour import Answer, Asked
from servers.loopback import KEY, MODEL


def brain(asked: Asked) -> Answer:
    """Say whether the word stands in the rules."""
    *rules, word = " ".join(asked.texts).split()
    return Answer(text="known" if word in rules else "unknown")


PROJECT = """
version: 1
prompts: {{task: 'prompts.py:TASK'}}
dataset: {{path: cases.jsonl}}
metrics: [{{name: exact}}]
models:
  task:
    provider: openai
    model: {model}
    base_url: {address}
    api_key: ${{BATCH_KEY}}
    mode: batch
    batch_poll: 0.01
    prices: {{input: 1, output: 10}}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    """A server, and the project that asks it in the present folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCH_KEY", KEY)
    with BatchServer("openai", brain) as server:
        (tmp_path / "prompts.py").write_text(
            "from promptgraft import MarkdownSection, PromptTemplate\n"
            "SECTION = MarkdownSection(title='Task', key='task', template='The rules: word1 $q')\n"
            "TASK = PromptTemplate(ns='tests', key='task', sections=(SECTION,))\n"
        )
        cases = "".join(
            f'{{"id": "{n}", "input": "{n} word{n}", "expected": "known"}}\n' for n in range(12)
        )
        (tmp_path / "cases.jsonl").write_text(cases)
        text = PROJECT.format(model=MODEL, address=server.base_url)
        (tmp_path / "promptgraft.yaml").write_text(text)
        yield server


def test_an_evaluation_that_was_killed_finds_its_batch_again(
    server: BatchServer, tmp_path: Path, console: Console, programs: Programs
) -> None:
    server.hold()
    command = ("-m", "promptgraft", "eval", "--split", "all")
    with programs.started(*command, folder=tmp_path):  # killed at the end of the block
        server.wait_until(lambda: bool(server.batches) and server.batches[0].looks > 0)
    server.release()
    assert len([*tmp_path.rglob("*.batches")]) == 1
    ended = console("eval", "--split", "all")
    assert ended.code == 0, ended
    assert "1 of 12 answers pass" in ended.out
    assert (server.sizes, server.calls) == ([12], [])
    assert not [*tmp_path.rglob("*.batches")]
    # What has ended is not mistaken for an answer to the next evaluation.
    assert console("eval", "--split", "all").code == 0
    assert server.sizes == [12, 12]
