"""One process at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgraft.errors import JournalError, JournalLockedError
from promptgraft.ground.serde import digest_text
from promptgraft.journal import Answer, FileJournal

ASKED = digest_text("what is asked")
HOLD = """
import os, signal, sys
from promptgraft.journal import FileJournal
from promptgraft.ground.serde import digest_text

def hold():
    print("held", os.getpid(), flush=True)
    sys.stdin.read()

journal = FileJournal(sys.argv[1])
journal.begin({"seed": 7})
journal.append("k", digest_text("what is asked"), "rollout", 1)
"""
FORK = """
if os.fork() == 0:
    hold()
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextlib.contextmanager
def process(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``script`` until it says that it holds; it ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        said, number = started.stdout.readline().split()
        assert said == "held"
        assert number.isdigit()
        yield started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def assert_open_works(path: Path) -> None:
    with FileJournal(path) as journal:
        journal.begin({"seed": 7})
        assert journal.find("k", ASKED) == Answer(1, "rollout")


def test_a_second_process_is_told_who_holds_the_journal(path: Path) -> None:
    with process(f"{HOLD}hold()", path) as holder:
        for _ in range(2):
            with pytest.raises(JournalLockedError) as caught:
                FileJournal(path)
            assert str(caught.value) == (
                f"journal {path} is in use by process {holder.pid}; wait for it to end, or close "
                "it there"
            )

        holder.communicate("")
        assert_open_works(path)


def test_a_killed_process_holds_nothing(path: Path) -> None:
    with process(f"{HOLD}hold()", path) as holder:
        holder.kill()
        assert holder.wait() == -signal.SIGKILL

        assert_open_works(path)


def test_a_child_that_outlives_its_killed_parent_holds_nothing(path: Path) -> None:
    with process(f"{HOLD}{FORK}", path) as parent:
        assert parent.wait() == -signal.SIGKILL

        assert_open_works(path)


def test_a_forked_child_may_not_append(path: Path) -> None:
    script = f"""{HOLD}
from promptgraft.errors import JournalError
child = os.fork()
if child == 0:
    try:
        journal.append("l", digest_text("what is asked"), "rollout", 1)
    except JournalError as error:
        print(error, flush=True)
    journal.close()
    os._exit(0)
os.waitpid(child, 0)
try:
    FileJournal(sys.argv[1])
except JournalError as error:
    print(error, flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
    )
    refused, locked = ended.stdout.splitlines()

    assert "was opened by process" in refused
    assert "is in use by process" in locked


def test_a_second_journal_in_the_same_process_is_refused(path: Path) -> None:
    with FileJournal(path), pytest.raises(JournalLockedError, match=f"process {os.getpid()};"):
        FileJournal(path)


def test_one_file_has_one_lock_under_all_its_names(path: Path) -> None:
    alias = path.with_name("alias")
    alias.symlink_to(path)

    with FileJournal(path), pytest.raises(JournalLockedError):
        FileJournal(alias)


def test_a_holder_that_left_no_number_is_not_made_up(path: Path) -> None:
    beside = path.with_name("journal.jsonl.lock")
    with FileJournal(path):
        for left in ("", "somebody", "\udcff"):
            beside.write_bytes(left.encode("utf-8", "surrogateescape"))
            with pytest.raises(JournalLockedError, match="in use by another process, which holds"):
                FileJournal(path)


def test_a_journal_may_be_closed_by_another_thread(path: Path) -> None:
    journal = FileJournal(path)
    closer = threading.Thread(target=journal.close)
    closer.start()
    closer.join()

    with FileJournal(path) as again:
        again.begin({"seed": 7})
        assert len(again) == 0


def test_a_lock_file_that_cannot_be_made_is_a_clear_error(path: Path) -> None:
    path.with_name("journal.jsonl.lock").mkdir()

    with pytest.raises(JournalError, match="cannot be locked: Is a directory"):
        FileJournal(path)
