"""Locks: one holder among threads and processes, and none after its death."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from promptgraft.ground.locks import is_held, locked


def test_a_lock_is_held_against_threads_and_processes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        with pytest.raises(TimeoutError), locked(path, seconds=0):
            pass
        with ThreadPoolExecutor(1) as pool, pytest.raises(TimeoutError):
            pool.submit(locked(path, seconds=0).__enter__).result()
    # As other processes hold it, those of earlier versions included.
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError), locked(path, seconds=0):
            pass
    with locked(path, seconds=0):
        pass


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    def take() -> bool:
        with locked(path, every=0.001):
            return True

    with ThreadPoolExecutor(1) as pool:
        with locked(path):
            waiting = pool.submit(take)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.02)
        assert waiting.result()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_neither_keeps_nor_releases_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    read, write = os.pipe()
    with contextlib.ExitStack() as held:
        held.enter_context(locked(path))
        if not (child := os.fork()):
            # Under the number of the descriptor that the fork has closed.
            with locked(tmp_path / "of the child"):
                held.close()
                both = is_held(path) and is_held(tmp_path / "of the child")
                os.write(write, b"held" if both else b"free")
                signal.pause()
        said = os.read(read, 4)
    try:
        assert (said, is_held(path)) == (b"held", False)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_is_free_when_its_holder_dies_and_leaves_a_child(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    read, write = os.pipe()
    if not (holder := os.fork()):
        with locked(path):
            if not os.fork():
                os.write(write, str(os.getpid()).encode())
            signal.pause()
    child = int(os.read(read, 20))
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    try:
        assert not is_held(path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(read)
        os.close(write)
