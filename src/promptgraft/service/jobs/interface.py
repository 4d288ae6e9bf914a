"""Interface to jobs, in a database or behind a server."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from promptgraft.errors import DeadlineExceededError
from promptgraft.ground.serde import Json
from promptgraft.search.events import Event
from promptgraft.service.jobs.approvals import MoveRequest, ProtectedTag
from promptgraft.service.jobs.datasets import DatasetRevision
from promptgraft.service.jobs.promoting import Expected
from promptgraft.service.jobs.types import ALL_JOBS, Attempt, Job, JobChanges, JobFilter, Submitted

Changes = JobChanges | Mapping[str, object] | None
"""Settings of the project that a job overrides; None for none."""

LARGEST_PAGE = 100
"""Largest page of a list of jobs."""

MOST_EVENTS = 500
"""Default size of a page of events."""

# Short enough for scripts, and well below the rate limit of a server.
_SECONDS_BETWEEN_LOOKS = 0.25


class Jobs(ABC):
    """Optimization jobs; safe to share between threads, and a context manager.

    Methods identify a job by its id, or by a unique prefix of at least 4 digits. They raise
    ``JobNotFoundError`` if no job matches, or several do.
    """

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

    @abstractmethod
    def submit(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Submitted:
        """Check, plan and submit a job, without calling a model.

        Args:
            project: the name of the project.
            prompt: the name of the prompt; may be left out if the project has only one.
            changes: the settings that the job overrides.
            key: an idempotency key: submitting the same content again returns the same job.

        Raises:
            ConfigError, DataFormatError: the project has no such prompt, or a change is invalid.
            JobConflictError: the key belongs to another job.
            JobsFullError: the queue is full.
        """

    @abstractmethod
    def get(self, job: str) -> Job:
        """Return a job."""

    @abstractmethod
    def list(
        self, where: JobFilter = ALL_JOBS, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Job]:
        """Return jobs, the newest first.

        Args:
            where: a filter.
            before: the ``number`` of the last job of the previous page.
            limit: size of the page, 1 to 100.

        Raises:
            ConfigError, DataFormatError: the limit or the filter is invalid.
        """

    @abstractmethod
    def pause(self, job: str) -> Job:
        """Ask a running job to pause after its step; idempotent.

        Raises:
            JobConflictError: it is not running.
        """

    @abstractmethod
    def resume(self, job: str) -> Job:
        """Queue a paused job again, or withdraw the request to pause a running one.

        Raises:
            JobConflictError: it has ended.
        """

    @abstractmethod
    def cancel(self, job: str) -> Job:
        """End a job for good, and drop its calls in flight; idempotent.

        Raises:
            JobConflictError: it has ended in another way.
        """

    @abstractmethod
    def change(self, job: str, changes: Changes) -> Job:
        """Change the limits, priority or note of a job.

        A running job applies them when it is resumed. Settings that decide the path of the search
        cannot change, because the recorded answers depend on them; see :meth:`fork`.

        Raises:
            JobConflictError: it has ended.
            ConfigError, DataFormatError: a change is invalid.
        """

    @abstractmethod
    def fork(self, job: str, changes: Changes = None) -> Job:
        """Submit a job that starts with the answers of one that has ended or is paused.

        If these are of another run, since prompt, cases, models or metrics have changed, it
        begins without them.

        Raises:
            JobConflictError: it is queued or running.
            ConfigError, DataFormatError: a change is invalid.
        """

    @abstractmethod
    def delete(self, job: str) -> None:
        """Delete a job that has ended, with its answers and events.

        Raises:
            JobConflictError: it has not ended.
        """

    @abstractmethod
    def attempts(self, job: str) -> Sequence[Attempt]:
        """Return the attempts of a job, the oldest first."""

    @abstractmethod
    def no_worker(self, job: str) -> str:
        """Return, in words, that no live worker takes a queued job; empty if one does.

        A job in another state needs none.
        """

    @abstractmethod
    def events(
        self, job: str, *, after: int = 0, limit: int = MOST_EVENTS
    ) -> Sequence[tuple[int, Event, bytes]]:
        """Return events of a job after a number, each as number, event and line.

        In place of a damaged event comes :class:`Unknown` with a line of the event ``damaged``,
        whose ``fault`` says what is wrong.
        """

    @abstractmethod
    def result(self, job: str) -> dict[str, Json] | None:
        """Return the result of a job in the format of ``result.json``; None before there is one."""

    @abstractmethod
    def mirror(self, job: str, folder: Path) -> Path:
        """Write the run directory of a job, or bring it up to date.

        Returns:
            The run directory, a folder in ``folder`` that is named after the job.

        Raises:
            DataFormatError, JobConflictError: the job has not started; there is nothing to write.
            OSError: the folder cannot be written.
        """

    @abstractmethod
    def promote(
        self, project: str, prompt: str, tag: str, *, to: str, expected: Expected | None = None
    ) -> Mapping[str, str]:
        """Promote what one tag of a prompt or graph holds to another tag, all or nothing.

        Args:
            project: the name of the project.
            prompt: the name of the prompt or graph.
            tag: the tag that holds the winner.
            to: the tag that gets it.
            expected: revisions that ``to`` must point at now, by the addresses of the prompts
                (`namespace/key`): an id, a prefix of at least 4 digits, or empty for none.

        Returns:
            The revisions that ``to`` points at afterwards, by address.

        Raises:
            ConfigError, DataFormatError: there is no such project or prompt, or a tag is invalid.
            RevisionNotFoundError: ``tag`` holds nothing.
            OverrideConflictError: ``to`` points at another revision, or the source of a part has
                changed since.
        """

    @abstractmethod
    def apply(
        self, job: str, *, to: str | None = None, expected: Expected | None = None
    ) -> Mapping[str, str]:
        """Point a tag at the winner of a completed job; until then it is only a candidate.

        Args:
            job: the job.
            to: the tag; by default that of the job.
            expected: revisions that the tag must point at now, as :meth:`promote` takes them; by
                default those that it pointed at when the winner was found, if it is the job's tag.

        Returns:
            The revisions that the tag points at afterwards, by address.

        Raises:
            JobConflictError: the job has no winner that can be applied; the message says why.
            ConfigError, DataFormatError: its project is unknown here, or the tag is invalid.
            OverrideConflictError: the tag points at another revision, or the source of a part has
                changed since.
        """

    @abstractmethod
    def protections(self, project: str) -> Sequence[ProtectedTag]:
        """Return the protected tags of a project.

        A protected tag is not moved by :meth:`promote` and :meth:`apply`: they make a request,
        which two people have to approve, and raise ``ApprovalNeededError`` with its number. Who
        asks is one of the two.

        Raises:
            ConfigError: there is no such project.
        """

    @abstractmethod
    def protect(self, project: str, tag: str) -> None:
        """Protect a tag of a project; see :meth:`protections`.

        Raises:
            ConfigError: there is no such project, or the tag is invalid.
        """

    @abstractmethod
    def unprotect(self, project: str, tag: str) -> None:
        """End the protection of a tag.

        Raises:
            ConfigError: there is no such project, or the tag is not protected.
        """

    @abstractmethod
    def request(self, number: int) -> MoveRequest:
        """Return a request to move a protected tag.

        Raises:
            JobNotFoundError: there is none with this number.
        """

    @abstractmethod
    def requests(self, *projects: str, limit: int = LARGEST_PAGE) -> Sequence[MoveRequest]:
        """Return the latest requests of some projects, the newest first."""

    @abstractmethod
    def approve(self, number: int, *, comment: str = "") -> MoveRequest:
        """Approve a request. If that was the last approval, its tag is moved.

        Raises:
            JobNotFoundError: there is no such request.
            JobConflictError: it does not wait any more, or the caller has approved it already.
            OverrideConflictError: it is stale: the tag, or what it was to get, has changed since.
            ConfigError: the caller has no name, or the comment is too long.
        """

    @abstractmethod
    def decline(self, number: int, *, comment: str = "") -> MoveRequest:
        """Decline a request, and say why; raises as :meth:`approve`, but not if it is stale."""

    @abstractmethod
    def withdraw(self, number: int, *, comment: str = "") -> MoveRequest:
        """Withdraw a request of one's own.

        Raises:
            JobNotFoundError: there is no such request.
            JobConflictError: it is somebody else's, or does not wait any more.
        """

    @abstractmethod
    def datasets(self, project: str) -> Sequence[DatasetRevision]:
        """Return the latest revision of each data set of a project, by name and without texts.

        Raises:
            ConfigError: there is no such project.
        """

    @abstractmethod
    def dataset(self, project: str, which: str) -> DatasetRevision:
        """Return a data set with its text: `NAME` for its latest revision, or `NAME@DIGEST`.

        Raises:
            ConfigError: there is no such project.
            RevisionNotFoundError: it has no such data set, or the data set no such revision.
        """

    @abstractmethod
    def dataset_history(self, project: str, name: str) -> Sequence[DatasetRevision]:
        """Return the revisions of a data set without texts, the newest first.

        Raises:
            ConfigError, RevisionNotFoundError: as :meth:`dataset`.
        """

    @abstractmethod
    def save_dataset(
        self, project: str, name: str, cases: str | Path, *, expected: str | None = None
    ) -> DatasetRevision:
        """Save a data set under a new or an existing name; return the revision without its text.

        Args:
            project: the project.
            name: 1 to 64 lower-case letters, digits, `_` or `-`.
            cases: a text with a JSON object per line, which have the columns of the project's own
                file, in at most 1,000,000 bytes; or the path of a file of cases.
            expected: the digest that its latest revision must have; empty for a new data set.

        Raises:
            ConfigError, DataFormatError: the cases do not suit the project, or are too large.
            OverrideConflictError: the latest revision is another one than ``expected``.
        """

    def wait(self, job: str, *, timeout: float | None = None) -> Job:
        """Wait until a job has ended or is paused, and return it.

        Raises:
            DeadlineExceededError: that took more than ``timeout`` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            job_now = self.get(job)
            if job_now.is_at_rest:
                return job_now
            if until is not None and time.monotonic() >= until:
                raise DeadlineExceededError(f"job {job} has not ended in {timeout:g} s")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
