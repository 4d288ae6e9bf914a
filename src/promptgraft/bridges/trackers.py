"""The figures that trackers record at each step."""

from __future__ import annotations

import attrs

from promptgraft.search.events import CandidateAdded, RunEnded
from promptgraft.search.scores import Score


@attrs.define
class TrackedFigures:
    """Turns the events of a run into figures by name; unknown figures are left out."""

    _means: dict[int, Score] = attrs.field(factory=dict)

    def added(self, event: CandidateAdded) -> dict[str, float]:
        """Return the figures after a candidate has been added."""
        self._means[event.candidate] = event.mean
        return _known(
            validation_score=event.mean,
            best_score=self._means.get(event.best),
            rollouts=event.rollouts,
            reflections=event.reflections,
            tokens=event.tokens,
            cost_usd=event.cost,
            candidates=event.candidate + 1,
        )

    @staticmethod
    def ended(event: RunEnded) -> dict[str, float]:
        """Return the figures of the whole run."""
        held_out = event.held_out
        return _known(
            baseline_score=event.baseline_mean,
            best_score=event.best_mean,
            rollouts=event.rollouts,
            reflections=event.reflections,
            cost_usd=event.cost,
            held_out_baseline=None if held_out is None else held_out.baseline_mean,
            held_out_winner=None if held_out is None else held_out.winner_mean,
        )


def _known(**figures: object) -> dict[str, float]:
    return {name: float(str(value)) for name, value in figures.items() if value is not None}
