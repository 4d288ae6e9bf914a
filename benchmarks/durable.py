"""2,000 durable steps beside gepa (PyPI) with a run directory: ``python benchmarks/durable.py``.

Both improve two texts on 50 + 50 examples with minibatches of 4; models answer at once, scores
are random but the same for the same text and example, and every proposal is new. Each runs with
its run directory and without one: the difference is what durability costs.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import attrs
from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter
from gepa.core.state import GEPAState

import overhead
from figures import Figure
from promptgraft import EventBus
from promptgraft.clock import FakeClock
from promptgraft.runs.folder import make_run
from promptgraft.runs.recorder import Recorder
from promptgraft.serde import digest_text

TITLE = "Durable steps: ours with a run directory, gepa with `run_dir`"
LEAST_RATIO = 20
_EACH = 50


@attrs.frozen
class Timed:
    """Steps that were made, and how long they took."""

    steps: int
    seconds: float


def ours(folder: Path | None, steps: int) -> Timed:
    """Run so many steps; with a folder, journal and run directory are kept there."""
    if folder is None:
        made = overhead.run(None, new_steps=steps)
        return Timed(made.result.steps, made.seconds)
    kept = make_run(folder, "durable", {"prompt": "benchmarks"}, now=FakeClock().now())
    bus = EventBus()
    with kept.held(), Recorder(kept, overhead.PROMPT, clock=FakeClock()) as recorder:
        bus.subscribe(object, recorder.on_event)
        made = overhead.run(kept.journal, new_steps=steps, bus=bus)
    if recorder.failure:
        raise SystemExit(recorder.failure)
    return Timed(made.result.steps, made.seconds)


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


def theirs(folder: Path | None, steps: int) -> Timed:
    """Run so many steps of gepa; with a folder, its state is kept there."""
    stop = _Steps(steps)
    examples = [f"e{number}" for number in range(2 * _EACH)]
    started = time.perf_counter()
    optimize(
        seed_candidate={"role": "You answer questions.", "rules": "Be brief."},
        trainset=examples[_EACH:],
        valset=examples[:_EACH],
        adapter=_Adapter(),
        reflection_minibatch_size=overhead.MINIBATCH,
        logger=_Silent(),
        stop_callbacks=[stop],
        run_dir=None if folder is None else str(folder),
        seed=0,
    )
    return Timed(stop.made, time.perf_counter() - started)


def measure(folder: Path, steps: int = overhead.STEPS) -> list[Figure]:
    """Return the figures of this page."""
    mine, bare = ours(folder / "ours", steps), ours(None, steps)
    gepa, gepa_bare = theirs(folder / "gepa", steps), theirs(None, steps)
    if min(mine.steps, bare.steps, gepa.steps, gepa_bare.steps) < steps:
        raise SystemExit("a run ended before its last step")
    kept, kept_by_gepa = mine.seconds - bare.seconds, gepa.seconds - gepa_bare.seconds
    return [
        Figure("promptgraft, run directory", mine.seconds, "s", None),
        Figure("promptgraft, nothing kept", bare.seconds, "s", None),
        Figure("gepa, run directory", gepa.seconds, "s", None),
        Figure("gepa, nothing kept", gepa_bare.seconds, "s", None),
        Figure("gepa's whole run against ours", gepa.seconds / mine.seconds, "x", None),
        Figure("cost of durability, a step", kept / steps * 1e3, "ms", None),
        Figure("the same of gepa, a step", kept_by_gepa / steps * 1e3, "ms", None),
        Figure("gepa's durability against ours", kept_by_gepa / kept, "x", None),
        Figure("ours against gepa's", kept / kept_by_gepa * 100, "%", 100 / LEAST_RATIO),
    ]


def main() -> int:
    """Measure, print, and return the exit code."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else overhead.STEPS
    print(f"Python {platform.python_version()}, {platform.machine()}, gepa {version('gepa')}")
    print(f"{TITLE}, {steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), steps)
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
