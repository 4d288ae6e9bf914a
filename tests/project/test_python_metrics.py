"""Metrics of a project that are functions in its own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptgraft.cli.main import run
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import verdict_of
from promptgraft.evals.types import Answer, Case
from promptgraft.project import load_project
from promptgraft.project.python_source import FUNCTION, PythonSource

METRIC = """metrics:
  - {{name: {name}, kind: python, function: "{function}", threshold: 0.5}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert run(["init", str(tmp_path / "demo")]) == 0
    return tmp_path / "demo" / "promptgraft.yaml"


def judged_by(project: Path, name: str, function: str) -> None:
    text = project.read_text("utf-8")
    head, _, rest = text.partition("metrics:\n")
    models = rest[rest.index("models:") :]
    written = METRIC.format(name=name, function=function)
    project.write_text(f"{head}{written}\n{models}", "utf-8")


@pytest.mark.parametrize("where", ["scoring.py", "lib/scoring.py"])
def test_a_function_beside_the_project_file_judges(project: Path, where: str) -> None:
    place = project.parent / where
    place.parent.mkdir(exist_ok=True)
    place.write_text("def short(case, answer):\n    return 1 / len(answer.text), case.id\n")
    judged_by(project, "brief", f"{where}:short")

    (metric,) = load_project(project).metrics

    verdict = verdict_of(metric, Case(id="a", input="?"), Answer(text="four"))
    assert (metric.name, verdict.score, verdict.passed, verdict.reason) == (
        "brief",
        0.25,
        False,
        "a",
    )


def test_projects_with_files_of_one_name_do_not_share_their_functions(
    project: Path, tmp_path: Path
) -> None:
    assert run(["init", str(tmp_path / "other")]) == 0
    projects = (project, tmp_path / "other" / "promptgraft.yaml")
    for score, path in enumerate(projects):
        (path.parent / "scoring.py").write_text(f"def f(case, answer):\n    return {score}\n")
        judged_by(path, "f", "scoring.py:f")
    answer = Answer(text="")
    scores = [
        verdict_of(load_project(path).metrics[0], Case(id="a", input=""), answer)
        for path in projects
    ]
    assert [verdict.score for verdict in scores] == [0, 1]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("scoring.py:shirt", "has no `shirt` (did you mean `short`?)"),
        ("scoring.py:NUMBER", "to be a function, found an object of the class int"),
        ("scoring.py", "expected `module:ATTRIBUTE` or `file.py:ATTRIBUTE`, found 'scoring.py'"),
        ("nowhere.py:f", "expected a Python file"),
    ],
)
def test_what_is_no_function_is_a_fault_with_its_line(
    project: Path, function: str, said: str
) -> None:
    (project.parent / "scoring.py").write_text("NUMBER = 5\ndef short(case, answer): return 1\n")
    judged_by(project, "brief", function)
    with pytest.raises(DataFormatError) as caught:
        load_project(project)
    (fault,) = caught.value.faults
    line = 1 + project.read_text("utf-8").splitlines().index("metrics:") + 1
    assert fault.startswith(f"{project}:{line}: metrics[0].function: ")
    assert said in fault


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("{'KEY': 'hunter2'}", "an object of the class dict"),
        ("'hunter2'", "an object of the class str"),
        (
            "type('Hunter', (), {})",
            "the class Hunter; write a function that returns a Hunter",
        ),
        ("None", "None"),
    ],
)
def test_a_message_about_a_named_object_never_shows_its_value(
    tmp_path: Path, value: str, shown: str
) -> None:
    (tmp_path / "own.py").write_text(f"THING = {value}\n")
    with pytest.raises(ConfigError) as refused:
        PythonSource(tmp_path).load("own.py:THING", FUNCTION, "metric")
    assert str(refused.value) == f"metric: expected `own.py:THING` to be a function, found {shown}"
