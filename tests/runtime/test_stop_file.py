"""A file as a wish to stop: looked for by whoever asks or waits, without a thread."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from promptgraft.errors import ConfigError, RunCancelledError, StopFileFoundError
from promptgraft.runtime import Cancellation, Deadline, event_loop
from promptgraft.runtime.deadline import StopFileCancellation, remove_left_over
from promptgraft.runtime.futures import as_ended


def test_a_file_sets_it_once_it_is_there(tmp_path: Path) -> None:
    stop = tmp_path / "STOP"
    cancellation = StopFileCancellation([tmp_path / "other", stop])
    told: list[str] = []
    cancellation.listen(lambda: told.append("told"))
    cancellation.check()
    stop.symlink_to("nowhere")
    assert cancellation.is_set
    assert told == ["told"]
    stop.unlink()
    with pytest.raises(StopFileFoundError, match=f"^the stop file `{stop}` is there$"):
        cancellation.check()


def test_the_other_cancellation_sets_it_and_wakes_who_listens(tmp_path: Path) -> None:
    parent = Cancellation()
    cancellation = StopFileCancellation([tmp_path / "STOP"], parent)
    told: list[str] = []
    cancellation.listen(lambda: told.append("one"))
    cancellation.listen(lambda: told.append("two"))
    cancellation.listen(lambda: told.append("gone"))()
    parent.set("SIGINT")
    assert told == ["one", "two"]
    cancellation.listen(lambda: told.append("late"))
    assert told == ["one", "two", "late"]
    with pytest.raises(RunCancelledError, match=r"^the run was stopped: SIGINT$") as caught:
        cancellation.check()
    assert type(caught.value) is RunCancelledError


def test_the_first_reason_counts(tmp_path: Path) -> None:
    parent, stop = Cancellation(), tmp_path / "STOP"
    cancellation = StopFileCancellation([stop], parent)
    stop.touch()
    assert cancellation.is_set
    parent.set("SIGINT")
    with pytest.raises(StopFileFoundError):
        cancellation.check()
    assert not StopFileCancellation([]).is_set


def test_its_own_end_does_not_end_the_other_cancellation(tmp_path: Path) -> None:
    parent, stop = Cancellation(), tmp_path / "STOP"
    stop.touch()
    assert StopFileCancellation([stop], parent).is_set
    assert not parent.is_set


def test_a_copy_in_another_process_is_never_set(tmp_path: Path) -> None:
    (tmp_path / "STOP").touch()
    copy = pickle.loads(pickle.dumps(StopFileCancellation([tmp_path / "STOP"])))
    assert not copy.is_set


def test_a_call_over_the_network_is_left_when_the_file_is_there(tmp_path: Path) -> None:
    stop = tmp_path / "STOP"
    deadline = Deadline(cancellation=StopFileCancellation([stop]))

    async def never() -> None:
        # Later, when the caller waits already.
        asyncio.get_running_loop().call_later(0.05, stop.touch)
        await asyncio.wait_for(asyncio.Event().wait(), timeout=20)

    with pytest.raises(StopFileFoundError):
        event_loop.run(never(), deadline=deadline)


class SetAtTheThirdLook(Cancellation):
    """Tells nobody, as a stop file does."""

    looks = 0

    @property
    def look_every(self) -> float:
        return 0.001

    @property
    def is_set(self) -> bool:
        self.looks += 1
        return self.looks >= 3


def test_whoever_waits_for_work_side_by_side_looks_again() -> None:
    never = Future[None]()
    rescue = threading.Timer(20, never.set_result, [None])
    rescue.start()
    assert list(as_ended([never], Deadline(cancellation=SetAtTheThirdLook()))) == [never]
    rescue.cancel()
    assert never.cancelled()


def test_many_threads_that_find_it_at_once_agree(tmp_path: Path) -> None:
    stop = tmp_path / "STOP"
    cancellation = StopFileCancellation([stop])
    told: list[None] = []
    cancellation.listen(lambda: told.append(None))
    ready = threading.Barrier(8)

    def look() -> None:
        ready.wait(timeout=20)
        assert cancellation.is_set

    stop.touch()
    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [None]


def test_only_what_is_there_is_removed(tmp_path: Path) -> None:
    here, gone = tmp_path / "here", tmp_path / "gone"
    here.write_text("please stop")
    assert remove_left_over([here, gone, here]) == (here,)
    assert remove_left_over([here, gone]) == ()


def test_a_path_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be removed: Not a directory; remove it$"):
        remove_left_over([tmp_path / "file" / "STOP"])
