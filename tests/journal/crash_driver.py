"""Runs a scenario again and again, each time killed at the next effect on the file system.

    python crash_driver.py SCENARIO FOLDER

Each run is a forked child with a folder of its own. It kills itself with SIGKILL before, after
or (writes only) in the middle of its n-th effect; n grows until a run is not killed any more.
A run leaves:

    journal.jsonl   the file as the killed process left it
    acknowledged    one line for each promise that the journal made in time
    durable         the bytes of the file at its last fsync: what a power loss leaves at least
    named           made when the folder was synced: the name survives a power loss
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import resource
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from promptgraft.errors import JournalWriteError
from promptgraft.journal import FileJournal
from promptgraft.journal.records import Record, encode_header, encode_record
from promptgraft.serde import Json, digest_text

RUN: dict[str, Json] = {"seed": 7}
ASKED = digest_text("what is asked")
T = TypeVar("T")
write, fsync, ftruncate, replace = os.write, os.fsync, os.ftruncate, os.replace


class Run:
    """One run of a scenario, to be killed at its n-th effect."""

    def __init__(self, folder: Path, when: str, fatal: int) -> None:
        self.path = folder / "journal.jsonl"
        self._folder = folder
        self._when = when
        self._fatal = fatal
        self._effects = 0
        self._said = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(self, promise: str) -> None:
        write(self._said, f"{promise}\n".encode())

    def append(self, journal: FileJournal, key: str) -> None:
        journal.append(key, ASKED, "rollout", {"key": key, "text": "x" * 100})
        self.acknowledge(f"recorded {key}")

    def install(self) -> None:
        for name in ("write", "fsync", "ftruncate", "replace"):
            setattr(os, name, getattr(self, f"_{name}"))

    def _effect(self, cause: Callable[[], T], part: Callable[[], object] | None = None) -> T:
        if self._when == "inside" and part is None:
            return cause()
        self._effects += 1
        fatal = self._when if self._effects == self._fatal else "never"
        if fatal == "inside" and part is not None:
            with contextlib.suppress(OSError):
                part()
        if fatal in {"before", "inside"}:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return cause()
        finally:
            if fatal == "after":
                os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, descriptor: int, data: memoryview) -> int:
        return self._effect(
            lambda: write(descriptor, data), lambda: write(descriptor, data[: len(data) // 2])
        )

    def _fsync(self, descriptor: int) -> None:
        def synced() -> None:
            fsync(descriptor)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                (self._folder / "named").touch()
            else:
                (self._folder / "durable").write_bytes(self.path.read_bytes())

        self._effect(synced)

    def _ftruncate(self, descriptor: int, length: int) -> None:
        self._effect(lambda: ftruncate(descriptor, length))

    def _replace(self, source: str, target: str) -> None:
        self._effect(lambda: replace(source, target))


def fresh(run: Run) -> None:
    """Begin a run, record three answers, sync, record one more, close."""
    with FileJournal(run.path) as journal:
        journal.begin(RUN)
        run.acknowledge("begun")
        for number in range(3):
            run.append(journal, f"k/{number}")
        journal.sync()
        run.acknowledge("synced k/0 k/1 k/2")
        journal.sync()  # nothing new: no effect
        run.append(journal, "k/3")
    run.acknowledge("synced k/3")


def torn(run: Run) -> None:
    """Go on with a journal whose last line a crash has torn; it was never synced."""
    lines = [
        encode_record(Record(f"k/{n}", ASKED, "rollout", {"key": f"k/{n}", "text": "x" * 100}))
        for n in range(3)
    ]
    run.path.write_bytes(encode_header(RUN) + b"".join(lines)[:-20])
    run.acknowledge("recorded k/0")
    run.acknowledge("recorded k/1")
    with FileJournal(run.path) as journal:
        journal.begin(RUN)
        run.acknowledge("begun")
        run.acknowledge("synced k/0 k/1")
        run.append(journal, "k/2")
        journal.sync()
        run.acknowledge("synced k/2")


def full(run: Run) -> None:
    """Meet a full disk in the middle of a line, then go on when there is space again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with FileJournal(run.path) as journal:
        journal.begin(RUN)
        run.append(journal, "k/0")
        before = run.path.stat().st_size
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (before + 30, hard))
        try:
            run.append(journal, "refused")
        except JournalWriteError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            run.acknowledge(f"error {error}")
        assert run.path.stat().st_size == before
        assert journal.find("refused", ASKED) is None
        assert journal.find("k/0", ASKED) is not None
        run.append(journal, "k/1")
    run.acknowledge("synced k/0 k/1")


def outcome(scenario: Callable[[Run], None], run: Run) -> int:
    """Run ``scenario`` in a child; return the signal that killed it, or 0."""
    child = os.fork()
    if child == 0:
        run.install()
        code = 1
        try:
            scenario(run)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"{run.path.parent}: the scenario failed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def warm_up() -> None:
    """Import what a journal needs when it is used, so that no child has to."""
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            with FileJournal(Path(name) / "journal.jsonl") as journal:
                journal.begin(RUN)
    gc.freeze()


def main() -> None:
    """Say ``FOLDER SIGNAL`` for each run."""
    warm_up()
    scenario = {"fresh": fresh, "torn": torn, "full": full}[sys.argv[1]]
    for when in ("before", "after", "inside"):
        for fatal in itertools.count(1):
            folder = Path(sys.argv[2]) / f"{when}-{fatal}"
            folder.mkdir()
            killed_by = outcome(scenario, Run(folder, when, fatal))
            sys.stdout.write(f"{folder} {killed_by}\n")
            if not killed_by:
                break


if __name__ == "__main__":
    main()
