"""Tracking in real MLflow: in files, and in a server on SQLite; skipped if MLflow is missing."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from jobs.job_world import FILE, work_off, write_priced, write_project
from promptgraft import (
    Data,
    EventBus,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    Limits,
    MarkdownSection,
    MaxProposals,
    MemoryJournal,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.bridges.mlflow_runs import RUN_TAG, tracked
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError, FeedbackError
from promptgraft.ground.clock import SystemClock
from promptgraft.runtime.session import SessionProtocol
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager, JobState
from promptgraft.targets.types import FeedbackFn

# Not imported here: that takes seconds, in every worker that collects tests.
needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None or importlib.util.find_spec("flask") is None,
    reason="mlflow, or what its server needs, is not installed",
)

IDS = [f"<{n}>" for n in range(40)]
WINNER = f"Name {' '.join(IDS)}."
SECONDS = 180


@pytest.fixture(autouse=True, scope="module")
def _no_telemetry() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MLFLOW_DISABLE_TELEMETRY", "true")  # which asks the network
        yield


@pytest.fixture(
    scope="module", params=["files", pytest.param("server", marks=pytest.mark.thorough)]
)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "files":
            patched.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
            yield (folder / "mlruns").as_uri()
        else:
            with serving(folder) as address:
                yield address


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"]
    command += ["--port", str(port), "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},  # a dozen processes
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(process, f"{address}/health")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its workers
        process.wait()
        log.close()


def _wait_for(process: subprocess.Popen[bytes], address: str) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, OSError):
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError("the server of MLflow ended") from None
        return
    raise AssertionError(f"the server of MLflow is not up after {SECONDS} s")


def score(
    example: GepaExample, response: PromptResponse[Any], session: SessionProtocol
) -> RolloutFeedback:
    return RolloutFeedback(score=float(example.id in response.text), feedback="name it")


def optimize(
    bus: EventBus, journal: MemoryJournal, *, steps: int, feedback: FeedbackFn = score
) -> GepaResult:
    examples = [GepaExample(id=name, params=()) for name in IDS]
    config = GepaConfig(
        rollout_budget=120,
        minibatch_size=2,
        pareto_set_size=4,
        target_section_paths=(("task",),),
        training_examples=examples[:10],
        data=Data(held_out=examples[10:]),
        feedback_fn=feedback,
        limits=Limits(stoppers=(MaxProposals(proposals=steps),)),
    )
    section = MarkdownSection(title="Task", key="task", template="Name something.")
    context = OptimizationContext(
        ScriptedAdapter(lambda rendered: rendered.text),
        reflection_adapter=ScriptedAdapter(lambda _: f"```instruction\n{WINNER}\n```"),
        overrides_tag="stable",
        event_bus=bus,
        journal=journal,
    )
    template = PromptTemplate[object](ns="docs", key="numbers", sections=(section,))
    return GepaOptimizer(context, config).optimize(Prompt(template))


@needs_mlflow
def test_a_run_and_its_resumption_are_one_run_of_mlflow(store: str, tmp_path: Path) -> None:
    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=store)
    journal = MemoryJournal()
    (tmp_path / "report.html").write_text("<p>report</p>", "utf-8")
    results = []
    for _ in range(2):
        bus = EventBus()
        with tracked(bus, experiment="numbers", tracking_uri=store, folder=tmp_path):
            results.append(optimize(bus, journal, steps=2))

    found = client.get_experiment_by_name("numbers")
    [run] = client.search_runs([found.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags[RUN_TAG] == results[0].run_id
    assert run.data.params["seed"] == "0"
    assert run.data.metrics["best_score"] == results[0].best_pareto_mean == 1.0
    assert run.data.metrics["held_out_winner"] == 1.0
    history = client.get_metric_history(run.info.run_id, "validation_score")
    assert [one.value for one in history] == [
        mean for mean in results[0].means if mean is not None
    ]  # once, although the second process has told it again
    files = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert files == {"report.html", "winner"}

    version = client.get_prompt_version_by_alias("docs-numbers.section-task", "stable")
    assert (version.template, version.version) == (WINNER, 1)
    assert version.tags[RUN_TAG] == results[0].run_id


@needs_mlflow
def test_a_run_that_is_broken_off_is_killed_in_mlflow(store: str) -> None:
    def broken(
        example: GepaExample, response: PromptResponse[Any], session: SessionProtocol
    ) -> RolloutFeedback:
        raise ValueError("no score")

    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=store)
    bus = EventBus()
    with pytest.raises(FeedbackError), tracked(bus, tracking_uri=store, key="a-1"):
        optimize(bus, MemoryJournal(), steps=1, feedback=broken)
    found = client.get_experiment_by_name("promptgraft")
    [run] = client.search_runs([found.experiment_id])
    assert (run.info.status, run.data.tags[RUN_TAG]) == ("KILLED", "a-1")


class Stopped(SystemClock):
    """It is always the same second."""

    def now(self) -> datetime:
        return datetime(2026, 11, 23, 12, tzinfo=UTC)


@needs_mlflow
def test_runs_of_a_project_that_names_mlflow_are_runs_there_each_its_own(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptgraft.project.running.SystemClock", Stopped)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        run(["init"])
        with Path("promptgraft.yaml").open("a", encoding="utf-8") as file:
            file.write(f"trackers: {{mlflow: {{uri: '{store}', experiment: council}}}}\n")
        cases = Path("data/reports.jsonl")
        cases.write_text("".join(cases.read_text("utf-8").splitlines(keepends=True)[:60]), "utf-8")
        run(["optimize", "-q", "--budget", "80"])
    run(["resume", "-q", "--budget", "100"])

    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=store)
    found = client.get_experiment_by_name("council")
    kept = {one.data.tags[RUN_TAG]: one for one in client.search_runs([found.experiment_id])}
    folders = list(tmp_path.glob("*/runs/*/"))
    assert len({folder.name for folder in folders}) == 1
    configs = [json.loads((folder / "config.json").read_text()) for folder in folders]
    assert sorted(kept) == sorted(one["tracked_as"] for one in configs)
    for one in kept.values():
        assert one.info.status == "FINISHED"
        assert {"report.html", "result.json"} <= {
            file.path for file in client.list_artifacts(one.info.run_id)
        }


@needs_mlflow
def test_a_job_continued_by_another_worker_is_one_run_of_mlflow(store: str, tmp_path: Path) -> None:
    more = f"trackers: {{mlflow: {{uri: '{store}', experiment: jobs}}}}\nmax_cost_per_day: 0.01\n"
    project = write_priced(tmp_path / "project", more=more)
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'jobs.db'}")) as database:
        poor = JobManager(database, projects={"support": project})
        job = poor.create("support", "triage", {"store": False})
        assert work_off(poor) == 1
        assert poor.get(job.id).state is JobState.PAUSED
        project.write_text(project.read_text().replace("0.01", "5"))
        manager = JobManager(database, projects={"support": project})
        manager.resume(job.id)
        assert work_off(manager) == 1
        result = manager.result(job.id)
    assert result is not None
    means = result["means"]
    assert isinstance(means, list)

    client = importlib.import_module("mlflow").MlflowClient(tracking_uri=store)
    found = client.get_experiment_by_name("jobs")
    [kept] = client.search_runs([found.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.tags[RUN_TAG].endswith(f"-triage-{job.id[:8]}")
    assert kept.data.params["seed"] == "0"
    assert kept.data.metrics["best_score"] in means
    history = client.get_metric_history(kept.info.run_id, "validation_score")
    assert len(history) == len(means)  # each candidate once, of both processes
    assert [one.path for one in client.list_artifacts(kept.info.run_id)] == ["winner"]


def test_a_job_whose_tracker_cannot_be_opened_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = "trackers: {mlflow: {uri: 'http://127.0.0.1:9'}}\n"
    project = write_project(tmp_path / "project", file=FILE + tracker)
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'jobs.db'}")) as database:
        manager = JobManager(database, projects={"support": project})
        job = manager.create("support", "triage", {"store": False})
        assert work_off(manager) == 1
        found = manager.get(job.id)
    is_there = importlib.util.find_spec("mlflow") is not None
    # Without the package the job stays in the queue, for a worker that has it.
    assert found.state is (JobState.PAUSED if is_there else JobState.QUEUED)
    assert ("cannot open the experiment" if is_there else "promptgraft[mlflow]") in found.reason


@needs_mlflow
def test_a_folder_that_cannot_be_logged_is_no_fault_of_the_run(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bus, folder = EventBus(), tmp_path / "run"
    folder.mkdir()
    (folder / "gone").symlink_to("nowhere")
    with tracked(bus, experiment="unlogged", tracking_uri=store, folder=folder):
        optimize(bus, MemoryJournal(), steps=1)
    assert "MLflow: " in caplog.text


@needs_mlflow
def test_an_unusable_key_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match="key: expected letters, digits"),
        tracked(EventBus(), key="a' or '1"),
    ):
        pass
