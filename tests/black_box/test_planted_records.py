"""A record that came with a repository rewrites nothing, whatever command is run."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from black_box.records import leave_record, plant_record
from cli.console import Console
from promptgraft.agents.sources import FileSource, read_sources
from promptgraft.agents.writing import RECORD
from promptgraft.cli.main import app
from promptgraft.errors import ConfigError

FILES = {
    "package.json": '{"scripts": {}}',
    "notes.ipynb": "{}",
    "cases.jsonl": '{"input": "a", "expected": "b"}\n' * 20,
    "system.md": "Old text.",
    "promptgraft.yaml": (
        "version: 1\nprompts: {desk: {files: {system: system.md}}}\n"
        "agent: {command: [echo, '{query}', '{texts.system}']}\n"
        "dataset: {path: cases.jsonl}\nmetrics: [{name: exact}]\n"
        "models: {reflection: {provider: offline}}\n"
    ),
}
TEXTS = [
    {"name": name, "path": name, "old": "PLANTED", "new": [FILES[name]]}
    for name in ("package.json", "notes.ipynb", "cases.jsonl", "system.md")
]
PLANTED = {"by": "run 1", "goal": "old", "texts": TEXTS, "version": 1}
WHOLE = [
    ["runs"], ["show"], ["check"], ["plan"], ["optimize", "-q"], ["eval", "-q"], ["apply"],
    ["render", "desk"], ["restore"], ["restore", "--overwrite"], ["docs"], ["jobs", "list"],
]  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in FILES}


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


@pytest.mark.parametrize("seal", [None, "", "0" * 64, "é"])
def test_a_planted_record_is_carried_out_by_no_command(
    seal: str | None, repository: Path, console: Console
) -> None:
    record = plant_record(repository, PLANTED if seal is None else {**PLANTED, "seal": seal})
    before = record.read_bytes()
    for arguments in WHOLE:
        console(*arguments)
        assert texts(repository) == FILES, arguments
        assert record.read_bytes() == before
    ended = console("restore")
    assert ended.code == 2
    assert "found one that you did not make here" in ended.err
    assert console("restore", "--keep").code == 0
    assert not record.exists()
    assert texts(repository) == FILES


def test_all_commands_are_tried() -> None:
    assert {arguments[0] for arguments in WHOLE} <= set(app.list_commands(click.Context(app)))


def test_a_record_of_another_checkout_is_not_carried_out(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = leave_record(repository, PLANTED)
    copy = tmp_path_factory.mktemp("copy")
    for name, text in FILES.items():
        (copy / name).write_text(text)
    plant_record(copy, json.loads(record.read_text()))
    with pytest.raises(ConfigError, match="did not make here"):
        read_sources({"system": FileSource(Path("system.md"))}, folder=copy)
    assert texts(copy) == FILES


def test_readers_mention_an_interrupted_write_and_writers_complete_it(
    repository: Path, console: Console
) -> None:
    record = leave_record(repository, {**PLANTED, "texts": TEXTS[3:]})
    ended = console("runs")
    assert "run 1 was interrupted, and system.md may be half written" in ended.err
    assert record.exists()
    assert texts(repository) == FILES
    ended = console("eval", "-q")
    assert "run 1 was interrupted; put back now: system.md" in ended.err
    assert not record.exists()
    assert (repository / "system.md").read_text() == "PLANTED"


def test_the_key_is_the_users_alone_and_made_once(repository: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    sources = f"""
from pathlib import Path
from promptgraft.agents.sources import FileSource, read_sources
found = read_sources({{"system": FileSource(Path("system.md"))}}, folder=Path("{repository}"))
found.write({{"system": "New."}}, by="a test")
"""
    for _ in range(2):
        (repository / "system.md").write_text("Old text.")
        subprocess.run(
            [sys.executable, "-c", sources],
            env={**os.environ, "XDG_STATE_HOME": str(state)},
            check=True,
        )
        [key] = [path for path in state.rglob("*") if path.is_file()]
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert len(key.read_bytes()) == 32
    assert (repository / "system.md").read_text() == "New."
    assert not (repository / RECORD).exists()


def test_where_no_key_can_be_kept_nothing_is_written(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(repository / "system.md"))
    sources = read_sources({"system": FileSource(Path("system.md"))}, folder=repository)
    with pytest.raises(ConfigError, match="variable XDG_STATE_HOME"):
        sources.write({"system": "New."}, by="a test")
    assert texts(repository) == FILES
