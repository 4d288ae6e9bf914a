"""Killed at every step, out of disk, interrupted: what was acknowledged is there."""

from __future__ import annotations

import errno
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from killing import deaths
from programs import Programs
from promptgraft.errors import JournalWriteError
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import Answer, FileJournal
from promptgraft.journal.records import HEADER_START

RUN: dict[str, Json] = {"seed": 7}
ASKED = digest_text("what is asked")
DRIVER = Path(__file__).with_name("crash_driver.py")


@pytest.fixture(scope="module")
def runs_of(
    tmp_path_factory: pytest.TempPathFactory, programs: Programs
) -> Callable[[str], dict[Path, int]]:
    """Returns what :func:`deaths` does of a scenario, which is run once; tests only read there."""
    return functools.cache(
        lambda scenario: deaths(programs, DRIVER, scenario, tmp_path_factory.mktemp(scenario))
    )


def promises(run: Path, kind: str) -> list[str]:
    lines = (run / "acknowledged").read_text().splitlines()
    return [rest for line in lines for word, _, rest in [line.partition(" ")] if word == kind]


def recovered(path: Path) -> list[str]:
    """Return the keys in the journal at ``path``, when every value is right."""
    with FileJournal(path) as journal:
        journal.begin(RUN)
        keys = [record.key for record in journal.records()]
        for key in keys:
            answer: Json = {"key": key, "text": "x" * 100}
            assert journal.find(key, ASKED) == Answer(answer, "rollout")
    return keys


@pytest.mark.parametrize(
    ("scenario", "effects", "writes"), [("fresh", 9, 5), ("torn", 6, 1), ("full", 9, 5)]
)
def test_a_process_killed_at_any_step_has_lost_nothing_that_it_acknowledged(
    scenario: str,
    effects: int,
    writes: int,
    runs_of: Callable[[str], dict[Path, int]],
    tmp_path: Path,
) -> None:
    runs = runs_of(scenario)

    killed = [run for run, killed_by in runs.items() if killed_by == signal.SIGKILL]
    assert [run.name for run in runs if run not in killed] == [
        f"before-{effects + 1}",
        f"after-{effects + 1}",
        f"inside-{writes + 1}",
    ]
    for run in runs:
        acknowledged = promises(run, "recorded")
        again = tmp_path / run.name
        again.write_bytes((run / "journal.jsonl").read_bytes())
        found = recovered(again)
        assert found[: len(acknowledged)] == acknowledged, run
        assert len(found) <= len(acknowledged) + 1, run
        with FileJournal(again) as journal:
            journal.begin(RUN)
            journal.append("after", ASKED, "rollout", {"key": "after", "text": "x" * 100})
        assert recovered(again) == [*found, "after"], run


@pytest.mark.parametrize("scenario", ["fresh", "torn", "full"])
def test_a_power_loss_takes_nothing_that_was_synced(
    scenario: str, runs_of: Callable[[str], dict[Path, int]]
) -> None:
    checked = 0
    for run in runs_of(scenario):
        if "begun" in (run / "acknowledged").read_text().splitlines():
            assert (run / "durable").read_bytes().startswith(HEADER_START), run
            assert (run / "named").exists(), run
        synced = [key for keys in promises(run, "synced") for key in keys.split()]
        if synced:
            assert recovered(run / "durable")[: len(synced)] == synced, run
            checked += 1
    assert checked >= 3


def test_a_full_disk_is_a_clear_error_and_the_line_is_taken_back(
    runs_of: Callable[[str], dict[Path, int]],
) -> None:
    runs = runs_of("full")
    unharmed = [run for run, killed_by in runs.items() if killed_by == 0]

    assert len(unharmed) == 3
    for run in unharmed:
        (message,) = promises(run, "error")
        assert message == (
            f"journal {run / 'journal.jsonl'} cannot be written: File too large; the latest "
            "answers are not recorded, all before them are; fix the cause and run again"
        )
        assert recovered(run / "journal.jsonl") == ["k/0", "k/1"]


def test_ctrl_c_in_the_middle_of_a_line_takes_the_line_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    write = os.write

    def interrupted(descriptor: int, data: memoryview) -> int:
        write(descriptor, data[:40])
        raise KeyboardInterrupt

    with FileJournal(path) as journal:
        journal.begin(RUN)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                journal.append("k", ASKED, "rollout", 1)
        assert journal.find("k", ASKED) is None
        journal.append("k", ASKED, "rollout", 2)
    with FileJournal(path) as journal:
        journal.begin(RUN)
        assert journal.find("k", ASKED) == Answer(2, "rollout")


@pytest.mark.parametrize("fault", ["fsync", "ftruncate"])
def test_after_a_refusal_that_leaves_the_file_in_doubt_no_append_is_taken(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    write = os.write

    def refused(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def half_written(descriptor: int, data: memoryview) -> int:
        if len(data) > 60:
            return write(descriptor, data[:60])
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = FileJournal(path)
    journal.begin(RUN)
    journal.append("k", ASKED, "rollout", 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, fault, refused)
        if fault == "ftruncate":
            patch.setattr(os, "write", half_written)
        with pytest.raises(JournalWriteError, match=r"could not be .*: Input/output error"):
            journal.sync() if fault == "fsync" else journal.append("l", ASKED, "rollout", "y" * 60)

    with pytest.raises(JournalWriteError, match="Input/output error"):
        journal.append("m", ASKED, "rollout", 1)
    with pytest.raises(JournalWriteError, match="Input/output error"):
        journal.sync()
    with pytest.raises(JournalWriteError, match="Input/output error"):
        journal.close()
    with FileJournal(path) as again:
        again.begin(RUN)
        assert [record.key for record in again.records()] == ["k"]
