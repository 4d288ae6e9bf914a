"""A run whose journal is gone is not begun anew: the other files tell what it has paid for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft.errors import JournalCorruptError
from promptgraft.runs import RunFolder
from runs.toy_runs import KilledError, after, carry_out, files_of, kept_run, make_job, new_folder

LOSSES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda journal: journal.unlink(),
    "emptied": lambda journal: journal.write_bytes(b""),
}


def interrupted(root: Path) -> RunFolder:
    job = make_job(after(20))
    folder = new_folder(root, job)
    with pytest.raises(KilledError):
        carry_out(folder, job)
    assert not folder.result.exists()
    return folder


def check_refused(folder: RunFolder, *said: str) -> None:
    before = files_of(folder)
    # A model that is asked anything at all ends the test.
    with pytest.raises(JournalCorruptError) as refusal:
        carry_out(folder, make_job(after(0)))
    for words in (folder.id, str(folder.journal), "paid for again", "restore", *said):
        assert words in str(refusal.value)
    assert files_of(folder) == before


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", [kept_run, interrupted])
@pytest.mark.parametrize("left", ["events", "result", "both"])
def test_a_run_without_its_journal_is_refused(
    tmp_path: Path, loss: str, make: Callable[[Path], RunFolder], left: str
) -> None:
    folder = make(tmp_path)
    LOSSES[loss](folder.journal)
    if left == "result":
        folder.events.unlink()
    elif left == "events":
        folder.result.unlink(missing_ok=True)
    if folder.events.exists() or folder.result.exists():
        check_refused(folder, "is missing or empty")


def test_a_journal_older_than_the_result_is_refused(tmp_path: Path) -> None:
    """As one restored from a copy that was made before the run ended."""
    folder = kept_run(tmp_path)
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join(lines[:20]))
    check_refused(folder, "has 19 records", "60 test calls")


def test_a_run_that_was_killed_before_its_first_answer_is_begun(tmp_path: Path) -> None:
    job = make_job()
    folder = new_folder(tmp_path, job)
    folder.journal.touch()
    assert carry_out(folder, job).total_rollouts == 60


def test_a_result_that_cannot_be_read_is_written_again(tmp_path: Path) -> None:
    folder = kept_run(tmp_path)
    whole = folder.result.read_bytes()
    folder.result.write_bytes(whole[:100])
    carry_out(folder, make_job(after(0)))
    assert folder.result.read_bytes() == whole
