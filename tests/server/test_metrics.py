"""Metrics: what Prometheus reads of a server, and who may read it."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from prometheus_client.parser import text_string_to_metric_families

from jobs.job_world import work_off, write_priced, write_project
from promptgraft.service.jobs import JobManager, Worker
from promptgraft.service.server import Scope, TokenStore
from server.serving import Client, served

Samples = dict[tuple[str, str], float]


def samples(text: str) -> Samples:
    """Return the samples of a text by name and value of their first label."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def read(client: Client, token: str | None = None) -> Samples:
    answer = client.ask("GET", "/metrics", token=token)
    assert answer.status == 200
    return samples(answer.text)


def test_metrics_tell_of_queue_money_failures_retries_calls_and_latency(tmp_path: Path) -> None:
    projects = {
        "priced": write_priced(tmp_path / "priced"),
        "support": write_project(tmp_path / "support"),
    }
    with (
        closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)) as manager,
        served(manager, tmp_path / "mirrors") as client,
    ):
        done = manager.create("priced", "triage", {"budget": 60})
        broken = manager.create("support", "triage", {"budget": 60})
        jobs = manager.database.tables.jobs
        change = sqlalchemy.update(jobs).where(jobs.c.number == broken.number)
        manager.database.write(
            lambda connection: connection.execute(change.values(request=b'{"model":"none"}'))
        )
        work_off(manager)
        Worker(manager, name="idle").run(until_idle=True)
        waiting = manager.create("support", "triage", {})
        later = manager.create("support", "triage", {"not_before": 4e9})
        aged = sqlalchemy.update(jobs).where(jobs.c.number >= waiting.number)
        manager.database.write(
            lambda connection: connection.execute(aged.values(created=jobs.c.created - 1000))
        )
        manager.database.write(
            lambda connection: connection.execute(
                sqlalchemy.update(jobs).where(jobs.c.number == done.number).values(attempts=3)
            )
        )
        found = read(client)
        status = manager.get(done.id).status
        assert found["promptgraft_cost_dollars", "priced"] == pytest.approx(float(status.cost or 0))
        assert found["promptgraft_cost_dollars", "priced"] > 0
        assert found["promptgraft_model_calls", "priced"] >= status.rollouts
        assert found["promptgraft_model_retries", "priced"] == 0
        assert found["promptgraft_model_seconds", "priced"] >= 0
        assert found["promptgraft_failed_jobs", "support"] == 1
        assert found["promptgraft_repeated_attempts", "priced"] == 2
        assert 1000 <= found["promptgraft_queue_age_seconds", "support"] < 2000
        assert found["promptgraft_queue_age_seconds", "priced"] == 0
        assert found["promptgraft_jobs", "queued"] == 2
        assert found["promptgraft_workers", "running"] == 0
        manager.cancel(waiting.id)
        # What may not start yet does not wait.
        assert read(client)["promptgraft_queue_age_seconds", "support"] == 0
        manager.cancel(later.id)


def test_requests_are_counted_by_the_pattern_of_their_route(client: Client) -> None:
    job = client.manager.create("support", "triage")
    for _ in range(3):
        assert client.get(f"/jobs/{job.id}").status == 200
    client.get("/jobs/none")
    for path in ("/secret/path", "/healthz"):
        client.ask("GET", path, token="")
    text = client.ask("GET", "/metrics").text
    route = '{method="GET",route="/api/v1/jobs/{job}",status="%s"}'
    assert f"promptgraft_requests_total{route % 200} 3.0" in text
    assert f"promptgraft_requests_total{route % 404} 1.0" in text
    assert 'promptgraft_request_seconds_count{route="/api/v1/jobs/{job}"} 4.0' in text
    assert job.id not in text
    assert "secret" not in text


def test_who_may_see_one_project_sees_no_metric_of_another(tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    projects = {"support": path, "hidden": path}
    with (
        closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)) as manager,
        served(manager, tmp_path / "mirrors") as client,
    ):
        for project in projects:
            manager.create(project, "triage")
        token = TokenStore(manager.database).create("team", [Scope.ADMIN], ["support"])
        text = client.ask("GET", "/metrics", token=token).text
        assert re.search(r'promptgraft_queue_age_seconds{project="support"} \S+', text)
        assert "hidden" not in text
        assert "promptgraft_requests" not in text
        assert client.ask("GET", "/metrics", token="").status == 401
