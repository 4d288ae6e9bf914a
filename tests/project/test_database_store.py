"""A project whose winners are kept in a database, by the commands that read and write stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.job_world import FILE, write_project
from promptgraft.cli.main import run
from promptgraft.errors import DataFormatError
from promptgraft.project import load_project


def with_store(url: str) -> str:
    return f"{FILE}store: {{url: '{url}'}}\n".replace(
        "rollout_budget: 150", "rollout_budget: 150, keep_anyway: true"
    )


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(arguments) in (0, 1), capsys.readouterr().err
    return capsys.readouterr().out


def test_a_winner_goes_to_the_database_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WINNERS", "sqlite:///winners.db")
    folder = write_project(tmp_path / "support", file=with_store("${WINNERS}")).parent
    monkeypatch.chdir(folder)
    said(capsys, "optimize", "triage", "--quiet")
    said(capsys, "apply", "latest", "--keep-anyway")
    assert (folder / "winners.db").is_file()
    assert not (folder / ".promptgraft").exists()
    shown = said(capsys, "show", "support/triage")
    assert "section rules" in shown
    listed = json.loads(said(capsys, "show", "--json"))
    assert listed["store"] == f"sqlite:///{folder}/winners.db"
    history = json.loads(said(capsys, "history", "support/triage", "--json"))
    assert len(history["revisions"]) == 1
    assert "password" in said(capsys, "render", "triage")
    said(capsys, "tag", "support/triage", "prod", "--of", "latest")
    said(capsys, "rollback", "support/triage", "--tag", "prod")
    other = said(capsys, "show", "--store", f"sqlite:///{folder}/winners.db")
    assert "latest" in other


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("postgresql://me:hunter2@host/db", "store.url: expected the URL of a database"),
        ("winners.db", "store.url: expected the URL of a database"),
        ("oracle://host/db", "store.url: unknown kind of store `oracle`: there are"),
        ("sqlite:///:memory:", "sqlite:///:memory: is a database in memory, which is empty again"),
        (
            "sqlite://",
            "sqlite:// is a database in memory, which is empty again in the next command",
        ),
        ("${NOT_SET_ANYWHERE}", "the environment variable NOT_SET_ANYWHERE is not set"),
    ],
)
def test_what_is_no_database_is_refused(tmp_path: Path, url: str, line: str) -> None:
    path = write_project(tmp_path / "support", file=with_store(url))
    with pytest.raises(DataFormatError) as refused:
        load_project(path)
    assert line in str(refused.value)
    assert "hunter2" not in str(refused.value)
