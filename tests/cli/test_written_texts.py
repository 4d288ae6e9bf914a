"""People read the text of their prompt as they wrote it: no screen has `{{ if_1 }}`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.console import Console

PROJECT = """
version: 1
prompts: {desk: desk.md}
dataset: {path: cases.csv}
splits: {ratio: {train: 0.5, validation: 0.3, test: 0.2}, seed: 0}
metrics: [{name: exact}]
models: {task: {provider: offline}}
optimizer: {rollout_budget: 48, minibatch_size: 3}
"""
RULES = """\
{# Keep in step with desk.py. #}
{% macro row(name) %}- {{ name }}: as named{% endmacro %}
Name the desk.
{% if body | length > 500 %}
Read all of it.
{% endif %}

- sales: buy
{{ row("support") }}"""
SOURCE = f"""---
ns: demo
key: desk
syntax: jinja
output: {{choices: [sales, support]}}
---

# Rules

{RULES}

# Facts

{{{{ "We are in Fernhill." | upper }}}}

# Message {{#message .frozen}}

{{{{ body }}}}
"""
CASES = "id,input,expected\n" + "".join(
    f"c{n},{'Please order a lamp' if n % 2 else 'It is broken and dark'} number {n},"
    f"{'sales' if n % 2 else 'support'}\n"
    for n in range(40)
)
NAMED = re.compile(r"\b(?:if|expr)_1\b")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose author uses blocks of Jinja, after a run."""
    from promptgraft.cli.main import run

    folder = tmp_path_factory.mktemp("desk")
    for name, text in {"promptgraft.yaml": PROJECT, "desk.md": SOURCE, "cases.csv": CASES}.items():
        (folder / name).write_text(text, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["optimize", "--quiet"]) in (0, 1, 3)
        assert run(["apply", "latest", "--candidate", "1"]) == 0
    return folder


def test_files_of_a_run_have_the_text_of_the_author(desk: Path) -> None:
    [folder] = (desk / "runs").iterdir()
    pages = [*folder.rglob("*.md"), *folder.rglob("*.html")]
    assert {"summary.md", "report.html", "0.md", "rules.md"} <= {page.name for page in pages}
    assert [page.name for page in pages if NAMED.search(page.read_text("utf-8"))] == []
    texts = json.loads((folder / "events.jsonl").read_text("utf-8").splitlines()[0])["texts"]
    assert texts["section rules"] == RULES


@pytest.mark.parametrize(
    "command",
    [
        ("show", "desk"),
        ("show", "latest", "--candidate", "1"),
        ("show", "latest", "--rejected"),
        ("diff", "desk"),
        ("diff", "desk", "--json"),
        ("diff", "desk", "--from", "1", "--to", "1"),
        ("history", "desk", "--json"),
        ("apply", "latest", "--candidate", "1", "--dry-run"),
        ("tag", "desk", "stable"),
        ("export",),
    ],
    ids=" ".join,
)
def test_commands_print_the_text_of_the_author(
    command: tuple[str, ...], desk: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    ended = console(*command)
    assert ended.code == 0
    assert not NAMED.search(ended.out)


def test_a_model_is_told_what_the_names_stand_for(desk: Path) -> None:
    [folder] = (desk / "runs").iterdir()
    question = next(folder.glob("questions/*")).read_text("utf-8")
    assert "{{ if_1 }}\n\n- sales: buy" in question
    assert "{{ if_1 }} stands for:\n\n```\n{% if body | length > 500 %}\nRead all" in question
    assert "These definitions come before the text and stay:\n\n```\n{% macro row" in question
    assert '{{ "We are in Fernhill." | upper }}' in question
