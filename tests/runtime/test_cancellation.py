"""A wish to stop: heard once, by everybody, whenever they begin to listen."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from promptgraft.errors import RunCancelledError, StopFileFoundError
from promptgraft.runtime import Cancellation, Deadline
from promptgraft.runtime.deadline import StopFileCancellation


def test_the_first_reason_counts() -> None:
    cancellation = Cancellation()
    cancellation.check()
    assert (cancellation.is_set, cancellation.reason) == (False, "")
    cancellation.set("SIGINT")
    cancellation.set("SIGTERM")
    assert (cancellation.is_set, cancellation.reason) == (True, "SIGINT")
    with pytest.raises(RunCancelledError, match=r"^the run was stopped: SIGINT$"):
        cancellation.check()


def test_listeners_are_told_once_and_late_ones_at_once() -> None:
    cancellation = Cancellation()
    told: list[str] = []
    cancellation.listen(lambda: told.append("early"))
    undo = cancellation.listen(lambda: told.append("gone"))
    undo()
    undo()
    cancellation.set("enough")
    cancellation.set("again")
    cancellation.listen(lambda: told.append("late"))()
    assert told == ["early", "late"]


def test_a_listener_may_listen_and_cancel_itself() -> None:
    cancellation = Cancellation()
    told: list[str] = []

    def listener() -> None:
        cancellation.set("again")
        cancellation.listen(lambda: told.append("inner"))

    cancellation.listen(listener)
    cancellation.set("enough")
    assert told == ["inner"]
    assert cancellation.reason == "enough"


def test_everybody_who_listens_while_it_is_set_is_told() -> None:
    cancellation = Cancellation()
    heard = threading.Semaphore(0)
    ready = threading.Barrier(9)

    def listen() -> None:
        ready.wait(timeout=20)
        cancellation.listen(heard.release)

    threads = [threading.Thread(target=listen) for _ in range(8)]
    for thread in threads:
        thread.start()
    ready.wait(timeout=20)
    cancellation.set("now")
    for thread in threads:
        thread.join()
    assert all(heard.acquire(timeout=20) for _ in threads)


def test_a_copy_in_another_process_is_never_set() -> None:
    cancellation = Cancellation()
    cancellation.set("here")
    assert not pickle.loads(pickle.dumps(cancellation)).is_set


def test_a_deadline_ends_when_its_run_is_cancelled() -> None:
    cancellation = Cancellation()
    deadline = Deadline(cancellation=cancellation)
    deadline.check()
    assert deadline.remaining == float("inf")
    cancellation.set("SIGINT")
    assert deadline.expired
    assert deadline.remaining == 0
    with pytest.raises(RunCancelledError, match="SIGINT"):
        deadline.check()


def test_a_cancellation_is_set_with_its_parent_and_not_the_other_way_round() -> None:
    parent = Cancellation()
    first, second = Cancellation(parent), Cancellation(parent)
    told: list[str] = []
    undo = first.listen(lambda: told.append("gone"))
    undo()
    first.listen(lambda: told.append("first"))
    second.set("only here")
    assert (parent.is_set, first.is_set, told) == (False, False, [])
    parent.set("enough")
    assert told == ["first"]
    assert (first.is_set, first.reason, second.reason) == (True, "enough", "only here")
    first.listen(lambda: told.append("late"))
    assert told == ["first", "late"]
    with pytest.raises(RunCancelledError, match=r"^the run was stopped: enough$"):
        first.check()


def test_a_cancellation_looks_as_often_as_its_parent_and_raises_what_that_raises(
    tmp_path: Path,
) -> None:
    stop = StopFileCancellation([tmp_path / "STOP"])
    child = Cancellation(stop)
    assert (child.look_every, child.is_set) == (stop.look_every, False)
    (tmp_path / "STOP").touch()
    assert child.is_set
    with pytest.raises(StopFileFoundError):
        child.check()
    assert not pickle.loads(pickle.dumps(child)).is_set
