"""The trackers that a project file names, for one run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from promptgraft.integrations import mlflow_runs, wandb_runs
from promptgraft.integrations.telemetry import exported, traced
from promptgraft.project.trackers import TrackersConfig
from promptgraft.runtime.session import EventBus


@contextlib.contextmanager
def tracking(
    trackers: TrackersConfig, bus: EventBus, *, key: str, folder: Path | None = None
) -> Iterator[None]:
    """Show the run that publishes to ``bus``, as long as this is open.

    Args:
        trackers: where.
        bus: the event bus of the run.
        key: no other run has it; a run that is resumed with it continues where it was shown.
        folder: the run directory, which is kept with the run.

    Raises:
        ConfigError: a package is missing, or the server does not take the run.
    """
    mlflow, wandb, spans = trackers.mlflow, trackers.wandb, trackers.opentelemetry
    with contextlib.ExitStack() as held:
        if spans is not None:
            held.enter_context(exported(bus, endpoint=spans.endpoint, content=spans.content))
        elif "opentelemetry.trace" in sys.modules:
            held.enter_context(traced(bus))
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
