"""Images in jobs: the report of a job, made from the database and the project, shows them."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

from jobs.job_world import work_off
from promptgraft.runs import RunFolder
from promptgraft.runs.report.page import write_report
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager, JobState

EXAMPLE = Path(__file__).parents[2] / "examples" / "receipts"


def test_the_report_of_a_job_shows_the_images_of_its_cases(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "receipts", ignore=shutil.ignore_patterns("runs"))
    project = tmp_path / "receipts" / "promptgraft.yaml"
    with closing(Database(f"sqlite:///{tmp_path}/jobs.db")) as database:
        manager = JobManager(database, projects={"expenses": project})
        job = manager.create("expenses", "receipts", {"store": False})
        assert work_off(manager) == 1
        assert manager.get(job.id).state is JobState.COMPLETED
        folder = RunFolder(manager.mirror(job.id, tmp_path / "mirrors"))
    assert len([*folder.files.iterdir()]) == 96
    page = write_report(folder).read_text("utf-8")
    assert page.count('<img class="thumbnail" alt="[image ') > 20
