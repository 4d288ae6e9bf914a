"""Client for the jobs of a server."""

from __future__ import annotations

import functools
import io
import math
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from promptgraft.adapters.calling.access import is_address, is_confidential
from promptgraft.errors import ConfigError, DataFormatError, Lasting, StoreError
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.strict import structure
from promptgraft.overrides.parts.validation import check_key, check_tag
from promptgraft.runs.event_file import decoded, encoded_json
from promptgraft.search.events import Event
from promptgraft.service.database import DatabaseError
from promptgraft.service.jobs.approvals import ApprovalNeededError, MoveRequest, ProtectedTag
from promptgraft.service.jobs.datasets import DatasetRevision, encoded, text_of
from promptgraft.service.jobs.interface import LARGEST_PAGE, MOST_EVENTS, Changes, Jobs
from promptgraft.service.jobs.mirror import folder_of
from promptgraft.service.jobs.preparing import (
    check_idempotency_key,
    plain,
    read_changes,
    written_changes,
)
from promptgraft.service.jobs.promoting import Expected
from promptgraft.service.jobs.types import (
    ALL_JOBS,
    PROBLEM_TYPES,
    Attempt,
    Job,
    JobConflictError,
    JobFilter,
    JobNotFoundError,
    Submitted,
)

if TYPE_CHECKING:
    import ssl

    import httpx

_SECONDS = 60.0


@functools.cache  # loading them is by far the slowest part of making a client
def authorities() -> ssl.SSLContext:
    """Return the TLS context with the certificate authorities that clients trust."""
    import httpx

    return httpx.create_ssl_context()


class JobClient(Jobs):
    """Jobs behind a server, with the methods of :class:`promptgraft.service.jobs.JobManager`.

    Args:
        server: its address, such as ``https://jobs.example.org``.
        token: a token of the server; it appears in no message.

    Raises:
        ConfigError: the address is invalid, or neither HTTPS nor on this machine, so that others
            could read the token; or the extra is not installed.
    """

    def __init__(self, server: str, *, token: str) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise ConfigError(
                f'a client needs {error.name}; run `pip install "promptgraft[server]"`'
            ) from None
        if not is_address(server) or "@" in server:
            server_shown = "one with a user" if "@" in server else shown(server)
            raise ConfigError(
                "server: expected an address such as https://jobs.example.org, "
                f"found {server_shown}"
            )
        if not is_confidential(server):
            raise ConfigError(
                f"server: others could read the token on the way to {server}; use its https "
                "address, or a tunnel from this machine"
            )
        self._server = server.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self._server}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_SECONDS,
            verify=authorities(),
            # The token must not follow to another host.
            follow_redirects=False,
        )

    def submit(
        self,
        project: str,
        prompt: str | None = None,
        changes: Changes = None,
        *,
        key: str | None = None,
    ) -> Submitted:
        body: dict[str, Json] = {"project": project, "changes": _plain(changes)}
        if prompt is not None:
            body["prompt"] = prompt
        if key is not None:
            check_idempotency_key(key)
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._ask("POST", "/jobs", json=body, headers=headers)
        return Submitted(job=_job(answer.json()), is_new=answer.status_code == 201)

    def get(self, job: str) -> Job:
        return _job(self._ask("GET", _path(job)).json())

    def list(
        self, where: JobFilter = ALL_JOBS, *, before: int | None = None, limit: int = 20
    ) -> Sequence[Job]:
        # The API takes whole seconds, so that what it returns is narrowed below.
        since = None if where.since is None else math.floor(where.since)
        filters = {**attrs.asdict(where), "since": since, "cursor": before, "limit": limit}
        parameters = {name: value for name, value in filters.items() if value is not None}
        jobs = [_job(job) for job in self._ask("GET", "/jobs", params=parameters).json()["jobs"]]
        if where.ended_by is not None:
            # A server of an earlier version returns all, and who asks may delete what comes.
            jobs = [job for job in jobs if job.ended is not None and job.ended <= where.ended_by]
        return [job for job in jobs if where.since is None or job.created >= where.since]

    def pause(self, job: str) -> Job:
        return _job(self._ask("POST", f"{_path(job)}/pause").json())

    def resume(self, job: str) -> Job:
        return _job(self._ask("POST", f"{_path(job)}/resume").json())

    def cancel(self, job: str) -> Job:
        return _job(self._ask("POST", f"{_path(job)}/cancel").json())

    def change(self, job: str, changes: Changes) -> Job:
        return _job(self._ask("PATCH", _path(job), json=_plain(changes)).json())

    def fork(self, job: str, changes: Changes = None) -> Job:
        return _job(self._ask("POST", f"{_path(job)}/fork", json=_plain(changes)).json())

    def delete(self, job: str) -> None:
        self._ask("DELETE", _path(job))

    def attempts(self, job: str) -> Sequence[Attempt]:
        rows = self._ask("GET", _path(job)).json()["tries"]
        return [structure(row, Attempt, where=f"job {job}: attempt") for row in rows]

    def no_worker(self, job: str) -> str:
        # Not sent by earlier servers.
        return str(self._ask("GET", _path(job)).json().get("no_worker", ""))

    def events(
        self, job: str, *, after: int = 0, limit: int = MOST_EVENTS
    ) -> Sequence[tuple[int, Event, bytes]]:
        parameters = {"after": after, "limit": limit}
        rows = self._ask("GET", f"{_path(job)}/events", params=parameters).json()["events"]
        events = []
        for row in rows:
            number = row.pop("number")
            line = encoded_json(row).encode()
            events.append((number, decoded(line, f"job {job}, event {number}"), line))
        return events

    def result(self, job: str) -> dict[str, Json] | None:
        try:
            result_json: dict[str, Json] = self._ask("GET", f"{_path(job)}/result").json()
        except JobConflictError:  # the server's way to say that there is no result yet
            return None
        return result_json

    def mirror(self, job: str, folder: Path) -> Path:
        name = folder_of(self.get(job), folder).id
        packed = self._ask("GET", f"{_path(job)}/archive").content
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                # Whatever the server sends, only the folder of this job is written.
                members = [member for member in archive if member.name.partition("/")[0] == name]
                # `data` refuses absolute paths, links that lead out, and device files.
                archive.extractall(folder, members, filter="data")
        except tarfile.TarError as error:
            raise StoreError(
                f"server {self._server}: the archive cannot be read: {error}"
            ) from None
        return folder / name

    def promote(
        self, project: str, prompt: str, tag: str, *, to: str, expected: Expected | None = None
    ) -> Mapping[str, str]:
        at = [quote(segment, safe="") for segment in (project, prompt, tag)]
        path = "/projects/{}/prompts/{}/tags/{}/promote".format(*at)
        return self._moved(self._of_project("POST", path, json=_target(to, expected)).json())

    def apply(
        self, job: str, *, to: str | None = None, expected: Expected | None = None
    ) -> Mapping[str, str]:
        body = _target(to, expected)
        return self._moved(self._ask("POST", f"{_path(job)}/apply", json=body).json())

    def _moved(self, document: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the revisions that a tag points at, if it was moved."""
        # Servers of an earlier version protect no tags, and name no requests.
        if (number := document.get("request")) is not None:
            raise ApprovalNeededError.of(self.request(number))
        return {row["prompt"]: row["id"] for row in document["prompts"]}

    def protections(self, project: str) -> Sequence[ProtectedTag]:
        rows = self._of_project("GET", _protections(project)).json()["protections"]
        return [structure(row, ProtectedTag, where="protected tag") for row in rows]

    def protect(self, project: str, tag: str) -> None:
        self._of_project("PUT", _protections(project, tag))

    def unprotect(self, project: str, tag: str) -> None:
        self._of_project("DELETE", _protections(project, tag))

    def request(self, number: int) -> MoveRequest:
        return _request(self._ask("GET", f"/requests/{number:d}").json())

    def requests(self, *projects: str, limit: int = LARGEST_PAGE) -> Sequence[MoveRequest]:
        rows = self._ask("GET", "/requests", params={"limit": limit}).json()["requests"]
        return [request for row in rows if (request := _request(row)).move.project in projects]

    def approve(self, number: int, *, comment: str = "") -> MoveRequest:
        return self._decided(number, "approve", comment)

    def decline(self, number: int, *, comment: str = "") -> MoveRequest:
        return self._decided(number, "decline", comment)

    def withdraw(self, number: int, *, comment: str = "") -> MoveRequest:
        return self._decided(number, "withdraw", comment)

    def _decided(self, number: int, what: str, comment: str) -> MoveRequest:
        body: Json = {"comment": comment}
        answer = self._ask("POST", f"/requests/{number:d}/{what}", json=body)
        return _request(answer.json())

    def datasets(self, project: str) -> Sequence[DatasetRevision]:
        rows = self._of_project("GET", _datasets(project)).json()["datasets"]
        return [_dataset(row) for row in rows]

    def dataset(self, project: str, which: str) -> DatasetRevision:
        name, _, digest = which.partition("@")
        parameters = {"revision": digest} if "@" in which else None
        return _dataset(self._of_project("GET", _datasets(project, name), params=parameters).json())

    def dataset_history(self, project: str, name: str) -> Sequence[DatasetRevision]:
        rows = self._of_project("GET", f"{_datasets(project, name)}/history").json()["revisions"]
        return [_dataset(row) for row in rows]

    def save_dataset(
        self, project: str, name: str, cases: str | Path, *, expected: str | None = None
    ) -> DatasetRevision:
        body: dict[str, Json] = {"text": encoded(text_of(cases), name).decode()}
        if expected is not None:
            body["expected"] = expected
        return _dataset(self._of_project("PUT", _datasets(project, name), json=body).json())

    def close(self) -> None:
        self._http.close()

    def _of_project(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Json = None
    ) -> httpx.Response:
        try:
            return self._ask(method, path, params=params, json=json)
        except JobNotFoundError as error:
            # No job is involved: a 404 means that project or prompt is unknown.
            raise ConfigError(str(error)) from None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        json: Json = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        import httpx

        try:
            answer = self._http.request(method, path, params=params, json=json, headers=headers)
        except httpx.HTTPError as error:
            mend = "check that it is running and that its address is right"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                mend = "name the certificate of its authority in SSL_CERT_FILE"
            where = f"server {self._server} cannot be reached: {type(error).__name__}"
            raise StoreError(f"{where}: {error}; {mend}") from error
        if answer.is_success:
            return answer
        raise self._refused(answer)

    def _refused(self, answer: httpx.Response) -> Exception:
        try:
            problem = answer.json()
            detail, kind = str(problem["detail"]), str(problem.get("type"))
            faults = tuple(map(str, problem.get("faults", ())))
        # A proxy in between answers with a page of its own.
        except (ValueError, KeyError, TypeError):
            return StoreError(
                f"server {self._server}: answered {answer.status_code} without a problem document"
            )
        if kind in PROBLEM_TYPES:
            return PROBLEM_TYPES[kind](detail)
        match answer.status_code:
            case 404:
                return JobNotFoundError(detail)
            case 409:
                return JobConflictError(detail)
            case 422:
                return DataFormatError.of((detail, *faults))
            # As from a local manager, so that callers wait and try again either way.
            case 503:
                return DatabaseError(detail, Lasting.TRANSIENT)
        return StoreError(f"server {self._server}: {detail}")


def _target(to: str | None, expected: Expected | None) -> dict[str, Json]:
    body: dict[str, Json] = {} if to is None else {"to": to}
    return body if expected is None else {**body, "expected": dict(expected)}


def _path(job: str) -> str:
    # The id becomes a part of the path, where `../` would reach another resource.
    if not job.isalnum() or not job.isascii():
        raise JobNotFoundError(f"no job has an id that begins with `{job[:40]}`")
    return f"/jobs/{job}"


def _protections(project: str, tag: str | None = None) -> str:
    path = f"/projects/{quote(project, safe='')}/protections"
    return path if tag is None else f"{path}/{check_tag(tag)}"


def _request(document: Mapping[str, Json]) -> MoveRequest:
    names = {field.name for field in attrs.fields(MoveRequest)}
    # What follows from the others is computed here.
    fields: dict[str, Json] = {name: value for name, value in document.items() if name in names}
    return structure(fields, MoveRequest, where=f"request {document.get('number')}")


def _datasets(project: str, name: str | None = None) -> str:
    path = f"/projects/{quote(project, safe='')}/datasets"
    return path if name is None else f"{path}/{check_key(name, 'name of a data set')}"


def _dataset(document: Mapping[str, Json]) -> DatasetRevision:
    return structure(dict(document), DatasetRevision, where=f"data set {document.get('name')}")


def _plain(changes: Changes) -> dict[str, Json]:
    """Validate changes and return them for the server, including those that name a default."""
    written = written_changes(read_changes(changes))
    if isinstance(changes, Mapping):
        return {str(name): written.get(str(name), plain(value)) for name, value in changes.items()}
    return written


def _job(document: Mapping[str, Json]) -> Job:
    where = f"job {document.get('id')}"
    names = {field.name for field in attrs.fields(Job)}
    # A newer server may send more fields.
    known_fields: dict[str, Json] = {
        name: value for name, value in document.items() if name in names
    }
    changes = known_fields.get("changes")
    read = read_changes(changes if isinstance(changes, dict) else None)
    return attrs.evolve(structure({**known_fields, "changes": {}}, Job, where=where), changes=read)
