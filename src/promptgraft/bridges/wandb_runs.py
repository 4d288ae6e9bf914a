"""Tracking in Weights & Biases: settings, metrics by step, and the run folder as an artifact.

Needs ``pip install "promptgraft[wandb]"``.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from promptgraft.bridges.trackers import TrackedFigures
from promptgraft.errors import ConfigError
from promptgraft.ground.environment import check_package
from promptgraft.ground.strict.checks import TEXT, Kind
from promptgraft.ground.strict.kinds import record_of
from promptgraft.ground.text import on_one_line
from promptgraft.project.adding import Tracker
from promptgraft.runtime.session import EventBus
from promptgraft.search.events import CandidateAdded, RunEnded, RunStarted

_logger = logging.getLogger("promptgraft")


def _check_installed() -> None:
    check_package("wandb", "0.19", extra="wandb", what="tracking in Weights & Biases")


@attrs.frozen(kw_only=True)
class WandbTracker(Tracker):
    """Reports each run as a run of Weights & Biases; server and key come from the environment.

    Attributes:
        project: The project; created if it does not exist.
    """

    project: str = "promptgraft"

    @classmethod
    def kind(cls) -> Kind[WandbTracker]:
        return record_of(cls, special={"project": TEXT})

    def check(self) -> None:
        _check_installed()

    def reported(
        self, bus: EventBus, *, key: str, folder: Path | None
    ) -> contextlib.AbstractContextManager[None]:
        return tracked(bus, project=self.project, key=key, folder=folder)


@contextlib.contextmanager
def tracked(
    bus: EventBus,
    *,
    project: str = "promptgraft",
    key: str | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """Record the run that publishes to ``bus`` in Weights & Biases.

    The environment names the server: ``WANDB_API_KEY``, ``WANDB_BASE_URL``,
    ``WANDB_MODE=offline``.

    Args:
        bus: the event bus of the run.
        project: the project, which is created if it does not exist.
        key: the id of the tracked run, which a resumed run continues; by default a new one.
        folder: a folder to log as an artifact at the end, such as a run directory.

    Raises:
        ConfigError: the package is missing or too old, or the run cannot be opened.
    """
    _check_installed()
    wandb = importlib.import_module("wandb")
    # The console would capture what the user's code prints, and git the state of his repository.
    quiet = wandb.Settings(silent=True, console="off", disable_git=True)
    try:
        opened = wandb.init(project=project, id=key, resume="allow", settings=quiet)
    except wandb.errors.Error as error:
        message = on_one_line(str(error))
        raise ConfigError(f"Weights & Biases cannot open a run: {message}") from None
    run = _TrackedRun(opened)
    stop = bus.subscribe(object, run.on_event)
    try:
        yield
    finally:
        stop()
        try:
            if folder is not None and folder.is_dir():
                artifact = wandb.Artifact(f"run-{opened.id}", type="run")
                artifact.add_dir(str(folder))
                opened.log_artifact(artifact)
            opened.finish(exit_code=0 if run.ended else 1)
        except (wandb.errors.Error, OSError) as error:  # the run itself is complete
            _logger.warning("Weights & Biases: %s", on_one_line(str(error)))


@attrs.define(eq=False)
class _TrackedRun:
    """A run of Weights & Biases; untyped, because its package need not be installed."""

    run: Any
    ended: bool = False
    figures: TrackedFigures = attrs.field(factory=TrackedFigures)

    def on_event(self, event: object) -> None:
        if isinstance(event, RunStarted):
            settings = {"prompt": event.prompt, "seed": event.seed, **event.settings}
            self.run.config.update(settings, allow_val_change=True)
        elif isinstance(event, CandidateAdded):
            self.run.log(self.figures.added(event), step=event.step)
        elif isinstance(event, RunEnded):
            verdict = {"verdict": str(event.verdict), "stop_reason": str(event.stop_reason)}
            self.run.log(self.figures.ended(event), step=event.steps)
            self.run.summary.update(verdict)
            self.ended = True
