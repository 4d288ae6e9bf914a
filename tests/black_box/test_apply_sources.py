"""Winners back into files and callbacks, and texts that a killed run has left in them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from black_box.app import CODE, NEW, OLD, SAID, SKILL, App, build, write
from black_box.records import leave_record, seal_again
from cli.console import Console
from killing import folder_in_memory
from programs import Programs


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield build(folder / "app")


@pytest.fixture
def app(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """A copy of a project with a run whose winner changes all three texts."""
    folder = tmp_path / "app"
    shutil.copytree(built, folder)
    monkeypatch.chdir(folder)
    found = App(folder)
    found.let_all_three_change()
    return found


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


def test_files_and_callbacks_say_what_the_winner_says(console: Console, app: App) -> None:
    ended = console("apply", "--to-source")
    assert (ended.code, ended.err) == (0, "")
    assert app.sources == NEW
    assert ended.out.endswith(f"written  teams.md\nwritten  {SKILL}\nwritten  text `source`\n")
    again = console("apply", "--to-source")
    assert "already applied" in again.out
    rendered = console("render", "desk").out
    assert all(text in rendered for text in SAID.values())


def test_a_dry_run_names_the_sources_and_writes_nothing(console: Console, app: App) -> None:
    ended = console("apply", "--to-source", "--dry-run")
    assert ended.code == 0
    assert f"would be written  {SKILL}\nwould be written  text `source`\n" in ended.out
    assert app.sources == OLD


def test_as_json_the_sources_are_listed(console: Console, app: App) -> None:
    document = json.loads(console("apply", "--to-source", "--json").out)
    assert document["files"] == ["teams.md", SKILL, "text `source`"]
    assert document["outcome"] == "applied"


def test_when_a_callback_fails_nothing_is_written(console: Console, app: App) -> None:
    Path("down").touch()
    ended = console("apply", "--to-source")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "promptgraft: text `source`: write raised ConnectionError: the store is down; every text "
        "is as it was\n"
    )
    assert app.sources == OLD


def test_a_source_that_has_changed_since_the_run_is_refused_with_its_place(
    console: Console, app: App
) -> None:
    Path("teams.md").write_bytes(OLD["teams.md"].replace(b"rubbish", b"waste"))
    before = app.sources
    ended = console("apply", "--to-source")
    assert ended.code == 2
    stale, place = ended.err.splitlines()
    assert stale.startswith("promptgraft: section teams: stale: the winner was made for source")
    assert place == (
        "promptgraft: teams.md:2: expected line '- bins: rubbish', found line '- bins: waste'"
    )
    assert app.sources == before


def test_a_patch_is_of_the_files_and_names_the_other_texts(console: Console, app: App) -> None:
    ended = console("apply", "--patch")
    assert ended.code == 0
    assert ended.err == "promptgraft: not in the patch, as no file holds them: `source`\n"
    assert app.sources == OLD
    subprocess.run(["git", "apply"], input=ended.out.encode(), check=True)
    assert app.sources == {**NEW, "stored.txt": OLD["stored.txt"]}


def test_the_store_tags_and_the_gate_work_as_with_any_prompt(console: Console, app: App) -> None:
    before = console("eval", "--split", "validation", "--json", "--source")
    assert console("apply").code == 0
    assert app.sources == OLD
    assert "Act first." in console("render", "desk").out
    assert "Act first." in console("diff", "desk").out
    after = console("eval", "--split", "validation", "--json")
    scores = [json.loads(ended.out)["mean_score"] for ended in (before, after)]
    assert scores[0] < scores[1]
    Path("teams.md").write_text("- lamps: other")
    assert "section teams" in console("diff", "desk").out + console("diff", "desk").err


@pytest.mark.parametrize(("copies", "is_shown"), [(10, True), (2, False)])
def test_an_unattended_run_writes_only_what_held_out_cases_show_to_be_better(
    tmp_path: Path, console: Console, copies: int, is_shown: bool
) -> None:
    file = write(tmp_path, more="apply: to-source\n", copies=copies)
    ended = console("optimize", "--quiet", "--project", str(file))
    if is_shown:
        assert (ended.code, ended.err) == (0, "promptgraft: apply: to-source: written: teams.md\n")
        assert (tmp_path / "teams.md").read_bytes() == (
            b"\xef\xbb\xbf- lamps: light, bulb, post\n- bins: rubbish, fridge, sofa, bottles"
        )
    else:
        assert "apply: to-source: nothing was written: it is better on validation" in ended.err
        assert App(tmp_path).sources == OLD


# Ends the process, once, in a rollout of a candidate.
FATAL = """
first = call

def call(query, call):
    import os
    folder = Path(__file__).parent
    if ((call.folder or folder) / "teams.md").read_text("utf-8-sig") != call.texts["teams"]:
        raise SystemExit("another text")
    if "bulb" in call.texts["teams"]:
        try:
            (folder / "signal").rename(folder / "sent")
        except OSError:
            pass
        else:
            os.kill(os.getpid(), int((folder / "sent").read_text()))
    return first(query, call)
"""


def fatal(folder: Path, delivery: str, number: int) -> App:
    """Write a project whose process gets a signal in a rollout of a candidate."""
    write(folder, more=f"delivery: {delivery}\n")
    (folder / "agent.py").write_text(CODE + FATAL)
    (folder / "signal").write_text(str(number))
    return App(folder)


def test_ctrl_c_puts_live_files_back(tmp_path: Path, programs: Programs) -> None:
    app = fatal(tmp_path, "live", signal.SIGINT)
    assert programs.promptgraft("optimize", "--quiet", folder=tmp_path).returncode == 3
    assert (tmp_path / "sent").exists()
    assert app.sources == OLD
    assert not (tmp_path / ".promptgraft" / "sources.json").exists()


def test_after_a_kill_the_next_command_puts_live_files_back_and_the_run_is_resumed(
    tmp_path: Path, programs: Programs
) -> None:
    app = fatal(tmp_path, "live", signal.SIGKILL)
    assert (
        programs.promptgraft("optimize", "--quiet", folder=tmp_path).returncode == -signal.SIGKILL
    )
    assert app.sources != OLD
    listed = programs.promptgraft("runs", folder=tmp_path)
    assert f"run {app.run.name} was interrupted, and teams.md, {SKILL}, " in listed.stderr
    assert app.sources != OLD
    resumed = programs.promptgraft("resume", "latest", "--quiet", folder=tmp_path)
    assert resumed.returncode == 1
    assert resumed.stderr.startswith(
        f"promptgraft: run {app.run.name} was interrupted; put back now: teams.md, {SKILL}\n"
    )
    assert app.sources == OLD
    assert (app.run / "originals" / "teams.md").read_bytes() == OLD["teams.md"]


def test_what_something_else_wrote_meanwhile_is_decided_by_hand(
    tmp_path: Path, console: Console, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = fatal(tmp_path, "live", signal.SIGKILL)
    programs.promptgraft("optimize", "--quiet", folder=tmp_path)
    killed = tmp_path.with_name("killed")
    for option, verb, kept in (("--keep", "kept", b"Mine."), ("--overwrite", "put back", None)):
        shutil.copytree(tmp_path, killed, dirs_exist_ok=True)
        monkeypatch.chdir(killed)
        seal_again(killed)
        Path("teams.md").write_text("Mine.")
        for arguments in (("restore",), ("check",)):
            ended = console(*arguments)
            assert ended.code == 2
            told = "teams.md: something else has written it since; it is left as it is"
            assert told in ended.out + ended.err
        ended = console("restore", option)
        assert (ended.code, ended.out) == (0, f"{verb}  teams.md\n")
        assert App(killed).sources == {**OLD, "teams.md": kept or OLD["teams.md"]}
        assert console("restore").out == "there is nothing to restore\n"
    assert app.sources != OLD


def test_no_copy_of_a_folder_is_left_after_a_kill_and_a_resume(
    tmp_path: Path, programs: Programs
) -> None:
    app = fatal(tmp_path, "folder", signal.SIGKILL)
    assert (
        programs.promptgraft("optimize", "--quiet", folder=tmp_path).returncode == -signal.SIGKILL
    )
    assert (app.run / "copies").is_dir()
    assert programs.promptgraft("resume", "latest", "--quiet", folder=tmp_path).returncode == 1
    assert not (app.run / "copies").exists()
    assert app.sources == OLD


def test_without_a_project_the_files_of_the_folder_are_restored(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert console("restore").out == "there is nothing to restore\n"
    (tmp_path / "system.md").write_text("A candidate.")
    text = {"name": "system", "path": "system.md", "old": "Mine.", "new": ["A candidate."]}
    leave_record(tmp_path, {"by": "run 1", "goal": "old", "texts": [text]})
    assert console("restore").out == "put back  system.md\n"
    assert (tmp_path / "system.md").read_text() == "Mine."
