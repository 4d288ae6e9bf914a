"""``show`` and the report of a large run: ``python benchmarks/showing.py``.

10,000 candidates on 2,000 examples, and as many rejected proposals. The run folder holds what the
recorder writes of them in ``events.jsonl``, which is all that both read besides the answers. It is
the folder of a run that was interrupted: without a journal, and without the pages of candidates.
Each is measured in a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import platform
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

import overhead
from figures import Figure, shown
from promptgraft import EventBus
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaMutationRejected,
    GepaOptimizationStarted,
)
from promptgraft.cli.main import run as promptgraft
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import digest_text
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.replacements import SectionOverride
from promptgraft.overrides.types import PromptOverride
from promptgraft.runs.event_file import EventFile, EventLines
from promptgraft.runs.folder import RunFolder, make_run
from promptgraft.runs.report.page import write_report
from promptgraft.search.scores import Scores
from promptgraft.targets.base import RejectionReason
from promptgraft.testing import FakeClock

TITLE = "Show and report: 10,000 candidates, 2,000 validation examples"
CANDIDATES = 10_000
EXAMPLES = 2_000
SEED = 7
MOST_SECONDS = 30
MOST_MEGABYTES = 1_000

_EMPTY = PromptOverride(ns="benchmarks", prompt_key="overhead", tag="latest")

Event = GepaOptimizationStarted | GepaCandidateAdded | GepaMutationRejected


def make(root: Path, candidates: int = CANDIDATES, examples: int = EXAMPLES) -> RunFolder:
    """Write the folder of such a run."""
    config = {"prompt": "benchmarks/overhead"}
    folder = make_run(root, "showing", config, now=FakeClock().now())
    kept, lines = EventFile(folder.events), EventLines(FakeClock())
    for event in _events(root / "small.jsonl", candidates, examples):
        for line in lines.of(event):
            kept.append(line)
    kept.close()
    return folder


def _events(journal: Path, candidates: int, examples: int) -> Iterator[Event]:
    started = _started(journal)
    ids = tuple(f"e{number}" for number in range(examples))
    yield replace(started, pareto_ids=ids)
    draw, texts, best = random.Random(SEED), dict(started.texts), (0.0, 0)
    path, role = ("role",), "section role"
    for number in range(candidates):
        scores = [round(draw.random() ** (2 - number / candidates), 3) for _ in range(examples)]
        mean = sum(scores) / examples
        best = max(best, (mean, number))
        text = f"{started.texts[role]} Be careful, attempt {number}."
        override = SectionOverride(
            path=path, expected_hash=digest_text(role), body=text if number else ""
        )
        yield GepaCandidateAdded(
            step=2 * number,
            candidate=number,
            parents=(draw.randrange(number),) if number else (),
            module=role if number else None,
            entries=plain_lists(_EMPTY.holding([override] if number else []).entries()),
            texts=FrozenMap({**texts, role: text}),
            scores=Scores(scores),
            objectives=FrozenMap({"score": mean}),
            mean=mean,
            best=best[1],
            rollouts=number * examples,
            reflections=2 * number,
            tokens=0,
            cost=None,
        )
        yield GepaMutationRejected(
            step=2 * number + 1,
            parent=number,
            module=role,
            reason=RejectionReason.NOT_BETTER,
            detail="0.400 on the minibatch, the parent had 0.500",
            text=f"{text} No, better not.",
            before=text,
            parent_score=0.5,
            child_score=0.4,
            final=True,
        )


def _started(journal: Path) -> GepaOptimizationStarted:
    """Return how a real run begins."""
    found: list[GepaOptimizationStarted] = []
    bus = EventBus()
    bus.subscribe(GepaOptimizationStarted, found.append)
    overhead.run(journal, new_steps=0, bus=bus)
    return found[0]


def taken(work: Callable[[RunFolder], object], folder: RunFolder) -> tuple[float, float, float]:
    """Do some work; return the seconds of processor and clock, and the memory in MB."""
    worked, passed = time.process_time(), time.perf_counter()
    work(folder)
    worked, passed = time.process_time() - worked, time.perf_counter() - passed
    return worked, passed, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def show(folder: RunFolder) -> None:
    """Do what ``promptgraft show RUN`` does."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        code = promptgraft(["show", folder.id, "--runs", str(folder.path.parent)])
    if code or f"and {CANDIDATES - 21:} more" not in shown.getvalue():
        raise SystemExit(f"show ended with {code}: {shown.getvalue()}")


def measure(root: Path) -> list[Figure]:
    """Return the figures of this page."""
    folder = make(root)
    figures = [Figure("events of the run", folder.events.stat().st_size / 1e6, "MB", None)]
    for name, work in (("show", show), ("report", write_report)):
        with multiprocessing.get_context("spawn").Pool(1) as process:
            worked, passed, megabytes = process.apply(taken, (work, folder))
        figures += [
            Figure(f"{name}, processor", worked, "s", MOST_SECONDS),
            Figure(f"{name}, clock", passed, "s", None),
            Figure(f"{name}, memory", megabytes, "MB", MOST_MEGABYTES),
        ]
    return [*figures, Figure("report", folder.report.stat().st_size / 1e6, "MB", 10)]


def main() -> int:
    """Measure, print, and return the exit code."""
    print(f"Python {platform.python_version()}, {platform.machine()}; {TITLE}; seed {SEED}")
    with tempfile.TemporaryDirectory() as root:
        return shown(measure(Path(root)))


if __name__ == "__main__":
    sys.exit(main())
