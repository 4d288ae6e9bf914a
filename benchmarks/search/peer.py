"""gepa (PyPI) on a simulated world: the same task, the same reflection model, the same budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter
from gepa.core.state import GEPAState

from search.curves import Curve, Recorder
from search.reflecting import Reflector
from search.worlds import Item, RuleWorld, Trial


class _Silent:
    def log(self, message: str) -> None:
        del message


class _Adapter(GEPAAdapter[Item, Trial, Trial]):
    """What gepa asks of a task, and of what proposes new texts."""

    def __init__(self, world: RuleWorld, reflector: Reflector) -> None:
        self._world = world
        self._reflector = reflector

    def evaluate(
        self, batch: list[Item], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Trial, Trial]:
        trials = [self._world.answer(candidate, item) for item in batch]
        return EvaluationBatch(
            outputs=trials,
            scores=[trial.score for trial in trials],
            trajectories=trials if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[Trial, Trial],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        del candidate
        said = [{"Feedback": trial.feedback} for trial in eval_batch.trajectories or ()]
        return dict.fromkeys(components_to_update, said)

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        return {
            name: self._reflector.improve(
                name, candidate[name], [str(one["Feedback"]) for one in reflective_dataset[name]]
            )
            for name in components_to_update
        }


class _Watch:
    """Looks at gepa's state before each of its iterations, and never stops it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, gepa_state: GEPAState[Trial, int]) -> bool:
        scores = gepa_state.program_full_scores_val_set
        self._recorder.note(gepa_state.program_candidates[scores.index(max(scores))])
        return False


def search(world: RuleWorld, reflector: Reflector, *, budget: int, **settings: Any) -> Curve:
    """Search with so many calls of the task model; ``settings`` are those of ``gepa.optimize``."""
    recorder = Recorder(world)
    optimize(
        seed_candidate=dict(world.first),
        trainset=list(world.train),
        valset=list(world.validation),
        adapter=_Adapter(world, reflector),
        max_metric_calls=budget,
        logger=_Silent(),
        stop_callbacks=[_Watch(recorder)],
        seed=world.seed,
        **settings,
    )
    return recorder.curve(reflector.calls)
