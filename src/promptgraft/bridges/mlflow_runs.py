"""Tracking in MLflow: parameters, metrics by step, artifacts, and winners as prompt versions.

Needs ``pip install "promptgraft[mlflow]"``.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from promptgraft.bridges.trackers import TrackedFigures
from promptgraft.errors import ConfigError
from promptgraft.ground.environment import check_package
from promptgraft.ground.serde import digest_text, shown
from promptgraft.ground.strict.checks import TEXT, Kind, Reach, check
from promptgraft.ground.strict.kinds import record_of
from promptgraft.ground.text import on_one_line
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project.adding import Tracker
from promptgraft.runtime.session import EventBus
from promptgraft.search.events import CandidateAdded, RunEnded, RunStarted
from promptgraft.search.stopping import StopReason

_logger = logging.getLogger("promptgraft")

RUN_TAG = "promptgraft.run"
"""The tag of an MLflow run that identifies the run of promptgraft."""

_KEY = re.compile(r"[\w.-]+")
_NO_NAME = re.compile(r"[^\w.-]+")
_NO_PARAM = re.compile(r"[^\w ./:-]+")
_LONGEST_PARAM = 500
_FAILED = {StopReason.PROVIDER_FAILED, StopReason.UNREADABLE, StopReason.FAILED}


_URI = check(
    "the address or database of a server, such as `http://localhost:5000`",
    lambda value: value if isinstance(value, str) and value.strip() and "@" not in value else None,
    {"type": "string"},
    hidden=True,
    mend="user and password are those of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
).reaching(Reach.ADDRESS)


def _check_installed() -> None:
    check_package("mlflow-skinny", "3.4", extra="mlflow", what="tracking in MLflow")


@attrs.frozen(kw_only=True)
class MlflowTracker(Tracker):
    """Reports each run as a run of MLflow.

    Attributes:
        uri: The tracking server or database; by default as MLflow finds it.
        experiment: The experiment; created if it does not exist.
    """

    uri: str | None = None
    experiment: str = "promptgraft"

    @classmethod
    def kind(cls) -> Kind[MlflowTracker]:
        return record_of(cls, special={"uri": _URI, "experiment": TEXT})

    def check(self) -> None:
        _check_installed()

    def reported(
        self, bus: EventBus, *, key: str, folder: Path | None
    ) -> contextlib.AbstractContextManager[None]:
        return tracked(
            bus, experiment=self.experiment, tracking_uri=self.uri, key=key, folder=folder
        )


@contextlib.contextmanager
def tracked(
    bus: EventBus,
    *,
    experiment: str = "promptgraft",
    tracking_uri: str | None = None,
    key: str | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """Record the runs that publish to ``bus`` in MLflow, each as a run of an experiment.

    A resumed run continues its MLflow run; what it repeats is not logged again.

    Args:
        bus: the event bus of the runs.
        experiment: the name of the experiment, which is created if it does not exist.
        tracking_uri: the server or database; by default the one that MLflow finds.
        key: identifies the run, such as the id of a run directory; by default the identity of the
            run, which is the same for equal settings and data.
        folder: a folder to log as artifacts at the end, such as a run directory.

    Raises:
        ConfigError: MLflow is missing or too old, the key is unusable, or the experiment cannot be
            opened.
    """
    _check_installed()
    if key is not None and not _KEY.fullmatch(key):
        raise ConfigError(f"key: expected letters, digits, `_`, `.` and `-`, found {shown(key)}")
    mlflow = importlib.import_module("mlflow")
    client = mlflow.MlflowClient(tracking_uri=tracking_uri)
    try:
        experiment_object = client.get_experiment_by_name(experiment)
        number = (
            client.create_experiment(experiment)
            if experiment_object is None
            else experiment_object.experiment_id
        )
    except mlflow.MlflowException as error:
        message = on_one_line(str(error))
        raise ConfigError(
            f"MLflow cannot open the experiment `{experiment}`: {message}; check the tracking URI"
        ) from None
    run = _MlflowRun(mlflow=mlflow, client=client, experiment=number, key=key)
    stop = bus.subscribe(object, run.on_event)
    try:
        yield
    finally:
        stop()
        run.close(folder)


@attrs.define(eq=False, kw_only=True)
class _MlflowRun:
    """An MLflow run; untyped, because MLflow need not be installed."""

    mlflow: Any
    client: Any
    experiment: str
    key: str | None
    name: str = ""
    run_id: str = ""
    ended: bool = False
    logged: int = 0  # candidates that an earlier process has logged
    tags: Mapping[str, str] = attrs.field(factory=dict)
    figures: TrackedFigures = attrs.field(factory=TrackedFigures)
    texts: dict[int, Mapping[str, str]] = attrs.field(factory=dict)

    def on_event(self, event: object) -> None:
        if isinstance(event, RunStarted):
            self._begin(event)
        elif isinstance(event, CandidateAdded) and self.run_id:
            self._add(event)
        elif isinstance(event, RunEnded) and self.run_id:
            self._end(event)

    def close(self, folder: Path | None) -> None:
        if not self.run_id:
            return
        try:
            if folder is not None and folder.is_dir():
                self.client.log_artifacts(self.run_id, str(folder))
            if not self.ended:
                # The run can be resumed, which sets it to running again.
                self.client.set_terminated(self.run_id, "KILLED")
        except (self.mlflow.MlflowException, OSError) as error:  # the run itself is complete
            _logger.warning("MLflow: %s", on_one_line(str(error)))

    def _begin(self, event: RunStarted) -> None:
        self.key, self.name, self.ended = self.key or event.run_id, event.prompt, False
        condition = f"tags.`{RUN_TAG}` = '{self.key}'"
        runs_there = self.client.search_runs([self.experiment], condition, max_results=1)
        if runs_there:
            self.run_id, self.tags = runs_there[0].info.run_id, runs_there[0].data.tags
            # A resumed run repeats its events; those that are logged already are skipped.
            self.logged = int(runs_there[0].data.metrics.get("candidates", 0))
            self.client.update_run(self.run_id, status="RUNNING")
            return
        tags = {RUN_TAG: self.key}
        created_run = self.client.create_run(self.experiment, tags=tags, run_name=event.prompt)
        self.run_id = created_run.info.run_id
        params = {"seed": event.seed, **event.settings}
        entities = [
            self.mlflow.entities.Param(_NO_PARAM.sub("_", name), str(value)[:_LONGEST_PARAM])
            for name, value in params.items()
        ]
        for start in range(0, len(entities), 100):  # the limit of one request
            self.client.log_batch(self.run_id, params=entities[start : start + 100])

    def _add(self, event: CandidateAdded) -> None:
        self.texts[event.candidate], figures = event.texts, self.figures.added(event)
        if event.candidate >= self.logged:
            self._log(figures, event.step)

    def _end(self, event: RunEnded) -> None:
        self._log(self.figures.ended(event), event.steps)
        self.client.set_tag(self.run_id, "promptgraft.verdict", str(event.verdict))
        self.client.set_tag(self.run_id, "promptgraft.stop_reason", event.stop_reason)
        before, after = self.texts.get(0, {}), self.texts.get(event.best, {})
        for part, text in after.items():
            self.client.log_text(self.run_id, text, f"winner/{_NO_NAME.sub('-', part)}.md")
            if text.strip() and text != before.get(part):
                self._register(f"{self.name}.{part}", text, event)
        status = "FAILED" if event.stop_reason in _FAILED else "FINISHED"
        self.client.set_terminated(self.run_id, status)
        self.ended = True

    def _register(self, name: str, text: str, event: RunEnded) -> None:
        """Register a prompt version, once for the same text, with the run's tag as its alias."""
        prompt = _NO_NAME.sub("-", name)
        tag, digest = f"promptgraft.prompt.{prompt}", digest_text(text)[:12]
        version, _, registered = self.tags.get(tag, "").partition(" ")
        # A resumed run ends again, and must not register the same text as another version.
        if registered != digest:
            prompt_version = self.client.register_prompt(
                prompt, text, commit_message=str(event.verdict), tags={RUN_TAG: str(self.key)}
            )
            version = str(prompt_version.version)
            self.client.set_tag(self.run_id, tag, f"{version} {digest}")
        if event.improved and event.tag != DEFAULT_TAG:  # MLflow reserves `latest`
            self.client.set_prompt_alias(prompt, event.tag, int(version))

    def _log(self, figures: Mapping[str, float], step: int) -> None:
        now = self.mlflow.utils.time.get_current_time_millis()
        metrics = [
            self.mlflow.entities.Metric(name, value, now, step) for name, value in figures.items()
        ]
        self.client.log_batch(self.run_id, metrics=metrics)
