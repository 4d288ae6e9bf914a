"""``promptgraft plan`` makes the checks of a run, and names what a run needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.console import Console

PROJECT = """\
version: 1
prompts: {words: words.md}
dataset: {path: cases.jsonl}
metrics: [METRIC]
models: {task: openai/m, reflection: openai/m}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    rows = "".join(f'{{"input": "w{n}", "expected": "a"}}\n' for n in range(40))
    Path("cases.jsonl").write_text(rows)
    Path("words.md").write_text("# Rules\n\nAnswer $text.\n")
    Path("m.py").write_text("def judge(case, answer):\n    return answer.txt\n")

    def write(metric: str) -> None:
        Path("promptgraft.yaml").write_text(PROJECT.replace("METRIC", metric))

    return write


def test_the_command_refuses_metrics_that_fail_as_a_run_does(
    project: Callable[[str], None], console: Console
) -> None:
    project("{name: own, kind: python, function: 'm.py:judge'}")
    planned, begun = console("plan"), console("optimize", "-q")
    assert (planned.code, begun.code) == (2, 2)
    assert planned.err == begun.err
    assert "no attribute 'txt'" in planned.err


def test_the_command_names_variables_that_a_run_needs(
    project: Callable[[str], None], console: Console
) -> None:
    project("{name: exact}")
    planned = console("plan")
    assert planned.code == 0
    warning = "warning: promptgraft.yaml:5: models.task: the environment variable OPENAI_API_KEY is"
    assert warning in planned.out
