"""Runs, kills and resumes runs in forked processes; prints one JSON line for each trial.

Usage: ``python crash_server.py FOLDER BUDGET TRIALS``, where TRIALS is JSON: a list of trials,
each a list with the number of the tick at which each process is killed (0: never).
"""

from __future__ import annotations

import functools
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
    """Kills the process at one of its ticks, and counts them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.ticks = 0
        self.names: list[str] = []

    def tick(self, name: str) -> None:
        self.ticks += 1
        self.names.append(name)
        if self.ticks == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, call: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(call)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            self.tick(f"before {name}")
            result = call(*args, **kwargs)
            self.tick(f"after {name}")
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
        done = {"ticks": bomb.ticks, "names": bomb.names, "result": repr(result)}
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
    """Return how many answers the journal holds."""
    path = folder / "journal.jsonl"
    if not path.exists():
        return 0
    with FileJournal(path) as journal:
        return sum(1 for record in journal.records() if record.kind != "base")


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
        if "killed" in report:
            killed += 1
        made, kept = paid(folder) - before_paid, recorded(folder) - before_recorded
        wasted += made - kept
    with FileJournal(folder / "journal.jsonl") as journal:
        answers = {record.key: record.answer for record in journal.records()}
    revisions = list((folder / ".promptgraft").rglob("*.json"))
    return {
        **report,
        "killed_times": killed,
        "paid": paid(folder),
        "wasted": wasted,
        "answers": answers,
        "lost": [key for key in acknowledged(folder) if key not in answers],
        "repeated": len(acknowledged(folder)) - len(set(acknowledged(folder))),
        "revisions": len(revisions),
        "stored": revisions[0].read_text() if len(revisions) == 1 else "",
    }


def main() -> None:
    folder, budget, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for kills in json.loads(sys.stdin.read()):
        print(json.dumps(trial(folder, budget, kills, workers)), flush=True)


if __name__ == "__main__":
    main()
