"""2,000 durable steps beside gepa (PyPI) with a run directory: ``python benchmarks/durable.py``.

Both improve two texts on 50 + 50 examples with minibatches of 4; models answer at once, scores
are random but the same for the same text and example, and every proposal is new. Seeds are 0.

The calls that keep the run are timed on both sides, of a processor and on the clock:

* gepa, ``GEPAState.save``: its whole state after each step, and candidates and steps as JSON. It is
  never synced: what a step has paid for is lost with the power, and within a step with the process.
* promptgraft, journal: every answer as it arrives, synced after each step. This is what a run
  needs to go on, and all that a resumed run reads.
* promptgraft, journal and recorder: a run directory, with events and a page for every candidate
  and every rejected proposal besides. It promises people something to look at, no more safety.

gepa has its JSON, too, for people to look at and cannot be had without it, so the last is like for
like. Both may cost at most 3 % of what gepa's cost.

Both make 2,000 steps. gepa's state grows with them, and saving it after each takes minutes: only
every twentieth is saved and timed, with ``--full`` every one. Ours is all timed. The ratio depends
on the number of steps: with 500 of them gepa's state is smaller, and our share is higher.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Self
from unittest.mock import patch

import attrs
from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter
from gepa.core.state import GEPAState

import overhead
from figures import Figure, shown
from promptgraft import EventBus, FileJournal
from promptgraft.algorithms.gepa import GepaOptimizationCompleted
from promptgraft.ground.serde import HexDigest, Json, digest_text
from promptgraft.journal import Answer
from promptgraft.runs.folder import make_run
from promptgraft.runs.recorder import Recorder
from promptgraft.testing import FakeClock

TITLE = "Durable steps beside gepa with `run_dir`"
MOST_PERCENT = 3
EVERY = 20
"""Of so many saves of gepa one is made."""

_EACH = 50


class Watch:
    """Adds up the seconds that calls take: of a processor, and on the clock."""

    def __init__(self) -> None:
        self.worked = self.passed = 0.0

    def __enter__(self) -> Self:
        self.worked -= time.process_time()
        self.passed -= time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.worked += time.process_time()
        self.passed += time.perf_counter()

    def each(self, steps: int) -> Cost:
        """Return what each of so many steps has cost."""
        return Cost(self.worked / steps * 1e3, self.passed / steps * 1e3)


@attrs.frozen
class Cost:
    """Milliseconds that a step takes: of a processor, and on the clock."""

    worked: float
    passed: float

    def figures(self, name: str) -> tuple[Figure, Figure]:
        """Return it as figures."""
        return (
            Figure(f"{name}, a step, processor", self.worked, "ms", None),
            Figure(f"{name}, a step, clock", self.passed, "ms", None),
        )

    def against(self, gepa: Cost, name: str) -> tuple[Figure, Figure]:
        """Return its share of gepa's."""
        return (
            Figure(
                f"{name} of gepa's, processor", self.worked / gepa.worked * 100, "%", MOST_PERCENT
            ),
            Figure(f"{name} of gepa's, clock", self.passed / gepa.passed * 100, "%", MOST_PERCENT),
        )


class WatchedJournal(FileJournal):
    """A journal whose calls are timed."""

    def __init__(self, path: Path, watch: Watch) -> None:
        self._watch = watch
        super().__init__(path)

    def find(self, key: str, digest: HexDigest) -> Answer | None:
        """Find, timed."""
        with self._watch:
            return super().find(key, digest)

    def append(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        """Append, timed."""
        with self._watch:
            super().append(key, digest, kind, answer)

    def sync(self) -> None:
        """Sync, timed."""
        with self._watch:
            super().sync()


def ours(folder: Path, steps: int) -> tuple[Watch, Watch]:
    """Run so many steps of promptgraft; return the time in the journal and in the recorder."""
    journal, recording = Watch(), Watch()
    kept = make_run(folder, "durable", {"prompt": "benchmarks"}, now=FakeClock().now())
    bus = EventBus()
    with (
        kept.held(),
        contextlib.closing(Recorder(kept, overhead.PROMPTS, clock=FakeClock())) as recorder,
    ):

        def on_event(event: object) -> None:
            if not isinstance(event, GepaOptimizationCompleted):
                with recording:
                    recorder.on_event(event)

        bus.subscribe(object, on_event)
        made = overhead.run(
            kept.journal,
            new_steps=steps,
            bus=bus,
            opened=lambda path: WatchedJournal(path, journal),
        )
    if recorder.failure or made.result.steps < steps:
        raise SystemExit(recorder.failure or "a run ended before its last step")
    return journal, recording


class _Silent:
    def log(self, message: str) -> None:
        del message


class _Adapter(GEPAAdapter[str, str, str]):
    """A task that answers at once, and a writer that always has something new."""

    def __init__(self) -> None:
        self._asked = 0

    def evaluate(
        self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[str, str]:
        answers: list[str] = [
            digest_text(f"{example}:{sorted(candidate.items())}") for example in batch
        ]
        return EvaluationBatch(
            outputs=answers,
            scores=[int(answer[:4], 16) / 0xFFFF for answer in answers],
            trajectories=answers if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[str, str],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, str]]]:
        del candidate
        said = [{"Feedback": answer} for answer in eval_batch.trajectories or ()]
        return dict.fromkeys(components_to_update, said)

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, str]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        del candidate, reflective_dataset
        self._asked += 1
        return dict.fromkeys(components_to_update, f"Be brief and careful, attempt {self._asked}.")


class _Steps:
    """Stops gepa after so many steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.made = -1

    def __call__(self, gepa_state: GEPAState[str, int]) -> bool:
        self.made = gepa_state.i + 1
        return self.made >= self._steps


@contextmanager
def watched_saves(every: int) -> Iterator[list[Cost]]:
    """Make and time one of so many calls of ``GEPAState.save``."""
    costs: list[Cost] = []
    calls, save = itertools.count(1), GEPAState.save

    def watched(
        state: GEPAState[str, int], run_dir: str | None, *, use_cloudpickle: bool = False
    ) -> None:
        if next(calls) % every == 0:
            with Watch() as watch:
                save(state, run_dir, use_cloudpickle=use_cloudpickle)
            costs.append(watch.each(1))

    with patch.object(GEPAState, "save", watched):
        yield costs


def theirs(folder: Path, steps: int, every: int) -> Cost:
    """Run so many steps of gepa; return what saving its state took on average."""
    stop = _Steps(steps)
    examples = [f"e{number}" for number in range(2 * _EACH)]
    with watched_saves(every) as costs:
        optimize(
            seed_candidate={"role": "You answer questions.", "rules": "Be brief."},
            trainset=examples[_EACH:],
            valset=examples[:_EACH],
            adapter=_Adapter(),
            reflection_minibatch_size=overhead.MINIBATCH,
            logger=_Silent(),
            stop_callbacks=[stop],
            run_dir=str(folder),
            seed=0,
        )
    if stop.made < steps:
        raise SystemExit("gepa's run ended before its last step")
    return Cost(
        statistics.fmean(cost.worked for cost in costs),
        statistics.fmean(cost.passed for cost in costs),
    )


def measure(folder: Path, every: int = EVERY) -> list[Figure]:
    """Return the figures of this page."""
    watches = ours(folder / "durable", overhead.STEPS)
    journal, recorder = (watch.each(overhead.STEPS) for watch in watches)
    both = Cost(journal.worked + recorder.worked, journal.passed + recorder.passed)
    gepa = theirs(folder / "gepa", overhead.STEPS, every)
    found = {"gepa's state": gepa, "journal": journal, "journal and recorder": both}
    return [
        *(figure for name, cost in found.items() for figure in cost.figures(name)),
        *both.against(gepa, "journal and recorder"),
        *journal.against(gepa, "journal"),
    ]


def main() -> int:
    """Measure, print, and return the exit code."""
    every = 1 if "--full" in sys.argv else EVERY
    print(f"Python {platform.python_version()}, {platform.machine()}, gepa {version('gepa')}")
    print(f"{TITLE}: {overhead.STEPS:,} steps, 1 of {every} saves of gepa")
    with tempfile.TemporaryDirectory() as folder:
        return shown(measure(Path(folder), every))


if __name__ == "__main__":
    sys.exit(main())
