"""``promptgraft apply --to-source`` and ``--patch``: back into the files, all or none."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from apply.world import NEW, OLD, World
from black_box.records import leave_record
from cli.console import Console, Ended, process
from promptgraft.agents.writing import RECORD


@pytest.fixture
def two_files(world: World) -> World:
    """The project with a winner that changes two files."""
    world.let_the_winner_say(*world.both())
    return world


def test_the_files_say_what_the_winner_says_and_only_that(
    console: Console, two_files: World
) -> None:
    ended = console("apply", "--to-source")

    assert (ended.code, ended.err) == (0, "")
    assert two_files.texts == NEW
    assert "--- section teams (before)\n" in ended.out
    assert "--- tool lookup (before)\n" in ended.out
    assert ended.out.endswith("written  prompts/triage.md\nwritten  prompts/tools.yaml\n")
    assert two_files.history() == ()


def test_files_in_json_are_written_too(console: Console, two_files: World) -> None:
    tools = two_files.folder / "prompts/tools.json"
    tools.write_text(json.dumps(yaml.safe_load(OLD["prompts/tools.yaml"])), "utf-8")
    two_files.edit("prompts/triage.md", "tools: tools.yaml", "tools: tools.json")

    ended = console("apply", "--to-source")

    assert (ended.code, ended.err) == (0, "")
    assert json.loads(tools.read_bytes()) == yaml.safe_load(NEW["prompts/tools.yaml"])


def test_applied_once_more_the_source_says_it_already(console: Console, two_files: World) -> None:
    console("apply", "--to-source")

    for arguments in (("--to-source",), (), ("--patch",)):
        ended = console("apply", *arguments)
        assert ended.code == 0
        assert "already applied" in ended.out + ended.err
    assert two_files.texts == NEW
    assert two_files.history() == ()


def test_a_dry_run_names_the_files_and_writes_nothing(console: Console, two_files: World) -> None:
    before = sorted(two_files.folder.rglob("*"))
    ended = console("apply", "--to-source", "--dry-run")
    assert ended.code == 0
    assert "would be written  prompts/triage.md\n" in ended.out
    assert two_files.texts == OLD
    assert sorted(two_files.folder.rglob("*")) == before


def test_overrides_that_the_tag_holds_of_these_parts_are_named(
    console: Console, world: World
) -> None:
    console("apply")

    ended = console("apply", "--to-source")

    assert ended.code == 0
    assert ended.out.endswith(
        "tag `live` holds overrides of section teams: they were written for the old text and are "
        "not applied to the new one\n"
    )


def test_the_document_names_files_and_stale_overrides(console: Console, world: World) -> None:
    console("apply")
    document = json.loads(console("apply", "--to-source", "--json").out)
    assert (document["where"], document["outcome"]) == ("source", "applied")
    assert document["files"] == ["prompts/triage.md"]
    assert document["stale_overrides"] == {"tag": "live", "parts": ["section teams"]}


def test_a_prompt_in_python_cannot_be_written_back(console: Console, world: World) -> None:
    (world.folder / "prompts/triage.py").write_text(
        "from pathlib import Path\n"
        "from promptgraft.project.markdown import load_markdown_prompt\n"
        "HERE = Path(__file__).parent\n"
        "PROMPT = load_markdown_prompt(HERE / 'triage.md').prompt\n",
        "utf-8",
    )
    world.edit("promptgraft.yaml", "prompts/triage.md", "prompts/triage.py:PROMPT")

    ended = console("apply", "--to-source")

    assert ended.code == 2
    assert "prompt `depot/triage` is written in Python" in ended.err
    assert console("apply").code == 0


def test_files_out_of_the_project_are_not_written(
    console: Console, two_files: World, tmp_path: Path
) -> None:
    outside = tmp_path / "tools.yaml"
    inside = two_files.folder / "prompts/tools.yaml"
    inside.rename(outside)
    inside.symlink_to(outside)

    ended = console("apply", "--to-source")

    assert ended.code == 2
    assert "leads out of the project's folder" in ended.err
    assert two_files.texts == OLD
    assert not (two_files.folder / RECORD).exists()


def test_a_system_that_refuses_leaves_the_old_texts(
    console: Console, two_files: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.replace

    def refusing(source: str, target: Path) -> None:
        if "tools.yaml" in str(target):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", refusing)

    ended = console("apply", "--to-source")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "promptgraft: prompts/tools.yaml: No space left on device; every text is as it was\n"
    )
    assert two_files.texts == OLD


def half_write(world: World, *more: Mapping[str, object]) -> Path:
    """Leave what a kill leaves between two files; return the record."""
    files = [{"name": n, "path": n, "old": OLD[n], "new": [NEW[n]]} for n in OLD]
    record = leave_record(
        world.folder, {"by": "the write", "goal": "new", "texts": [*files, *more]}
    )
    (world.folder / "prompts/triage.md").write_text(NEW["prompts/triage.md"], "utf-8")
    return record


def test_a_half_written_source_is_completed_even_if_it_does_not_load(
    console: Console, two_files: World
) -> None:
    record = half_write(two_files)
    (two_files.folder / "prompts/broken.md").write_text("---\nkey: 1\n", "utf-8")
    two_files.edit("promptgraft.yaml", "prompts/triage.md", "prompts/broken.md")

    ended = console("apply", "--to-source")

    assert "the write was interrupted; written now: prompts/triage.md, prompts/tools" in ended.err
    assert two_files.texts == NEW
    assert not record.exists()


def test_any_command_completes_a_half_written_source_first(
    console: Console, two_files: World
) -> None:
    half_write(two_files)
    ended = console("apply", "--to-source")
    assert ended.code == 0
    assert ended.out.endswith("\nalready applied: the source has this text\n")
    assert two_files.texts == NEW


def test_a_half_written_source_that_somebody_edited_is_not_completed(
    console: Console, two_files: World
) -> None:
    half_write(two_files)
    (two_files.folder / "prompts/tools.yaml").write_text("mine\n", "utf-8")

    ended = console("apply", "--to-source")

    assert ended.code == 2
    assert "prompts/tools.yaml: something else has written it since" in ended.err
    assert "`promptgraft restore --keep` leaves it for good" in ended.err
    assert two_files.texts == {**NEW, "prompts/tools.yaml": "mine\n"}
    assert console("restore", "--keep").code == 0
    assert console("restore").out == "there is nothing to restore\n"


@pytest.mark.parametrize("name", ["agent.py", ".github/ci.yaml", "promptgraft.yaml"])
def test_an_edited_record_writes_into_no_file_that_says_what_code_is_run(
    console: Console, two_files: World, name: str
) -> None:
    half_write(two_files, {"name": name, "path": name, "old": "mine\n", "new": ["theirs\n"]})

    ended = console("apply", "--to-source")

    assert ended.code == 2
    assert f"{name}: may be run, and is never written" in ended.err


def test_options_that_contradict_each_other_are_refused(console: Console, world: World) -> None:
    for arguments in (
        ("--to-source", "--patch"),
        ("--tag", "x", "--to-source"),
        ("--patch", "--dry-run"),
        ("--patch", "--store", "."),
    ):
        ended = console("apply", *arguments)
        assert ended.code == 2
        assert "leave" in ended.err


def patched(folder: Path, patch: Ended) -> None:
    """Let the real git take a patch that was printed."""
    ended = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=folder,
        input=patch.out.encode(),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_git_takes_the_patch_and_the_result_is_that_of_to_source(
    console: Console, two_files: World
) -> None:
    patch = console("apply", "--patch")
    assert (patch.code, patch.err) == (0, "")
    assert two_files.texts == OLD
    document = json.loads(console("apply", "--patch", "--json").out)
    assert (document["patch"], document["root"]) == (patch.out, str(two_files.folder))

    patched(two_files.folder, patch)

    assert two_files.texts == NEW


def test_in_a_repository_the_patch_is_relative_to_its_root(
    console: Console, two_files: World
) -> None:
    repository = two_files.folder.parent
    subprocess.run(["git", "init", "--quiet", repository], check=True)

    patch = console("apply", "--patch")

    assert patch.out.startswith("diff --git a/project/prompts/triage.md b/project/prompts/")
    patched(repository, patch)
    assert two_files.texts == NEW


def test_the_patch_is_utf_8_in_every_locale(world: World) -> None:
    world.let_the_winner_say(world.section("teams", "- lamps: läuft → „Licht“\n- bins: 日本"))

    patch = process(
        "apply",
        "--patch",
        folder=world.folder,
        environment={"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
    )

    assert (patch.returncode, patch.stderr) == (0, b"")
    assert "+- lamps: läuft → „Licht“\n+- bins: 日本\n".encode() in patch.stdout
