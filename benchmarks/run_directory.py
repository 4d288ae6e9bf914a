"""What keeping a run costs beside its journal, and how soon many runs are listed."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import time
from pathlib import Path

import overhead
from figures import Figure, unit_seconds
from promptgraft import EventBus
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaMutationRejected,
    GepaOptimizationCompleted,
)
from promptgraft.runs import find_run, list_runs
from promptgraft.runs.folder import make_run
from promptgraft.runs.reading import follow
from promptgraft.runs.recorder import Recorder
from promptgraft.testing import FakeClock

TITLE = "Run directory: the run of `overhead`, 500 runs in a folder"
RUNS = 500


class Timed:
    """A recorder that is timed event by event."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.moments: list[float] = []
        self.pages: list[float] = []
        self.last = 0.0

    def on_event(self, event: object) -> None:
        """Hand the event on."""
        started = time.thread_time()
        self._recorder.on_event(event)
        spent = time.thread_time() - started
        if isinstance(event, GepaOptimizationCompleted):
            self.last = spent
            return
        self.moments.append(spent)
        if isinstance(event, GepaMutationRejected | GepaCandidateAdded):
            self.pages.append(spent)


def measure(folder: Path) -> list[Figure]:
    """Return the figures of this page."""
    return [*_recorder_figures(folder), *_list_figures(folder)]


def _recorder_figures(folder: Path) -> list[Figure]:
    root = folder / "runs"
    kept = make_run(root, "overhead", {"prompt": "benchmarks/overhead"}, now=FakeClock().now())
    bus = EventBus()
    with (
        kept.held(),
        contextlib.closing(Recorder(kept, overhead.PROMPTS, clock=FakeClock())) as recorder,
    ):
        timed = Timed(recorder)
        bus.subscribe(object, timed.on_event)
        made = overhead.run(folder / "kept.jsonl", new_steps=overhead.STEPS, bus=bus)
    steps, spent = made.result.steps, sum(timed.moments)
    tenth = len(timed.pages) // 10
    growth = statistics.median(timed.pages[-tenth:]) / statistics.median(timed.pages[:tenth])
    unit = unit_seconds(time.thread_time)
    size = sum(path.stat().st_size for path in kept.path.rglob("*") if path.is_file())
    return [
        Figure("recorder, a step", spent / steps * 1e6, "µs", None),
        Figure("recorder, a step, in units", spent / steps / unit, "x", 120),
        Figure("recorder, share of the run", spent / made.seconds * 100, "%", 15),
        Figure("last 10 % of the pages against the first", growth, "x", 1.5),
        Figure("result, summary and report at the end", timed.last, "s", None),
        Figure("run directory without its journal", size / 1e6, "MB", None),
    ]


def _list_figures(folder: Path) -> list[Figure]:
    """Copy the run of the recorder, and list the copies."""
    [kept] = (folder / "runs").iterdir()
    many = folder / "many"
    for number in range(RUNS):
        copy = many / f"20260101-{number // 60:04}{number % 60:02}-overhead"
        copy.mkdir(parents=True)
        config = json.loads((kept / "config.json").read_text("ascii"))
        (copy / "config.json").write_text(json.dumps({**config, "id": copy.name}), "ascii")
        (copy / "events.jsonl").hardlink_to(kept / "events.jsonl")
    listing, watching = _seconds(many)
    shutil.rmtree(many)
    return [
        Figure(f"list of {RUNS} runs", listing, "s", 1.0),
        Figure(f"finding one of {RUNS} runs, and all its events", watching, "s", 1.0),
    ]


def _seconds(many: Path) -> tuple[float, float]:
    started = time.thread_time()
    found = list_runs(many)
    listed = time.thread_time()
    lines = sum(1 for _ in follow(find_run(many), wait=time.sleep))
    if len(found) != RUNS or not lines:
        raise SystemExit("not every run was found")
    return listed - started, time.thread_time() - listed
