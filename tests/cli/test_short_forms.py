"""Short forms in project files, sections that are only data, and the words of first screens."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.console import Console
from promptgraft.cli.exits import ExitCode

PROMPT = """---
output: {choices: [shipping, billing]}
---
# Task

Name the team that answers this mail.

# Mail

$text
"""
PROJECT = """version: 1
prompts:
  mail: mail.md
dataset: cases.jsonl
metrics: [exact]
models:
  task: offline
"""


@pytest.fixture
def mails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in short forms that is the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mail.md").write_text(PROMPT)
    (tmp_path / "promptgraft.yaml").write_text(PROJECT)
    lines = [
        f'{{"id": "{number}", "input": {{"text": "{text} {number}"}}, "expected": "{team}"}}\n'
        for number in range(30)
        for text, team in [("late parcel", "shipping") if number % 2 else ("bill", "billing")]
    ]
    (tmp_path / "cases.jsonl").write_text("".join(lines))
    (tmp_path / "mails.csv").write_text(
        "text,team\n" + "".join(f"parcel {number},shipping\n" for number in range(30))
    )
    return tmp_path


def rewritten(folder: Path, before: str, after: str) -> None:
    file = folder / "promptgraft.yaml"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


@pytest.mark.parametrize("metrics", ["[exact]", "exact", "[exact, {name: length, max: 20}]"])
def test_a_file_and_names_of_metrics_may_stand_alone(
    console: Console, mails: Path, metrics: str
) -> None:
    rewritten(mails, "[exact]", metrics)

    ended = console("check")

    assert ended.code == ExitCode.OK
    assert "metrics  exact" in ended.out


def test_a_column_that_may_be_the_answer_is_told_how_to_name_it(
    console: Console, mails: Path
) -> None:
    rewritten(mails, "cases.jsonl", "mails.csv")

    ended = console("check")

    assert ended.code == ExitCode.WRONG_USE
    told = "nothing says whether the model may see `team`; if `team` is the answer, write"
    assert f"{told} `fields: {{expected: team}}`" in ended.out


def test_a_column_that_no_placeholder_can_be_called_like_is_told_how_to_name_it(
    console: Console, mails: Path
) -> None:
    rows = "".join(f"{number},parcel {number},shipping\n" for number in range(30))
    (mails / "mails.csv").write_text(f"Größe,text,team\n{rows}", encoding="utf-8")
    fields = "fields: {input: [text, Größe], expected: team}"
    rewritten(mails, "cases.jsonl", f"{{path: mails.csv, {fields}}}")

    ended = console("check")

    printed = " ".join(ended.out.split())
    assert "`fields: {input: {NAME: Größe}}` gives it another name, or `keep: [Größe]`" in printed


def test_a_placeholder_in_other_letters_is_told_what_it_may_hold(
    console: Console, mails: Path
) -> None:
    (mails / "mail.md").write_text(PROMPT.replace("$text", "$größe $留言"))

    ended = console("check")

    assert "a lone `$`; write `$$` for a dollar sign or `$name`, of letters a to z" in ended.out


def test_a_section_of_placeholders_alone_is_data_and_no_search_changes_it(
    console: Console, mails: Path
) -> None:
    noted = "section `mail` is nothing but placeholders, so no search changes it"
    assert noted in console("check").out

    rewritten(mails, "models:", "optimizer: {targets: {sections: [mail]}}\nmodels:")
    assert noted not in console("check").out


def test_a_prompt_that_is_only_a_placeholder_may_change(console: Console, mails: Path) -> None:
    (mails / "mail.md").write_text(PROMPT.replace("Name the team that answers this mail.", ""))

    ended = console("check")

    assert ended.code == ExitCode.OK
    assert "protected" not in ended.out


def test_an_import_of_an_unknown_file_says_what_can_be_imported(
    console: Console, mails: Path
) -> None:
    (mails / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")

    ended = console("import", "passwd")

    assert (ended.code, ended.out) == (ExitCode.WRONG_USE, "")
    assert "passwd: expected " in ended.err
    assert "a configuration of promptfoo" in ended.err
    assert "root:x" not in ended.err


def test_too_few_cases_are_told_how_many_are_needed(console: Console, mails: Path) -> None:
    lines = (mails / "cases.jsonl").read_text().splitlines(keepends=True)
    (mails / "cases.jsonl").write_text("".join(lines[:1]))

    ended = console("check")

    assert ended.code == ExitCode.OK
    assert "add cases: a search needs 20 or more" in ended.out
    refused = console("optimize")
    assert refused.code == ExitCode.WRONG_USE
    assert "add cases: a search needs 20 or more" in refused.err


def test_no_screen_of_a_run_speaks_the_language_of_the_engine(
    console: Console, mails: Path
) -> None:
    optimized = console("optimize", "--budget", "60", "--seed", "1")
    assert optimized.code in (ExitCode.OK, ExitCode.NOT_IMPROVED)

    for command in (
        ("plan", "--budget", "20"),
        ("apply", "--keep-anyway", "--dry-run"),
        ("compare", "latest"),
        ("eval",),
        ("apply", "--candidate", "0"),
    ):
        ended = console(*command)
        told = ended.out + ended.err
        assert told
        for word in ("rollouts", "candidate 0", "candidate 1", "proposals", "cases of test"):
            assert word not in told, (command, word)
