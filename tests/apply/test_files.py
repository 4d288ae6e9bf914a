"""Which changes of source files are written; how is in ``black_box/test_writing.py``."""

from __future__ import annotations

import stat
from pathlib import Path

import attrs
import pytest

from promptgraft.agents.writing import RECORD, SourceWriter
from promptgraft.errors import ConfigError
from promptgraft.project.applying import planned
from promptgraft.project.files import FileChange

TEXTS = {"a.md": ("old a\n", "new a\n" * 500), "sub/b.yaml": ("old b\r\n", "new b\r\n")}
OLD = {name: old for name, (old, _) in TEXTS.items()}
NEW = {name: new for name, (_, new) in TEXTS.items()}


@attrs.frozen
class Project:
    """A folder with two prompt files."""

    folder: Path

    @property
    def texts(self) -> dict[str, str]:
        return {name: (self.folder / name).read_bytes().decode() for name in TEXTS}

    @property
    def changes(self) -> list[FileChange]:
        return [FileChange(self.folder / name, *pair) for name, pair in TEXTS.items()]

    def replace(self) -> None:
        files = planned(self.folder, self.changes)
        writer = SourceWriter(self.folder.resolve(), {})
        with writer.held():
            writer.write(files, by="a test")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    for name, text in OLD.items():
        (folder / name).write_bytes(text.encode())
    return Project(folder)


def test_permissions_stay(project: Project) -> None:
    path = project.folder / "a.md"
    path.chmod(0o640)

    project.replace()

    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert project.texts == NEW


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


def test_nothing_is_written_through_a_folder_that_leads_out(
    project: Project, tmp_path: Path
) -> None:
    (project.folder / "sub").rename(tmp_path / "sub")
    (project.folder / "sub").symlink_to(tmp_path / "sub")

    with pytest.raises(ConfigError, match="leads out of the project's folder"):
        project.replace()

    assert project.texts == OLD


def test_one_file_that_somebody_changed_is_named_and_none_is_written(project: Project) -> None:
    (project.folder / "sub/b.yaml").write_text("mine\n", "utf-8")

    said = r"sub/b\.yaml:1: expected line 'old b\\r', found line 'mine'; it has changed"
    with pytest.raises(ConfigError, match=said):
        project.replace()

    assert project.texts == {**OLD, "sub/b.yaml": "mine\n"}
    assert not (project.folder / RECORD).exists()


def test_two_changes_of_one_file_are_refused(project: Project) -> None:
    change = project.changes[0]
    with pytest.raises(ConfigError, match="in two ways"):
        planned(project.folder, [change, attrs.evolve(change, after="another")])
