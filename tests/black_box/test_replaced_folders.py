"""An agent that puts links in the place of folders reaches nothing outside of its copy."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from black_box.test_delivery import contents, project
from promptgraft.agents.delivery import FolderCopy
from promptgraft.agents.live import LiveFiles
from promptgraft.errors import ConfigError, JournalWriteError
from promptgraft.ground.folders import OwnFolder, remove_tree
from promptgraft.runs.recorder import recorded
from promptgraft.testing import FakeClock
from runs.toy_runs import make_tiny_job, new_folder, with_task

REPLACED = "the agent put something else in the place of its copy"
DEEP = 1_100


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Work of the user beside the project, which no agent may cost; checked after the test."""
    folder = tmp_path / "work"
    (folder / "prompts").mkdir(parents=True)
    (folder / "notes").mkdir()
    (folder / "skill.md").write_text("The only draft.")
    (folder / "prompts" / "system.md").write_text("Another draft.")
    (folder / "1.md").write_text("A page.")
    before = contents(folder)
    yield folder
    assert contents(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "1.md",
        "notes",
        "prompts",
        "skill.md",
    ]


def shell(line: str, **places: Path) -> None:
    """Do as an agent does that is a command."""
    quoted = {name: shlex.quote(str(path)) for name, path in places.items()}
    subprocess.run(["sh", "-c", line.format(**quoted)], check=True)


LOST = (
    "cd {copy}/..; rm -rf pattern; ln -s {work} pattern; rm -rf {copy}",
    "cd {copy}/..; rm -rf pattern/notes; ln -s {work}/notes pattern/notes; rm -rf {copy}",
    "cd {copy}/../..; mv copies away; ln -s {work} copies",
)


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf {copy}; ln -s {work} {copy}",
        "mv {copy} {copy}.away; ln -s {work} {copy}",
        "rm -rf {copy}/notes; ln -s {work}/notes {copy}/notes",
        "rm -rf {copy}/prompts; ln -s {work}/prompts {copy}/prompts",
        "ln -s {work} {copy}/out",
        "rm {copy}/skill.md; ln -s {work}/skill.md {copy}/skill.md",
        "ln -f {work}/skill.md {copy}/skill.md",
        *LOST,
    ],
)
def test_a_link_in_the_place_of_a_folder_leads_nowhere(
    line: str, tmp_path: Path, work: Path
) -> None:
    sources = project(tmp_path / "app", files=2)
    before = contents(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        with delivery.deliver(sources.texts) as copy:
            shell(line, copy=copy, work=work)
        for body in ("New.", "Newer."):
            # Where nothing can be copied any more, the run ends before the agent is called.
            with contextlib.ExitStack() as stack:
                if line in LOST:
                    stack.enter_context(pytest.raises(ConfigError, match="cannot be copied"))
                copy = stack.enter_context(delivery.deliver({"system": body, "skill": body}))
                assert (copy / "skill.md").read_text() == body
                assert set(contents(copy)) == set(before)
    assert contents(tmp_path / "app") == before


@pytest.mark.parametrize("line", ["ln -s {work} {copy}", "mkdir {copy}; echo new > {copy}/x"])
def test_a_replaced_copy_is_dropped_and_told_once(
    line: str, tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = project(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with caplog.at_level(logging.WARNING), delivery.opened(tmp_path / "run"):
        for _ in range(3):
            with delivery.deliver(sources.texts) as copy:
                shell(f"mv {{copy}} {{copy}}.away; {line}", copy=copy, work=work)
            assert not copy.exists()
    assert [str(REPLACED in record.message) for record in caplog.records] == ["True"]
    assert not list((tmp_path / "run").iterdir())


def test_a_copy_replaced_after_its_rollout_is_not_written(tmp_path: Path, work: Path) -> None:
    sources = project(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        with delivery.deliver(sources.texts):
            pass
        # A process that an agent left behind looks for the spare copies.
        for spare in (tmp_path / "run" / "copies").iterdir():
            if spare.name != "pattern":
                shell("rm -rf {spare}; ln -s {work} {spare}", spare=spare, work=work)
        with delivery.deliver({"system": "New.", "skill": "New."}) as copy:
            assert not copy.is_symlink()
            assert (copy / "skill.md").read_text() == "New."


def nest(folder: Path, depth: int = DEEP) -> None:
    """Put that many folders within each other, deeper than any path may be long."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def test_folders_nested_deeper_than_python_recurses_are_removed(tmp_path: Path) -> None:
    sources = project(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        with delivery.deliver(sources.texts) as copy:
            nest(copy)
        # The copy of a failed rollout is removed instead of restored.
        rollout = delivery.deliver(sources.texts)
        copy = rollout.__enter__()
        nest(copy)
        assert not rollout.__exit__(KeyError, KeyError(), None)
        assert not copy.exists()
    assert not list((tmp_path / "run").iterdir())


def test_a_folder_too_deep_to_be_meant_is_refused(tmp_path: Path) -> None:
    sources = project(tmp_path / "app")
    nest(tmp_path / "app", 201)
    with pytest.raises(ConfigError, match="at most 200 folders within each other"):
        FolderCopy(sources, tmp_path / "app")


def test_removal_takes_away_links_and_not_what_they_lead_to(tmp_path: Path, work: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "out").symlink_to(work)
    (tree / "a" / "read-only").mkdir()
    (tree / "a" / "read-only" / "f").write_text("x")
    (tree / "a" / "read-only").chmod(0o500)
    (tree / "a").chmod(0o500)
    (tmp_path / "link").symlink_to(work)
    for path in (tree, tmp_path / "link", tmp_path / "nothing"):
        remove_tree(path)
        assert not path.is_symlink()
        assert not path.exists()


def test_a_folder_is_removed_only_if_it_is_the_one_that_was_made(
    tmp_path: Path, work: Path
) -> None:
    folder = OwnFolder.create(tmp_path / "own")
    folder.path.rename(tmp_path / "moved")
    folder.path.symlink_to(work)
    with pytest.raises(NotADirectoryError, match="expected the folder that was made there"):
        folder.remove()
    folder.path.unlink()
    folder.path.mkdir()
    (folder.path / "file").write_text("of somebody else")
    with pytest.raises(NotADirectoryError, match="expected the folder that was made there"):
        folder.remove()
    assert (folder.path / "file").exists()


@pytest.mark.parametrize("name", ["candidates", "rejected", "questions", "best_prompts", ""])
def test_the_pages_of_a_run_are_not_written_through_a_link(
    name: str, tmp_path: Path, work: Path
) -> None:
    job = make_tiny_job()
    folder = new_folder(tmp_path / "runs", job)
    place = folder.path / name
    calls = iter(range(1000))

    def answer(rendered: object) -> str:
        if next(calls) == 1:
            shell(
                "[ ! -e {place} ] || mv {place} {away}; ln -s {work} {place}",
                place=place,
                away=tmp_path / "away",
                work=work,
            )
        return "?"

    with (
        # Without its journal a run cannot go on; without its pages it can.
        contextlib.nullcontext() if name else pytest.raises(JournalWriteError),
        recorded(folder, with_task(job, answer), clock=FakeClock()) as (kept, recorder),
    ):
        kept.run()
        assert "cannot be written: expected " in recorder.failure or name == "best_prompts"


def test_originals_of_live_files_are_not_written_through_a_link(tmp_path: Path, work: Path) -> None:
    sources = project(tmp_path / "app")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "originals").symlink_to(work)
    with LiveFiles(sources).opened(tmp_path / "run"):
        assert (tmp_path / "run" / "originals" / "skill.md").read_text() == "Skill."


def test_live_files_are_not_written_to_another_folder(tmp_path: Path, work: Path) -> None:
    app = tmp_path / "app"
    sources = project(app)
    delivery = LiveFiles(sources)
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(ConfigError, match="is another folder than at the start"))
        stack.enter_context(delivery.opened(tmp_path / "run"))
        with delivery.deliver({"system": "New.", "skill": "New."}):
            shell("mv {app} {app}-away; ln -s {work} {app}", app=app, work=work)
