"""Signing in and out: the form, links, and the sessions of a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from starlette.requests import cookie_parser

from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.service.server.access import LOGIN_COOKIE
from promptgraft.service.server.calls import MOST_BODY_BYTES, ApiCall, ApiReply, Route
from promptgraft.service.server.forms import form_of
from promptgraft.service.server.kept import inside, kept_again
from promptgraft.service.server.pages import kept_page, page_of, redirect
from promptgraft.service.server.problems import ApiProblem


def show_sign_in(call: ApiCall) -> ApiReply:
    """Show the form that takes a token, or sign in by the link that `serve` prints."""
    if "code" in call.query:
        return _signed_in(call, call.access.redeem_code(call.query["code"], call.visit))
    # A link of `tokens link` needs a click: programs that preview links would use it up, and a
    # cookie that is set on the way from another site is not sent along the redirect.
    return _form(call, link=call.query.get("link", ""))


def _form(
    call: ApiCall,
    *,
    link: str = "",
    wanted: str = "",
    kept: Mapping[str, str] = FrozenMap(),
    problem: ApiProblem | None = None,
) -> ApiReply:
    """Return the page to sign in, with what went wrong before."""
    page = page_of(
        call,
        "sign_in.html",
        problem.status if problem else 200,
        who=None,
        provider=call.access.provider_name,
        link=link,
        wanted=wanted,
        kept=kept,
        fault=problem.detail if problem else "",
    )
    more = problem.headers if problem else {}
    return attrs.evolve(page, headers={**page.headers, **more})


def sign_in(call: ApiCall) -> ApiReply:
    """Open a session for the token, or the link, in the form."""
    form = form_of(call)
    link, token, target_path = (form.get(name, "") for name in ("link", "token", "wanted"))
    try:
        cookie = (
            call.access.redeem_link(link, call.visit)
            if link
            else call.access.redeem_token(token, call.visit)
        )
    except ApiProblem as problem:
        if problem.status != 401:
            raise
        return _form(call, wanted=target_path, kept=kept_again(form), problem=problem)
    caller = call.access.sessions.find(cookie)
    page = kept_page(attrs.evolve(call, caller=caller), form) if caller else None
    if page is None:
        return _signed_in(call, cookie, target_path)
    return attrs.evolve(page, headers={**page.headers, "Set-Cookie": call.visit.cookie(cookie)})


def show_kept(call: ApiCall) -> ApiReply:
    """Show what the page or its script has kept while the user signed in elsewhere."""
    return kept_page(call, form_of(call)) or redirect(call, "/")


def _signed_in(call: ApiCall, cookie: str, target_path: str = "") -> ApiReply:
    # A redirect keeps codes out of the browser's history.
    return redirect(call, inside(target_path), Set_Cookie=call.visit.cookie(cookie))


def leave_for_provider(call: ApiCall) -> ApiReply:
    """Send the browser to the provider that signs users in."""
    path = call.query.get("next", "")
    try:
        address, secret = call.access.leave_for_provider(path, call.visit)
    except ApiProblem as problem:
        return _form(call, wanted=path, problem=problem)
    cookie = call.visit.login_cookie(secret)
    return ApiReply(status=303, headers={"Location": address, "Set-Cookie": cookie})


def come_back(call: ApiCall) -> ApiReply:
    """Open a session for the user whom the provider has signed in."""
    secret = cookie_parser(call.headers.get("cookie", "")).get(LOGIN_COOKIE)
    try:
        path, cookie = call.access.come_back(call.query, secret, call.visit)
    except ApiProblem as problem:
        return _form(call, problem=problem)
    # A page and no redirect: on a way that began at another site, browsers do not send the cookie.
    page = page_of(call, "signed_in.html", who=None, path=inside(path))
    return attrs.evolve(page, headers={**page.headers, "Set-Cookie": call.visit.cookie(cookie)})


def sign_out(call: ApiCall) -> ApiReply:
    """End the session of this browser."""
    call.access.sessions.end(call.caller.token, [call.caller.session])
    return redirect(call, "/login", Set_Cookie=call.visit.cookie(""))


def show_account(call: ApiCall) -> ApiReply:
    """Show the scopes and the sessions of the caller."""
    caller = call.caller
    has_sessions = bool(caller.session or caller.token)
    sessions = call.access.sessions.list(caller.token) if has_sessions else ()
    return page_of(call, "account.html", sessions=sessions, limits=call.access.limits)


def end_sessions(call: ApiCall) -> ApiReply:
    """End one of the caller's sessions, or all others than this one."""
    form, caller, store = form_of(call), call.caller, call.access.sessions
    if not (caller.session or caller.token):
        raise ApiProblem(409, "this caller has no sessions; a proxy has signed it in")
    match form.get("what"):
        case "end":
            store.end(caller.token, [form.get("session", "")])
        case "end-others":
            ids = {session.id for session in store.list(caller.token)}
            store.end(caller.token, ids - {caller.session})
        case _:
            raise ApiProblem(422, "what: expected end or end-others")
    return redirect(call, "/account")


OPEN_ROUTES: Sequence[Route] = (
    Route("GET /login", None, show_sign_in),
    # With what a form keeps of another.
    Route("POST /login", None, sign_in, most_bytes=2 * MOST_BODY_BYTES),
    Route("GET /login/oidc", None, leave_for_provider),
    Route("GET /login/oidc/callback", None, come_back),
)
"""Pages that need no token."""

ROUTES: Sequence[Route] = (
    Route("POST /logout", None, sign_out),
    Route("POST /kept", None, show_kept, most_bytes=2 * MOST_BODY_BYTES),
    Route("GET /account", None, show_account),
    Route("POST /account", None, end_sessions),
)
"""Pages for every caller, whatever its scopes."""
