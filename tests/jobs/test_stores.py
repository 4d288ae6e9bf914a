"""The store of a job: the database of the jobs, unless the project names another place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from jobs.job_world import FILE, work_off, write_project
from promptgraft.cli.main import run
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.service.database import SqlPromptOverridesStore
from promptgraft.service.jobs import JobManager, JobState, Worker

KEEPING = FILE.replace("rollout_budget: 150", "rollout_budget: 150, keep_anyway: true")
WHERE = {"ns": "support", "prompt_key": "triage", "tag": "latest"}


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
        now = SqlPromptOverridesStore(url).current(**WHERE)
        assert now is not None
        assert applied == {"support/triage": now.id}
        # The next search starts from what was applied, wherever it runs.
        following = server.create("support", "triage", {"seed": 1})
        Worker(elsewhere, name="w").run(until_idle=True)
        assert server.get(following.id).status.replaces in ({}, {"support/triage": now.id})
        assert server.get(following.id).status.baseline == server.get(job.id).status.best
    for place in places:
        assert not (place.parent / ".promptgraft").exists()
    assert run(["history", "triage", "--project", str(places[0]), "--store", url]) == 0
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
        assert SqlPromptOverridesStore(manager.database).addresses() == ()
    store = (
        SqlPromptOverridesStore(place["url"])
        if named == "url"
        else LocalPromptOverridesStore(path.parent)
    )
    assert store.current(**WHERE) is not None
