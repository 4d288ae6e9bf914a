"""What may be done with jobs, wherever they are: in a database, or behind a server."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from promptgraft.errors import DeadlineExceededError
from promptgraft.jobs.promoting import Expected
from promptgraft.jobs.types import (
    ALL_JOBS,
    Attempt,
    Job,
    JobChanges,
    JobFilter,
    Submitted,
)
from promptgraft.search.notices import Event
from promptgraft.serde import Json

Changes = JobChanges | Mapping[str, object] | None
"""What a job changes of its project; nothing where it is None."""

LARGEST_PAGE = 100
"""Jobs that are listed at once at most."""

MOST_EVENTS = 500
"""Events that are returned at once, unless another number is asked for."""

_SECONDS_BETWEEN_LOOKS = 0.25


class Jobs(ABC):
    """Optimization jobs; safe to share between threads, and a context manager.

    A job is named by its id, or by at least 4 digits that only its id begins with. Every method
    that takes one raises ``JobNotFoundError`` when there is none, or several.
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
        """Submit a job once it was checked whole and planned, without a call.

        Args:
            project: the name of the project.
            prompt: the name of the prompt; the only one when it is left out.
            changes: what the job changes of the project.
            key: an idempotency key: the same one with the same content gives the same job again.

        Raises:
            ConfigError, DataFormatError: the project has no such prompt, or a change does not fit.
            JobConflictError: the key stands for another job.
            JobsFullError: too many jobs wait.
        """

    @abstractmethod
    def get(self, job: str) -> Job:
        """Return a job."""

    @abstractmethod
    def list(
        self,
        where: JobFilter = ALL_JOBS,
        *,
        before: int | None = None,
        limit: int = 20,
    ) -> Sequence[Job]:
        """Return jobs, the newest first.

        Args:
            where: which.
            before: only those with a smaller ``number``: that of the last job of the page before.
            limit: how many, 1 to 100.

        Raises:
            ConfigError, DataFormatError: the limit or a filter does not fit.
        """

    @abstractmethod
    def pause(self, job: str) -> Job:
        """Ask a running job to pause after its step; asking again changes nothing.

        Raises:
            JobConflictError: it does not run.
        """

    @abstractmethod
    def resume(self, job: str) -> Job:
        """Let a paused job continue, or take back the wish that it pauses.

        Raises:
            JobConflictError: it has ended.
        """

    @abstractmethod
    def cancel(self, job: str) -> Job:
        """End a job for good; what is in flight is dropped.

        Raises:
            JobConflictError: it has ended otherwise.
        """

    @abstractmethod
    def change(self, job: str, changes: Changes) -> Job:
        """Change what a job asks for; a running one takes it up when it is resumed.

        Only limits and words may change: what decides the path of the search is bound to the
        answers that are there. See :meth:`fork`.

        Raises:
            JobConflictError: it has ended.
            ConfigError, DataFormatError: a change does not fit.
        """

    @abstractmethod
    def fork(self, job: str, changes: Changes = None) -> Job:
        """Submit a job that begins with the answers of one that has ended or is paused.

        Raises:
            JobConflictError: it still runs.
            ConfigError, DataFormatError: a change does not fit.
        """

    @abstractmethod
    def delete(self, job: str) -> None:
        """Remove a job that has ended, with its answers and events.

        Raises:
            JobConflictError: it has not ended.
        """

    @abstractmethod
    def attempts(self, job: str) -> Sequence[Attempt]:
        """Return each time that a worker took a job, the oldest first."""

    @abstractmethod
    def events(
        self, job: str, *, after: int = 0, limit: int = MOST_EVENTS
    ) -> Sequence[tuple[int, Event, bytes]]:
        """Return events of a job behind a number: their numbers, themselves, and their lines."""

    @abstractmethod
    def result(self, job: str) -> dict[str, Json] | None:
        """Return what came of a job, as ``result.json`` has it; None while there is nothing."""

    @abstractmethod
    def mirror(self, job: str, folder: Path) -> Path:
        """Write a job as a run directory, or bring it up to date.

        Returns:
            The run directory, a folder in ``folder`` that is named after the job.

        Raises:
            DataFormatError, JobConflictError: the job was never begun; there is nothing to write.
            OSError: the system refuses.
        """

    @abstractmethod
    def promote(
        self,
        project: str,
        prompt: str,
        tag: str,
        *,
        to: str,
        expected: Expected | None = None,
    ) -> Mapping[str, str]:
        """Let another tag hold what one tag of a prompt or graph holds, all of it or nothing.

        Args:
            project: the name of the project.
            prompt: the name of the prompt or graph.
            tag: the tag that holds the winner.
            to: the tag that gets it.
            expected: revisions that ``to`` must point at now, by the addresses of the prompts
                (`namespace/key`): an id, its first 4 digits or more, or empty for none.

        Returns:
            The revisions that ``to`` points at then, by address.

        Raises:
            ConfigError, DataFormatError: a name is not one that is there.
            RevisionNotFoundError: ``tag`` holds nothing.
            OverrideConflictError: ``to`` points at something else, or the source of a part has
                changed since.
        """

    def wait(self, job: str, *, timeout: float | None = None) -> Job:
        """Wait until a job is paused or has ended, and return it.

        Raises:
            DeadlineExceededError: ``timeout`` seconds have passed.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.get(job)
            if found.is_at_rest:
                return found
            if until is not None and time.monotonic() >= until:
                raise DeadlineExceededError(f"job {job} has not ended in {timeout:g} s")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
