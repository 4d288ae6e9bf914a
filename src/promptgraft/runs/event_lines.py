"""What is told of a run as plain data: the lines of ``events.jsonl`` and of ``--json``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from promptgraft.adapters.base import CallWaiting
from promptgraft.algorithms.gepa.events import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaExampleGenerated,
    GepaMergeAccepted,
    GepaMergeAttempted,
    GepaMergeRejected,
    GepaMutationAccepted,
    GepaMutationProposed,
    GepaMutationRejected,
    GepaOptimizationCompleted,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
    GepaStopFileRemoved,
    GepaWorking,
)
from promptgraft.clock import Clock
from promptgraft.overrides.documents import plain_entries
from promptgraft.parts.descriptors import show_path
from promptgraft.runs.progress import Progress
from promptgraft.search.ledger import money
from promptgraft.search.scores import is_estimate
from promptgraft.serde import Json
from promptgraft.targets.modules import names_of

Line = dict[str, Json]
"""One line: ``event`` says which; ``n`` numbers those that every replay tells again."""

_WRITER = json.JSONEncoder(separators=(",", ":"))

# As a tuple: a run tells of thousands in a second, and a union is made anew each time.
_AT_WORK = (GepaRolloutCompleted, GepaWorking)
_SECONDS_BETWEEN_PROGRESS = 1.0
_SECONDS_BETWEEN_BEGINNINGS = 0.1


class EventLines:
    """Turns the events of one run into lines, in the order in which they are told.

    Not to be shared between threads.

    Args:
        clock: says when; and when the next ``progress`` may be told.
        every: seconds between two lines ``progress``. When new work begins, which may take long,
            one is told besides, at most ten times a second.
    """

    def __init__(self, clock: Clock, *, every: float = _SECONDS_BETWEEN_PROGRESS) -> None:
        self._clock = clock
        self._every = every
        self._numbered = 0
        self._progress = Progress()
        self._told = self._begun = clock.monotonic()

    def of(self, event: object) -> Iterator[Line]:
        """Yield the lines of an event; none for those that are not told."""
        self._progress.update(event)
        if isinstance(event, _AT_WORK):
            if self._is_due(event):
                yield self._timed(None, self._progress.plain())
        elif isinstance(event, GepaOptimizationStarted):
            yield self._count(_started(event))
            yield self._timed(None, _plan(event))
        elif isinstance(event, CallWaiting):
            yield self._timed(None, _waiting(event))
        elif isinstance(event, GepaStopFileRemoved):
            yield self._timed(None, {"event": "stop_file_removed", "path": str(event.path)})
        else:
            plain = _plain(event, self._progress)
            if plain is not None:
                yield self._count(plain)

    def _is_due(self, event: GepaRolloutCompleted | GepaWorking) -> bool:
        now = self._clock.monotonic()
        if isinstance(event, GepaWorking) and not event.done:
            # It may take minutes until there is more to tell.
            due = now - self._begun >= min(self._every, _SECONDS_BETWEEN_BEGINNINGS)
            self._begun = now if due else self._begun
        else:
            due = now - self._told >= self._every
        self._told = now if due else self._told
        return due

    def _count(self, plain: Line) -> Line:
        self._numbered += 1
        return self._timed(self._numbered, plain)

    def _timed(self, number: int | None, plain: Line) -> Line:
        time = self._clock.now().isoformat(timespec="milliseconds")
        return {**({} if number is None else {"n": number}), "time": time, **plain}


def encoded(line: Line) -> str:
    """Return a line as text, without its end; in ASCII, so that every locale can carry it."""
    return _WRITER.encode(line)


def _started(event: GepaOptimizationStarted) -> Line:
    return {
        "event": "started",
        "run_id": event.run_id,
        "prompt": f"{event.descriptor.ns}/{event.descriptor.key}",
        "seed": event.seed,
        "modules": list(event.modules),
        "texts": dict(event.texts),
        "pareto_ids": list(event.pareto_ids),
    }


def _plan(event: GepaOptimizationStarted) -> Line:
    # No part of `started`: limits may be others when a run is resumed.
    plan = event.plan
    return {
        "event": "plan",
        "budget": event.rollout_budget,
        "line": plan.line,
        "plan": plan.as_json(),
    }


def _waiting(event: CallWaiting) -> Line:
    return {
        "event": "waiting",
        "model": event.model,
        "seconds": event.seconds,
        "reason": event.reason,
    }


def _candidate(event: GepaCandidateAdded) -> Line:
    value = event.value
    return {
        "event": "candidate",
        "step": event.step,
        "candidate": event.candidate,
        "parents": list(value.parents),
        "module": names_of(value.modules) or None,
        "mean": event.mean,
        "estimated": is_estimate(event.mean, event.scores),
        "best": event.best,
        "scores": list(event.scores),
        "objectives": dict(event.objectives),
        "rollouts": event.rollouts,
        "reflections": event.reflections,
        "tokens": event.tokens,
        "cost": money(event.cost),
        "texts": dict(event.texts),
        "entries": {**plain_entries(value.override)},
    }


def _scored(event: GepaCandidateScored) -> Line:
    return {
        "event": "scored",
        "step": event.step,
        "candidate": event.candidate,
        "mean": event.mean,
        "estimated": is_estimate(event.mean, event.scores),
        "best": event.best,
        "scores": list(event.scores),
        "objectives": dict(event.objectives),
    }


def _proposed(event: GepaMutationProposed) -> Line:
    # The parent has the text before, and whatever comes of the proposal has the one after.
    return {
        "event": "proposed",
        "step": event.step,
        "parent": event.parent,
        "module": event.module,
    }


def _accepted(event: GepaMutationAccepted, progress: Progress) -> Line:
    return {
        "event": "accepted",
        "step": event.step,
        "candidate": event.candidate,
        "parent": event.parent,
        "module": event.module,
        "parent_score": event.parent_score,
        "child_score": event.child_score,
        **_means(event, progress),
    }


def _means(event: GepaMutationAccepted | GepaMergeAccepted, progress: Progress) -> Line:
    return {
        "mean": event.pareto_mean,
        "estimated": progress.is_estimated(event.candidate),
        "best_mean": event.best_pareto_mean,
        "best_estimated": progress.best_estimated,
    }


def _rejected(event: GepaMutationRejected) -> Line:
    return {
        "event": "rejected",
        "step": event.step,
        "parent": event.parent,
        "module": event.module,
        "reason": str(event.reason),
        "detail": event.detail,
        "before": event.before,
        "text": event.text,
        "parent_score": event.parent_score,
        "child_score": event.child_score,
        "final": event.final,
    }


def _example(event: GepaExampleGenerated) -> Line:
    return {
        "event": "example_generated",
        "step": event.step,
        "candidate": event.candidate,
        "container": show_path(event.container_path),
        "key": event.key,
        "objective": event.objective,
    }


def _merge_attempted(event: GepaMergeAttempted) -> Line:
    return {
        "event": "merge_attempted",
        "step": event.step,
        "ancestor": event.ancestor,
        "parents": [event.better, event.other],
    }


def _merge_accepted(event: GepaMergeAccepted, progress: Progress) -> Line:
    return {
        "event": "merge_accepted",
        "step": event.step,
        "candidate": event.candidate,
        "parents": list(event.parents),
        **_means(event, progress),
    }


def _merge_rejected(event: GepaMergeRejected) -> Line:
    return {
        "event": "merge_rejected",
        "step": event.step,
        "parents": list(event.parents),
        "reason": str(event.reason),
        "detail": event.detail,
    }


def _ended(event: GepaOptimizationCompleted) -> Line:
    result = event.result
    unseen = result.held_out
    return {
        "event": "ended",
        "stop": {"reason": str(result.stop_reason), "detail": result.stop_detail},
        "improved": result.improved,
        "best": result.best_index,
        "baseline_mean": result.baseline_pareto_mean,
        "baseline_estimated": result.is_estimated(0),
        "best_mean": result.best_pareto_mean,
        "best_estimated": result.is_estimated(result.best_index),
        "held_out": None
        if unseen is None
        else {"baseline_mean": unseen.baseline_mean, "winner_mean": unseen.winner_mean},
        "candidates": len(result.candidates),
        "steps": result.steps,
        "rollouts": result.total_rollouts,
        "reflections": result.total_reflections,
        "cost": money(result.total_cost),
    }


def _plain(event: object, progress: Progress) -> Line | None:
    match event:
        case GepaCandidateAdded():
            return _candidate(event)
        case GepaCandidateScored():
            return _scored(event)
        case GepaMutationProposed():
            return _proposed(event)
        case GepaMutationAccepted():
            return _accepted(event, progress)
        case GepaMutationRejected():
            return _rejected(event)
        case GepaExampleGenerated():
            return _example(event)
        case GepaMergeAttempted():
            return _merge_attempted(event)
        case GepaMergeAccepted():
            return _merge_accepted(event, progress)
        case GepaMergeRejected():
            return _merge_rejected(event)
        case GepaOptimizationCompleted():
            return _ended(event)
    return None
