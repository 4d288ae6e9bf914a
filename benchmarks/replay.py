"""Replay of a long journal: ``python benchmarks/replay.py``; ``--full`` replays 1,000,000 answers.

The journal is that of the run of ``overhead``, made as long as it takes. The replay has a process
of its own and opens the journal, goes through the whole run without a call, and gives its result.
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path

import overhead
from figures import Figure, shown, unit_seconds

TITLE = "Replay of a journal"
ANSWERS = 100_000
FULL = 1_000_000
MOST_SECONDS = 40
_ANSWERS_A_STEP = 2 * overhead.MINIBATCH + 1


def make(journal: Path, answers: int) -> int:
    """Run until there are so many answers; return how many there are.

    A step has at least nine, and fifty more when its candidate is accepted, so the run is ended by
    its budget.
    """
    made = overhead.run(journal, new_steps=answers // _ANSWERS_A_STEP, budget=answers).result
    return made.total_rollouts + made.total_reflections


def replayed(journal: Path, answers: int) -> tuple[int, float, float, float]:
    """Return the answers of a replay, its seconds of processor and clock, and the memory in MB."""
    worked, passed = time.process_time(), time.perf_counter()
    result = overhead.run(journal, new_steps=0, budget=answers).result
    worked, passed = time.process_time() - worked, time.perf_counter() - passed
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result.total_rollouts + result.total_reflections, worked, passed, memory


def measure(folder: Path, answers: int = ANSWERS) -> list[Figure]:
    """Return the figures of this page."""
    journal = folder / "replay.jsonl"
    made = make(journal, answers)
    with multiprocessing.get_context("spawn").Pool(1) as process:
        found, worked, passed, memory = process.apply(replayed, (journal, answers))
    if found != made:
        raise SystemExit(f"the run has {made} answers, its replay {found}")
    million = FULL / made
    return [
        Figure("answers", made, "", None),
        Figure("journal", journal.stat().st_size / 1e6, "MB", None),
        Figure("replay, an answer, processor", worked / made * 1e6, "µs", None),
        Figure("replay, an answer, clock", passed / made * 1e6, "µs", None),
        Figure("the same in units", worked / made / unit_seconds(time.process_time), "x", 6),
        Figure("replay, memory", memory, "MB", None),
        Figure("1,000,000 answers at this pace, clock", passed * million, "s", MOST_SECONDS),
    ]


def main() -> int:
    """Measure, print, and return the exit code."""
    print(f"Python {platform.python_version()}, {platform.machine()}; {TITLE}")
    with tempfile.TemporaryDirectory() as folder:
        return shown(measure(Path(folder), FULL if "--full" in sys.argv else ANSWERS))


if __name__ == "__main__":
    sys.exit(main())
