"""A wish to stop: heard once, by everybody, whenever they begin to listen."""

from __future__ import annotations

import pickle
import threading

import pytest

from promptgraft.errors import RunCancelledError
from promptgraft.runtime import Cancellation, Deadline


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
