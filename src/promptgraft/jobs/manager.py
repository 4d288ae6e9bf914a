"""Jobs as a library: submit them, look at them, pause, change, resume, cancel and fork them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from promptgraft.database import Database
from promptgraft.errors import ConfigError
from promptgraft.jobs.interface import LARGEST_PAGE, Changes
from promptgraft.jobs.preparing import (
    check_idempotency_key,
    merged_changes,
    planned,
    read_changes,
    submitted_digest,
)
from promptgraft.jobs.promoting import Expected, Held, held, promoted
from promptgraft.jobs.reading import JobReader
from promptgraft.jobs.rows import encoded_changes
from promptgraft.jobs.types import (
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
from promptgraft.parts.validation import check_key
from promptgraft.project import Project, load_project
from promptgraft.project.python_source import beside
from promptgraft.serde import Json, did_you_mean

T = TypeVar("T")

Change = Callable[[Connection, Job], None]
"""Changes a job that is locked."""

MOST_QUEUED = 1_000
"""Jobs that may wait for a worker."""


class JobManager(JobReader):
    """Optimization jobs in a database; safe to share between threads.

    Workers carry them out: see :class:`promptgraft.jobs.Worker`. A job changes values of a project
    that the manager and a worker have; it holds no code, no path and no secret.

    Args:
        database: where, or its URL.
        projects: project files or projects by the names that jobs have for them.
        by: who asks, for the events of jobs.

    Raises:
        ConfigError: the URL or a name is not what it must be.
        DataFormatError: a project is at fault.
    """

    def __init__(
        self,
        database: Database | str,
        *,
        projects: Mapping[str, Project | str | Path] | None = None,
        by: str = "",
    ) -> None:
        for name in projects or {}:
            check_key(name, "name of a project")
        super().__init__(
            database if isinstance(database, Database) else Database(database),
            {
                name: one if isinstance(one, Project) else load_project(one)
                for name, one in (projects or {}).items()
            },
        )
        self._by = by

    def acting_for(self, name: str) -> JobManager:
        """Return the same jobs; what is asked of them from there is told with this name."""
        return JobManager(self.database, projects=self.projects, by=name)

    def submit(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Submitted:
        found, wanted = self._project(project), read_changes(changes)
        name = found.prompt(prompt).name
        if key is not None:
            check_idempotency_key(key)
        planned(found, name, wanted)
        tag, digest = wanted.tag or found.tag, submitted_digest(found, name)
        request = encoded_changes(wanted)

        def insert(connection: Connection) -> Submitted:
            if key is not None and (known := self._rows.by_key(connection, project, key)):
                job, before = known
                if (before, job.prompt) != (request, name):
                    raise JobConflictError(
                        f"the key stands for job {job.id}, which asks for something else; take "
                        "another key"
                    )
                return Submitted(job=job, is_new=False)
            names = {"project": project, "prompt": name, "tag": tag, "digest": digest, "key": key}
            return Submitted(job=self._queued(connection, wanted, **names), is_new=True)

        return self.database.write(insert)

    def pause(self, job: str) -> Job:
        def wish(connection: Connection, found: Job) -> None:
            if found.state is JobState.PAUSED:
                return
            check_allowed(found, "pause")
            if found.wish is not Wish.CANCEL:
                self._rows.put(connection, found.number, wish=Wish.PAUSE)

        return self._changed(job, "pause", wish)

    def resume(self, job: str) -> Job:
        def queue(connection: Connection, found: Job) -> None:
            if found.state is JobState.RUNNING and found.wish is not Wish.CANCEL:
                self._rows.put(connection, found.number, wish=Wish.NONE)
            elif found.state is not JobState.QUEUED:
                check_allowed(found, "resume")
                self._rows.put(
                    connection, found.number, state=JobState.QUEUED, reason=b"", barren=0
                )
                self._rows.tell(connection, found.number, "job_queued")

        return self._changed(job, "resume", queue)

    def cancel(self, job: str) -> Job:
        def end(connection: Connection, found: Job) -> None:
            if found.state is JobState.CANCELLED:
                return
            check_allowed(found, "cancel")
            if found.state is JobState.RUNNING:
                self._rows.put(connection, found.number, wish=Wish.CANCEL)
                return
            now = self.database.seconds
            self._rows.put(connection, found.number, state=JobState.CANCELLED, ended=now)
            self._rows.tell(connection, found.number, "job_cancelled")

        return self._changed(job, "cancel", end)

    def change(self, job: str, changes: Changes) -> Job:
        seen = self.get(job)
        check_allowed(seen, "change")
        whole = self._merged(seen, changes)

        def put(connection: Connection, found: Job) -> None:
            check_allowed(found, "change")
            _check_same(found, seen)
            self._rows.put(connection, found.number, **_columns(whole))

        return self._changed(job, "change", put)

    def fork(self, job: str, changes: Changes = None) -> Job:
        seen = self.get(job)
        check_allowed(seen, "fork")
        whole = self._merged(seen, changes)
        digest = submitted_digest(self._project(seen.project), seen.prompt)

        def copy(connection: Connection) -> Job:
            found = self._rows.find(connection, job, locked=True)
            check_allowed(found, "fork")
            _check_same(found, seen)
            names = {"project": found.project, "prompt": found.prompt, "tag": found.tag}
            made = self._queued(connection, whole, **names, digest=digest, origin=found.id)
            self._rows.copy_answers(connection, found.number, made.number)
            self._tell(connection, found, "fork", to=made.id)
            return made

        return self.database.write(copy)

    def delete(self, job: str) -> None:
        def remove(connection: Connection) -> None:
            found = self._rows.find(connection, job, locked=True)
            check_allowed(found, "delete")
            self._rows.remove(connection, found.number)

        self.database.write(remove)

    def note(self, job: str, what: str, **said: Json) -> None:
        """Add to the events of a job what somebody has done with what came of it.

        Raises:
            JobNotFoundError: as :meth:`get`.
        """
        self.database.write(
            lambda connection: self._tell(
                connection, self._rows.find(connection, job), what, **said
            )
        )

    def promote(
        self,
        project: str,
        prompt: str,
        tag: str,
        *,
        to: str,
        expected: Expected | None = None,
    ) -> dict[str, str]:
        found = self._project(project)
        with beside(found.folder):
            of, store = found.prompt(prompt), found.store()
            note = f"promoted from {tag}{f' by {self._by}' if self._by else ''}"
            rows = promoted(store, of, tag, to=to, expected=expected, note=note)
            now = held(store, of, to)
        self.note_winner(rows, "promote", project=project, prompt=prompt, tag=to)
        return {one.name: one.revision.id for one in now}

    def note_winner(
        self, rows: Sequence[Held], what: str, *, project: str, prompt: str, tag: str
    ) -> None:
        """Let the job that made what a tag held say who moved it, if it is among the latest."""
        runs = {one.revision.provenance.run_id for one in rows}
        where = JobFilter(state=JobState.COMPLETED, project=project, prompt=prompt)
        for job in self.list(where, limit=LARGEST_PAGE):
            if (self.result(job.id) or {}).get("run_id") in runs:
                self.note(job.id, what, tag=tag)
                return

    def _tell(self, connection: Connection, job: Job, what: str, **said: Json) -> None:
        self._rows.tell(connection, job.number, "job_asked", what=what, by=self._by, **said)

    def _queued(self, connection: Connection, changes: JobChanges, **values: str | None) -> Job:
        if (waiting := self._rows.waiting(connection)) >= MOST_QUEUED:
            raise JobsFullError(
                f"{waiting:,} jobs wait already; submit it when some of them have begun"
            )
        id_ = uuid.uuid4().hex
        return self._rows.insert(
            connection, self._by, id=id_, state=JobState.QUEUED, **values, **_columns(changes)
        )

    def _changed(self, job: str, what: str, change: Change) -> Job:
        def apply(connection: Connection) -> Job:
            found = self._rows.find(connection, job, locked=True)
            change(connection, found)
            changed = self._rows.at(connection, found.number)
            if changed != found:
                self._tell(connection, found, what)
            return changed

        return self.database.write(apply)

    def _project(self, name: str) -> Project:
        if name not in self.projects:
            known = ", ".join(self.projects) or "none"
            near = did_you_mean(name, list(self.projects))
            raise ConfigError(f"there is no project `{name}`{near}; there: {known}")
        return self.projects[name]

    def _merged(self, job: Job, given: Changes) -> JobChanges:
        whole = merged_changes(job.changes, given)
        if job.project in self.projects:
            planned(self.projects[job.project], job.prompt, whole)
        return whole


def _check_same(found: Job, seen: Job) -> None:
    """Refuse what was planned, which takes its time, for changes that are no longer there."""
    if found.changes != seen.changes:
        raise JobConflictError(f"job {found.id} was changed meanwhile; look at it and ask again")


def _columns(changes: JobChanges) -> dict[str, object]:
    return {
        "request": encoded_changes(changes),
        "priority": changes.priority,
        "not_before": changes.not_before,
    }
