"""An agent finds the texts of its candidate, and what it does with its copy stays there."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from promptgraft.agents.call import Delivery
from promptgraft.agents.delivery import FolderCopy, InCall
from promptgraft.agents.sources import FileSource, Sources, read_sources
from promptgraft.errors import ConfigError


def project(folder: Path, *, files: int = 0) -> Sources:
    """Make a folder with two texts, a link and more files, and read its texts."""
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "system.md").write_bytes(b"---\r\nname: s\r\n---\r\nSystem.\r\n")
    (folder / "skill.md").write_text("Skill.")
    (folder / "link.md").symlink_to(folder / "prompts" / "system.md")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "notes").mkdir()
    for number in range(files):
        (folder / "notes" / f"{number}.txt").write_text("note " * 100)
    named = {
        "system": FileSource(Path("prompts/system.md"), "front_matter"),
        "skill": FileSource(Path("skill.md")),
    }
    return read_sources(named, folder=folder)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below a folder with its mode."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_texts_of_a_call_are_left_to_the_call(tmp_path: Path) -> None:
    with InCall().opened(tmp_path), InCall().deliver({"system": "New."}) as folder:
        assert folder is None
    assert not list(tmp_path.iterdir())


def test_a_copy_holds_the_candidate_and_everything_else_as_it_is(tmp_path: Path) -> None:
    sources = project(tmp_path / "app")
    before = contents(tmp_path / "app")
    delivery: Delivery = FolderCopy(sources, tmp_path / "app")
    new = b"---\r\nname: s\r\n---\r\nNew.\r\n"
    with delivery.opened(tmp_path / "run"):
        with delivery.deliver({"system": "New.", "skill": "Skill."}) as copy:
            assert copy is not None
            assert copy.is_relative_to(tmp_path / "run")
            found = contents(copy)
            assert (copy / "link.md").resolve() == copy / "prompts" / "system.md"
        assert not copy.exists()
    changed = {"prompts/system.md": new, "link.md": new}
    assert found == {name: (changed.get(name, data), mode) for name, (data, mode) in before.items()}
    assert not list((tmp_path / "run").iterdir())


def write_in_place(copy: Path) -> None:
    for path in copy.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                file.write(b"OVERWRITTEN")


def replace(copy: Path) -> None:
    (copy / "other").write_text("other")
    (copy / "other").replace(copy / "run.sh")


def remove(copy: Path) -> None:
    (copy / "run.sh").unlink()


def add(copy: Path) -> None:
    (copy / "notes" / "new").mkdir()
    (copy / "notes" / "new" / "log.txt").write_text("log")
    (copy / "to.md").symlink_to(copy / "notes")
    os.mkfifo(copy / "pipe")


def keep_status(copy: Path) -> None:
    """Change a file so that size and times say nothing."""
    path = copy / "run.sh"
    found = path.stat()
    with path.open("r+b") as file:
        file.write(b"OTHER")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def chmod(copy: Path) -> None:
    (copy / "run.sh").chmod(0o600)


def link_elsewhere(copy: Path) -> None:
    (copy / "link.md").unlink()
    (copy / "link.md").symlink_to("skill.md")


def no_more(copy: Path) -> None:
    copy.rename(copy.with_name(f"gone-{copy.name}"))


@pytest.mark.parametrize(
    "spoil",
    [write_in_place, replace, remove, add, keep_status, chmod, link_elsewhere, no_more],
)
def test_what_an_agent_does_in_its_copy_reaches_no_other_rollout(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    sources = project(tmp_path / "app", files=3)
    texts = dict(sources.texts)
    before = contents(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        for _ in range(3):
            with delivery.deliver(texts) as copy:
                assert contents(copy) == before
                assert {path.name for path in copy.iterdir()} == {
                    path.name for path in (tmp_path / "app").iterdir()
                }
                spoil(copy)
    assert contents(tmp_path / "app") == before
    assert not list((tmp_path / "run").iterdir())


def test_a_copy_whose_rollout_failed_is_not_used_again(tmp_path: Path) -> None:
    sources = project(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        rollout = delivery.deliver(sources.texts)
        held = (rollout.__enter__() / "run.sh").open("r+b")
        assert not rollout.__exit__(KeyError, KeyError(), None)
        with delivery.deliver(sources.texts) as copy, held:
            held.write(b"LATE")
            held.flush()
            assert (copy / "run.sh").read_bytes() == b"#!/bin/sh\n"


def test_copies_of_a_killed_run_are_removed_when_it_is_resumed(tmp_path: Path) -> None:
    sources = project(tmp_path / "app")
    (tmp_path / "run" / "copies" / "7").mkdir(parents=True)
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        assert not (tmp_path / "run" / "copies" / "7").exists()


def test_a_run_folder_inside_is_not_copied(tmp_path: Path) -> None:
    sources = project(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / "runs" / "old").mkdir(parents=True)
    delivery = FolderCopy(sources, tmp_path, leave_out=[tmp_path / "runs"])
    with delivery.opened(tmp_path / "runs" / "new"), delivery.deliver(sources.texts) as copy:
        assert sorted(path.name for path in copy.iterdir()) == [
            "link.md",
            "notes",
            "prompts",
            "run.sh",
            "skill.md",
        ]
    with FolderCopy(sources, tmp_path).deliver(sources.texts) as copy:
        assert not copy.is_relative_to(tmp_path)
    assert not copy.parent.parent.exists()


def test_sixteen_rollouts_at_a_time_read_their_own_candidate(tmp_path: Path) -> None:
    sources = project(tmp_path / "app", files=3)
    delivery = FolderCopy(sources, tmp_path / "app")

    def read_texts(number: int) -> bool:
        texts = {"system": f"System {number % 4}.", "skill": f"Skill {number}."}
        with delivery.deliver(texts) as copy:
            found = [(copy / "link.md").read_text(), (copy / "skill.md").read_text()]
        return found == ["---\nname: s\n---\n" + texts["system"] + "\n", texts["skill"]]

    with delivery.opened(tmp_path / "run"), ThreadPoolExecutor(16) as workers:
        assert all(workers.map(read_texts, range(500)))


def not_in(name: str, folder: str, file: str) -> str:
    return (
        f"folder: expected the file of text `{name}` in {folder} and in no folder that is left "
        f"out, found {file}; name a folder that holds all files"
    )


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda sources, app: FolderCopy(sources, app / "none"),
            "folder: expected a folder, found none at APP/none",
        ),
        (
            lambda sources, app: FolderCopy(sources, app / "prompts"),
            not_in("skill", "APP/prompts", "APP/skill.md"),
        ),
        (
            lambda sources, app: FolderCopy(sources, app, leave_out=[app / "prompts"]),
            not_in("system", "APP", "APP/prompts/system.md"),
        ),
        (
            lambda sources, app: (
                (app / "out").symlink_to(app.parent),
                FolderCopy(sources, app),
            ),
            (
                "folder: APP/out is a link to a folder outside of APP, which rollouts would share; "
                "name another folder"
            ),
        ),
    ],
)
def test_folders_that_cannot_be_copied_are_refused(
    tmp_path: Path, make: Callable[[Sources, Path], object], expected: str
) -> None:
    app = tmp_path / "app"
    sources = project(app)
    with pytest.raises(ConfigError) as raised:
        make(sources, app)
    assert str(raised.value).replace(str(app), "APP") == expected


def test_a_run_within_a_run_opens_nothing_again(tmp_path: Path) -> None:
    sources = project(tmp_path / "app")
    delivery = FolderCopy(sources, tmp_path / "app")
    with delivery.opened(tmp_path / "run"):
        with delivery.opened(tmp_path / "inner"):
            assert not (tmp_path / "inner").exists()
        with delivery.deliver(sources.texts) as copy:
            assert copy.is_relative_to(tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())
