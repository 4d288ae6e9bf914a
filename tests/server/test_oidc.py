"""Signing in by an OpenID Connect provider: a real one, one that forges, and one that is away."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import httpx
import pytest
import sqlalchemy
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from jobs.job_world import write_project
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.service.database import Database
from promptgraft.service.jobs import JobManager
from promptgraft.service.server import Limits, Scope
from promptgraft.service.server.access import COOKIE
from promptgraft.service.server.oidc import OidcUser
from promptgraft.service.server.oidc_settings import OidcGroup, OidcSettings, read_oidc
from promptgraft.service.server.sessions import SessionStore
from runs.test_report_in_browser import browser as browser_of_reports
from runs.test_report_in_browser import new_page
from server.oidc_providers import CLIENT, Forger, forger, need, real_provider, rsa_key
from server.serving import Client, asking, served

browser = browser_of_reports

SECRET = "hunter2 & never : shown"
VERIFIED = {"email_verified": True}
USERS: Mapping[str, Mapping[str, object]] = {
    "ana": {"email": "Ana@example.org", **VERIFIED, "groups": ["staff", "leads"]},
    "bob": {"email": "bob@example.org", **VERIFIED, "groups": ["support"]},
    "eve": {"email": "eve@example.org", **VERIFIED, "groups": ["guests"]},
}
EVERY = frozenset({Scope.READ, Scope.SUBMIT, Scope.APPROVE})
GROUPS = {
    "leads": OidcGroup(roles=EVERY),
    "support": OidcGroup(
        roles=frozenset({Scope.READ, Scope.SUBMIT}), projects=frozenset({"support"})
    ),
}


def settings(issuer: str, **more: Any) -> OidcSettings:
    plain = OidcSettings(issuer=issuer, client_id=CLIENT, groups=GROUPS, client_secret=SECRET)
    return attrs.evolve(plain, **more)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with real_provider(USERS) as found:
        yield found


@pytest.fixture
def forging() -> Iterator[Forger]:
    with forger() as found:
        yield found


@pytest.fixture
def server(forging: Forger, manager: JobManager, tmp_path: Path) -> Iterator[Client]:
    """A server whose users sign in by a provider that forges."""
    with served(manager, tmp_path / "mirrors", oidc=settings(forging.issuer)) as client:
        yield client


def agree(address: str, sub: str) -> str:
    """Sign in at the real provider, and return the address that it sends the browser to."""
    with asking() as provider:
        answer = provider.post(address, data={"sub": sub})
    assert answer.status_code == 302
    return answer.headers["location"]


def leave(browser: httpx.Client, path: str = "/", base: str = "") -> str:
    answer = browser.get(f"{base}/login/oidc", params={"next": path})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def fault(answer: httpx.Response) -> str:
    """Return what the page to sign in says went wrong."""
    found = re.search(r'role="alert">(.*?)</p>', answer.text)
    assert found, answer.text
    assert "Traceback" not in answer.text
    return unescape(found[1])


def come_back(server: Client, forging: Forger, **more: str) -> httpx.Response:
    """Sign in from the beginning, and return what the server says in the end."""
    with asking(server.url) as browser:
        query = forging.code(leave(browser))
        return browser.get("/login/oidc/callback", params={**query, **more})


# By a real provider


def test_a_user_of_a_provider_has_the_roles_and_projects_of_their_groups(
    issuer: str, tmp_path: Path
) -> None:
    path = write_project(tmp_path / "project")
    projects = {"support": path, "secret": path}
    manager = JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)
    with (
        closing(manager),
        served(manager, tmp_path / "mirrors", oidc=settings(issuer)) as client,
        asking(client.url) as ana,
        asking(client.url) as bob,
        asking(client.url) as eve,
    ):
        asked = ana.get("/workers?x=1", headers={"Accept": "text/html"})
        assert (
            'href="/login/oidc?next=%2Fworkers%3Fx%3D1">Sign in with OpenID Connect' in asked.text
        )
        entered = ana.get(agree(leave(ana, "/workers?x=1"), "ana"))
        assert entered.status_code == 200
        assert 'content="0; url=/workers?x=1"' in entered.text
        assert "HttpOnly; SameSite=Strict" in entered.headers["set-cookie"]
        assert (
            '>ana@example.org</a><span class="quiet">read, submit, approve</span>'
            in ana.get("/").text
        )
        assert bob.get(agree(leave(bob), "bob")).status_code == 200
        account = bob.get("/account").text
        assert "read, submit" in account
        assert "<dd>support</dd>" in account
        assert "secret" not in bob.get("/new").text
        assert "secret" in ana.get("/new").text
        assert bob.post("/tags", data={"what": "promote"}).status_code == 403
        made = bob.post("/new", data={"prompt": "support/triage"})
        job = made.headers["location"].rpartition("/")[2]
        assert manager.submitters([manager.get(job)])[job] == "bob@example.org"
        refused = eve.get(agree(leave(eve), "eve"))
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
        assert fault(refused).startswith("eve@example.org is in no group that may use this server")
        # Sessions are those of the user, and end like all others.
        assert ana.get("/account").text.count("this browser") == 1
        ana.post("/logout")
        assert ana.get("/").status_code == 401
        assert (
            run(["tokens", "revoke", "bob@example.org", "--jobs", manager.database.secret_url]) == 0
        )
        assert bob.get("/").status_code == 401


def test_the_code_of_a_provider_works_once_and_in_one_browser(
    issuer: str, manager: JobManager, tmp_path: Path
) -> None:
    with (
        served(manager, tmp_path / "mirrors", oidc=settings(issuer)) as client,
        asking(client.url) as ana,
        asking(client.url) as other,
    ):
        address = agree(leave(ana), "ana")
        # Somebody else who has seen the address, with a login of their own.
        leave(other)
        assert fault(other.get(address)).startswith("this did not begin in this browser")
        assert other.get("/").status_code == 401
        secret = ana.cookies["promptgraft_login"]
        assert ana.get(address).status_code == 200
        again = ana.get(address)
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        assert "was used before" in fault(again)
        # A login that has begun anew, with the code of the one before.
        ana.cookies.clear()
        fresh = dict(parse_qs(urlsplit(leave(ana)).query))["state"][0]
        assert ana.cookies["promptgraft_login"] != secret
        code = dict(parse_qs(urlsplit(address).query))["code"][0]
        replayed = ana.get("/login/oidc/callback", params={"code": code, "state": fresh})
        assert replayed.status_code == 401
        assert fault(replayed).startswith("the code was used before, has expired or is invalid")


def below(app: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount("/pg", app=app)])


def test_a_browser_signs_in_below_a_path_and_sees_the_page_that_it_wanted(
    browser: Browser, issuer: str, manager: JobManager, tmp_path: Path
) -> None:
    oidc = settings(issuer, label="Example login")
    with served(manager, tmp_path / "mirrors", oidc=oidc, mounted=below) as client:
        page = new_page(browser)
        page.goto(f"{client.url}/pg/workers?x=1")
        page.get_by_role("link", name="Sign in with Example login").click()
        page.get_by_role("button", name="ana").first.click()
        expect(page.get_by_role("link", name="ana@example.org")).to_be_visible()
        assert page.url == f"{client.url}/pg/workers?x=1"
        # The cookie of the session is not sent along a link of another site.
        assert {cookie["sameSite"] for cookie in page.context.cookies(f"{client.url}/pg/")} == {
            "Strict"
        }
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("link", name="Sign in with Example login")).to_be_visible()
        page.context.close()


@pytest.mark.parametrize("script", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_what_was_typed_survives_a_provider_below_a_path(
    browser: Browser, issuer: str, manager: JobManager, tmp_path: Path, script: bool
) -> None:
    manager.create("support", "triage")
    with served(manager, tmp_path / "mirrors", oidc=settings(issuer), mounted=below) as client:
        page = new_page(browser, java_script_enabled=script)
        provider = page.get_by_role("link", name="Sign in with OpenID Connect")
        page.goto(f"{client.url}/pg/new")
        provider.click()
        page.get_by_role("button", name="ana").first.click()
        page.get_by_label("Note").fill("a <b>thought")
        page.context.clear_cookies(name=COOKIE)
        page.get_by_role("button", name="Show the plan").click()
        if script:
            provider.click()
            page.get_by_role("button", name="ana").first.click()
        else:
            with page.context.expect_page() as opened:
                provider.click()
            opened.value.get_by_role("button", name="ana").first.click()
            expect(opened.value.get_by_role("link", name="ana@example.org")).to_be_visible()
            page.get_by_role("button", name="Show what you typed").click()
        expect(page.get_by_label("Note")).to_have_value("a <b>thought")
        page.get_by_role("button", name="Send: plan").click()
        expect(page.get_by_role("status")).to_contain_text("test calls")
        assert page.url == f"{client.url}/pg/new"
        page.context.close()


# By one that forges


def test_a_right_token_opens_a_session_and_proves_who_asks(server: Client, forging: Forger) -> None:
    assert come_back(server, forging).status_code == 200
    (asked,) = forging.asked
    user, _, password = (
        base64.b64decode(asked["auth"].removeprefix("Basic ")).decode().partition(":")
    )
    assert (user, password) == (CLIENT, "hunter2%20%26%20never%20%3A%20shown")
    assert asked["redirect_uri"] == f"{server.url}/login/oidc/callback"
    forging.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    with served(server.manager, Path("unused"), oidc=settings(forging.issuer)) as other:
        assert come_back(other, forging).status_code == 200
    assert (forging.asked[1]["client_secret"], forging.asked[1]["auth"]) == (SECRET, "")


OF_NO_LOGIN: list[tuple[dict[str, object], str]] = [
    ({"nonce": "of another login"}, "invalid_claim nonce"),
    ({"nonce": None}, "missing_claim nonce"),
    ({"aud": "another-program"}, "invalid_claim aud"),
    ({"aud": [CLIENT, "another-program"]}, "made for another program"),
    ({"azp": "another-program"}, "made for another program"),
    ({"iss": "https://evil.example"}, "invalid_claim iss"),
    ({"exp": 1_700_000_000}, "expired_token exp"),
    ({"exp": None}, "missing_claim exp"),
    ({"iat": 9_999_999_999}, "invalid_claim iat"),
    ({"sub": None}, "missing_claim sub"),
    ({"email_verified": False}, "not say that your address is verified; have it do so"),
    ({"email_verified": None}, "verified; whoever runs this server can have it send"),
    ({"email_verified": "true"}, "not say that your address is verified"),
    ({"email_verified": 1}, "not say that your address is verified"),
    ({"email": None}, "is no name for this server"),
    ({"email": "<b>ana</b>"}, "is no name for this server"),
    ({"email": "local"}, "is no name for this server"),
    ({"groups": "guests"}, "is in no group"),
    ({"groups": {"leads": True}}, "is in no group"),
]


def test_a_token_that_is_not_for_this_login_opens_nothing(server: Client, forging: Forger) -> None:
    for claims, reason in OF_NO_LOGIN:
        forging.claims = claims
        answer = come_back(server, forging)
        assert answer.status_code in (401, 403), claims
        assert reason in fault(answer)
        assert "set-cookie" not in answer.headers, claims
        assert "<b>" not in answer.text


@pytest.mark.parametrize(
    ("changed", "status"), [({}, 200), ({"claim": "email"}, 403), ({"name": "email"}, 403)]
)
def test_an_address_that_is_not_verified_is_not_needed_unless_it_names_or_admits(
    forging: Forger, manager: JobManager, tmp_path: Path, changed: dict[str, str], status: int
) -> None:
    # Entra ID sends no `email_verified`: its users sign in by another claim.
    forging.claims = {"email_verified": None, "preferred_username": "ana"}
    groups = {**GROUPS, "ana@example.org": OidcGroup(roles=EVERY)}
    by_name = settings(forging.issuer, groups=groups, **{"name": "preferred_username", **changed})
    with served(manager, tmp_path / "mirrors", oidc=by_name) as server:
        assert come_back(server, forging).status_code == status


def unsigned(claims: dict[str, object]) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none", "kid": "own"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), ""])


def by_another_key(claims: dict[str, object]) -> str:
    from joserfc import jwt

    return jwt.encode({"alg": "RS256", "kid": "own"}, claims, rsa_key("another"))


def by_an_unknown_key(claims: dict[str, object]) -> str:
    from joserfc import jwt

    key = rsa_key("unknown", kid="other")
    return jwt.encode({"alg": "RS256", "kid": "other"}, claims, key)


def by_the_client_secret(claims: dict[str, object]) -> str:
    from joserfc import jwk, jwt

    key = jwk.OctKey.import_key(SECRET.encode() * 2)
    return jwt.encode({"alg": "HS256", "kid": "own"}, claims, key)


def test_a_token_without_a_signature_of_the_provider_opens_nothing(
    server: Client, forging: Forger
) -> None:
    signs = (unsigned, by_another_key, by_an_unknown_key, by_the_client_secret, lambda _: "a.b.c")
    for forging.sign in signs:
        answer = come_back(server, forging)
        assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
        assert fault(answer).startswith("the ID token is refused: ")
        assert "sign in again" in fault(answer)


def test_keys_that_the_provider_has_changed_are_looked_up_again(
    server: Client, forging: Forger
) -> None:
    assert come_back(server, forging).status_code == 200
    provider = server.access.provider
    assert provider is not None
    # As if they were those of some time ago, with another name.
    provider._cached_keys = (-1e9, [{"kty": "oct", "k": "AAAA", "kid": "before"}])
    assert come_back(server, forging).status_code == 200


def test_a_wrong_state_opens_nothing_and_does_not_ask_the_provider(
    server: Client, forging: Forger
) -> None:
    for state in ("", "wrong"):
        answer = come_back(server, forging, state=state)
        assert answer.status_code == 401
        assert fault(answer).startswith("this did not begin in this browser")
        assert forging.asked == []


def test_a_login_that_took_too_long_has_ended(server: Client, forging: Forger) -> None:
    logins = server.manager.database.tables.signing_in.logins
    with asking(server.url) as browser:
        query = forging.code(leave(browser))
        change = sqlalchemy.update(logins).values(ends=logins.c.ends - 601)
        server.manager.database.write(lambda connection: connection.execute(change))
        answer = browser.get("/login/oidc/callback", params=query)
    assert "took longer than 10 minutes" in fault(answer)
    assert forging.asked == []


def test_no_page_of_another_site_follows(server: Client, forging: Forger) -> None:
    for path in ("//evil.example", "https://evil.example", "/\\evil.example", "/\t/e.com", "evil"):
        with asking(server.url) as browser:
            query = forging.code(leave(browser, path))
            page = browser.get("/login/oidc/callback", params=query).text
        assert 'content="0; url=/">' in page, path
        assert "evil" not in page


def test_what_the_provider_refuses_is_said_in_a_sentence_without_its_words(
    server: Client, forging: Forger
) -> None:
    denied = come_back(server, forging, error="access_denied", error_description="<script>x")
    assert fault(denied).startswith("the provider has signed nobody in (access_denied); sign in")
    assert "script>x" not in denied.text
    odd = come_back(server, forging, error="<b>")
    assert fault(odd).startswith("the provider has signed nobody in; sign in again")
    other = come_back(server, forging, iss="https://evil.example")
    assert fault(other).startswith("the answer comes from another provider")
    assert forging.asked == []


def test_a_provider_that_fails_gives_a_page_with_the_next_step(
    server: Client, forging: Forger
) -> None:
    for status, answer, reason in (
        (500, b"", "the provider failed (status 500)"),
        (200, b"<html>", "no JSON object"),
        (200, b"[]", "no JSON object"),
        (200, b'{"access_token": "x"}', "no ID token"),
        (200, b" " * 1_100_000, "too long"),
        (401, b'{"error": "invalid_client"}', "refused this server (invalid_client)"),
    ):
        forging.status, forging.answer = status, answer
        page = come_back(server, forging)
        assert page.status_code in (401, 502)
        assert reason in fault(page)
        assert "Sign in with OpenID Connect" in page.text


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"issuer": "https://evil.example"}, "calls itself 'https://evil.example'"),
        ({"token_endpoint": "http://192.0.2.1/token"}, "`token_endpoint` is no https address"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "is no https address"),
        ({"jwks_uri": None}, "`jwks_uri` is no https address"),
    ],
)
def test_a_discovery_document_that_leads_elsewhere_is_refused(
    server: Client, forging: Forger, metadata: dict[str, object], reason: str
) -> None:
    forging.metadata = metadata
    with asking(server.url) as browser:
        answer = browser.get("/login/oidc")
    assert answer.status_code == 502
    assert reason in fault(answer)


def test_a_provider_that_is_away_leaves_the_form_for_tokens(
    manager: JobManager, tmp_path: Path
) -> None:
    need("joserfc")
    away = settings("http://127.0.0.1:9")
    with served(manager, tmp_path / "mirrors", oidc=away) as client, asking(client.url) as browser:
        answer = browser.get("/login/oidc", params={"next": "/workers"})
        assert answer.status_code == 502
        assert fault(answer) == (
            "the provider cannot be reached (ConnectError); try again in a moment, or sign in "
            "with a token"
        )
        assert 'name="wanted" value="/workers"' in answer.text
        assert browser.post("/login", data={"token": client.token}).status_code == 303


def test_without_a_provider_nothing_of_it_is_there(client: Client) -> None:
    with asking(client.url) as browser:
        assert "Sign in with" not in browser.get("/login").text
        for path in ("/login/oidc", "/login/oidc/callback"):
            assert browser.get(path).status_code == 404


def test_the_secret_of_the_client_is_found_nowhere(
    server: Client, forging: Forger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    pages = [come_back(server, forging).text, come_back(server, forging, state="x").text]
    forging.answer, forging.status = b'{"error": "invalid_client"}', 401
    pages.append(come_back(server, forging).text)
    assert "refused this server" in caplog.text
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for secret in (SECRET, "hunter2%20", SECRET.split(maxsplit=1)[0]):
        assert secret not in caplog.text
        assert secret not in "".join(pages)
        assert secret.encode() not in kept
    assert SECRET not in repr(server.access.provider and server.access.provider.settings)


# Roles, sessions and settings


def test_a_role_that_a_group_loses_is_lost_in_sessions_that_are_open(
    forging: Forger, manager: JobManager, tmp_path: Path
) -> None:
    weaker = settings(forging.issuer, groups={"leads": OidcGroup(roles=frozenset({Scope.READ}))})
    others = settings(forging.issuer, groups={"staff": OidcGroup(roles=EVERY)})
    with (
        served(manager, tmp_path / "a", oidc=settings(forging.issuer)) as first,
        served(manager, tmp_path / "b", oidc=weaker) as second,
        served(manager, tmp_path / "c", oidc=others) as third,
        served(manager, tmp_path / "d") as fourth,
        asking() as browser,
    ):
        query = forging.code(leave(browser, base=first.url))
        assert browser.get(f"{first.url}/login/oidc/callback", params=query).status_code == 200
        assert browser.get(f"{first.url}/new").status_code == 200
        assert browser.get(f"{second.url}/").status_code == 200
        assert browser.get(f"{second.url}/new").status_code == 403
        assert browser.get(f"{third.url}/").status_code == 401
        assert browser.get(f"{fourth.url}/").status_code == 401


def group(roles: str, projects: str = "") -> OidcGroup:
    scopes = frozenset(Scope(role) for role in roles.split())
    return OidcGroup(roles=scopes, projects=frozenset(projects.split()) or None)


@pytest.mark.parametrize(
    ("memberships", "roles", "projects"),
    [
        (["a"], "read submit", {"a"}),
        (["a", "b"], "read submit", {"a", "b"}),
        # No role reaches a project by a group that does not have it.
        (["viewers", "a"], "read submit", {"a"}),
        (["viewers"], "read", {"v", "all"}),
        ([], "read", {"all"}),
        (["leads", "a"], "read submit approve", None),
    ],
)
def test_the_first_group_decides_the_roles_and_others_that_have_them_add_projects(
    memberships: list[str], roles: str, projects: set[str] | None
) -> None:
    groups = {
        "leads": group("read submit approve"),
        "a": group("read submit", "a"),
        "b": group("read submit approve", "b"),
        "viewers": group("read", "v"),
        "*": group("read", "all"),
    }
    caller = settings("https://a.example", groups=groups).caller("ana", memberships, "d")
    assert caller is not None
    assert (caller.scopes, caller.projects) == (group(roles).roles, projects)


def test_behind_a_tls_proxy_the_way_back_is_https_and_the_cookie_secure(
    forging: Forger, manager: JobManager, tmp_path: Path
) -> None:
    oidc = settings(forging.issuer)
    with served(manager, tmp_path / "mirrors", oidc=oidc, is_secure=True) as client:
        answer = client.ask("GET", "/login/oidc", token="")
    back = f"https://{client.url.removeprefix('http://')}/login/oidc/callback"
    assert parse_qs(urlsplit(answer.headers["location"]).query)["redirect_uri"] == [back]
    cookie = answer.headers["set-cookie"]
    assert re.fullmatch(
        r"promptgraft_login=[\w-]{43}; Path=/login; HttpOnly; SameSite=Lax; Max-Age=600; Secure",
        cookie,
    )


def test_who_begins_too_often_is_slowed_down(
    forging: Forger, manager: JobManager, tmp_path: Path
) -> None:
    oidc = settings(forging.issuer)
    with (
        served(manager, tmp_path / "mirrors", oidc=oidc, now=lambda: 0.0) as client,
        asking(client.url) as browser,
    ):
        statuses = [browser.get("/login/oidc").status_code for _ in range(41)]
    assert statuses == [303] * 40 + [429]


def test_logins_and_users_are_the_same_on_every_database(database: Database) -> None:
    sessions = SessionStore(database, Limits(), settings("https://a.example"))
    sessions.begin_login("state", "/jobs/✓")
    assert sessions.end_login("other") is None
    assert sessions.end_login("state") == "/jobs/✓"
    assert sessions.end_login("state") is None
    user = OidcUser(digest="d" * 64, name="ana@example.org", memberships=frozenset({"leads"}))
    cookies = [sessions.open_for(user, "a"), sessions.open_for(user, "b")]
    callers = [sessions.find(cookie) for cookie in cookies]
    assert [caller and (caller.name, caller.scopes) for caller in callers] == [
        (user.name, EVERY)
    ] * 2
    # What the provider says last counts in all sessions.
    sessions.open_for(OidcUser(digest=user.digest, name=user.name, memberships=frozenset()), "c")
    assert [sessions.find(cookie) for cookie in cookies] == [None, None]


FILE = """
issuer: https://login.example.org
client_id: promptgraft
client_secret: ${OIDC_SECRET}
groups:
  leads: {roles: [read, submit, approve]}
  support: {roles: [read], projects: [support]}
"""


def test_settings_come_from_a_file_and_the_secret_from_the_environment_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "oidc.yaml"
    file.write_text(FILE)
    with pytest.raises(ConfigError, match="client_secret: the variable OIDC_SECRET is not set"):
        read_oidc(file)
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    found = read_oidc(file)
    assert (found.client_secret, found.groups["leads"].roles) == (SECRET, EVERY)
    assert found.groups["support"].projects == frozenset({"support"})
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    file.write_text(FILE.replace("client_secret: ${OIDC_SECRET}", "client_secret_file: secret"))
    assert read_oidc(file).client_secret == SECRET
    file.write_text(f"{FILE}client_secret_file: secret\n")
    with pytest.raises(ConfigError, match="leave one out"):
        read_oidc(file)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("${OIDC_SECRET}", "hunter2", "client_secret: expected `${NAME}`"),
        ("https://login", "http://login", "issuer: expected an address such as https"),
        ("[read]", "[reed]", "roles[0]: expected"),
        ("[read]", "[]", "roles: expected at least one"),
        ("[support]", "[]", "projects: expected at least one"),
        ("groups:", "grupps:", "grupps"),
    ],
)
def test_a_fault_in_the_settings_is_named_without_the_secret(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    file = tmp_path / "oidc.yaml"
    file.write_text(FILE.replace(before, after))
    with pytest.raises(DataFormatError) as raised:
        read_oidc(file)
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)
