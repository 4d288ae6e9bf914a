"""Problem documents (RFC 9457): errors as a status and a line that a user can act on."""

from __future__ import annotations

from collections.abc import Mapping

from promptgraft import errors
from promptgraft.ground.serde import Json
from promptgraft.project import Project
from promptgraft.service.database import DatabaseError
from promptgraft.service.database.store import ProtectedTagError
from promptgraft.service.jobs import JobConflictError, JobNotFoundError, JobsFullError
from promptgraft.service.jobs.paths import relative_paths
from promptgraft.service.jobs.types import PROBLEM_TYPES

TITLES: Mapping[int, str] = {
    400: "Bad request",
    401: "Unauthorized",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid",
    429: "Too many requests",
    500: "A fault in promptgraft",
    502: "The provider that signs users in failed",
    503: "The database is unavailable",
}


class ApiProblem(Exception):  # noqa: N818 - the word of the RFC
    """An error reply.

    Attributes:
        status: the HTTP status.
        detail: one line: what happened, where, what was expected and found, what to do.
        faults: further lines, if there are several faults.
        headers: headers of the reply.
        type: URI of the kind of problem, for statuses that have several causes.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        faults: tuple[str, ...] = (),
        headers: Mapping[str, str] | None = None,
        type: str = "about:blank",  # noqa: A002 - the word of the RFC
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.faults = faults
        self.headers: dict[str, str] = dict(headers or {})
        self.type = type

    def to_json(self) -> dict[str, Json]:
        """Return the problem document."""
        more: dict[str, Json] = {"faults": list(self.faults)} if self.faults else {}
        return {
            "type": self.type,
            "title": TITLES[self.status],
            "status": self.status,
            "detail": self.detail,
            **more,
        }


def problem_of(error: errors.PromptgraftError, projects: Mapping[str, Project]) -> ApiProblem:
    """Return the problem document of an error, with paths relative to the folders of projects."""
    folders = [project.folder for project in projects.values()]
    message = relative_paths(str(error), folders)
    # The exact class: a subclass that has no type of its own must not pass for its base.
    kind = next(
        (name for name, problem in PROBLEM_TYPES.items() if problem is type(error)), "about:blank"
    )
    match error:
        case JobNotFoundError() | errors.RevisionNotFoundError():
            return ApiProblem(404, message, type=kind)
        case JobsFullError():
            return ApiProblem(429, message, headers={"Retry-After": "60"}, type=kind)
        case (
            JobConflictError()
            | errors.OverrideConflictError()
            | ProtectedTagError()
            | errors.JournalLockedError()
        ):
            return ApiProblem(409, message, type=kind)
        case DatabaseError():
            return ApiProblem(503, message, headers={"Retry-After": "5"})
        case errors.DataFormatError():
            first, *more = (relative_paths(fault, folders) for fault in error.faults)
            return ApiProblem(422, first, faults=tuple(more))
        case errors.CallerError():
            return ApiProblem(422, message)
    return ApiProblem(500, message)
