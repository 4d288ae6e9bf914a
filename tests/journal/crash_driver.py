"""Runs a scenario again and again, each time killed at the next effect on the file system.

    python crash_driver.py SCENARIO FOLDER

Each run has a folder of its own (:mod:`killing`). It leaves:

    journal.jsonl   the file as the killed process left it
    acknowledged    one line for each promise that the journal made in time
    durable         the bytes of the file at its last fsync: what a power loss leaves at least
    named           made when the folder was synced: the name survives a power loss
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from killing import Killer, at_every_effect, fsync, killed_by, say, write
from promptgraft.errors import JournalWriteError
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import FileJournal
from promptgraft.journal.records import Record, encode_header, encode_record

RUN: dict[str, Json] = {"seed": 7}
ASKED = digest_text("what is asked")


class Run(Killer):
    """One run of a scenario, to be killed at its n-th effect."""

    names = (*Killer.names, "ftruncate")

    def __init__(self, folder: Path, when: str, fatal: int) -> None:
        super().__init__(when, fatal)
        self.path = folder / "journal.jsonl"
        self._folder = folder
        self._said = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def acknowledge(self, promise: str) -> None:
        write(self._said, f"{promise}\n".encode())

    def append(self, journal: FileJournal, key: str) -> None:
        journal.append(key, ASKED, "rollout", {"key": key, "text": "x" * 100})
        self.acknowledge(f"recorded {key}")

    def _fsync(self, descriptor: int) -> None:
        def synced() -> None:
            fsync(descriptor)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                (self._folder / "named").touch()
            else:
                (self._folder / "durable").write_bytes(self.path.read_bytes())

        self.effect(synced)


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


def warm_up() -> None:
    """Import what a journal needs when it is used, so that no child has to."""
    with tempfile.TemporaryDirectory() as name:
        for _ in range(2):
            with FileJournal(Path(name) / "journal.jsonl") as journal:
                journal.begin(RUN)
    gc.freeze()


SCENARIOS: dict[str, Callable[[Run], None]] = {"fresh": fresh, "torn": torn, "full": full}


def run(when: str, fatal: int) -> int:
    """Run the scenario, to be killed; return the signal."""
    folder = Path(sys.argv[2]) / f"{when}-{fatal}"
    folder.mkdir()
    made = Run(folder, when, fatal)
    number = killed_by(lambda: SCENARIOS[sys.argv[1]](made), made)
    say(folder, number)
    return number


if __name__ == "__main__":
    warm_up()
    at_every_effect(run)
