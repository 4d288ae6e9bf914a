"""Jobs in a database: submit, inspect, pause, change, resume, cancel and fork them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import attrs
from sqlalchemy import Connection

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, digest_json, parse_json
from promptgraft.ground.text import counted
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project import Project, load_project
from promptgraft.project.other_cases import cases_for, rows_in
from promptgraft.project.python_source import beside
from promptgraft.runs.event_file import decoded_or_damaged
from promptgraft.search.events import Event
from promptgraft.search.plan import RunPlan
from promptgraft.service.database import Database
from promptgraft.service.jobs import preparing
from promptgraft.service.jobs.datasets import (
    MOST_DATASET_BYTES,
    DatasetRevision,
    Datasets,
    encoded,
    on_chosen,
    text_of,
    tidy,
)
from promptgraft.service.jobs.interface import LARGEST_PAGE, MOST_EVENTS, Changes
from promptgraft.service.jobs.mirror import mirror
from promptgraft.service.jobs.moving import TagMover
from promptgraft.service.jobs.presence import WorkerRow, worker_rows
from promptgraft.service.jobs.promoting import discard_candidate
from promptgraft.service.jobs.rows import Order, ProjectTotals, encoded_changes
from promptgraft.service.jobs.types import (
    ALL_JOBS,
    ENDED,
    Attempt,
    Job,
    JobChanges,
    JobConflictError,
    JobFilter,
    JobsFullError,
    JobState,
    Submitted,
    Wish,
    check_allowed,
)

_MOST_COMMENT_CHARS = 2_000
MOST_QUEUED = 1_000
"""Jobs that may be queued at a time."""


class JobManager(TagMover):
    """Optimization jobs in a database; safe to share between threads.

    Workers run them: see :class:`promptgraft.service.jobs.Worker`. A job changes values of a
    project that the manager and a worker have; it holds no code, no path and no secret.

    Args:
        database: the database, or its URL.
        projects: project files or projects, under the names that jobs use for them.
        by: who acts, for the events of jobs.
        most_queued: jobs that may be queued at a time.

    Attributes:
        projects: the projects by name.

    Raises:
        ConfigError: the URL or a name is invalid.
        DataFormatError: a project is invalid.
    """

    def __init__(
        self,
        database: Database | str,
        *,
        projects: Mapping[str, Project | str | Path] | None = None,
        by: str = "",
        most_queued: int = MOST_QUEUED,
    ) -> None:
        for name in projects or {}:
            check_key(name, "name of a project")
        database = database if isinstance(database, Database) else Database(database)
        loaded = {
            name: preparing.in_database(_loaded(project), name, database)
            for name, project in (projects or {}).items()
        }
        super().__init__(database, loaded, by)
        self._most_queued, self._datasets = most_queued, Datasets(database)

    def acting_for(
        self, name: str, *, most_queued: int | None = None, projects: Collection[str] | None = None
    ) -> JobManager:
        """Return a manager that acts under this name, with another limit or fewer projects."""
        most = self._most_queued if most_queued is None else most_queued
        visible = {
            project: loaded
            for project, loaded in self.projects.items()
            if projects is None or project in projects
        }
        return JobManager(self.database, projects=visible, by=name, most_queued=most)

    # Reading

    def get(self, job: str, *, projects: Collection[str] | None = None) -> Job:
        """Return a job; see :meth:`Jobs.get`. One of other ``projects`` than these is not there."""
        with self.database.reading() as connection:
            return self._rows.find(connection, job, projects=projects)

    def list(
        self,
        where: JobFilter = ALL_JOBS,
        *,
        before: int | None = None,
        limit: int = 20,
        projects: Collection[str] | None = None,
        order: Order | None = None,
    ) -> Sequence[Job]:
        """Return jobs, the newest first or in another order; see :meth:`Jobs.list`.

        ``projects`` restricts them to these projects.
        """
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit: expected an integer from 1 to {LARGEST_PAGE}, found {limit}")
        with self.database.reading() as connection:
            return self._rows.page(
                connection, where, before=before, limit=limit, projects=projects, order=order
            )

    def counts(
        self, where: JobFilter = ALL_JOBS, *, projects: Collection[str] | None = None
    ) -> dict[str, int]:
        """Return the number of jobs in each state; ``projects`` restricts them to these."""
        with self.database.reading() as connection:
            return self._rows.counts(connection, where, projects)

    def totals(self, *, projects: Collection[str] | None = None) -> Sequence[ProjectTotals]:
        """Return what the jobs of each project come to; ``projects`` restricts them to these."""
        with self.database.reading() as connection:
            return self._rows.totals(connection, projects)

    def submitters(self, jobs: Collection[Job]) -> dict[str, str]:
        """Return who submitted each of some jobs, by their ids; empty if nobody was named."""
        with self.database.reading() as connection:
            events = self._rows.submissions(connection, [job.number for job in jobs])
        return {job.id: str(events.get(job.number, {}).get("by") or "") for job in jobs}

    def workers(self, *, projects: Collection[str] | None = None) -> Sequence[WorkerRow]:
        """Return the workers by name; ``projects`` restricts them, and what they say, to these."""
        return worker_rows(self.database, projects)

    def present(self, ids: Collection[str]) -> set[str]:
        """Return those of some full ids that jobs have."""
        with self.database.reading() as connection:
            return self._rows.present(connection, ids)

    def attempts(self, job: str) -> Sequence[Attempt]:
        with self.database.reading() as connection:
            return self._rows.attempts(connection, self._rows.find(connection, job).number)

    def no_worker(self, job: str) -> str:
        queued = self.get(job)
        if queued.state is not JobState.QUEUED:
            return ""
        project = queued.project
        alive = [worker for worker in self.workers(projects=[project]) if worker.is_alive]
        if not alive:
            return (
                "no worker takes jobs of this project; start one: "
                f"promptgraft worker --project {project}=FILE"
            )
        is_dry = queued.changes.dry_run
        lacking = [worker.avoids_dry if is_dry else worker.avoids for worker in alive]
        # What the job itself has met is its reason.
        if queued.reason or any(project not in avoids for avoids in lacking):
            return ""
        what = "dry runs" if is_dry else "jobs"
        return (
            f"worker {alive[-1].name} takes no {what} of this project: {lacking[-1][project]}; "
            "then restart it"
        )

    def events(
        self, job: str, *, after: int = 0, limit: int = MOST_EVENTS
    ) -> Sequence[tuple[int, Event, bytes]]:
        with self.database.reading() as connection:
            row = self._rows.find(connection, job)
            rows = self._rows.events(connection, row.number, after=after, limit=limit)
        where = f"job {row.id}, event"
        return [(number, *decoded_or_damaged(line, f"{where} {number}")) for number, line in rows]

    def peek(self, job: Job) -> tuple[int, bool]:
        """Return the number of a job's latest event, and whether it has ended, in one statement.

        Raises:
            JobNotFoundError: it was deleted.
        """
        with self.database.reading() as connection:
            row = self._rows.columns(connection, job.number, "events", "state")
        return row.events, JobState(row.state) in ENDED

    def lines(self, job: str, *, after: int = 0, limit: int = 100) -> Sequence[tuple[int, bytes]]:
        """Return lines of a job's journal after a position, with their positions."""
        with self.database.reading() as connection:
            row = self._rows.find(connection, job)
            lines = self._rows.lines(connection, row.number, after + 1, limit=limit)
        return list(enumerate(lines, after + 1))

    def result(self, job: str) -> dict[str, Json] | None:
        with self.database.reading() as connection:
            row = self._rows.find(connection, job)
            document = self._rows.document(connection, row.number, "result")
        plain = parse_json(document or b"null", where=f"job {row.id}: result")
        return plain if isinstance(plain, dict) else None

    def mirror(self, job: str, folder: Path, *, pages: bool = True) -> Path:
        job_now = self.get(job)
        project = self.projects.get(job_now.project)
        return mirror(self.database, job_now, folder, project=project, pages=pages)

    def close(self) -> None:
        self.database.close()

    # Writing

    def submit(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Submitted:
        project_found = self._project(project)
        name, changes_given = project_found.prompt(prompt).name, preparing.read_changes(changes)
        # As it was given: what it stands for, such as the latest data set, may change meanwhile.
        request = digest_json([name, preparing.written_changes(changes_given)])
        if key is not None:
            preparing.check_idempotency_key(key)
            with self.database.reading() as connection:
                if repeated := self._repeated(connection, project, key, request):
                    return repeated
        changes_read = self._pinned(project, changes_given)
        # Before the transaction: it may import code of the project and read its data.
        self.plan(project, name, changes_read)
        tag, digest = (
            changes_read.tag or project_found.tag,
            preparing.submitted_digest(project_found, name),
        )

        def insert(connection: Connection) -> Submitted:
            # In the transaction of the insert, so that two equal submissions make one job.
            if key is not None and (repeated := self._repeated(connection, project, key, request)):
                return repeated
            names = {"project": project, "prompt": name, "tag": tag, "digest": digest, "key": key}
            job = self._queued(connection, changes_read, request=request, **names)
            return Submitted(job=job, is_new=True)

        return self.database.write(insert)

    def _repeated(
        self, connection: Connection, project: str, key: str, request: str
    ) -> Submitted | None:
        """Return the job that was submitted with an idempotency key; None if the key is new."""
        if (job := self._rows.by_key(connection, project, key)) is None:
            return None
        submission = self._rows.submissions(connection, [job.number]).get(job.number, {})
        # Earlier versions recorded no request.
        before = submission.get("request") or digest_json(
            [job.prompt, preparing.written_changes(job.changes)]
        )
        if before != request:
            raise JobConflictError(
                f"the key belongs to job {job.id}, which has other content; use another key"
            )
        return Submitted(job=job, is_new=False)

    def plan(self, project: str, prompt: str | None, changes: Changes) -> RunPlan:
        """Return what a job could use, without submitting it; raises as :meth:`submit`."""
        changes_read = preparing.read_changes(changes)
        chosen_project = on_chosen(self.database, self._project(project), project, changes_read)
        return preparing.planned(chosen_project, chosen_project.prompt(prompt).name, changes_read)

    def pause(self, job: str) -> Job:
        def pause(connection: Connection, found: Job) -> None:
            if found.state is JobState.PAUSED:
                return
            check_allowed(found, "pause")
            # A cancelled job ends anyway, and the later wish must not save it.
            if found.wish is not Wish.CANCEL:
                self._rows.put(connection, found.number, wish=Wish.PAUSE)

        return self._changed(job, "pause", pause)

    def resume(self, job: str) -> Job:
        def resume(connection: Connection, found: Job) -> None:
            if found.state is JobState.RUNNING and found.wish is not Wish.CANCEL:
                self._rows.put(connection, found.number, wish=Wish.NONE)
            elif found.state is not JobState.QUEUED:
                check_allowed(found, "resume")
                # A user who resumes has mended the cause, so earlier barren attempts do not count.
                values = {"state": JobState.QUEUED, "reason": b"", "barren": 0}
                self._rows.put(connection, found.number, **values)
                self._rows.publish(connection, found.number, "job_queued")

        return self._changed(job, "resume", resume)

    def cancel(self, job: str) -> Job:
        def cancel(connection: Connection, found: Job) -> None:
            if found.state is JobState.CANCELLED:
                return
            check_allowed(found, "cancel")
            if found.state is JobState.RUNNING:
                # Its worker ends it: this process cannot stop calls that are in flight elsewhere.
                self._rows.put(connection, found.number, wish=Wish.CANCEL)
                return
            now = self.database.seconds
            changes = {"state": JobState.CANCELLED, "reason": b"", "ended": now}
            self._rows.put(connection, found.number, **changes)
            self._rows.publish(connection, found.number, "job_cancelled")

        return self._changed(job, "cancel", cancel)

    def change(self, job: str, changes: Changes) -> Job:
        job_before = self.get(job)
        check_allowed(job_before, "change")
        whole = self._merged(job_before, changes)

        def change(connection: Connection, found: Job) -> None:
            check_allowed(found, "change")
            _check_same(found, job_before)
            self._rows.put(connection, found.number, **_columns(whole))

        return self._changed(job, "change", change)

    def fork(self, job: str, changes: Changes = None) -> Job:
        job_before = self.get(job)
        check_allowed(job_before, "fork")
        whole = self._merged(job_before, changes)
        digest = preparing.submitted_digest(self._project(job_before.project), job_before.prompt)

        def copy(connection: Connection) -> Job:
            row = self._rows.find(connection, job, locked=True)
            check_allowed(row, "fork")
            _check_same(row, job_before)
            names = {"project": row.project, "prompt": row.prompt, "tag": row.tag}
            queued_job = self._queued(connection, whole, **names, digest=digest, origin=row.id)
            self._rows.copy_answers(connection, row.number, queued_job.number)
            self._record(connection, row, "fork", to=queued_job.id)
            return queued_job

        return self.database.write(copy)

    def comment(self, job: str, text: str, *, about: str = "") -> None:
        """Add a comment to the events of a job.

        Args:
            job: its id.
            text: 1 to 2,000 characters.
            about: what it is about: nothing for the job, `candidate 3`, or `case` and an id.

        Raises:
            ConfigError: the text is empty or too long.
        """
        if not 0 < len(text.strip()) <= _MOST_COMMENT_CHARS:
            found = f"found {len(text):,}"
            raise ConfigError(f"comment: expected 1 to {_MOST_COMMENT_CHARS:,} characters, {found}")
        details = {"by": self._by, "text": text.strip(), "about": about[:_MOST_COMMENT_CHARS]}

        def add(connection: Connection) -> None:
            row = self._rows.find(connection, job, locked=True)
            self._rows.publish(connection, row.number, "job_commented", **details)

        self.database.write(add)

    def delete(self, job: str) -> None:
        def delete(connection: Connection) -> None:
            row = self._rows.find(connection, job, locked=True)
            check_allowed(row, "delete")
            project = self.projects.get(row.project)
            is_limited = project is not None and project.config.max_cost_per_day is not None
            # With its attempts, what it has spent today would be forgotten, and spent again.
            if is_limited and self._rows.spent_today(connection, row.project, row.number):
                raise JobConflictError(
                    f"job {row.id} has spent money today (UTC), which counts towards "
                    "max_cost_per_day of its project; delete it tomorrow"
                )
            self._rows.delete(connection, row.number)

        job_now = self.get(job)
        # First, so that a job whose deletion is refused keeps its candidate.
        self.database.write(delete)
        if job_now.status.revisions and job_now.project in self.projects:
            discard_candidate(self.projects[job_now.project].store(), job_now.candidate_tag)

    def datasets(self, project: str) -> Sequence[DatasetRevision]:
        self._project(project)
        return self._datasets.latest([project])

    def dataset(self, project: str, which: str) -> DatasetRevision:
        self._project(project)
        return self._datasets.find(project, which)

    def dataset_history(self, project: str, name: str) -> Sequence[DatasetRevision]:
        self.dataset(project, name)
        return self._datasets.history(project, name)

    def save_dataset(
        self, project: str, name: str, cases: str | Path, *, expected: str | None = None
    ) -> DatasetRevision:
        project_found, text = self._project(project), tidy(text_of(cases))
        check_key(name, "name of a data set")
        if (size := len(encoded(text, name))) > MOST_DATASET_BYTES:
            most = f"at most {MOST_DATASET_BYTES:,} bytes"
            raise ConfigError(f"data set {name}: expected {most}, found {size:,}")
        with beside(project_found.folder):
            count = len(cases_for(project_found, rows_in(text, name), f"data set {name}"))
        return self._datasets.save(
            project, name, text, cases=count, author=self._by, expected=expected
        )

    def _queued(
        self,
        connection: Connection,
        changes: JobChanges,
        *,
        request: str = "",
        **values: str | None,
    ) -> Job:
        if (waiting := self._rows.waiting(connection)) >= self._most_queued:
            raise JobsFullError(
                f"the queue is full: {counted(waiting, 'job')} waiting; submit it again later"
            )
        columns = {"id": uuid.uuid4().hex, "state": JobState.QUEUED, **values, **_columns(changes)}
        store = preparing.place_of_store(self._project(str(values["project"])))
        submission = {"by": self._by, "store": store, **({"request": request} if request else {})}
        return self._rows.insert(connection, submission, **columns)

    def _changed(self, job: str, what: str, change: Callable[[Connection, Job], None]) -> Job:
        """Return a job after a change under its lock, which is recorded if it has an effect."""

        def apply(connection: Connection) -> Job:
            row = self._rows.find(connection, job, locked=True)
            change(connection, row)
            changed = self._rows.load(connection, row.number)
            if changed != row:
                self._record(connection, row, what)
            return changed

        return self.database.write(apply)

    def _merged(self, job: Job, given: Changes) -> JobChanges:
        whole = preparing.merged_changes(job.changes, given)
        if job.project in self.projects:
            self.plan(job.project, job.prompt, whole)
        return whole

    def _pinned(self, project: str, changes: JobChanges) -> JobChanges:
        """Return changes that name a revision of the data set that they choose."""
        if changes.dataset is None:
            return changes
        return attrs.evolve(changes, dataset=self._datasets.find(project, changes.dataset).id)


def _loaded(project: Project | str | Path) -> Project:
    # A job may bring a budget in place of one that is too small; without one it is refused.
    return project if isinstance(project, Project) else load_project(project, budget="light")


def _check_same(found: Job, seen: Job) -> None:
    """Refuse changes that were planned on a state that is outdated.

    Planning takes too long to hold the lock of the job meanwhile.
    """
    if found.changes != seen.changes:
        raise JobConflictError(f"job {found.id} was changed meanwhile; check it and try again")


def _columns(changes: JobChanges) -> dict[str, object]:
    return {
        "request": encoded_changes(changes),
        "priority": changes.priority,
        "not_before": changes.not_before,
    }
