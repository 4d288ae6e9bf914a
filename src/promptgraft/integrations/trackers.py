"""The trackers that a project file names, for one run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from promptgraft.integrations import wandb_runs
from promptgraft.integrations.mlflow_runs import tracked
from promptgraft.integrations.telemetry import exported, traced
from promptgraft.project.trackers import TrackersConfig
from promptgraft.runs import RunFolder
from promptgraft.runtime.session import EventBus


@contextlib.contextmanager
def tracking(trackers: TrackersConfig, folder: RunFolder, bus: EventBus) -> Iterator[None]:
    """Show the run that is kept in ``folder`` and publishes to ``bus``, as long as this is open.

    Raises:
        ConfigError: a package is missing, or the server does not take the run.
    """
    mlflow, spans = trackers.mlflow, trackers.opentelemetry
    with contextlib.ExitStack() as held:
        if spans is not None:
            held.enter_context(exported(bus, endpoint=spans.endpoint, content=spans.content))
        elif "opentelemetry.trace" in sys.modules:
            held.enter_context(traced(bus))
        if mlflow is not None:
            run = tracked(
                bus,
                experiment=mlflow.experiment,
                tracking_uri=mlflow.uri,
                key=folder.id,
                folder=folder.path,
            )
            held.enter_context(run)
        if trackers.wandb is not None:
            project, path = trackers.wandb.project, folder.path
            run = wandb_runs.tracked(bus, project=project, key=folder.id, folder=path)
            held.enter_context(run)
        yield
