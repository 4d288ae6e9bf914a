"""gepa (PyPI) on a simulated world: the same task, the same reflection model, the same budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import attrs
from gepa.api import optimize
from gepa.core.adapter import Candidate, EvaluationBatch, GEPAAdapter
from gepa.core.state import GEPAState
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob, ReflectionProposal

from search.curves import Curve, Recorder
from search.interfaces import ReflectionModel, World, Writer
from search.readers import ReadingModel, Shown
from search.worlds import Item, Trial

_Batch = EvaluationBatch[Trial, Trial]
_Mapped = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Applies a function to each of some values, side by side or one after the other."""


_LEAST = 2.0**-30
"""Added to every score: gepa's merging fails where all candidates that it weighs have a 0."""


class _Silent:
    def log(self, message: str) -> None:
        del message


class _Adapter(GEPAAdapter[Item, Trial, Trial]):
    """What gepa asks of a task. All that it hands over at once is done at once."""

    propose_new_texts = None

    def __init__(self, world: World, mapped: _Mapped) -> None:
        self._world = world
        self._mapped = mapped

    def evaluate(
        self, batch: list[Item], candidate: Candidate, capture_traces: bool = False
    ) -> _Batch:
        del capture_traces
        return self.batch_evaluate([(candidate, batch)])[0]

    def batch_evaluate(self, items: list[tuple[Candidate, list[Item]]]) -> list[_Batch]:
        asked = [(candidate, item) for candidate, batch in items for item in batch]
        trials = iter(self._mapped(lambda one: self._world.answer(*one), asked))
        return [_judged([next(trials) for _ in batch]) for _, batch in items]

    def make_reflective_dataset(
        self, candidate: Candidate, eval_batch: _Batch, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        del candidate
        trials = eval_batch.trajectories or ()
        if any(trial.steps for trial in trials):
            return _by_node(trials, components_to_update)
        said = [{"Inputs": trial.item.text, "Feedback": trial.feedback} for trial in trials]
        return dict.fromkeys(components_to_update, said)


def _by_node(
    trials: Sequence[Trial], nodes: Sequence[str]
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the steps of each node, as gepa's adapter of DSPy does; nothing of unasked nodes."""
    said = {
        name: [
            {"Inputs": given, "Generated Outputs": answer, "Feedback": trial.feedback}
            for trial in trials
            for node, given, answer in trial.steps
            if node == name
        ]
        for name in nodes
    }
    return {name: steps for name, steps in said.items() if steps}


def _judged(trials: list[Trial]) -> _Batch:
    return EvaluationBatch(
        outputs=trials, scores=[trial.score + _LEAST for trial in trials], trajectories=trials
    )


class _Reflection:
    """The simulated reflection model, as gepa calls one; several questions at once."""

    def __init__(self, reflector: ReflectionModel | ReadingModel, mapped: _Mapped) -> None:
        self._reflector = reflector
        self._mapped = mapped

    def reflect(
        self,
        candidate: Candidate,
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> tuple[ReflectionProposal, _Reflection]:
        return self.reflect_many([(candidate, reflective_dataset, components_to_update)])[0]

    def reflect_many(
        self, jobs: list[ReflectionJob]
    ) -> list[tuple[ReflectionProposal, _Reflection]]:
        asked = [(name, texts, said[name]) for texts, said, names in jobs for name in names]
        replies = iter(self._mapped(self._improved, asked))
        return [
            (ReflectionProposal(new_texts={name: next(replies) for name in names}), self)
            for _, _, names in jobs
        ]

    def _improved(self, asked: tuple[str, Candidate, Sequence[Mapping[str, Any]]]) -> str:
        name, texts, said = asked
        answers = tuple((str(one["Inputs"]), str(one["Feedback"])) for one in said)
        if isinstance(self._reflector, ReadingModel):
            # Shown all parts, as promptgraft's question shows them.
            shown = Shown(asked=(name,), parts=texts, answers=answers)
            return self._reflector.revise(shown)[name]
        return self._reflector.improve(name, texts[name], [feedback for _, feedback in answers])


class _Watch:
    """Looks at gepa's state before each of its iterations, and never stops it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, gepa_state: GEPAState[Trial, int]) -> bool:
        scores = gepa_state.program_full_scores_val_set
        self._recorder.note(gepa_state.program_candidates[scores.index(max(scores))])
        return False


def search(
    world: World,
    reflector: ReflectionModel | ReadingModel | Writer,
    *,
    budget: int,
    executor: Executor | None = None,
    used: Callable[[], float] | None = None,
    **settings: Any,
) -> Curve:
    """Search with so many calls of the task model.

    Args:
        world: what is searched.
        reflector: writes new texts.
        budget: calls of the task model.
        executor: runs calls side by side, as far as gepa hands them over together.
        used: see :class:`Recorder`.
        settings: those of ``gepa.optimize``.
    """
    recorder = Recorder(world, used)

    def mapped(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        return list((executor.map if executor else map)(function, values))

    asked: Mapping[str, Any] = (
        {"reflection_lm": reflector.reply}  # in the words of gepa's own question
        if isinstance(reflector, Writer)
        else {"reflection_strategy": _Reflection(reflector, mapped)}
    )
    found = optimize(
        seed_candidate=dict(world.first),
        trainset=list(world.train),
        valset=list(world.validation),
        adapter=_Adapter(world, mapped),
        max_metric_calls=budget,
        logger=_Silent(),
        stop_callbacks=[_Watch(recorder)],
        seed=world.seed,
        **asked,
        **settings,
    )
    return attrs.evolve(
        recorder.curve(reflector.calls),
        winner=dict(found.candidates[found.best_idx]),
        pool=tuple(map(dict, found.candidates)),
    )
