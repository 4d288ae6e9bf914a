"""Texts are written to all of their sources or to none, whatever fails or is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from black_box.records import leave_record, seal_again
from black_box.stored_texts import FRONT, NEW, OLD, SKILL, contents, make, opened
from killing import error_text, folder_in_memory
from programs import Programs
from promptgraft.agents.sources import FileSource, Sources, read_sources
from promptgraft.agents.writing import RECORD, CallbackSource
from promptgraft.errors import ConfigError, DataFormatError, JournalLockedError

DRIVER = Path(__file__).with_name("writing_crash_driver.py")
AFTER = {
    SKILL: f"{FRONT}New skill.".encode(),
    "store.txt": b"New store.",
    "system.md": b"\xef\xbb\xbfNew system.\r\nTwo lines.\r\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path)
    return tmp_path


def test_all_texts_are_written_and_nothing_else_of_their_files(folder: Path) -> None:
    assert opened(folder).write(NEW, by="a test") == (
        "system.md",
        SKILL,
        "text `stored`",
    )
    assert contents(folder) == AFTER
    assert dict(opened(folder).texts) == NEW


def test_texts_that_stay_are_not_written(folder: Path) -> None:
    before = (folder / "system.md").stat()  # reading it may change when it was read
    assert opened(folder).write({"skill": "New skill."}, by="a test") == (
        ".claude/skills/SKILL.md",
    )
    now = (folder / "system.md").stat()
    assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert opened(folder).write({}, by="a test") == ()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "system.md",
            "Old system.\r\n",
            "1: expected line '\\ufeffOld system.\\r', found line 'Old system.\\r'",
        ),
        (
            SKILL,
            f"{FRONT}Old skill.\nMore.",
            "5: expected no line, found line 'More.'",
        ),
    ],
)
def test_a_source_that_has_changed_since_is_refused_with_its_place(
    folder: Path, name: str, text: str, expected: str
) -> None:
    sources = opened(folder)
    (folder / name).write_bytes(text.encode())
    before = contents(folder)
    with pytest.raises(ConfigError) as raised:
        sources.write(NEW, by="a test")
    assert str(raised.value) == f"{name}:{expected}; it has changed since it was read"
    assert contents(folder) == before


class Store:
    """Keeps a text; some writes, by their number from 0, fail."""

    def __init__(self, text: str, fail: set[int] | None = None) -> None:
        self.text = text
        self._fail = fail or set()
        self._writes = 0

    def read(self) -> str:
        return self.text

    def write(self, text: str) -> None:
        self._writes += 1
        if self._writes - 1 in self._fail:
            raise ConnectionError("the store is down")
        self.text = text


def stored(folder: Path, *stores: Store) -> Sources:
    named = {f"store-{at}": CallbackSource(one.read, one.write) for at, one in enumerate(stores)}
    return read_sources({"system": FileSource(Path("system.md")), **named}, folder=folder)


def test_when_a_callback_fails_files_and_earlier_callbacks_get_their_old_text_back(
    folder: Path,
) -> None:
    before = contents(folder)
    first, second, third = Store("one"), Store("two", {0}), Store("three")
    with pytest.raises(ConfigError) as raised:
        stored(folder, first, second, third).write(
            {"system": "x", "store-0": "x", "store-1": "x", "store-2": "x"}, by="a test"
        )
    assert str(raised.value) == (
        "text `store-1`: write raised ConnectionError: the store is down; every text is as it was"
    )
    assert (first.text, second.text, third.text) == ("one", "two", "three")
    assert contents(folder) == before


def test_every_text_that_could_not_be_put_back_is_named_and_put_back_by_the_next_start(
    folder: Path,
) -> None:
    before = contents(folder)
    first, second, third = Store("one", {1}), Store("two", {1}), Store("three", {0})
    sources = stored(folder, first, second, third)
    with pytest.raises(ConfigError) as raised:
        sources.write({"system": "x", "store-0": "x", "store-1": "x", "store-2": "x"}, by="a test")
    assert str(raised.value) == (
        "text `store-2`: write raised ConnectionError: the store is down; not put back: "
        "text `store-0`: write raised ConnectionError: the store is down; "
        "text `store-1`: write raised ConnectionError: the store is down"
    )
    assert (first.text, second.text, third.text) == ("x", "x", "three")
    stored(folder, first, second, third)
    assert (first.text, second.text, third.text) == ("one", "two", "three")
    assert contents(folder) == before


def test_an_interrupted_write_is_taken_back(folder: Path) -> None:
    before = contents(folder)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    interrupted = CallbackSource(str, interrupt)
    sources = read_sources(
        {"system": FileSource(Path("system.md")), "stored": interrupted}, folder=folder
    )
    with pytest.raises(KeyboardInterrupt):
        sources.write({"system": "x", "stored": "x"}, by="a test")
    assert contents(folder) == before


@attrs.frozen
class Kill:
    """Where a process was killed, and with which signal."""

    folder: Path
    signal: int


@pytest.fixture(scope="module")
def kills(programs: Programs) -> Iterator[list[Kill]]:
    with folder_in_memory() as folder:
        said = [json.loads(line) for line in error_text(programs, DRIVER, folder)]
        yield [Kill(Path(one["folder"]), one["signal"]) for one in said]


def test_killed_anywhere_the_next_start_finds_all_old_or_all_new_texts(kills: list[Kill]) -> None:
    killed = [kill for kill in kills if kill.signal == signal.SIGKILL]
    assert len(killed) >= 25
    found = []
    for kill in kills:
        left = contents(kill.folder)
        sources = opened(kill.folder)
        assert dict(sources.texts) in (OLD, NEW), kill.folder
        with sources.writer().held():  # which also removes what was never written whole
            mended = contents(kill.folder)
        own = [name for name in mended if not Path(name).name.startswith(".store")]
        assert own == sorted(AFTER), kill.folder
        found.append((dict(sources.texts) == NEW, left == mended))
    assert set(found) == {(False, True), (False, False), (True, False), (True, True)}


def left_over(folder: Path, goal: str, now: Callable[[Path], object]) -> None:
    """Leave what a writer leaves that was killed, with files as ``now`` makes them."""
    texts = [
        {"name": "system", "path": "system.md", "old": "Old.", "new": ["New."]},
        {"name": "stored", "path": "", "old": "Old store.", "new": ["New store."]},
    ]
    leave_record(folder, {"by": "run 1", "goal": goal, "texts": texts})
    now(folder / "system.md")


DELETE = "see that every text is as you want it, then delete the file"
LEFT = (
    "it is left as it is: `promptgraft restore --overwrite` writes over it, `promptgraft restore "
    "--keep` leaves it for good"
)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (
            lambda path: path.write_text("Mine."),
            f"run 1 was interrupted: system.md: something else has written it since; {LEFT}",
        ),
        (
            lambda path: path.unlink(),
            f"run 1 was interrupted: system.md: something else has written it since; {LEFT}",
        ),
        (
            lambda path: path.write_bytes(b"\xff"),
            f"run 1 was interrupted: system.md: something else has written it since; {LEFT}",
        ),
        (
            lambda path: (path.unlink(), path.symlink_to("/etc/hosts")),
            "run 1 was interrupted: system.md: leads out of FOLDER; put the file back there",
        ),
        (
            lambda path: (path.parent / RECORD).write_text("{"),
            f"FOLDER/{RECORD}:1:2: Expecting property name enclosed in double quotes; {DELETE}",
        ),
        (
            lambda path: (path.parent / RECORD).write_text(
                '{"version": 2, "by": "x", "goal": "old", "texts": []}'
            ),
            f"FOLDER/{RECORD}: expected one of 1, found 2 @ $.version; {DELETE}",
        ),
    ],
)
def test_what_cannot_be_settled_is_a_line(
    folder: Path, now: Callable[[Path], object], expected: str
) -> None:
    left_over(folder, "old", now)
    with pytest.raises((ConfigError, DataFormatError)) as raised:
        opened(folder)
    assert str(raised.value).replace(str(folder), "FOLDER") == expected


def test_a_record_that_was_edited_changes_no_code(folder: Path) -> None:
    left_over(folder, "old", lambda path: path.write_text("New."))
    record = folder / RECORD
    record.write_text(record.read_text().replace("system.md", "agent.py"))
    with pytest.raises(ConfigError, match="did not make here"):
        opened(folder)
    seal_again(folder)
    (folder / "agent.py").write_text("New.")
    with pytest.raises(ConfigError, match=r"agent\.py: may be run, and is never written"):
        opened(folder)
    assert (folder / "agent.py").read_text() == "New."


def test_what_something_else_has_written_stays_and_the_rest_is_put_back(folder: Path) -> None:
    left_over(folder, "old", lambda path: path.write_text("Mine."))
    (folder / "store.txt").write_text("New store.")
    with pytest.raises(ConfigError):
        opened(folder)
    assert (folder / "system.md").read_text() == "Mine."
    assert (folder / "store.txt").read_text() == "Old store."


def test_two_writers_exclude_each_other(folder: Path) -> None:
    sources = opened(folder)
    with sources.writer().held(), pytest.raises(JournalLockedError, match="is in use by process"):
        sources.write(NEW, by="a test")
