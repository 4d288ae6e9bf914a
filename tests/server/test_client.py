"""A client over HTTP does what the manager of the database does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobs.job_world import work_off, write_project
from promptgraft.errors import ConfigError, DataFormatError, DeadlineExceededError, StoreError
from promptgraft.jobs import (
    JobClient,
    JobConflictError,
    JobManager,
    JobNotFoundError,
    JobState,
    Worker,
)
from server.serving import Client, served


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[JobManager]:
    path = write_project(tmp_path / "support")
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path})) as made:
        yield made


@pytest.fixture
def server(manager: JobManager, tmp_path: Path) -> Iterator[Client]:
    with served(manager, tmp_path / "mirrors") as found:
        yield found


@pytest.fixture
def client(server: Client) -> Iterator[JobClient]:
    with closing(JobClient(server.url, token=server.token)) as made:
        yield made


def test_both_say_the_same_of_a_job(client: JobClient, manager: JobManager) -> None:
    job = client.create("support", "triage", {"budget": 90, "max_cost": "2.5", "note": "n"})
    assert client.get(job.id[:8]) == manager.get(job.id) == job
    assert client.result(job.id) is None
    with pytest.raises(DeadlineExceededError):
        client.wait(job.id, timeout=0)
    work_off(manager)
    assert client.wait(job.id).state is JobState.COMPLETED
    assert client.list() == manager.list()
    assert client.list(state="queued") == []
    assert client.list(before=job.number) == []
    assert client.attempts(job.id) == manager.attempts(job.id)
    assert client.result(job.id) == manager.result(job.id)
    ours, theirs = client.events(job.id), manager.events(job.id, limit=500)
    assert [event for _, event, _ in ours] == [event for _, event, _ in theirs]
    assert client.events(job.id, after=ours[-1][0]) == []


def test_a_job_is_steered_from_afar(client: JobClient, manager: JobManager) -> None:
    job = client.create("support", "triage", {"budget": 90})
    claim = Worker(manager).claim()
    assert claim is not None
    assert client.pause(job.id).wish == "pause"
    Worker(manager).run_here(claim)
    assert client.change(job.id, {"budget": 120}).changes.budget == 120
    assert client.resume(job.id).state is JobState.QUEUED
    work_off(manager)
    fork = client.fork(job.id, {"budget": 130})
    assert client.cancel(fork.id).state is JobState.CANCELLED
    client.delete(job.id)
    with pytest.raises(JobNotFoundError, match="no job has an id that begins with"):
        client.get(job.id)


def test_a_key_and_its_conflict(client: JobClient) -> None:
    first = client.submit("support", "triage", key="k")
    assert client.submit("support", "triage", key="k").job == first.job
    assert not client.submit("support", "triage", key="k").is_new
    with pytest.raises(JobConflictError, match="the key stands for job"):
        client.submit("support", "other", key="k")


def test_faults_are_those_of_the_manager(client: JobClient, server: Client) -> None:
    with pytest.raises(DataFormatError, match="budget: expected an integer of at least 1"):
        client.create("support", "triage", {"budget": 0})
    with pytest.raises(DataFormatError, match="there is no project `no`"):
        client.create("no")
    for job in ("../projects", "", "a/b", "ü"):
        with pytest.raises(JobNotFoundError):
            client.get(job)
    with closing(JobClient(server.url, token="wrong-token")) as stranger:
        with pytest.raises(StoreError, match="name a token") as refused:
            stranger.list()
        assert "wrong-token" not in str(refused.value)
    with (
        closing(JobClient("http://127.0.0.1:9", token="t")) as nobody,
        pytest.raises(StoreError, match=r"server http://127.0.0.1:9 cannot be reached: Connect"),
    ):
        nobody.list()
    with pytest.raises(ConfigError, match="server: expected an address such as"):
        JobClient("jobs.example.org", token="t")
