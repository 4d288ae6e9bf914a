"""Where a run is, gathered from its events."""

from __future__ import annotations

from decimal import Decimal

import attrs

from promptgraft.algorithms.gepa.events import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaMergeAccepted,
    GepaMergeRejected,
    GepaMutationAccepted,
    GepaMutationRejected,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
    GepaWorking,
)
from promptgraft.search.ledger import money
from promptgraft.search.scores import is_estimate
from promptgraft.serde import Json


@attrs.define
class Progress:
    """Where a run is, gathered from its events."""

    position: str = ""
    done: int = 0
    total: int = 0
    step: int = 0
    rollouts: int = 0
    reflections: int = 0
    budget: int = 0
    candidates: int = 0
    accepted: int = 0
    rejected: int = 0
    baseline_mean: float | None = None
    best_mean: float | None = None
    best: int = 0
    cost: Decimal | None = Decimal(0)
    tokens: int = 0
    baseline_estimated: bool = False
    best_estimated: bool = False
    _means: list[float | None] = attrs.field(factory=list)
    _estimated: list[bool] = attrs.field(factory=list)

    def update(self, event: object) -> None:
        """Take account of an event; others are ignored."""
        match event:
            case GepaOptimizationStarted():
                self.budget = event.rollout_budget
            case GepaRolloutCompleted():
                # Told once the batch is complete, one by one: never back to fewer.
                self.rollouts = max(self.rollouts, event.total_rollouts)
                self._tell_of(event.position.rpartition("/")[0])
            case GepaWorking():
                self._go_to(event.position)
                self.done, self.total = event.done, event.total
                self.rollouts, self.reflections = event.rollouts, event.reflections
                self.cost, self.tokens = event.cost, event.tokens
            case GepaCandidateAdded():
                self._add(event)
            case GepaCandidateScored():
                self._means[event.candidate] = event.mean
                self._estimated[event.candidate] = is_estimate(event.mean, event.scores)
                self._lead(event.best)
            case GepaMutationAccepted() | GepaMergeAccepted():
                self.accepted += 1
            case GepaMutationRejected() | GepaMergeRejected():
                self.rejected += 1
            case _:
                pass

    def _tell_of(self, position: str) -> None:
        # Where steps overlap, the rollouts of one are told of when later ones are under way.
        if position != self.position and _step_of(position, self.step) >= self.step:
            self._go_to(position)

    def _go_to(self, position: str) -> None:
        if position == self.position:
            return
        self.position, self.done, self.total = position, 0, 0
        self.step = max(self.step, _step_of(position, self.step))

    def _add(self, event: GepaCandidateAdded) -> None:
        self.candidates = event.candidate + 1
        self._means.append(event.mean)
        self._estimated.append(is_estimate(event.mean, event.scores))
        self._lead(event.best)
        if event.rollouts >= self.rollouts:  # else steps that are under way have used more
            self.rollouts, self.reflections = event.rollouts, event.reflections
            self.cost, self.tokens = event.cost, event.tokens

    def _lead(self, best: int) -> None:
        self.best, self.best_mean = best, self._means[best]
        self.best_estimated = self._estimated[best]
        self.baseline_mean, self.baseline_estimated = self._means[0], self._estimated[0]

    def is_estimated(self, candidate: int) -> bool:
        """Tell whether the mean of a candidate is an estimate: some examples have no score."""
        return self._estimated[candidate]

    def plain(self) -> dict[str, Json]:
        """Return the line ``progress``."""
        return {
            "event": "progress",
            "position": self.position,
            "done": self.done,
            "total": self.total,
            "step": self.step,
            "rollouts": self.rollouts,
            "reflections": self.reflections,
            "budget": self.budget,
            "candidates": self.candidates,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "baseline_mean": self.baseline_mean,
            "baseline_estimated": self.baseline_estimated,
            "best": self.best,
            "best_mean": self.best_mean,
            "best_estimated": self.best_estimated,
            "cost": money(self.cost),
            "tokens": self.tokens,
        }


def _step_of(position: str, otherwise: int) -> int:
    """Return the number of a step; what is no step has another one."""
    phase, _, place = position.partition("/")
    return int(place.partition("/")[0]) if phase == "step" else otherwise
