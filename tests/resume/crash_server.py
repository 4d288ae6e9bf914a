"""Runs, kills and resumes runs in forked processes; prints one JSON line for each trial.

Usage: ``python crash_server.py FOLDER BUDGET WORKERS``; standard input holds the trials as JSON: a
list of trials, each a list with the number of the tick at which each process is killed.
"""

from __future__ import annotations

import functools
import gc
import hashlib
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


class Bomb:
    """Kills the process at one of its ticks, and counts them.

    The name of a system call says what the run had done last, so that each kind of moment has a
    name of its own.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self._done = "start"
        self.names: list[str] = []

    def tick(self, name: str) -> None:
        self._done = name
        self._count(name)

    def _count(self, name: str) -> None:
        self.names.append(name)
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


def in_child(folder: Path, budget: int, at: int, workers: int) -> dict[str, object]:
    """Run in a forked process; return its ticks and result, or that it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        bomb = Bomb(at)
        os_write = os.write
        bomb.arm()
        if workers:
            with ThreadPoolExecutor(workers) as executor:
                result = run(folder, budget=budget, tick=bomb.tick, executor=executor)
        else:
            result = run(folder, budget=budget, tick=bomb.tick)
        done = {
            "names": [] if at else bomb.names,
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


def trial(folder: Path, budget: int, kills: list[int], workers: int) -> dict[str, object]:
    """Run, be killed at each of ``kills`` in turn, then run to the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wasted = 0
    killed = 0
    report: dict[str, object] = {}
    for at in [*kills, 0]:
        before_paid, before_recorded = paid(folder), recorded(folder)
        report = in_child(folder, budget, at, workers)
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


def warm_up(folder: Path, budget: int) -> None:
    """Import and compute what every run needs once, so that no child pays for it again."""
    folder.mkdir(parents=True)
    run(folder, budget=budget)
    shutil.rmtree(folder)
    gc.freeze()


def main() -> None:
    folder, budget, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warm_up(folder, budget)
    for kills in json.loads(sys.stdin.read()):
        print(json.dumps(trial(folder, budget, kills, workers)), flush=True)


if __name__ == "__main__":
    main()
