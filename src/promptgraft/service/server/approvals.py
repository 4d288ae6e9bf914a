"""Pages of requests to move protected tags, and the buttons that protect tags."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.runs.report.texts import changes_between
from promptgraft.service.jobs.approvals import APPROVALS, MoveRequest
from promptgraft.service.server.api_projects import (
    APPROVERS,
    check_approver,
    headline_of,
    request_of,
    visible_requests,
)
from promptgraft.service.server.calls import ApiCall, ApiReply, Route
from promptgraft.service.server.forms import form_of
from promptgraft.service.server.pages import page_of, redirect
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import Scope

_MOST_REQUESTS = 100
_MOST_NAMES = 5


def show_requests(call: ApiCall) -> ApiReply:
    """List requests, the newest first."""
    requests = visible_requests(call, _MOST_REQUESTS)
    return page_of(call, "approvals.html", requests=requests, needed=APPROVALS)


def show_request(call: ApiCall) -> ApiReply:
    """Show a request: who asks for what, with which verdict, and what became of it."""
    request = request_of(call)
    is_open = request.state in ("waiting", "stale")
    may_decide = is_open and bool(call.caller.scopes & APPROVERS)
    has_approved = call.caller.name in request.approved_by
    return page_of(
        call,
        "approval.html",
        request=request,
        move=request.move,
        head=headline_of(call, request),
        changes=list(changes_between(*call.manager.moved_texts(request))),
        others=_others(call, request),
        may_approve=may_decide
        and request.state == "waiting"
        and not (has_approved and request.missing),
        may_decline=may_decide and request.by != call.caller.name,
        may_withdraw=may_decide and request.by == call.caller.name,
    )


def _others(call: ApiCall, request: MoveRequest) -> str:
    """Return who could approve a request, in words."""
    callers = [*call.access.tokens.list(), *call.access.sessions.users()]
    names = sorted(
        {
            caller.name
            for caller in callers
            if caller.scopes & APPROVERS and caller.sees(request.move.project)
        }
        - set(request.approved_by)
    )
    shown = names[:_MOST_NAMES]
    if len(names) > _MOST_NAMES or not names:
        shown.append(
            f"somebody {'else ' if names or request.approved_by else ''}with the role approve"
        )
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def decide(call: ApiCall) -> ApiReply:
    """Approve, decline or withdraw a request."""
    check_approver(call.caller)
    form, number = form_of(call), request_of(call).number
    decisions = (call.manager.approve, call.manager.decline, call.manager.withdraw)
    chosen = {decide.__name__: decide for decide in decisions}.get(form.get("what", ""))
    if chosen is None:
        raise ApiProblem(422, "what: expected approve, decline or withdraw")
    chosen(number, comment=form.get("comment", ""))
    return redirect(call, f"/approvals/{number}")


def change_protection(call: ApiCall) -> ApiReply:
    """Protect a tag, or end its protection."""
    form = form_of(call)
    project, tag = call.project(form.get("project", "")), form.get("tag", "")
    changes = {"protect": call.manager.protect, "unprotect": call.manager.unprotect}
    if (what := form.get("what", "")) not in changes:
        raise ApiProblem(422, "what: expected protect or unprotect")
    changes[what](project, tag)
    return redirect(call, "/tags")


ROUTES: Sequence[Route] = (
    Route("GET /approvals", Scope.READ, show_requests),
    Route("GET /approvals/{number}", Scope.READ, show_request),
    Route("POST /approvals/{number}", None, decide),
    Route("POST /protections", Scope.ADMIN, change_protection),
)
"""The pages of requests."""
