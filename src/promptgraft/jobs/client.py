"""Jobs of a server: what :class:`JobManager` does, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from promptgraft.database import DatabaseError
from promptgraft.errors import (
    ConfigError,
    DataFormatError,
    DeadlineExceededError,
    JournalCorruptError,
    StoreError,
)
from promptgraft.jobs.preparing import read_changes, written_changes
from promptgraft.jobs.types import (
    Attempt,
    Job,
    JobChanges,
    JobConflictError,
    JobNotFoundError,
    JobState,
    Status,
    Submitted,
    Wish,
)
from promptgraft.runs.event_file import decoded, encoded_json
from promptgraft.search.notices import Event
from promptgraft.serde import Json
from promptgraft.strict import structure

if TYPE_CHECKING:
    import httpx

_SECONDS = 60.0
_SECONDS_BETWEEN_LOOKS = 0.5

Changes = JobChanges | Mapping[str, object] | None


class JobClient:
    """Jobs behind a server; the same methods as :class:`promptgraft.jobs.JobManager`.

    Args:
        server: its address, such as ``https://jobs.example.org``.
        token: a token of it, which is in no message.

    Raises:
        ConfigError: the address is none, or the extra is missing.
    """

    def __init__(self, server: str, *, token: str) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise ConfigError(
                f'a client needs {error.name}; run `pip install "promptgraft[server]"`'
            ) from None
        if not server.startswith(("http://", "https://")):
            raise ConfigError(
                f"server: expected an address such as https://jobs.example.org, found {server!r}"
            )
        self._server = server.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self._server}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_SECONDS,
            follow_redirects=False,
        )

    def create(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Job:
        """Submit a job, and return it; see :meth:`JobManager.submit`."""
        return self.submit(project, prompt, changes, key=key).job

    def submit(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Submitted:
        """Submit a job; see :meth:`JobManager.submit`."""
        body: dict[str, Json] = {"project": project, "changes": _plain(changes)}
        if prompt is not None:
            body["prompt"] = prompt
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._ask("POST", "/jobs", json=body, headers=headers)
        return Submitted(job=_job(answer.json()), is_new=answer.status_code == 201)

    def get(self, job: str) -> Job:
        """Return a job; see :meth:`JobManager.get`."""
        return _job(self._ask("GET", _path(job)).json())

    def list(self, **filters: str | float | None) -> Sequence[Job]:
        """Return jobs, the newest first; see :meth:`JobManager.list`."""
        given = {name: one for name, one in filters.items() if one is not None}
        if "before" in given:
            given["cursor"] = given.pop("before")
        return [_job(one) for one in self._ask("GET", "/jobs", params=given).json()["jobs"]]

    def pause(self, job: str) -> Job:
        """Ask a running job to pause; see :meth:`JobManager.pause`."""
        return _job(self._ask("POST", f"{_path(job)}/pause").json())

    def resume(self, job: str) -> Job:
        """Let a paused job continue; see :meth:`JobManager.resume`."""
        return _job(self._ask("POST", f"{_path(job)}/resume").json())

    def cancel(self, job: str) -> Job:
        """End a job for good; see :meth:`JobManager.cancel`."""
        return _job(self._ask("POST", f"{_path(job)}/cancel").json())

    def change(self, job: str, changes: Changes) -> Job:
        """Change the limits of a job; see :meth:`JobManager.change`."""
        return _job(self._ask("PATCH", _path(job), json=_plain(changes)).json())

    def fork(self, job: str, changes: Changes = None) -> Job:
        """Submit a job that begins with the answers of another; see :meth:`JobManager.fork`."""
        return _job(self._ask("POST", f"{_path(job)}/fork", json=_plain(changes)).json())

    def delete(self, job: str) -> None:
        """Remove a job that has ended; see :meth:`JobManager.delete`."""
        self._ask("DELETE", _path(job))

    def attempts(self, job: str) -> Sequence[Attempt]:
        """Return each time that a worker took a job; see :meth:`JobManager.attempts`."""
        found = self._ask("GET", _path(job)).json()["tries"]
        return [structure(one, Attempt, where=f"job {job}: attempt") for one in found]

    def events(
        self, job: str, *, after: int = 0, limit: int = 500
    ) -> Sequence[tuple[int, Event, bytes]]:
        """Return events of a job; see :meth:`JobManager.events`."""
        given = {"after": after, "limit": limit}
        found = self._ask("GET", f"{_path(job)}/events", params=given).json()["events"]
        events = []
        for one in found:
            number = one.pop("number")
            line = encoded_json(one).encode()
            events.append((number, decoded(line, f"job {job}, event {number}"), line))
        return events

    def result(self, job: str) -> dict[str, Json] | None:
        """Return what came of a job; None while there is nothing."""
        try:
            found: dict[str, Json] = self._ask("GET", f"{_path(job)}/result").json()
        except JobConflictError:
            return None
        return found

    def wait(self, job: str, *, timeout: float | None = None) -> Job:
        """Wait until a job is paused or has ended; see :meth:`JobManager.wait`."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.get(job)
            if found.has_ended or found.state is JobState.PAUSED:
                return found
            if until is not None and time.monotonic() >= until:
                raise DeadlineExceededError(f"job {job} has not ended in {timeout:g} s")
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, method: str, path: str, **given: object) -> httpx.Response:
        import httpx

        ask = self._http.request
        try:
            answer = ask(method, path, **given)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            raise StoreError(
                f"server {self._server} cannot be reached: {type(error).__name__}: {error}; look "
                "that it runs and that its address is right"
            ) from error
        if answer.is_success:
            return answer
        raise self._refused(answer)

    def _refused(self, answer: httpx.Response) -> Exception:
        try:
            problem = answer.json()
            said, faults = str(problem["detail"]), tuple(map(str, problem.get("faults", ())))
        except (ValueError, KeyError, TypeError):
            return StoreError(f"server {self._server}: answered {answer.status_code}, no problem")
        match answer.status_code:
            case 404:
                return JobNotFoundError(said)
            case 409:
                return JobConflictError(said)
            case 422:
                return DataFormatError.of((said, *faults))
            case 503:
                return DatabaseError(said)
        return StoreError(f"server {self._server}: {said}")


def _path(job: str) -> str:
    if not job.isalnum() or not job.isascii():
        raise JobNotFoundError(f"no job has an id that begins with `{job[:40]}`")
    return f"/jobs/{job}"


def _plain(changes: Changes) -> dict[str, Json]:
    return written_changes(read_changes(changes))


def _job(plain: Mapping[str, Json]) -> Job:
    names = {field.name for field in attrs.fields(Job)}
    given: dict[str, object] = {name: one for name, one in plain.items() if name in names}
    where = f"job {plain.get('id')}"
    if missing := sorted(names - given.keys()):
        raise JournalCorruptError(f"{where}: the server does not say `{missing[0]}`")
    changes = given["changes"]
    given |= {
        "changes": read_changes(changes if isinstance(changes, dict) else None),
        "state": JobState(str(given["state"])),
        "wish": Wish(str(given["wish"])),
        "status": structure(given["status"], Status, where=f"{where}: status"),
    }
    make: type[Job] = Job
    return make(**given)  # type: ignore[arg-type]
