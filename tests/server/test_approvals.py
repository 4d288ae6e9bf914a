"""Protected tags over HTTP, in the pages and from the command line: two people approve."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from jobs.job_world import work_off, write_project
from promptgraft.cli.main import run
from promptgraft.project.python_source import beside
from promptgraft.service.jobs import ApprovalNeededError, JobClient, JobManager, JobNotFoundError
from promptgraft.service.server import Scope, TokenStore
from promptgraft.service.server.views import Act
from runs.test_report_in_browser import browser as browser_of_reports
from runs.test_report_in_browser import new_page
from server.serving import Client, asking, served

browser = browser_of_reports

TAGS = "/projects/support/prompts/triage/tags"
HOSTILE = "<script>alert(1)</script>"


def write(manager: JobManager, tag: str, body: str) -> None:
    project = manager.projects["support"]
    with beside(project.folder):
        prompt = project.prompt("triage").prompt
        project.store().set_section_override(prompt, path=("rules",), body=body, tag=tag)


@pytest.fixture
def world(client: Client) -> Client:
    """A server whose tag `production` is protected, with a winner under `night`."""
    write(client.manager, "night", "Be kind.")
    client.manager.acting_for("root").protect("support", "production")
    return client


def token(client: Client, name: str, scopes: str, *projects: str) -> str:
    scopes_named = [Scope(scope) for scope in scopes.split()]
    return TokenStore(client.manager.database).create(name, scopes_named, projects or None)


def held(client: Client, tag: str = "production") -> int:
    """Return how many revisions a tag has ever had."""
    store = client.manager.projects["support"].store()
    return len(store.history(ns="support", prompt_key="triage", tag=tag))


def ask(client: Client, token: str) -> int:
    answer = client.ask("POST", f"/api/v1{TAGS}/night/promote", {"to": "production"}, token=token)
    assert answer.status == 202
    assert answer.document["prompts"] == []
    number = answer.document["request"]
    assert isinstance(number, int)
    return number


@pytest.fixture
def signed_in(world: Client) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Give the browsers of ana and ben, who may approve."""
    with asking(world.url) as ana, asking(world.url) as ben:
        for name, client in (("ana", ana), ("ben", ben)):
            client.post("/login", data={"token": token(world, name, "read submit approve")})
        yield ana, ben


def test_a_request_is_asked_for_shown_and_approved_over_http(world: Client) -> None:
    ana, ben = (token(world, name, "read approve") for name in ("ana", "ben"))
    number = ask(world, ana)
    shown = world.get(f"/requests/{number}")
    assert shown.document["texts"] == [
        {"part": "section rules", "before": "Choose a queue.", "after": "Be kind."}
    ]
    assert shown.document["approved_by"] == ["ana"]
    assert (shown.document["state"], shown.document["missing"]) == ("waiting", 1)
    assert len(str(shown.document["digest"])) == 64
    path = f"/api/v1/requests/{number}"
    again = world.ask("POST", f"{path}/approve", {"comment": "x"}, token=ana)
    assert (again.status, "somebody else has to" in again.detail) == (409, True)
    assert held(world) == 0
    done = world.ask("POST", f"{path}/approve", {"comment": "Ship it."}, token=ben)
    assert (done.status, done.document["state"]) == (200, "done")
    assert held(world) == 1
    (tag,) = world.get("/requests").rows("requests")
    assert tag["state"] == "done"
    # Back again: the same way.
    back = world.ask("POST", f"/api/v1{TAGS}/production/rollback", {}, token=ana)
    assert (back.status, back.document["request"]) == (202, number + 1)
    assert [row["id"] for row in back.rows("prompts")]


@pytest.mark.parametrize(
    ("scopes", "what", "status"),
    [
        ("read submit", "approve", 403),
        ("read submit", "decline", 403),
        ("read submit", "withdraw", 403),
        ("admin", "approve", 200),
        ("approve", "withdraw", 409),
        ("approve", "decline", 422),
    ],
)
def test_only_who_may_approve_decides(world: Client, scopes: str, what: str, status: int) -> None:
    number = ask(world, world.token)
    other = token(world, "other", scopes)
    path = f"/api/v1/requests/{number}/{what}"
    answer = world.ask("POST", path, {}, token=other)
    assert answer.status == status, answer.detail
    assert held(world) == (1 if status == 200 else 0)


def test_only_admins_protect_and_unprotect(world: Client) -> None:
    path = "/api/v1/projects/support/protections"
    some = token(world, "some", "read submit approve")
    for method, body in (("PUT", None), ("DELETE", None)):
        assert world.ask(method, f"{path}/production", body, token=some).status == 403
    assert [
        row["tag"] for row in world.get("/projects/support/protections").rows("protections")
    ] == ["production"]
    made = world.ask("PUT", f"{path}/stable")
    assert (made.document["tag"], made.document["by"]) == ("stable", "tests")
    assert world.ask("DELETE", f"{path}/stable").status == 204
    assert world.ask("DELETE", f"{path}/stable").status == 422
    assert world.ask("PUT", f"{path}/candidate.0123456789ab").status == 422


def test_nobody_sees_or_decides_on_requests_of_projects_of_others(tmp_path: Path) -> None:
    path = write_project(tmp_path / "project")
    manager = JobManager(f"sqlite:///{tmp_path}/jobs.db", projects={"support": path, "other": path})
    with manager, served(manager, tmp_path / "mirrors") as client:
        write(manager, "night", "secret words")
        manager.acting_for("root").protect("support", "production")
        number = ask(client, client.token)
        team = token(client, "team", "read submit approve admin", "other")
        for method, at, body in (
            ("GET", f"/requests/{number}", None),
            ("POST", f"/requests/{number}/approve", {}),
            ("POST", f"/requests/{number}/decline", {"comment": "x"}),
            ("GET", "/projects/support/protections", None),
            ("DELETE", "/projects/support/protections/production", None),
        ):
            answer = client.ask(method, f"/api/v1{at}", body, token=team)
            assert answer.status in (404, 422), at
        assert client.ask("GET", "/api/v1/requests", token=team).document == {"requests": []}
        for page in ("/approvals", "/tags"):
            text = client.ask("GET", page, token=team).text
            assert "production" not in text
            assert "secret words" not in text
        assert client.ask("GET", f"/approvals/{number}", token=team).status == 404
        assert manager.request(number).state == "waiting"


@pytest.mark.parametrize("number", ["0", "-1", "x", "99999999999", "1e3", "²"])
def test_a_request_that_is_not_there_is_not_found(world: Client, number: str) -> None:
    for path in (f"/api/v1/requests/{number}", f"/approvals/{number}"):
        assert world.ask("GET", path).status == 404


def test_the_page_of_a_request_says_whom_it_waits_for(
    world: Client, signed_in: tuple[httpx.Client, httpx.Client]
) -> None:
    ana, ben = signed_in
    token(world, "reader", "read submit")
    token(world, "elsewhere", "approve", "other")
    form = {"what": "promote", "project": "support", "prompt": "triage", "tag": "night"}
    moved = ana.post("/tags", data={**form, "to": "production"})
    path = moved.headers["location"]
    assert re.fullmatch(r"/approvals/\d+", path)
    own = ana.get(path).text
    assert "Waiting for a second approval, by ben or tests." in own
    assert re.findall(r'name="what" value="(\w+)"', own) == ["withdraw"]
    page = ben.get(path).text
    assert re.findall(r'name="what" value="(\w+)"', page) == ["approve", "decline"]
    assert "Be kind." in re.sub("<[^>]+>", "", page)
    assert ben.post(path, data={"what": "decline"}).status_code == 422
    ben.post(path, data={"what": "decline", "comment": HOSTILE})
    closed = ana.get(path).text
    assert HOSTILE not in closed
    assert HOSTILE in unescape(closed)
    assert "ben declined it" in closed
    assert 'name="what"' not in closed
    assert held(world) == 0
    listed = ana.get("/approvals").text
    assert "promote support/triage, production" in listed
    assert ">declined<" in listed


def test_who_may_only_approve_applies_and_comments_on_the_page_of_a_job(client: Client) -> None:
    job = client.manager.create("support", "triage", {"tag": "canary"})
    work_off(client.manager)
    path, form = f"/jobs/{job.id}", "application/x-www-form-urlencoded"
    for name, scopes, allowed in (
        ("eve", "read", set()),
        ("kim", "read submit", {"comment", "fork"}),
        ("ben", "read approve", {"comment", "apply"}),
    ):
        bearer = token(client, name, scopes)
        text = client.ask("GET", path, token=bearer).text
        for what in ("comment", "fork", "apply"):
            assert (f'value="{what}"' in text) == (what in allowed), (name, what)
            body = f"what={what}&text=Hm.".encode()
            answer = client.ask("POST", path, body, token=bearer, Content_Type=form)
            assert answer.status == (303 if what in allowed else 403), (name, what)
    assert held(client, "canary") == 1


def test_a_winner_of_a_job_is_asked_for_on_its_page_and_rolled_back_by_two(
    browser: Browser, client: Client
) -> None:
    manager = client.manager
    job = manager.create("support", "triage", {"tag": "production"})
    work_off(manager)
    manager.acting_for("root").protect("support", "production")
    page, other = new_page(browser), new_page(browser)
    for each, name, scopes in (
        (page, "ana", "read submit approve"),
        (other, "ben", "read approve"),
    ):
        each.goto(f"{client.url}/login")
        each.get_by_label("Token").fill(token(client, name, scopes))
        each.get_by_role("button", name="Sign in").click()
    page.goto(f"{client.url}/jobs/{job.id}")
    page.get_by_role("button", name="Ask to apply to production").click()
    expect(page.get_by_text("Waiting for a second approval, by ben or tests.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    verdict = page.get_by_role("link", name=f"Job {job.id[:8]}")
    expect(verdict).to_be_visible()
    gained = manager.get(job.id).status.gained
    assert gained
    expect(page.get_by_text(gained)).to_be_visible()
    expect(page.locator("ins").first).to_be_visible()
    other.goto(f"{client.url}/jobs/{job.id}")
    other.get_by_role("link", name="Request 1").click()
    other.get_by_label("Comment").fill("Looks right.")
    other.get_by_role("button", name="Approve").click()
    expect(other.get_by_text("The tag was moved.")).to_be_visible()
    assert held(client) == 1
    other.goto(f"{client.url}/tags")
    other.get_by_role("region", name="support/triage, tag production").get_by_role(
        "button", name="Roll back"
    ).click()
    other.get_by_role("button", name="Ask to roll back").click()
    expect(other.get_by_text("Waiting for a second approval, by ana or tests.")).to_be_visible()
    page.goto(other.url)
    # The verdict on the winner must not speak for taking it back.
    expect(page.get_by_text("It takes back the winner of")).to_contain_text(gained)
    expect(page.locator(".badge.good")).to_have_count(0)
    document = client.get("/requests/2").document
    assert document["verdict"] == ""
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("The tag was moved.")).to_be_visible()
    store = manager.projects["support"].store()
    assert store.current(ns="support", prompt_key="triage", tag="production") is None
    for each in (page, other):
        each.context.close()


def test_clients_are_told_that_nothing_moved_and_approve(world: Client) -> None:
    ana, ben = (token(world, name, "read approve") for name in ("ana", "ben"))
    with JobClient(world.url, token=ana) as mine, JobClient(world.url, token=ben) as others:
        with pytest.raises(ApprovalNeededError, match="protected and was not moved") as needed:
            mine.promote("support", "triage", "night", to="production")
        number = needed.value.request
        assert mine.request(number) == world.manager.request(number)
        assert [tag.tag for tag in mine.protections("support")] == ["production"]
        assert mine.withdraw(number, comment="Wait.").state == "withdrawn"
        with pytest.raises(ApprovalNeededError) as needed:
            mine.promote("support", "triage", "night", to="production")
        assert others.approve(needed.value.request).state == "done"
        assert [request.state for request in others.requests("support")] == ["done", "withdrawn"]
        assert others.requests("other") == []
        with pytest.raises(JobNotFoundError):
            others.request(77)
    assert held(world) == 1


def test_commands_hold_protected_tags_too(
    world: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = world.manager
    file = manager.projects["support"].path
    here = ["--jobs", manager.database.secret_url, "--project", f"support={file}"]
    assert run(["jobs", "promote", "triage", "night", "--to", "production", *here]) == 2
    assert "request 1 waits for 2 approvals" in capsys.readouterr().err
    assert held(world) == 0
    assert run(["jobs", "approvals", "approve", "1", *here]) == 2
    assert "records need your name" in capsys.readouterr().err
    assert run(["jobs", "approvals", "list", *here]) == 0
    listed = capsys.readouterr().out
    assert "protected tags of support: production" in listed
    assert "promote triage to production" in listed
    assert "nobody" in listed
    there = ["--server", world.url, "--project", "support"]
    for name in ("ana", "ben"):
        monkeypatch.setenv("PROMPTGRAFT_TOKEN", token(world, name, "read approve"))
        assert run(["jobs", "approvals", "approve", "1", *there]) == 0
    assert "request 1 is done, approved by ana, ben" in capsys.readouterr().out
    assert held(world) == 1
    assert run(["jobs", "approvals", "unprotect", "production", *here]) == 0
    assert run(["jobs", "approvals", "protect", "stable", *here]) == 0
    assert [row.tag for row in manager.protections("support")] == ["stable"]


def test_a_request_names_the_job_whose_winner_it_moves(client: Client) -> None:
    manager = client.manager.acting_for("ana")
    manager.protect("support", "production")
    # Jobs that differ in their limits only are one run, and may find one winner.
    first, second, third = (
        manager.create("support", "triage", {"budget": 100, **change})
        for change in ({}, {"note": "again"}, {"store": False})
    )
    work_off(manager)
    results = [manager.result(job.id) or {} for job in (first, second, third)]
    assert len({str(result["run_id"]) for result in results}) == 1
    manager.apply(first.id)
    manager.promote("support", "triage", "latest", to="stable")
    for source in ("latest", "stable", second.candidate_tag):
        with pytest.raises(ApprovalNeededError) as needed:
            manager.promote("support", "triage", source, to="production")
        request = manager.request(needed.value.request)
        assert request.move.job == (second if source == second.candidate_tag else first).id
        manager.withdraw(request.number)
    page = client.ask("GET", "/tags").text
    assert page.count(f'<a href="/jobs/{first.id}">job {first.id[:8]}</a>') == 2
    asked = [Act.of(json.loads(line)).what for _, _, line in manager.events(first.id)]
    assert asked[-2:] == ["applied to latest", "promoted to stable"]
