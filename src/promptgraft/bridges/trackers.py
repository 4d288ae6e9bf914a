"""The trackers of a project file, and the figures that they record at each step."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from promptgraft.project.services import TrackersConfig
from promptgraft.runtime.session import EventBus
from promptgraft.search.events import CandidateAdded, RunEnded
from promptgraft.search.scores import Score


@attrs.define
class Figures:
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


@contextlib.contextmanager
def tracking(
    trackers: TrackersConfig, bus: EventBus, *, key: str, folder: Path | None = None
) -> Iterator[None]:
    """Report the run that publishes to ``bus`` to the trackers while the context is open.

    Args:
        trackers: the trackers and their settings.
        bus: the event bus of the run.
        key: unique to the run; a run resumed with the same key continues its tracked run.
        folder: the run directory, uploaded with the run.

    Raises:
        ConfigError: a package is missing, or the server refuses the run.
    """
    # Each tracker is imported only when it is used; their modules import this one.
    from promptgraft.bridges import mlflow_runs, telemetry, wandb_runs

    mlflow, wandb, spans = trackers.mlflow, trackers.wandb, trackers.opentelemetry
    with contextlib.ExitStack() as held:
        if spans is not None:
            held.enter_context(
                telemetry.exported(bus, endpoint=spans.endpoint, content=spans.content)
            )
        elif "opentelemetry.trace" in sys.modules:  # the process is instrumented
            held.enter_context(telemetry.traced(bus))
        if mlflow is not None:
            name, uri = mlflow.experiment, mlflow.uri
            run = mlflow_runs.tracked(
                bus, experiment=name, tracking_uri=uri, key=key, folder=folder
            )
            held.enter_context(run)
        if wandb is not None:
            run = wandb_runs.tracked(bus, project=wandb.project, key=key, folder=folder)
            held.enter_context(run)
        yield
