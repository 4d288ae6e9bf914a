"""Jobs as a library: submit them, look at them, pause, change, resume, cancel and fork them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from promptgraft.database import Database
from promptgraft.errors import ConfigError, DeadlineExceededError
from promptgraft.jobs.mirror import mirror
from promptgraft.jobs.preparing import (
    checked_tag,
    merged_changes,
    read_changes,
    submitted_digest,
)
from promptgraft.jobs.rows import JobRows, encoded_changes
from promptgraft.jobs.types import (
    Attempt,
    Job,
    JobChanges,
    JobConflictError,
    JobState,
    Submitted,
    Wish,
    check_allowed,
)
from promptgraft.project import Project, load_project
from promptgraft.runs.event_file import decoded
from promptgraft.search.notices import Event
from promptgraft.serde import Json, did_you_mean, parse_json

T = TypeVar("T")

Change = Callable[[Connection, Job], None]
"""Changes a job that is locked."""

Changes = JobChanges | Mapping[str, object] | None
"""What a job changes of its project; nothing where it is None."""

MOST_QUEUED = 1_000
"""Jobs that may wait for a worker."""

_LARGEST_PAGE = 100
_EVENTS_AT_ONCE = 500
_SECONDS_BETWEEN_LOOKS = 0.25
_MOST_KEY_CHARS = 200


class JobManager:
    """Optimization jobs in a database; safe to share between threads.

    Workers carry them out: see :class:`promptgraft.jobs.Worker`. A job changes values of a project
    that the manager and a worker have; it holds no code, no path and no secret.

    Args:
        database: where, or its URL.
        projects: project files or projects by the names that jobs have for them.

    Raises:
        ConfigError: the URL or a name is not what it must be.
        DataFormatError: a project is at fault.
    """

    def __init__(
        self,
        database: Database | str,
        *,
        projects: Mapping[str, Project | str | Path] | None = None,
    ) -> None:
        self.database = database if isinstance(database, Database) else Database(database)
        self.projects = {
            name: one if isinstance(one, Project) else load_project(one)
            for name, one in (projects or {}).items()
        }
        self._rows = JobRows(self.database)

    def create(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Job:
        """Submit a job, and return it; see :meth:`submit`."""
        return self.submit(project, prompt, changes, key=key).job

    def submit(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Submitted:
        """Submit a job once it was checked whole and planned, without a call.

        Args:
            project: the name of the project.
            prompt: the name of the prompt; the only one when it is left out.
            changes: what the job changes of the project.
            key: an idempotency key: the same one with the same content gives the same job again.

        Raises:
            ConfigError, DataFormatError: the project has no such prompt, or a change does not fit.
            JobConflictError: the key stands for another job, or too many jobs wait.
        """
        found, wanted = self._project(project), read_changes(changes)
        name = found.prompt(prompt).name
        if key is not None and not (0 < len(key) <= _MOST_KEY_CHARS and key.isascii()):
            raise ConfigError(
                f"key: expected 1 to {_MOST_KEY_CHARS} ASCII characters, found {len(key)}"
            )
        tag, digest = checked_tag(found, name, wanted), submitted_digest(found, name)
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
            if (waiting := self._rows.waiting(connection)) >= MOST_QUEUED:
                raise JobConflictError(
                    f"{waiting:,} jobs wait already; submit it when some of them have begun"
                )
            names = {"project": project, "prompt": name, "tag": tag, "digest": digest, "key": key}
            return Submitted(job=self._queued(connection, wanted, **names), is_new=True)

        return self.database.write(insert)

    def get(self, job: str) -> Job:
        """Return a job by its id, or by at least 4 digits that only its id begins with.

        Raises:
            JobNotFoundError: there is none, or several.
        """
        with self.database.reading() as connection:
            return self._rows.find(connection, job)

    def list(
        self,
        *,
        state: JobState | str | None = None,
        project: str | None = None,
        prompt: str | None = None,
        tag: str | None = None,
        since: float | None = None,
        text: str | None = None,
        before: int | None = None,
        limit: int = 20,
    ) -> Sequence[Job]:
        """Return jobs, the newest first.

        Args:
            state: only those in this state.
            project: only those of this project.
            prompt: only those of this prompt.
            tag: only those with this tag.
            since: only those created then or later, in seconds since 1970.
            text: only those with this in id, project, prompt or tag.
            before: only those with a smaller ``number``: that of the last job of the page before.
            limit: how many, 1 to 100.
        """
        if not 1 <= limit <= _LARGEST_PAGE:
            raise ConfigError(f"limit: expected an integer from 1 to 100, found {limit}")
        given = {"project": project, "prompt": prompt, "tag": tag}
        equal = {name: value for name, value in given.items() if value is not None}
        if state is not None:
            equal["state"] = _state(state)
        with self.database.reading() as connection:
            return self._rows.page(
                connection, equal=equal, since=since, text=text, before=before, limit=limit
            )

    def pause(self, job: str) -> Job:
        """Ask a running job to pause after its step; asking again changes nothing.

        Raises:
            JobNotFoundError: as :meth:`get`.
            JobConflictError: it does not run.
        """

        def wish(connection: Connection, found: Job) -> None:
            if found.state is not JobState.PAUSED:
                check_allowed(found, "pause")
                self._rows.put(connection, found.number, wish=Wish.PAUSE)

        return self._changed(job, wish)

    def resume(self, job: str) -> Job:
        """Let a paused job continue, or take back the wish that it pauses.

        Raises:
            JobNotFoundError: as :meth:`get`.
            JobConflictError: it has ended.
        """

        def queue(connection: Connection, found: Job) -> None:
            if found.state is JobState.RUNNING and found.wish is not Wish.CANCEL:
                self._rows.put(connection, found.number, wish=Wish.NONE)
            elif found.state is not JobState.QUEUED:
                check_allowed(found, "resume")
                self._rows.put(
                    connection, found.number, state=JobState.QUEUED, reason=b"", barren=0
                )
                self._rows.tell(connection, found.number, "job_queued")

        return self._changed(job, queue)

    def cancel(self, job: str) -> Job:
        """End a job for good; what is in flight is dropped.

        Raises:
            JobNotFoundError: as :meth:`get`.
            JobConflictError: it has ended otherwise.
        """

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

        return self._changed(job, end)

    def change(self, job: str, changes: Changes) -> Job:
        """Change what a job asks for; a running one takes it up when it is resumed.

        Only limits and words may change: what decides the path of the search is bound to the
        answers that are there. See :meth:`fork`.

        Raises:
            JobNotFoundError: as :meth:`get`.
            JobConflictError: it has ended.
            ConfigError, DataFormatError: a change does not fit.
        """
        given = read_changes(changes)

        def put(connection: Connection, found: Job) -> None:
            check_allowed(found, "change")
            whole = self._merged(found, given)
            self._rows.put(connection, found.number, **_columns(whole))

        return self._changed(job, put)

    def fork(self, job: str, changes: Changes = None) -> Job:
        """Submit a job that begins with the answers of one that has ended or is paused.

        Raises:
            JobNotFoundError: as :meth:`get`.
            JobConflictError: it still runs.
            ConfigError, DataFormatError: a change does not fit.
        """
        given = read_changes(changes)

        def copy(connection: Connection) -> Job:
            found = self._rows.find(connection, job, locked=True)
            check_allowed(found, "fork")
            whole = self._merged(found, given)
            digest = submitted_digest(self._project(found.project), found.prompt)
            names = {"project": found.project, "prompt": found.prompt, "tag": found.tag}
            made = self._queued(connection, whole, **names, digest=digest, origin=found.id)
            self._rows.copy_answers(connection, found.number, made.number)
            return made

        return self.database.write(copy)

    def delete(self, job: str) -> None:
        """Remove a job that has ended, with its answers and events.

        Raises:
            JobNotFoundError: as :meth:`get`.
            JobConflictError: it has not ended.
        """

        def remove(connection: Connection) -> None:
            found = self._rows.find(connection, job, locked=True)
            check_allowed(found, "delete")
            self._rows.remove(connection, found.number)

        self.database.write(remove)

    def attempts(self, job: str) -> Sequence[Attempt]:
        """Return each time that a worker took a job, the oldest first."""
        with self.database.reading() as connection:
            return self._rows.attempts(connection, self._rows.find(connection, job).number)

    def events(
        self, job: str, *, after: int = 0, limit: int = _EVENTS_AT_ONCE
    ) -> Sequence[tuple[int, Event, bytes]]:
        """Return events of a job behind a number: their numbers, themselves, and their lines."""
        with self.database.reading() as connection:
            found = self._rows.find(connection, job)
            rows = self._rows.events(connection, found.number, after=after, limit=limit)
        where = f"job {found.id}, event"
        return [(number, decoded(line, f"{where} {number}"), line) for number, line in rows]

    def result(self, job: str) -> dict[str, Json] | None:
        """Return what came of a job, as ``result.json`` has it; None while there is nothing."""
        with self.database.reading() as connection:
            found = self._rows.find(connection, job)
            document = self._rows.document(connection, found.number, "result")
        plain = None if document is None else parse_json(document, where=f"job {found.id}: result")
        return plain if isinstance(plain, dict) else None

    def mirror(self, job: str, folder: Path) -> Path:
        """Write a job as a run directory, or bring it up to date; see :func:`mirror`.

        Returns:
            The run directory, a folder in ``folder`` that is named after the job.
        """
        with self.database.reading() as connection:
            found = self._rows.find(connection, job)
        project = self.projects.get(found.project)
        return mirror(self.database, found, folder, project=project)

    def wait(self, job: str, *, timeout: float | None = None) -> Job:
        """Wait until a job is paused or has ended, and return it.

        Raises:
            DeadlineExceededError: ``timeout`` seconds have passed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.get(job)
            if found.has_ended or found.state is JobState.PAUSED:
                return found
            if until is not None and time.monotonic() >= until:
                raise DeadlineExceededError(f"job {job} has not ended in {timeout:g} s")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def close(self) -> None:
        """Close the connections of the database."""
        self.database.close()

    def _queued(self, connection: Connection, changes: JobChanges, **values: str | None) -> Job:
        id_ = uuid.uuid4().hex
        return self._rows.insert(
            connection, id=id_, state=JobState.QUEUED, **values, **_columns(changes)
        )

    def _changed(self, job: str, change: Change) -> Job:
        def apply(connection: Connection) -> Job:
            found = self._rows.find(connection, job, locked=True)
            change(connection, found)
            return self._rows.at(connection, found.number)

        return self.database.write(apply)

    def _project(self, name: str) -> Project:
        if name not in self.projects:
            known = ", ".join(self.projects) or "none"
            near = did_you_mean(name, list(self.projects))
            raise ConfigError(f"there is no project `{name}`{near}; there: {known}")
        return self.projects[name]

    def _merged(self, job: Job, given: JobChanges) -> JobChanges:
        whole = merged_changes(job.changes, given)
        if job.project in self.projects:
            checked_tag(self.projects[job.project], job.prompt, whole)
        return whole


def _columns(changes: JobChanges) -> dict[str, object]:
    return {
        "request": encoded_changes(changes),
        "priority": changes.priority,
        "not_before": changes.not_before,
    }


def _state(given: JobState | str) -> str:
    try:
        return JobState(given).value
    except ValueError:
        known = ", ".join(JobState)
        raise ConfigError(f"state: expected one of {known}, found {given!r}") from None
