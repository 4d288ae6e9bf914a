"""2,000 durable steps beside gepa (PyPI) with a run directory: ``python benchmarks/durable.py``.

Both improve two texts on 50 + 50 examples with minibatches of 4; models answer at once, scores
are random but the same for the same text and example, and every proposal is new (gepa's seed
is 0, ours that of ``GepaConfig``). Each runs with what makes it resumable and without: the
difference is what durability costs. For gepa that is ``run_dir=``, its whole state after each
step, never synced. For promptgraft it is the journal, synced after each step; a run directory
adds events and pages for people. Compared is processor time, which others on the machine
disturb little; on the clock the same steps also wait for the disk.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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

TITLE = "Durable steps beside gepa with `run_dir`"
LEAST_RATIO = 20
_EACH = 50


@attrs.frozen
class Timed:
    """Steps that were made, and the seconds they took: of a processor, and on the clock."""

    steps: int
    worked: float
    passed: float

    def beyond(self, other: Timed) -> Timed:
        """Return what a step took more than one of the other."""
        each = 1 / self.steps, 1 / other.steps
        worked = self.worked * each[0] - other.worked * each[1]
        return Timed(1, worked, self.passed * each[0] - other.passed * each[1])


def timed(run: Callable[[], int]) -> Timed:
    """Run, and return the steps that it has made with their times."""
    worked, passed = time.process_time(), time.perf_counter()
    steps = run()
    return Timed(steps, time.process_time() - worked, time.perf_counter() - passed)


def with_journal(journal: Path | None, steps: int) -> int:
    """Run so many steps of promptgraft with a journal, or with nothing that is kept."""
    return overhead.run(journal, new_steps=steps).result.steps


def with_directory(folder: Path, steps: int) -> int:
    """Run so many steps of promptgraft with a run directory."""
    kept = make_run(folder, "durable", {"prompt": "benchmarks"}, now=FakeClock().now())
    bus = EventBus()
    with kept.held(), Recorder(kept, overhead.PROMPT, clock=FakeClock()) as recorder:
        bus.subscribe(object, recorder.on_event)
        made = overhead.run(kept.journal, new_steps=steps, bus=bus)
    if recorder.failure:
        raise SystemExit(recorder.failure)
    return made.result.steps


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


def theirs(folder: Path | None, steps: int) -> int:
    """Run so many steps of gepa; with a folder, its state is kept there."""
    stop = _Steps(steps)
    examples = [f"e{number}" for number in range(2 * _EACH)]
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
    return stop.made


def measure(folder: Path, steps: int = overhead.STEPS) -> list[Figure]:
    """Return the figures of this page."""
    bare = timed(lambda: with_journal(None, steps))
    journal = timed(lambda: with_journal(folder / "durable.jsonl", steps))
    whole = timed(lambda: with_directory(folder / "durable", steps))
    gepa_bare = timed(lambda: theirs(None, steps))
    gepa = timed(lambda: theirs(folder / "gepa", steps))
    if min(one.steps for one in (bare, journal, whole, gepa_bare, gepa)) < steps:
        raise SystemExit("a run ended before its last step")
    resumable, shown, gepas = journal.beyond(bare), whole.beyond(bare), gepa.beyond(gepa_bare)
    share = resumable.worked / gepas.worked * 100
    return [
        Figure("promptgraft, nothing kept, a step", bare.worked / steps * 1e3, "ms", None),
        Figure("gepa, nothing kept, a step", gepa_bare.worked / steps * 1e3, "ms", None),
        Figure("journal, more for a step", resumable.worked * 1e3, "ms", None),
        Figure("  on the clock", resumable.passed * 1e3, "ms", None),
        Figure("run directory, more for a step", shown.worked * 1e3, "ms", None),
        Figure("  on the clock", shown.passed * 1e3, "ms", None),
        Figure("gepa's run_dir, more for a step", gepas.worked * 1e3, "ms", None),
        Figure("  on the clock", gepas.passed * 1e3, "ms", None),
        Figure("gepa's run_dir against the journal", gepas.worked / resumable.worked, "x", None),
        Figure("gepa's against the run directory", gepas.worked / shown.worked, "x", None),
        Figure("the journal against gepa's run_dir", share, "%", 100 / LEAST_RATIO),
    ]


def main() -> int:
    """Measure, print, and return the exit code."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else overhead.STEPS
    print(f"Python {platform.python_version()}, {platform.machine()}, gepa {version('gepa')}")
    print(f"{TITLE}, {steps:,} steps")
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), steps)
    for figure in figures:
        print(figure.line())
    return 0 if all(figure.kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
