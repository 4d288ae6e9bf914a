"""The store of a job: the database of the jobs, unless the project names another place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy

from jobs.job_world import FILE, work_off, write_project
from promptgraft.cli.main import run
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.service.database import SqlPromptOverridesStore
from promptgraft.service.jobs import Job, JobManager, JobState, Worker

KEEPING = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
WHERE = {"ns": "support", "prompt_key": "triage", "tag": "latest"}


@pytest.mark.usefixtures("forked_jobs")
def test_server_and_worker_need_no_folder_in_common(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    places = [write_project(tmp_path / name, file=KEEPING) for name in ("server", "worker")]
    with (
        closing(JobManager(url, projects={"support": places[0]})) as server,
        closing(JobManager(url, projects={"support": places[1]})) as elsewhere,
    ):
        job = server.create("support", "triage")
        # In a child, which opens the project by itself.
        Worker(elsewhere, name="w").run(until_idle=True)
        assert server.get(job.id).state is JobState.COMPLETED
        applied = server.apply(job.id)
        now = SqlPromptOverridesStore(url, project="support").current(**WHERE)
        assert now is not None
        assert applied == {"support/triage": now.id}
        # The next search starts from what was applied, wherever it runs.
        following = server.create("support", "triage", {"seed": 1})
        work_off(elsewhere)
        assert server.get(following.id).status.replaces in ({}, {"support/triage": now.id})
        assert server.get(following.id).status.baseline == server.get(job.id).status.best
    for place in places:
        assert not (place.parent / ".promptgraft").exists()
    assert run(["history", "triage", "--project", str(places[0]), "--store", f"{url}#support"]) == 0
    assert f"applied from job {job.id}" in capsys.readouterr().out


@pytest.mark.parametrize("named", ["url", "path"])
def test_a_project_that_names_a_store_keeps_it(tmp_path: Path, named: str) -> None:
    place = {"url": f"sqlite:///{tmp_path}/winners.db", "path": "."}
    path = write_project(
        tmp_path / "support", file=f"{KEEPING}store: {{{named}: '{place[named]}'}}\n"
    )
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(JobManager(url, projects={"support": path})) as manager:
        job = manager.create("support", "triage")
        work_off(manager)
        manager.apply(job.id)
        assert SqlPromptOverridesStore(manager.database, project="support").addresses() == ()
    store = (
        SqlPromptOverridesStore(place["url"])
        if named == "url"
        else LocalPromptOverridesStore(path.parent)
    )
    assert store.current(**WHERE) is not None


def test_projects_with_the_same_prompts_have_their_winners_apart(tmp_path: Path) -> None:
    paths = {name: write_project(tmp_path / name, file=KEEPING) for name in ("one", "two")}
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=paths)) as manager:
        jobs = {name: manager.create(name, "triage", {"seed": 1}) for name in paths}
        work_off(manager)
        applied = manager.apply(jobs["one"].id)
        stores = {name: project.store() for name, project in manager.projects.items()}
        winner = stores["one"].current(**WHERE)
        assert winner is not None
        assert applied == {"support/triage": winner.id}
        assert stores["two"].current(**WHERE) is None
        # Deleting the candidate of one leaves that of the other.
        manager.delete(jobs["one"].id)
        (address,) = stores["two"].addresses()
        assert address.tag == jobs["two"].candidate_tag
        assert SqlPromptOverridesStore(manager.database).addresses() == ()


def move_elsewhere(manager: JobManager, job: Job) -> None:
    """Let a job have been submitted on another machine."""
    events = manager.database.tables.events
    line = b'{"event": "job_queued", "time": "2026-11-28T12:00:00+00:00", "host": "far"}'
    change = sqlalchemy.update(events).where(events.c.job == job.number, events.c.number == 1)
    manager.database.write(lambda connection: connection.execute(change.values(line=line)))


@pytest.mark.parametrize("store", ["path: '.'", "url: 'sqlite:///winners.db'"])
def test_a_file_store_is_refused_where_server_and_worker_are_on_two_machines(
    tmp_path: Path, store: str
) -> None:
    path = write_project(tmp_path / "support", file=f"{FILE}store: {{{store}}}\n")
    with closing(
        JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path})
    ) as manager:
        job = manager.create("support", "triage")
        move_elsewhere(manager, job)
        worker = Worker(manager, name="w")
        claim = worker.claim()
        assert claim is not None
        worker.run_here(claim)
        kept = manager.get(job.id)
        assert kept.state is JobState.QUEUED
        assert "the job was submitted on far, which does not see it" in kept.reason
        assert kept.status.rollouts == 0
        # A worker on the other machine takes it.
        assert worker.claim() is None
        assert Worker(manager, name="another").claim() is not None


def test_the_database_of_the_jobs_is_seen_from_everywhere(tmp_path: Path) -> None:
    path = write_project(tmp_path / "support")
    with closing(
        JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path})
    ) as manager:
        job = manager.create("support", "triage", {"budget": 60})
        move_elsewhere(manager, job)
        work_off(manager)
        assert manager.get(job.id).state is JobState.COMPLETED
