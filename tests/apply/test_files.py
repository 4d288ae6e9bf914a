"""Source files that are replaced: all or none, whatever happens half-way."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from apply.crash_driver import TEXTS
from killing import folder_in_memory, said_by
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.project.applying.files import (
    Intent,
    PlannedFile,
    planned,
    read_intent,
    replace_files,
)
from promptgraft.project.files import FileChange

DRIVER = Path(__file__).with_name("crash_driver.py")
OLD = {name: old for name, (old, _) in TEXTS.items()}
NEW = {name: new for name, (_, new) in TEXTS.items()}


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one."""
    with folder_in_memory() as folder:
        yield folder


def test_a_kill_anywhere_leaves_old_or_new_texts_and_the_same_call_completes_it(
    quick_folder: Path,
) -> None:
    runs = [json.loads(line) for line in said_by(DRIVER, quick_folder)]

    killed = [run for run in runs if run["signal"]]
    assert {run["signal"] for run in killed} == {signal.SIGKILL}
    # Four files: write, sync, rename, sync of the folder; before and after each, inside writes.
    assert len(killed) == 16 + 16 + 4
    for run in runs:
        for name, text in run["between"].items():
            assert text in TEXTS[name], run["folder"]
        assert run["after"] == NEW, run["folder"]
        intent = read_intent(Path(run["folder"], "runs", "apply.json"))
        assert intent is not None
        assert intent.done
    assert list(quick_folder.rglob("*.tmp")) == []
    mixed = [run for run in killed if run["between"] not in (OLD, NEW)]
    assert len(mixed) > 5


@attrs.frozen
class Project:
    """A folder with two prompt files and a run."""

    folder: Path

    @property
    def texts(self) -> dict[str, str]:
        return {name: (self.folder / name).read_bytes().decode() for name in TEXTS}

    @property
    def changes(self) -> list[FileChange]:
        return [FileChange(self.folder / name, *pair) for name, pair in TEXTS.items()]

    def replace(self) -> None:
        files = planned(self.folder, self.changes)
        intent = Intent(run="run", candidate=3, done=False, files=files)
        replace_files(self.folder, self.folder / "runs", intent)

    @property
    def record(self) -> Intent | None:
        return read_intent(self.folder / "runs" / "apply.json")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    for name in ("runs", "sub"):
        (folder / name).mkdir(parents=True)
    for name, text in OLD.items():
        (folder / name).write_bytes(text.encode())
    return Project(folder)


def test_permissions_stay(project: Project) -> None:
    path = project.folder / "a.md"
    path.chmod(0o640)

    project.replace()

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_to_a_file_of_the_project_stays_a_link(project: Project) -> None:
    (project.folder / "a.md").rename(project.folder / "real.md")
    (project.folder / "a.md").symlink_to("real.md")

    project.replace()

    assert (project.folder / "a.md").is_symlink()
    assert project.texts == NEW


def test_nothing_is_written_through_a_link_out_of_the_project(
    project: Project, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text(OLD["a.md"], "utf-8")
    (project.folder / "a.md").unlink()
    (project.folder / "a.md").symlink_to(outside)

    with pytest.raises(ConfigError, match="leads out of the project's folder") as caught:
        project.replace()

    assert str(outside) in str(caught.value)
    assert project.texts == OLD
    assert project.record is None


def test_nothing_is_written_through_a_folder_that_leads_out(
    project: Project, tmp_path: Path
) -> None:
    (project.folder / "sub").rename(tmp_path / "sub")
    (project.folder / "sub").symlink_to(tmp_path / "sub")

    with pytest.raises(ConfigError, match="leads out of the project's folder"):
        project.replace()

    assert project.texts == OLD


def test_a_record_that_names_a_file_outside_is_not_followed(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "outside.md").write_text("old", "utf-8")
    forged = PlannedFile(path="../outside.md", before="old", after="new")
    intent = Intent(run="run", candidate=3, done=False, files=(forged,))

    with pytest.raises(ConfigError, match="leads out of the project's folder"):
        replace_files(project.folder, project.folder / "runs", intent)

    assert (tmp_path / "outside.md").read_text("utf-8") == "old"


def test_one_file_that_somebody_changed_is_named_and_none_is_written(project: Project) -> None:
    (project.folder / "sub/b.yaml").write_text("mine\n", "utf-8")

    with pytest.raises(ConfigError, match=r"sub/b\.yaml: expected [0-9a-f]{12} or .*, found "):
        project.replace()

    assert project.texts == {**OLD, "sub/b.yaml": "mine\n"}
    assert project.record is None


def test_two_changes_of_one_file_are_refused(project: Project) -> None:
    change = project.changes[0]
    with pytest.raises(ConfigError, match="in two ways"):
        planned(project.folder, [change, attrs.evolve(change, after="another")])


def interrupted_at(monkeypatch: pytest.MonkeyPatch, fatal: int, error: BaseException) -> None:
    """Let the rename of that number fail."""
    renames, rename = iter(range(1, 100)), os.replace

    def failing(source: str, target: Path) -> None:
        if next(renames) == fatal:
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "replace", failing)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("fatal", [1, 2, 3, 4])
def test_a_failure_or_ctrl_c_half_way_puts_the_old_texts_back(
    error: BaseException, fatal: int, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(monkeypatch, fatal, error)

    with pytest.raises(type(error)):
        project.replace()

    assert project.texts == OLD
    assert project.record is None
    assert list(project.folder.rglob("*.tmp")) == []


def test_a_folder_that_takes_nothing_is_said_to_be_unchanged(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(OSError, match=r"Read-only file system; no file was changed"):
        project.replace()
    assert project.texts == OLD


def test_when_the_old_texts_cannot_be_put_back_the_same_call_completes_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.replace

    def failing(source: str, target: Path) -> None:
        if "b.yaml" in str(target) or "old" in Path(source).read_text("utf-8").split("\n")[0]:
            raise OSError(28, "No space left on device")
        rename(source, target)

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="give the same command again, which completes it"):
            project.replace()
    assert project.texts == {**OLD, "a.md": NEW["a.md"]}

    project.replace()

    assert project.texts == NEW


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ('"version": 1', "version: expected 1, found 2"),
        ('"candidate"', "candidate"),
        ("{", "Extra data"),
    ],
)
def test_a_damaged_record_is_an_error_that_names_it(
    damage: str, fault: str, project: Project
) -> None:
    project.replace()
    path = project.folder / "runs" / "apply.json"
    mended = {'"version": 1': '"version": 2', '"candidate"': '"candidates"', "{": ""}
    path.write_text(path.read_text("utf-8").replace(damage, mended[damage]), "utf-8")

    with pytest.raises(DataFormatError, match=fault) as caught:
        read_intent(path)

    assert str(caught.value).startswith(str(path))
    assert "delete it when every prompt file is as you want it" in str(caught.value)
