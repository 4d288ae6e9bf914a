"""API handlers for protected tags, and for the requests to move them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import attrs

from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict.checks import STRING, Kind
from promptgraft.ground.strict.kinds import Key, record
from promptgraft.service.jobs import JobNotFoundError
from promptgraft.service.jobs.approvals import MoveKind, MoveRequest
from promptgraft.service.server.calls import LARGEST_POSITION, ApiCall, ApiReply, natural, reply
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import ApiCaller, Scope
from promptgraft.service.server.views import Headline

APPROVERS = frozenset({Scope.APPROVE, Scope.ADMIN})
"""Scopes of which one is needed to decide on a request."""


@attrs.frozen(kw_only=True)
class _Comment:
    comment: str = ""


COMMENT: Kind[_Comment] = record(
    _Comment, {"comment": Key(STRING, "What to say; needed to decline.")}
)


def list_protections(call: ApiCall) -> ApiReply:
    """Return the protected tags of a project."""
    rows: list[Json] = [
        attrs.asdict(row) for row in call.manager.protections(call.project(call.path["project"]))
    ]
    return reply({"protections": rows})


def protect_tag(call: ApiCall) -> ApiReply:
    """Protect a tag of a project: it is moved only when two people approve."""
    project, tag = call.project(call.path["project"]), call.path["tag"]
    call.manager.protect(project, tag)
    (row,) = (row for row in call.manager.protections(project) if row.tag == tag)
    return reply(attrs.asdict(row))


def unprotect_tag(call: ApiCall) -> ApiReply:
    """End the protection of a tag."""
    call.manager.unprotect(call.project(call.path["project"]), call.path["tag"])
    return ApiReply(status=204)


def list_requests(call: ApiCall) -> ApiReply:
    """Return requests to move protected tags, the newest first."""
    limit = call.integer("limit", 20, least=1, most=100)
    rows: list[Json] = [request_json(request) for request in visible_requests(call, limit)]
    return reply({"requests": rows})


def visible_requests(call: ApiCall, limit: int) -> list[MoveRequest]:
    """Return the latest requests of the projects that the caller sees."""
    return list(call.manager.requests(*call.manager.projects, limit=limit))


def show_request(call: ApiCall) -> ApiReply:
    """Return a request with the texts that it changes, and the verdict on them."""
    request = request_of(call)
    before, after = call.manager.moved_texts(request)
    texts: list[Json] = [
        {"part": part, "before": before[part], "after": text}
        for part, text in after.items()
        if before[part] != text
    ]
    head = headline_of(call, request)
    # The verdict on the winner that a rollback takes back does not speak for the rollback.
    verdict = head.sentence if head and request.move.kind is not MoveKind.ROLLBACK else ""
    return reply({**request_json(request), "texts": texts, "verdict": verdict})


def headline_of(call: ApiCall, request: MoveRequest) -> Headline | None:
    """Return the verdict of the job whose winner is moved or taken back; None if unknown."""
    try:
        return Headline.of(call.manager.get(request.move.job)) if request.move.job else None
    except JobNotFoundError:  # jobs may be removed meanwhile
        return None


def approve_request(call: ApiCall) -> ApiReply:
    """Approve a request, which moves its tag if that was the last approval."""
    return _decided(call, lambda number, text: call.manager.approve(number, comment=text))


def decline_request(call: ApiCall) -> ApiReply:
    """Decline a request, and say why."""
    return _decided(call, lambda number, text: call.manager.decline(number, comment=text))


def withdraw_request(call: ApiCall) -> ApiReply:
    """Withdraw one's own request."""
    return _decided(call, lambda number, text: call.manager.withdraw(number, comment=text))


def _decided(call: ApiCall, decide: Callable[[int, str], MoveRequest]) -> ApiReply:
    check_approver(call.caller)
    request = request_of(call)
    return reply(request_json(decide(request.number, call.read(COMMENT).comment)))


def check_approver(caller: ApiCaller) -> None:
    """Require a scope that decides on requests.

    Raises:
        Problem: 403: the caller has none.
    """
    if not caller.scopes & APPROVERS:
        raise ApiProblem(
            403,
            f"this needs the scope `approve` or `admin`; the token has {caller.roles or 'none'}",
        )


def request_of(call: ApiCall) -> MoveRequest:
    """Return the request in the path.

    Raises:
        JobNotFoundError: there is none, or the caller cannot see its project.
    """
    number = natural(call.path["number"])
    if number is not None and number <= LARGEST_POSITION:
        with contextlib.suppress(JobNotFoundError):
            request = call.manager.request(number)
            if call.caller.sees(request.move.project):
                return request
    raise JobNotFoundError(f"there is no request {call.path['number'][:40]}")


def request_json(request: MoveRequest) -> dict[str, Json]:
    """Return a request as plain data."""
    plain = unstructure(request)
    assert isinstance(plain, dict)  # noqa: S101 - as of every attrs class
    return {
        **plain,
        "digest": request.move.digest,
        "approved_by": list(request.approved_by),
        "missing": request.missing,
    }
