"""``check --no-code``: every kind of reference to Python, none of which is imported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.console import Console
from promptgraft.project.checking import check_without_code

MARK = 'open(__file__ + ".ran", "w").close()\n'
HEAD = "version: 1\ndataset: {path: cases.csv}\n"
PLAIN = "prompts: {sort: sort.md}\nmetrics: [{name: exact}]\nmodels: {task: offline}\n"
OWN = "{name: own, kind: python, function: 'a.py:F'}"
TEXTS = "prompts: {s: {files: {role: sort.md}}}\nmetrics: [{name: exact}]\n"
# The place that is not checked, and the project that has it.
REFERENCES = {
    "prompts.sort": PLAIN.replace("sort.md", "a.py:F"),
    "prompts.s.callbacks": "prompts: {s: {callbacks: 'a.py:F'}}\nmetrics: [{name: exact}]\n"
    "agent: {command: [sh, '{query}', '{texts.s}']}\nmodels: {reflection: offline}\n",
    "graphs.sort": PLAIN.replace("prompts:", "graphs:").replace("sort.md", "a.py:F"),
    "metrics[1].function": PLAIN.replace("exact}]", f"exact}}, {OWN}]"),
    "metrics[0].class": PLAIN.replace("name: exact", "name: own, kind: python, class: 'a.py:F'"),
    "params": f"{PLAIN}params: a.py:F\n",
    "teacher": f"{PLAIN}teacher: a.py:F\n",
    "models.task": PLAIN.replace("offline", "{python: 'a.py:F'}"),
    "models.judges.j": PLAIN.replace("offline", "offline, judges: {j: {python: 'a.py:F'}}"),
    "agent": f"{TEXTS}agent: {{python: 'a.py:F'}}\nmodels: {{reflection: offline}}\n",
    "optimizer.example_formatter": f"{PLAIN}optimizer: {{example_formatter: 'a.py:F'}}\n",
    "optimizer.trace_formatter": f"{PLAIN}optimizer: {{trace_formatter: 'a:F'}}\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(MARK)
    (tmp_path / "sort.md").write_text("# Rules\n\nAnswer $text.\n")
    rows = "".join(f"w {n},light\n" for n in range(40))
    (tmp_path / "cases.csv").write_text(f"text,expected\n{rows}")
    return tmp_path / "promptgraft.yaml"


@pytest.mark.parametrize("place", REFERENCES)
def test_no_reference_is_run_and_each_is_named(place: str, project: Path) -> None:
    project.write_text(HEAD + REFERENCES[place])
    checked = check_without_code(project)
    assert checked.faults == ()
    assert not list(project.parent.glob("*.ran"))
    assert any(f" {place}" in line and "was not run" in line for line in checked.unchecked)
    assert not any("was not run" in line for line in checked.warnings)


def test_tools_and_answers_of_markdown_prompts_are_not_run(project: Path) -> None:
    project.write_text(HEAD + PLAIN)
    (project.parent / "sort.md").write_text("---\noutput: a.py:F\n---\n# Rules\n\nAnswer $text.\n")
    checked = check_without_code(project)
    assert not list(project.parent.glob("*.ran"))
    assert any("`a.py:F` is Python, which was not run" in line for line in checked.unchecked)


def test_a_project_without_python_is_checked_in_full(project: Path) -> None:
    project.write_text(HEAD + PLAIN.replace("offline", "openai/gpt-4.1-mini"))
    checked = check_without_code(project)
    assert [*checked.plans] == ["sort"]
    assert not checked.unchecked


@pytest.mark.parametrize(
    ("code", "says"), [("def f(:\n", "is not valid Python"), (None, "expected a Python file")]
)
def test_python_that_cannot_be_read_is_a_fault(
    code: str | None, says: str, project: Path, console: Console
) -> None:
    project.write_text(HEAD + REFERENCES["params"] + "workers: none\n")
    assert console("check", "--no-code", "--project", str(project)).code == 2
    project.write_text(HEAD + REFERENCES["params"])
    (project.parent / "a.py").unlink()
    if code is not None:
        (project.parent / "a.py").write_text(code)
    found = console("check", "--no-code", "--json", "--project", str(project))
    shown = json.loads(found.out)
    assert (found.code, shown["ok"]) == (2, False)
    assert says in shown["faults"][0]
