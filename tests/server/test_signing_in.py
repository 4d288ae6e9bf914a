"""Signing in: by a token, by a link, by a proxy; what ends a session; and below a path."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
import sqlalchemy
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from jobs.job_world import work_off, write_project
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobClient, JobManager
from promptgraft.service.jobs.presence import Presence, worker_rows
from promptgraft.service.server import (
    Limits,
    Proxy,
    Scope,
    TokenStore,
    approvals,
    datasets,
    pages,
    signing_in,
)
from promptgraft.service.server.api import ROUTES
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.sessions import SessionStore
from server.serving import Client, asking, served

HTML = {"Accept": "text/html"}


@pytest.fixture
def ana(client: Client, manager: JobManager) -> str:
    """The token of somebody who may read and submit."""
    return TokenStore(manager.database).create("ana", [Scope.READ, Scope.SUBMIT])


@pytest.fixture
def browser(client: Client) -> Iterator[httpx.Client]:
    with asking(client.url) as found:
        yield found


def signs_in(browser: httpx.Client, token: str, **more: str) -> httpx.Response:
    return browser.post("/login", data={"token": token, **more})


def test_a_token_opens_a_session_with_its_scopes(browser: httpx.Client, ana: str) -> None:
    asked = browser.get("/new?x=1", headers=HTML)
    assert asked.status_code == 401
    assert '<input type="hidden" name="wanted" value="/new?x=1">' in asked.text
    assert '<a href="/datasets"' not in asked.text  # no page that is not open to strangers
    entered = signs_in(browser, ana, wanted="/new?x=1")
    assert (entered.status_code, entered.headers["location"]) == (303, "/new?x=1")
    cookie = entered.headers["set-cookie"]
    assert re.fullmatch(r"promptgraft_session=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", cookie)
    assert ana not in cookie
    page = browser.get("/")
    assert page.status_code == 200
    assert re.search(r'/account">ana</a><span class="quiet">read, submit</span>', page.text)
    for path in ("/nothing", "/assets/nothing", "/logout"):
        refused = browser.get(path, headers=HTML)
        assert refused.status_code in (404, 405)
        assert '/account">ana</a>' in refused.text
        assert "ana" not in httpx.get(browser.base_url.join(path), headers=HTML).text
    # A form that is sent after the end of a session leads back to its page.
    with asking(str(browser.base_url)) as stranger:
        lost = stranger.post("/new", data={"prompt": "support/triage"}, headers=HTML)
        assert (lost.status_code, "nothing was changed" in lost.text) == (401, True)
        assert '<input type="hidden" name="wanted" value="/new">' in lost.text
        assert 'name="wanted" value=""' in stranger.post("/protections", headers=HTML).text
    # A session may do what its token may, and no more.
    assert browser.post("/tags", data={"what": "rollback"}).status_code == 403
    assert browser.post("/new", data={"prompt": "support/triage"}).status_code == 303


def test_a_wrong_token_is_told_so_and_slowed_down(manager: JobManager, tmp_path: Path) -> None:
    with (
        served(manager, tmp_path / "mirrors", now=lambda: 0.0) as client,
        asking(client.url) as browser,
    ):
        refused = signs_in(browser, "guess")
        assert refused.status_code == 401
        assert "this is not a token of this server" in refused.text
        assert "guess" not in refused.text
        statuses = [signs_in(browser, f"guess-{count}").status_code for count in range(41)]
        assert statuses == [401] * 39 + [429] * 2
        assert signs_in(browser, client.token).status_code == 303


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "///evil.example",
        "https://evil.example",
        "/\\evil.example",
        "evil",
        "",
        "/a\nb",
        "/\t/e.com",
        "//[",
    ],
)
def test_no_page_of_another_site_follows(client: Client, ana: str, wanted: str) -> None:
    with asking(client.url) as browser:
        assert signs_in(browser, ana, wanted=wanted).headers["location"] == "/"


def test_who_wanted_a_page_with_a_name_of_another_script_gets_there(
    client: Client, ana: str
) -> None:
    with asking(client.url) as browser:
        entered = signs_in(browser, ana, wanted="/?text=müde%20漢")
        assert entered.headers["location"] == "/?text=m%C3%BCde%20%E6%BC%A2"
        assert browser.get(entered.headers["location"]).status_code == 200


@pytest.mark.parametrize("path", ["/login", "/logout", "/account"])
@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_another_site_can_sign_nobody_in_or_out(
    browser: httpx.Client, ana: str, path: str, headers: dict[str, str]
) -> None:
    signs_in(browser, ana)
    form = {"token": ana, "what": "end-others"}
    assert browser.post(path, data=form, headers=headers).status_code == 403
    assert browser.get("/").status_code == 200


def test_sessions_are_listed_and_ended(client: Client, ana: str) -> None:
    with asking(client.url) as first, asking(client.url) as second, asking(client.url) as other:
        first.headers["User-Agent"] = "Firefox <b>"
        signs_in(first, ana)
        signs_in(second, ana)
        signs_in(other, client.token)
        page = first.get("/account").text
        assert "Firefox &lt;b&gt;" in page
        assert page.count("this browser") == 1
        ids = set(re.findall(r'name="session" value="(\w{64})"', page))
        assert len(ids) == 2
        # The session of somebody else is not the caller's to end.
        assert other.post("/account", data={"what": "end", "session": ids.pop()}).status_code == 303
        assert (first.get("/").status_code, second.get("/").status_code) == (200, 200)
        first.post("/account", data={"what": "end-others"})
        assert (first.get("/").status_code, second.get("/").status_code) == (200, 401)
        cookie = first.cookies["promptgraft_session"]
        left = first.post("/logout")
        assert left.headers["location"] == "/login"
        assert "promptgraft_session" not in first.cookies
        # It is the session that ended, not only the cookie.
        first.cookies.set("promptgraft_session", cookie)
        assert first.get("/").status_code == 401
        assert other.get("/").status_code == 200


def test_a_session_holds_on_every_server_of_a_database_until_its_token_is_revoked(
    manager: JobManager, tmp_path: Path
) -> None:
    tokens = TokenStore(manager.database)
    token = tokens.create("ana", [Scope.READ])
    with (
        served(manager, tmp_path / "one") as one,
        served(manager, tmp_path / "two") as two,
        asking() as browser,
    ):
        browser.post(f"{one.url}/login", data={"token": token})
        assert browser.get(f"{two.url}/").status_code == 200
        tokens.revoke("ana")
        assert browser.get(f"{two.url}/").status_code == 401
        tokens.create("ana", [Scope.READ])
        assert browser.get(f"{two.url}/").status_code == 401


def test_sessions_end_when_they_are_unused_or_old(
    client: Client, manager: JobManager, ana: str, browser: httpx.Client
) -> None:
    sessions = manager.database.tables.signing_in.sessions
    limits = Limits()

    def ages(seen: float, created: float) -> int:
        signs_in(browser, ana)
        change = sqlalchemy.update(sessions).values(
            seen=sessions.c.seen - seen, created=sessions.c.created - created
        )
        manager.database.write(lambda connection: connection.execute(change))
        return browser.get("/").status_code

    assert ages(limits.idle_seconds - 60, limits.idle_seconds - 60) == 200
    # That request was a use: the idle time counts from it.
    assert ages(limits.idle_seconds - 60, 0) == 200
    assert ages(limits.idle_seconds + 1, 0) == 401
    assert ages(0, limits.session_seconds + 1) == 401


def test_a_link_signs_one_browser_in_once(
    client: Client, manager: JobManager, ana: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tokens", "link", "ana", "--jobs", manager.database.secret_url]
    assert run([*command, "--server", client.url]) == 0
    link = capsys.readouterr().out.strip()
    code = link.partition("link=")[2]
    with asking(client.url) as browser, asking(client.url) as other:
        # A program that previews links does not use it up.
        for _ in range(2):
            assert f'name="link" value="{code}"' in browser.get(link).text
        entered = browser.post("/login", data={"link": code})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert ">ana</a>" in browser.get("/").text
        again = other.post("/login", data={"link": code})
        assert (again.status_code, "was used before" in again.text) == (401, True)
    assert run(["tokens", "link", "bob", "--jobs", manager.database.secret_url]) == 2
    assert "there is no token `bob`" in capsys.readouterr().err


def test_of_many_that_use_a_link_at_once_one_gets_in(client: Client, ana: str) -> None:
    code = client.access.tokens.new_link("ana", seconds=60)

    def enter(_: int) -> int:
        with asking(client.url) as browser:
            return browser.post("/login", data={"link": code}).status_code

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(enter, range(8))) == [303] + [401] * 7


def test_a_link_expires(client: Client, ana: str, browser: httpx.Client) -> None:
    code = client.access.tokens.new_link("ana", seconds=-1)
    assert browser.post("/login", data={"link": code}).status_code == 401


# Behind a proxy

LOOPBACK = ("127.0.0.1", "::1/128")


def test_a_user_whom_the_proxy_names_has_the_scopes_of_their_token(
    manager: JobManager, tmp_path: Path
) -> None:
    TokenStore(manager.database).create("ana@example.org", [Scope.READ], ["support"])
    proxy = Proxy(addresses=LOOPBACK, user_header="X-Forwarded-User")
    with served(manager, tmp_path / "mirrors", proxy=proxy, is_secure=True) as client:
        known = client.ask("GET", "/", token="", X_Forwarded_User="Ana@example.org")
        assert (known.status, ">ana@example.org</a>" in known.text) == (200, True)
        body = {"project": "support", "prompt": "triage"}
        refused = client.ask(
            "POST", "/api/v1/jobs", body, token="", X_Forwarded_User="ana@example.org"
        )
        assert (refused.status, "needs the scope `submit`" in refused.detail) == (403, True)
        unknown = client.ask("GET", "/", token="", X_Forwarded_User="bob")
        assert (unknown.status, "the user 'bob' has no token" in unknown.detail) == (403, True)
        assert client.ask("GET", "/", token="").status == 401
        # A proxy that adds its header to that of the client: nobody knows which is which.
        pairs = [("X-Forwarded-User", "ana@example.org"), ("X-Forwarded-User", "bob")]
        assert client.http.get(f"{client.url}/", headers=pairs).status_code == 401
        with asking(client.url) as browser:
            entered = signs_in(browser, client.token)
            assert entered.headers["set-cookie"].endswith("; Secure")


def test_users_without_a_token_may_have_scopes(manager: JobManager, tmp_path: Path) -> None:
    scopes = frozenset({Scope.READ, Scope.SUBMIT})
    proxy = Proxy(addresses=LOOPBACK, user_header="x-user", scopes=scopes)
    with served(manager, tmp_path / "mirrors", proxy=proxy) as client:
        body = {"project": "support", "prompt": "triage"}
        made = client.ask("POST", "/api/v1/jobs", body, token="", X_User="bob")
        assert made.status == 201
        events = client.get(f"/jobs/{made.document['id']}/events").rows("events")
        assert events[0]["by"] == "bob"
        account = client.ask("GET", "/account", token="", X_User="bob").text
        assert "read, submit" in account
        form = b"what=end-others"
        named = {"X_User": "bob", "Content_Type": "application/x-www-form-urlencoded"}
        assert client.ask("POST", "/account", form, token="", **named).status == 409


@pytest.mark.parametrize(
    ("user", "status"),
    [("", 401), ("local", 403), ("Local", 403), ("ana" + 62 * "a", 403), ("ana", 200)],
)
def test_an_empty_user_is_nobody_and_no_name_is_that_of_somebody_else(
    manager: JobManager, tmp_path: Path, user: str, status: int
) -> None:
    TokenStore(manager.database).create("ana" + 61 * "a", list(Scope))
    proxy = Proxy(addresses=LOOPBACK, user_header="x-user", scopes=frozenset({Scope.READ}))
    with served(manager, tmp_path / "mirrors", proxy=proxy) as client:
        assert client.ask("GET", "/api/v1/projects", token="", X_User=user).status == status
        # An empty header does not undo a session, and leaves no choice between several.
        with closing(client.browser()) as browser:
            assert browser.get("/", headers={"X-User": ""}).status_code == 200
        pairs = [("X-User", "ana"), ("X-User", "")]
        assert client.http.get(f"{client.url}/", headers=pairs).status_code == 401


def test_no_token_is_called_as_the_browser_on_the_machine_of_the_server(
    manager: JobManager,
) -> None:
    with pytest.raises(ConfigError, match="`local` is the browser on the server's machine"):
        TokenStore(manager.database).create("local", [Scope.READ])


def test_a_user_header_from_elsewhere_says_nothing(manager: JobManager, tmp_path: Path) -> None:
    TokenStore(manager.database).create("ana", [Scope.READ])
    proxy = Proxy(addresses=["192.0.2.0/24"], user_header="X-User")
    with served(manager, tmp_path / "mirrors", proxy=proxy) as client:
        assert client.ask("GET", "/", token="", X_User="ana").status == 401
    with served(manager, tmp_path / "mirrors") as client:
        assert client.ask("GET", "/", token="", X_User="ana").status == 401


@pytest.mark.parametrize("addresses", [(), ("10.0.0.1/8",), ("proxy.example",)])
def test_a_header_is_believed_of_nobody_who_is_not_named(addresses: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="--proxy-from"):
        Proxy(addresses=addresses, user_header="X-User")


def test_addresses_are_limited_each_by_itself_behind_a_proxy(
    manager: JobManager, tmp_path: Path
) -> None:
    limits = Limits(address_requests=2, requests=100)
    for proxy, statuses in (
        (Proxy(addresses=LOOPBACK), [401, 401, 401, 401, 429, 401]),
        (Proxy(), [401, 401, 401, 401, 429, 429]),
    ):
        with served(
            manager, tmp_path / "mirrors", now=lambda: 0.0, limits=limits, proxy=proxy
        ) as client:
            # The first address is what the client says, the last what the proxy has seen.
            forwarded = [[f"10.0.0.{number}, 192.0.2.1"] for number in range(3)]
            # Some proxies add a header of their own to that of the client.
            forwarded += [[f"10.0.0.{number}", "192.0.2.1"] for number in range(2)]
            assert statuses == [
                client.http.get(
                    f"{client.url}/api/v1/jobs",
                    headers=[
                        ("Authorization", "Bearer guess"),
                        *(("X-Forwarded-For", value) for value in values),
                    ],
                ).status_code
                for values in [*forwarded, ["192.0.2.2"]]
            ]


# Below a path


def below(app: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount("/pg", app=app)])


LINK = re.compile(r'(?:href|src|action|data-from|data-events)="([^"#][^"]*)"')


def test_mounted_in_another_application_every_link_form_and_stream_works(
    manager: JobManager, done: Job, tmp_path: Path
) -> None:
    waiting = manager.create("support", "triage", {})
    # Requests are far enough apart for any limit.
    now = itertools.count(0.0, 10.0).__next__
    with (
        served(manager, tmp_path / "mirrors", mounted=below, now=now) as client,
        asking() as browser,
    ):
        entered = browser.post(f"{client.url}/pg/login", data={"token": client.token})
        assert entered.headers["location"] == "/pg/"
        assert "Path=/pg;" in entered.headers["set-cookie"]
        seen, to_see = set[str](), {"/pg/", f"/pg/jobs/{done.id}", f"/pg/jobs/{waiting.id}"}
        while to_see - seen:
            path = (to_see - seen).pop()
            seen.add(path)
            with browser.stream("GET", f"{client.url}{path}") as answer:
                # 405: where a form is sent to; 422: a comparison of no jobs.
                assert answer.status_code in (200, 422 if "compare" in path else 405), path
                if "text/html" in answer.headers["content-type"] and "report" not in path:
                    found = LINK.findall(answer.read().decode())
                    links = {urljoin(path, unescape(link)) for link in found}
                    assert all(link.startswith(("/pg/", "data:")) for link in links), path
                    to_see |= {link for link in links if link.startswith("/")}
        assert {"/pg/account", "/pg/assets/live.js", f"/pg/jobs/{waiting.id}/live"} <= seen
        assert any("/events?after=" in path for path in seen)
        moved = browser.post(f"{client.url}/pg/jobs/{waiting.id}", data={"what": "cancel"})
        assert moved.headers["location"] == f"/pg/jobs/{waiting.id}"
        body = {"project": "support", "prompt": "triage"}
        made = client.ask("POST", "/pg/api/v1/jobs", body)
        assert made.headers["location"] == f"/pg/api/v1/jobs/{made.document['id']}"
        document = client.ask("GET", "/pg/api/openapi.json").document
        assert document["servers"] == [{"url": "/pg"}]
        with JobClient(f"{client.url}/pg", token=client.token) as jobs:
            assert jobs.get(done.id).id == done.id
        refused = client.http.get(f"{client.url}/pg/jobs/{done.id}", headers=HTML)
        assert f'name="wanted" value="/jobs/{done.id}"' in refused.text


# What a token may not see


def test_no_page_gauge_or_count_tells_of_a_project_that_a_token_may_not_see(
    tmp_path: Path,
) -> None:
    path = write_project(tmp_path / "project")
    projects = {"support": path, "secret": path}
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)) as manager:
        own = manager.create("support", "triage", {"dry_run": True, "budget": 60})
        for seed in range(1):
            manager.create("secret", "triage", {"seed": seed, "dry_run": True, "budget": 60})
        work_off(manager)
        hidden = manager.create("secret", "triage", {})
        manager.save_dataset("support", "hard", '{"input": "a", "expected": "login"}')
        for name in ("hard", "secret-cases"):
            manager.save_dataset("secret", name, '{"input": "secret", "expected": "login"}')
        token = TokenStore(manager.database).create("team", list(Scope), ["support"])
        now = itertools.count(0.0, 10.0).__next__
        with served(manager, tmp_path / "mirrors", now=now) as client:
            tables = (
                ("/api/v1", ROUTES),
                ("", pages.ROUTES),
                ("", approvals.ROUTES),
                ("", datasets.ROUTES),
                ("", signing_in.ROUTES),
            )
            paths = ["/metrics"]
            for prefix, table in tables:
                paths += [f"{prefix}{route.path}" for route in table if route.method == "GET"]
            values = {"job": own.id, "project": "support", "prompt": "triage"}
            values |= {"number": "0", "tag": "latest", "part": "table", "tab": "cases"}
            values |= {"name": "hard"}
            for template in paths:
                # Of tests/server/test_approvals.py.
                if re.search("(requests|approvals)/{number}", template):
                    continue
                mine = template.format(**values)
                mine += "?id=l11" if template.endswith("/case") else ""
                if template.endswith("compare"):
                    mine += f"?job={own.id}&job={own.id}&candidate=0&candidate=1"
                answer = client.ask("GET", mine, token=token)
                # The tag holds nothing: a job leaves its winner under a tag of its own.
                assert answer.status == (404 if mine.endswith("/latest") else 200), mine
                assert "secret" not in answer.text, mine
                assert hidden.id not in answer.text, mine
                assert not re.search(r"\b[345] (queued|completed|jobs)", answer.text), mine
                others = template.format(**{**values, "job": hidden.id, "project": "secret"})
                if others != template.format(**values):
                    assert client.ask("GET", others, token=token).status in (404, 422), others


def test_an_error_does_not_tell_whether_a_project_or_a_job_of_others_is_there(
    tmp_path: Path,
) -> None:
    path = write_project(tmp_path / "project")
    projects = {"support": path, "secret": path}
    with closing(JobManager(f"sqlite:///{tmp_path}/jobs.db", projects=projects)) as manager:
        hidden = manager.create("secret", "triage")
        gone = "0" * 32
        manager.acting_for("root").protect("secret", "production")
        manager.create("support", "triage")
        tokens = TokenStore(manager.database)
        # Also of a project that this server does not have.
        token = tokens.create("team", list(Scope), ["support", "elsewhere"])
        with served(manager, tmp_path / "mirrors") as client:
            for at in ("", "/events", "/result", "/candidates", "/archive"):
                told = [
                    client.ask("GET", f"/api/v1/jobs/{id_[:length]}{at}", token=token).detail
                    # Messages give at most eight digits.
                    .replace(id_[: min(length, 8)], "ID")
                    for id_ in (hidden.id, gone)
                    for length in (32, 8, 4)
                ]
                assert told[:3] == told[3:]
                assert all("`ID`" in text for text in told)
            body = {"project": "elsewhere"}
            for method, at, sent in (
                ("POST", "/jobs", body),
                ("POST", "/plans", body),
                ("GET", "/projects/elsewhere/datasets", None),
                ("GET", "/projects/elsewhere/protections", None),
                ("PUT", "/projects/elsewhere/protections/x", None),
                ("GET", "/projects/elsewhere/prompts/triage/tags", None),
            ):
                answer = client.ask(method, f"/api/v1{at}", sent, token=token)
                assert answer.status in (404, 422), at
                assert "secret" not in answer.text, at


def test_sessions_links_and_workers_are_the_same_on_every_database(database: Database) -> None:
    tokens = TokenStore(database)
    sessions = SessionStore(database, Limits())
    token = tokens.find(tokens.create("ana", [Scope.READ]))
    assert token is not None
    cookies = [sessions.open(token.token, "Firefox \u2713"), sessions.open(token.token, "")]
    found = [sessions.find(cookie) for cookie in cookies]
    assert [caller and caller.name for caller in found] == ["ana", "ana"]
    assert {session.browser for session in sessions.list(token.token)} == {"Firefox ?", ""}
    code = tokens.new_link("ana", seconds=60)
    third = sessions.redeem(code, "x")
    with pytest.raises(ApiProblem, match="was used before"):
        sessions.redeem(code, "x")
    change = sqlalchemy.update(database.tables.signing_in.sessions).values(
        seen=database.tables.signing_in.sessions.c.seen - 120
    )
    database.write(lambda connection: connection.execute(change))
    assert sessions.find(third) is not None  # which notes the use
    seen = sorted(session.seen for session in sessions.list(token.token))
    assert seen[-1] - seen[0] > 60
    sessions.end(token.token, [session.id for session in sessions.list(token.token)][:1])
    assert len(sessions.list(token.token)) == 2
    tokens.revoke("ana")
    assert [sessions.find(cookie) for cookie in [*cookies, third]] == [None] * 3
    assert sessions.list(token.token) == []
    presence = Presence(database, name="w", processes=1)
    for avoids in ({}, {"support": "no key \u2713"}):
        presence.show(["support"], avoids)
        (worker,) = worker_rows(database)
        assert (worker.is_alive, dict(worker.avoids)) == (True, avoids)
    presence.end()
    assert worker_rows(database) == []
    manager = JobManager(database)
    assert (manager.totals(), manager.totals(projects=["support"])) == ([], [])


def test_a_session_is_shown_by_its_browser(client: Client, ana: str) -> None:
    engine = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
    agents = {
        f"Mozilla/5.0 (X11; Linux x86_64) {engine}": "Chrome, Linux",
        f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {engine} Edg/140.0": "Edge, Windows",
        f"Mozilla/5.0 (Linux; Android 10; K) {engine}": "Chrome, Android",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:142.0) Firefox/142.0": "Firefox, Mac OS",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) Safari/604.1": "Safari, iPhone",
        "script-" * 20: ("script-" * 20)[:80],
    }
    for agent in agents:
        with asking(client.url) as browser:
            browser.headers["User-Agent"] = agent
            signs_in(browser, ana)
            page = browser.get("/account").text
    shown = re.findall(r'<th scope="row">([^<]*)', page)
    assert shown == list(reversed(agents.values()))


HOSTILE = '</textarea><script>alert("x")</script>\n& "quoted" \u202e\x07'


def lost_form(browser: httpx.Client, path: str, **fields: str) -> httpx.Response:
    """Send a form without a session, as a browser whose session has ended does.

    Like those of all pages, it names who is to have what was typed.
    """
    browser.cookies.clear()
    return browser.post(path, data={"by": "tests", **fields}, headers=HTML)


def inputs(page: str) -> dict[str, str]:
    """Return the fields of the last form of a page, by name."""
    form = page.rpartition("<form")[2]
    plain = re.findall(r'<input(?=[^>]* name="([^"]+)")(?=[^>]* value="([^"]*)")', form)
    areas = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>\n?([^<]*)</textarea>', form)
    buttons = re.findall(r'<button[^>]* name="(\w+)" value="([\w-]+)"', form)
    return {name: unescape(value) for name, value in [*plain, *areas, *buttons]}


@pytest.mark.parametrize("guesses", [0, 1])
def test_text_of_a_form_survives_the_end_of_its_session(
    client: Client, browser: httpx.Client, manager: JobManager, guesses: int
) -> None:
    job = manager.create("support", "triage")
    where = f"/jobs/{job.id}"
    lost = lost_form(browser, where, what="comment", about="", text=HOSTILE)
    assert lost.status_code == 401
    assert "<script>alert" not in lost.text
    assert "what you typed comes back" in lost.text
    for _ in range(guesses):
        lost = browser.post("/login", data={**inputs(lost.text), "token": "guess"})
        assert lost.status_code == 401
    back = browser.post("/login", data={**inputs(lost.text), "token": client.token})
    assert back.status_code == 200
    assert "session" in back.headers["set-cookie"]
    assert client.token not in back.text
    assert "<script>alert" not in back.text
    assert not [act for act in manager.lines(job.id) if b"alert" in act[1]]
    fields = inputs(back.text)
    assert fields == {"by": "tests", "text": HOSTILE, "what": "comment"}
    assert f'action="{where}"' in back.text
    sent = browser.post(where, data=fields)
    assert sent.status_code == 303
    assert "alert(&#34;x&#34;)" in browser.get(where).text


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/new", {"prompt": "support/triage", "budget": "90", "note": "a long thought"}),
        ("/datasets", {"project": "support", "name": "hard", "text": '{"id": "a"}'}),
        ("/approvals/1", {"what": "decline", "comment": "not yet"}),
        ("/tags", {"project": "support", "prompt": "triage", "tag": "latest", "to": "prod"}),
    ],
)
def test_every_form_in_which_somebody_types_comes_back(
    client: Client, browser: httpx.Client, path: str, fields: dict[str, str]
) -> None:
    lost = lost_form(browser, path, **fields)
    back = browser.post("/login", data={**inputs(lost.text), "token": client.token})
    assert inputs(back.text) == {"by": "tests", **fields}
    assert f'action="{path}"' in back.text


def test_what_was_typed_is_shown_to_who_typed_it_and_to_nobody_else(
    client: Client, browser: httpx.Client, ana: str
) -> None:
    lost = inputs(lost_form(browser, "/new", prompt="support/triage", note="about bo").text)
    for path, token in (("/login", ana), ("/kept", "")):
        other = browser.post(path, data={**lost, "token": token})
        assert other.status_code == 303
        assert "about bo" not in browser.get("/new").text
    assert "about bo" in browser.post("/login", data={**lost, "token": client.token}).text
    # Whose it is stands in the form of the page itself.
    assert 'name="by" value="tests"' in browser.get("/new").text
    nobody = lost_form(browser, "/new", note="about bo", by="")
    assert "about bo" not in nobody.text


def test_the_page_to_sign_in_has_no_long_text_of_anybody(browser: httpx.Client) -> None:
    long = lost_form(browser, "/datasets", project="support", name="hard", text="x" * 300_000)
    assert (long.status_code, "xxx" in long.text) == (401, False)
    guess = {"kept-path": "/new", "kept.note": "x" * 600_000, "token": "guess"}
    assert browser.post("/login", data=guess).status_code == 413


@pytest.mark.parametrize(
    "path", ["//evil.example/x", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_a_form_comes_back_to_this_server_only(
    client: Client, browser: httpx.Client, path: str
) -> None:
    fields = {"kept-path": path, "kept.by": "tests", "kept.text": "a", "token": client.token}
    back = browser.post("/login", data=fields)
    assert '<form class="stack wide" method="post" action="/">' in back.text
    assert "evil" not in back.text
    assert back.headers["content-security-policy"] == pages.POLICY


def test_buttons_and_what_is_no_form_keep_nothing(client: Client, browser: httpx.Client) -> None:
    paused = lost_form(browser, "/jobs/none", what="pause")
    assert "Sign in and repeat it" in paused.text
    assert "kept" not in paused.text.replace("data-kept", "")
    plain = browser.post("/jobs/none", content=b"{}", headers={**HTML, "Content-Type": "text/json"})
    assert plain.status_code == 401
    rolled_back = lost_form(browser, "/tags", tag="prod", project="support", what="rollback")
    assert "Sign in and repeat it" in rolled_back.text
    assert browser.post("/kept", data={"kept.text": "a"}).status_code == 401
    signs_in(browser, client.token)
    assert browser.post("/kept", data={"other": "a"}).headers["location"] == "/"


def test_what_was_typed_comes_back_after_signing_in_in_another_tab(
    client: Client, browser: httpx.Client
) -> None:
    cases = "".join(f'{{"id": "c{n}", "text": "{"x" * 90}"}}\n' for n in range(1_000)).strip()
    fields = {"project": "support", "name": "hard", "text": cases}
    lost = lost_form(browser, "/datasets", **fields)
    kept = inputs(lost.text)
    assert 'formaction="/kept"' in lost.text
    early = browser.post("/kept", data=kept, headers=HTML)
    assert (early.status_code, inputs(early.text)) == (401, {**kept, "wanted": ""})
    guess = browser.post("/login", data={**inputs(early.text), "token": "guess"})
    signs_in(browser, client.token)
    back = browser.post("/kept", data=inputs(guess.text))
    assert inputs(back.text) == {"by": "tests", **fields}
    assert 'action="/datasets"' in back.text
    assert browser.post("/login", data={**kept, "token": client.token}).status_code == 200
    assert 'formaction="/kept"' not in browser.get("/login").text
