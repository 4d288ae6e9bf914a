"""``promptgraft plan``: the usage of a job, without a model call."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cli.console import Console
from cli.jobs import write_jobs
from promptgraft.cli.output import Screen


@pytest.fixture(autouse=True)
def jobs(project: Path) -> Path:
    write_jobs(project)
    return project


WARNINGS = [
    (
        "there are only 6 training and 6 validation cases; use 10 or more in each set, better 50, "
        "to tell a gain from luck"
    ),
]


def test_a_plan_is_a_small_table(console: Console, project: Path) -> None:
    ended = console("plan", "toy_jobs.py:good")

    assert ended.code == 0
    assert ended.err == "a job may print\n"
    lines = ended.out.splitlines()
    assert lines[:5] == [
        "toy/words: what a run will use",
        "test calls  108",
        "candidates  4 (all kept) to 8 (none kept)",
        "answers     about 1 token each, as long as what is expected",
        "",
    ]
    for title, questions, rows in (("expected", "6", lines[5:9]), ("at most", "30", lines[10:14])):
        assert " ".join(rows[0].split()) == f"{title} calls in out tokens dollars model"
        task, reflection, total = (line.split() for line in rows[1:])
        assert (task[0], task[1], task[-2:]) == ("task", "108", ["0.00", "task"])
        assert (reflection[0], reflection[1], reflection[-1]) == ("reflection", questions, "writer")
        assert total[0] == "total"
    assert lines[14:] == ["", f"warning: {WARNINGS[0]}"]
    assert list(project.glob(".promptgraft/**/*.json")) == []


def test_a_narrow_terminal_shows_models_in_lines_of_their_own(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "16")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Screen().table([("", "calls", "model"), ("task", "1,000", "m-1"), ("judge", "3", "")])
    assert capsys.readouterr().out == "       calls\n  model\ntask   1,000\n  m-1\njudge      3\n"


def test_the_document_says_the_same(console: Console) -> None:
    document = json.loads(console("plan", "toy_jobs.py:good", "--json").out)

    assert document["prompt"] == "toy/words"
    assert (document["rollouts"], document["reflections"]) == (108, 30)
    assert document["proposals"] == {"if_accepted": 4, "if_refused": 8}
    assert [role["model"] for role in document["roles"]] == ["task", "writer"]
    assert document["cost"] == "0"
    assert document["warnings"] == WARNINGS
    of_roles = sum(role["tokens"] for role in document["roles"])
    assert document["tokens"] == of_roles > 0


def test_what_makes_it_a_bad_plan_comes_last(console: Console) -> None:
    ended = console("plan", "toy_jobs.py:too_few")

    assert ended.code == 0
    assert ended.out.splitlines()[-1].startswith(
        "warning: rollout_budget: 20 test calls are enough for only 1 kept candidate; raise it to "
    )


def test_an_unknown_price_is_said(console: Console) -> None:
    out = console("plan", "toy_jobs.py:waiting").out

    expected, most = (line.split() for line in out.splitlines() if line.startswith("task"))
    assert expected[-2:] == ["unknown", "slow"]
    assert expected[4].replace(",", "").isdecimal()
    assert most[3:] == ["unknown", "unknown", "unknown", "slow"]


@pytest.mark.parametrize("spec", ["toy_jobs.py:JOB", "toy_jobs:good", "toy_jobs.py:lazy"])
def test_a_job_is_an_object_or_a_function_in_a_file_or_a_module(
    console: Console, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    for name in ("toy_jobs", "neighbour"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert console("plan", spec).code == 0


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("toy_jobs.py", "JOB: expected `module:ATTRIBUTE` or `file.py:ATTRIBUTE`, found "),
        ("missing.py:job", "JOB: expected a Python file, found 'missing.py'; name one that exists"),
        ("nowhere_at_all:job", "JOB: module `nowhere_at_all` cannot be imported: "),
        ("toy_jobs.py:god", "JOB: `toy_jobs.py` has no `god` (did you mean `good`?); jobs in it: "),
        (
            "toy_jobs.py:needing",
            "JOB: expected `toy_jobs.py:needing` to be an OptimizationJob, or a function without ",
        ),
        (
            "toy_jobs.py:odd",
            "toy_jobs.py:odd: expected an OptimizationJob, it returned an object of the class str",
        ),
        ("toy_jobs.py:raising", "toy_jobs.py:raising raised KeyError: 'token'"),
        ("toy_jobs.py:wrong", "toy_jobs.py:wrong: rollout_budget: expected at least 66 "),
    ],
)
@pytest.mark.parametrize("command", ["plan", "optimize"])
def test_wrong_use_is_one_line(console: Console, command: str, spec: str, line: str) -> None:
    ended = console(command, spec, "--json")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"promptgraft: {line}")
    assert ended.err.count("\n") == 1
