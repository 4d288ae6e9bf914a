"""Runs, kills and resumes runs in forked processes; prints one JSON line for each trial.

Usage: ``python crash_server.py FOLDER BUDGET SEED``; each line of standard input is a trial as
JSON: ``kills``, the number of the tick at which each process is killed, ``workers``, and
``proposals``, how many are under way at the same time.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from resume_world import acknowledged, paid, run

from promptgraft.journal import FileJournal

P = ParamSpec("P")
R = TypeVar("R")

Files = frozenset[tuple[str, int, int]]
"""Each file with its inode and its size: what a run leaves differs only where one of them does."""


def files_in(folder: Path) -> Files:
    """Return the files in ``folder`` and below."""
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return frozenset((str(path), status.st_ino, status.st_size) for path, status in found)


class Bomb:
    """Kills the process at one of its ticks, and counts them.

    The name of a system call says what the run had done last, so that each kind of moment has a
    name of its own.
    """

    def __init__(self, at: int, watched: Path | None = None) -> None:
        self._at = at
        self._done = "start"
        self._watched = watched
        self.names: list[str] = []
        self.states: list[Files] = []

    def tick(self, name: str) -> None:
        self._done = name
        self._count(name)

    def _count(self, name: str) -> None:
        self.names.append(name)
        if self._watched is not None:
            self.states.append(files_in(self._watched))
        if len(self.names) == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, call: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(call)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            self._count(f"before {name}, {self._done}")
            result = call(*args, **kwargs)
            self._count(f"after {name}, {self._done}")
            return result

        return wrapped

    def arm(self) -> None:
        for name in ("write", "fsync", "replace", "ftruncate", "unlink"):
            setattr(os, name, self.around(name, getattr(os, name)))


def moments(bomb: Bomb) -> list[list[str]]:
    """Return the names of the ticks, together where a kill leaves the same files."""
    ticks = zip(bomb.names, bomb.states, strict=False)  # no states where nobody asks for them
    groups = itertools.groupby(ticks, key=lambda tick: tick[1])
    return [[name for name, _ in group] for _, group in groups]


def in_child(
    folder: Path, budget: int, seed: int, *, bomb: Bomb, workers: int, proposals: int
) -> dict[str, object]:
    """Run in a forked process; return its moments and result, or that it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os_write = os.write
        bomb.arm()
        with ThreadPoolExecutor(workers) if workers else contextlib.nullcontext() as executor:
            result = run(
                folder,
                budget=budget,
                seed=seed,
                tick=bomb.tick,
                executor=executor,
                proposals=proposals,
            )
        done = {
            "moments": moments(bomb),
            "result": repr(result),
            "rollouts": result.total_rollouts,
        }
        with os.fdopen(writing, "w") as out:
            os.write = os_write
            out.write(json.dumps(done))
            out.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as incoming:
        text = incoming.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"killed": os.WTERMSIG(status)}
    report: dict[str, object] = json.loads(text)
    return report


def recorded(folder: Path) -> int:
    """Return how many answers the journal holds, without reading them."""
    path = folder / "journal.jsonl"
    # The header and the overrides that the run began with are no answers.
    return max(0, path.read_bytes().count(b"\n") - 2) if path.exists() else 0


def trial(
    folder: Path, budget: int, seed: int, *, kills: list[int], workers: int, proposals: int
) -> dict[str, object]:
    """Run, be killed at each of ``kills`` in turn, then run to the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wasted = 0
    killed = 0
    report: dict[str, object] = {}
    for at in [*kills, 0]:
        before_paid, before_recorded = paid(folder), recorded(folder)
        bomb = Bomb(at, None if kills else folder)
        report = in_child(folder, budget, seed, bomb=bomb, workers=workers, proposals=proposals)
        if report.get("killed") == signal.SIGKILL:
            killed += 1
        made, kept = paid(folder) - before_paid, recorded(folder) - before_recorded
        wasted += made - kept
    with FileJournal(folder / "journal.jsonl") as journal:
        answers = {record.key: record.answer for record in journal.records()}
    keys = acknowledged(folder)
    revisions = list((folder / ".promptgraft").rglob("*.json"))
    return {
        **report,
        "killed_times": killed,
        "paid": paid(folder),
        "wasted": wasted,
        "answers": len(answers),
        "journal": hashlib.sha256(json.dumps(answers, sort_keys=True).encode()).hexdigest(),
        "lost": [key for key in keys if key not in answers],
        "repeated": len(keys) - len(set(keys)),
        "acknowledged_rollouts": sum("/" in key and "/reflect/" not in key for key in keys),
        "revisions": len(revisions),
        "stored": revisions[0].read_text() if len(revisions) == 1 else "",
    }


def warm_up(folder: Path, budget: int, seed: int) -> None:
    """Import and compute what every run needs once, so that no child pays for it again."""
    folder.mkdir(parents=True)
    run(folder, budget=budget, seed=seed)
    shutil.rmtree(folder)
    gc.freeze()


def main() -> None:
    folder, budget, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warm_up(folder, budget, seed)
    for line in sys.stdin:
        print(json.dumps(trial(folder, budget, seed, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
