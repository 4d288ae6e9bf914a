"""The dashboard in a real browser: with and without its script, small and large, hostile texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from html import unescape

import attrs
import pytest
from playwright.sync_api import Browser, Page, Route, expect
from sqlalchemy import Connection, event, insert, select, update

from jobs.job_world import work_off
from promptgraft.overrides import RevisionedStore
from promptgraft.project import load_project
from promptgraft.search.verdict import RunVerdict
from promptgraft.service.jobs import Job, JobManager, JobState, Worker
from promptgraft.service.jobs.lines import encoded_plain
from promptgraft.service.server import Scope, TokenStore
from runs.test_report_in_browser import browser as browser_of_reports
from runs.test_report_in_browser import new_page
from server.large_job import large_job
from server.serving import Client, asking

browser = browser_of_reports

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{ 7*7 }}\u202e"


class Watched:
    """A page, and everything that must not happen on it."""

    def __init__(self, page: Page, client: Client) -> None:
        self.page, self.faults = page, list[str]()
        page.on(
            "console", lambda one: self.faults.append(one.text) if one.type == "error" else None
        )
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda one: self.faults.append(f"dialog {one.message}"))

        def check(route: Route) -> None:
            if not route.request.url.startswith((client.url, "data:")):
                self.faults.append(f"asks {route.request.url}")
            route.continue_()

        page.route("**/*", check)
        page.goto(f"{client.url}/login?code={client.access.new_code()}")


WIDE, MIDDLE, NARROW = (1280, 900), (768, 900), (390, 800)


@pytest.fixture
def watched(request: pytest.FixtureRequest, browser: Browser, client: Client) -> Iterator[Watched]:
    width, height = getattr(request, "param", WIDE)
    page = new_page(
        browser,
        viewport={"width": width, "height": height},
        color_scheme="dark" if width == NARROW[0] else "light",
    )
    found = Watched(page, client)
    yield found
    assert found.faults == []
    page.context.close()


def no_sideways_scrolling(page: Page) -> bool:
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1"
        )
    )


@pytest.mark.parametrize("watched", [NARROW], indirect=True)
def test_from_a_new_job_to_its_candidates(watched: Watched, manager: JobManager) -> None:
    page = watched.page
    expect(page.get_by_text("No jobs yet.")).to_be_visible()
    page.get_by_role("link", name="New job").click()
    page.get_by_label("Prompt").select_option("support/triage")
    page.get_by_role("textbox", name="Test calls").fill("120")
    page.get_by_label("Note").fill(HOSTILE)
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("status")).to_contain_text("120 test calls")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#live .badge").first).to_have_text("queued")
    work_off(manager)
    # The script has heard of it by now.
    expect(page.locator("#live .badge").first).to_have_text(re.compile("improved|better"))
    expect(page.get_by_text("Mean on the validation set against test calls")).to_be_visible()
    expect(page.get_by_text(HOSTILE[:20])).to_be_visible()
    assert no_sideways_scrolling(page)
    metrics = page.locator("#metrics .scroll")
    expect(metrics.get_by_role("columnheader", name="Gain")).to_be_visible()
    assert metrics.evaluate("box => box.scrollWidth <= box.clientWidth")
    page.get_by_role("link", name="Candidates").click()
    page.get_by_role("link", name="#1", exact=True).first.click()
    expect(page).to_have_url(re.compile("/candidates#c1$"))
    page.get_by_role("link", name="Its whole texts").first.click()
    expect(page.get_by_role("heading", name="Changes")).to_be_visible()
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="Report as a file").click()
    expect(page.get_by_role("heading", name="support/triage")).to_be_visible()
    page.get_by_role("link", name="The job on its server").click()
    expect(page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")


def test_the_form_of_a_new_job_takes_a_target_and_a_model(
    client: Client, manager: JobManager
) -> None:
    form = {"prompt": "support/triage", "what": "submit", "target_score": "0.75", "model": "task"}
    with closing(client.browser()) as browser:
        assert browser.post("/new", data=form).status_code == 303
        [job] = manager.list()
        assert (job.changes.target_score, job.changes.model) == (0.75, "task")
        assert browser.post("/new", data=form | {"target_score": ".5"}).status_code == 303
        assert manager.list()[0].changes.target_score == 0.5
        # Whatever the limits of the project are, an empty field leaves them.
        limits = browser.get("/new").text.partition("<fieldset>")[2].partition("</fieldset>")[0]
        assert set(re.findall(r'placeholder="([^"]*)"', limits)) == {"as in the project"}
        for name, value, fault in (
            ("target_score", "2", "Target score: expected a number from 0 to 1"),
            ("target_score", "high", "Target score: expected a number from 0 to 1"),
            ("model", "gpt", "Model: the project has no model <code>gpt</code>"),
        ):
            page = browser.post("/new", data=form | {name: value})
            assert page.status_code == 422
            assert fault in page.text
            assert f'value="{value}"' in page.text


@pytest.mark.parametrize("watched", [NARROW], indirect=True)
def test_a_phone_shows_the_columns_that_were_chosen(watched: Watched, manager: JobManager) -> None:
    page = watched.page
    manager.create("support", "triage", {"tag": "next", "note": HOSTILE})
    page.get_by_label("State").select_option("queued")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("cell", name="next")).to_be_hidden()
    page.get_by_text("Columns").click()
    page.get_by_role("checkbox", name="Worker").check()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("cell", name="next")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Worker")).to_be_visible()
    page.wait_for_load_state()  # with its style sheet
    assert no_sideways_scrolling(page)


def test_a_page_of_a_mistake_shows_who_is_signed_in(client: Client) -> None:
    with closing(client.browser()) as browser:
        name = str(re.findall(r'href="/account">([^<]+)', browser.get("/").text)[0])
        for path, status in (("/jobs/none", 404), ("/compare?job=1", 422)):
            page = browser.get(path, headers={"Accept": "text/html"})
            assert page.status_code == status
            assert f'href="/account">{name}' in page.text
            assert "Sign out" in page.text


def test_a_mistake_is_one_line_on_the_page(client: Client, manager: JobManager) -> None:
    job = manager.create("support", "triage", {})
    with closing(client.browser()) as browser:
        for path, what in (("/new", "submit"), (f"/jobs/{job.id}", "change")):
            form = {"prompt": "support/triage", "budget": "many", "what": what}
            answer = browser.post(path, data=form, headers={"Accept": "text/html"})
            assert answer.status_code == 422
            (alert,) = re.findall(r'(?:role="alert"|class="lead")>(.*?)</p>', answer.text)
            assert unescape(alert) == (
                "Test calls: expected an integer from 1 to 1,000,000,000, found 'many'"
            )


@pytest.mark.parametrize("watched", [NARROW], indirect=True)
def test_on_a_phone_no_verdict_covers_the_name_of_its_job(
    watched: Watched, manager: JobManager
) -> None:
    for verdict in RunVerdict:
        job = manager.create("support", "triage", {"budget": 60})
        status = encoded_plain(attrs.asdict(attrs.evolve(job.status, verdict=str(verdict))))
        jobs = manager.database.tables.jobs
        ended = update(jobs).where(jobs.c.number == job.number)
        ended = ended.values(state="completed", status=status)
        manager.database.write(partial(Connection.execute, statement=ended))
    page = watched.page
    page.reload()
    expect(page.locator(".jobs .badge")).to_have_count(len(RunVerdict))
    names = "[...document.querySelectorAll('.jobs tbody th')]"
    assert page.evaluate(f"{names}.every(name => name.scrollWidth <= name.clientWidth)")
    assert no_sideways_scrolling(page)


def test_buttons_are_those_that_the_state_allows(watched: Watched, manager: JobManager) -> None:
    page = watched.page
    job = manager.create("support", "triage", {"budget": 100})
    claim = Worker(manager).claim()
    assert claim is not None
    page.goto(f"{page.url}jobs/{job.id}")
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("asked to pause").first).to_be_visible()
    Worker(manager).run_here(claim)
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    assert manager.get(job.id).state is JobState.QUEUED
    page.get_by_role("textbox", name="Test calls").fill("130")
    page.get_by_role("button", name="Change the limits").click()
    assert manager.get(job.id).changes.budget == 130
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#live .badge").first).to_have_text("cancelled")


def test_a_rollback_is_confirmed_after_a_look_at_what_it_changes(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    page = watched.page
    store = manager.projects["support"].store()
    prompt = manager.projects["support"].prompt("triage").prompt
    for body in ("Be kind.", "Be brief."):
        store.set_section_override(prompt, tag="prod", path=("rules",), body=body)
    page.get_by_role("link", name="Tags").click()
    page.get_by_role("button", name="Roll back …").first.click()
    expect(page.get_by_role("heading", name="Roll prod back?")).to_be_visible()
    expect(page.locator("del")).to_have_text("brief")
    page.get_by_role("link", name="Leave it").click()
    assert bodies(store) == ["Be brief."]
    page.get_by_text("2 versions").click()
    page.get_by_role("button", name="Roll back to version 1").click()
    expect(page.get_by_text("version 2 → 1")).to_be_visible()
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_role("heading", name="Tags")).to_be_visible()
    assert bodies(store) == ["Be kind."]
    # Somebody else moves the tag while this page asks.
    page.get_by_role("button", name="Roll back …").first.click()
    store.set_section_override(prompt, tag="prod", path=("rules",), body="Be exact.")
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("was moved meanwhile")).to_be_visible()
    assert bodies(store) == ["Be exact."]
    watched.faults.clear()  # the browser tells of the status, 409


def bodies(store: RevisionedStore) -> list[str]:
    """Return the texts that the tag `prod` holds."""
    current = store.current(ns="support", prompt_key="triage", tag="prod")
    assert current is not None
    return [section.body for section in current.override.sections.values()]


def test_a_page_that_goes_on_keeps_the_focus_and_one_that_has_ended_asks_for_nothing(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    page = watched.page
    job = manager.create("support", "triage", {"budget": 120})
    page.goto(f"{client.url}/jobs/{job.id}")
    expect(page.locator("#as-of")).to_have_text(re.compile(r"As of \d\d:\d\d:\d\dZ"))
    page.get_by_role("button", name="Cancel").focus()
    manager.change(job.id, {"priority": 3})
    expect(page.locator("#live-facts")).to_contain_text("Priority")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    claim = Worker(manager).claim()
    expect(page.locator("#live .badge").first).to_have_text("running")
    # It stands elsewhere now, and there is a button more before it.
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    assert claim is not None
    Worker(manager).run_here(claim)
    expect(page.locator("#live-state[data-ended]")).to_be_attached()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for tab in ("/cases", "/events", ""):
        page.goto(f"{client.url}/jobs/{job.id}{tab}")
        assert page.locator("[data-events], [data-every]").count() == 0
    requests.clear()
    manager.comment(job.id, "does it look?")
    page.wait_for_load_state("networkidle")
    page.evaluate("new Promise(done => requestIdleCallback(done))")
    assert requests == []


def test_a_press_counts_though_its_page_changes(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    page = watched.page
    job = manager.create("support", "triage", {"budget": 120})
    page.goto(f"{client.url}/jobs/{job.id}")
    page.get_by_role("button", name="Cancel").hover()
    page.mouse.down()
    with page.expect_response("**/live"):
        assert Worker(manager).claim()
    page.evaluate("new Promise(done => requestIdleCallback(done))")
    page.mouse.up()
    expect(page.locator("#live")).to_contain_text("asked to cancel")


def test_text_survives_a_provider_that_signs_in(watched: Watched, client: Client) -> None:
    page = watched.page
    typed = {"note": "a <b>thought", "budget": "90", "by": "local"}
    kept = [["kept-path", "/new"], *([f"kept.{name}", typed[name]] for name in typed)]
    page.evaluate(
        "kept => sessionStorage.setItem('promptgraft-kept', JSON.stringify([Date.now(), kept]))",
        kept,
    )
    page.reload()
    expect(page.get_by_role("status")).to_contain_text("has not been sent yet")
    expect(page.get_by_label("Note")).to_have_value("a <b>thought")
    assert page.evaluate("sessionStorage.length") == 0
    # Not much later: somebody else may have the tab by then.
    page.evaluate(
        "kept => sessionStorage.setItem('promptgraft-kept', JSON.stringify([0.1, kept]))", kept
    )
    page.goto(client.url)
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_page_says_that_its_job_was_deleted(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    job = manager.create("support", "triage", {})
    watched.page.goto(f"{client.url}/jobs/{job.id}")
    expect(watched.page.locator("#live .badge").first).to_have_text("queued")
    watched.page.route("**/live", lambda route: route.fulfill(status=404, body=""))
    manager.comment(job.id, "look")
    expect(watched.page.locator(".lost")).to_contain_text("It was deleted")
    watched.faults.clear()


def test_a_page_says_that_its_connection_is_lost(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    job = manager.create("support", "triage", {})
    page = watched.page
    page.route("**/events?**", lambda route: route.abort())
    page.goto(f"{client.url}/jobs/{job.id}")
    expect(page.locator(".lost")).to_contain_text("The connection is lost")
    page.unroute("**/events?**")
    page.reload()
    expect(page.locator("#as-of")).to_contain_text("As of")
    expect(page.locator(".lost")).to_be_empty()
    watched.faults.clear()  # the browser tells of the lost connection


def test_a_page_says_that_its_server_hangs(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    job = manager.create("support", "triage", {})
    page = watched.page
    page.clock.install()
    page.goto(f"{client.url}/jobs/{job.id}")
    expect(page.locator(".lost")).to_be_empty()
    page.route("**/live", lambda _: None)  # never answered
    for seconds in (20, 11):  # it looks, and waits
        page.clock.fast_forward(1000 * seconds)
    expect(page.locator(".lost")).to_contain_text("The connection is lost")
    page.unroute("**/live")
    page.clock.fast_forward(20_000)
    expect(page.locator(".lost")).to_be_empty()


def test_a_page_says_that_its_user_is_signed_out(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    job = manager.create("support", "triage", {})
    page = watched.page
    page.goto(f"{client.url}/login")
    page.get_by_label("Token").fill(TokenStore(manager.database).create("ana", [Scope.READ]))
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{client.url}/jobs/{job.id}")
    TokenStore(manager.database).revoke("ana")
    manager.change(job.id, {"priority": 3})
    expect(page.locator(".lost")).to_contain_text("You are signed out")
    watched.faults.clear()  # the browser tells of the status, 401


def test_a_job_that_ends_while_it_is_watched_has_the_forms_of_its_new_state(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    job = manager.create("support", "triage", {})
    page = watched.page
    page.goto(f"{client.url}/jobs/{job.id}")
    expect(page.get_by_role("button", name="Change the limits")).to_be_visible()
    manager.cancel(job.id)
    expect(page.get_by_role("button", name="Fork with these limits")).to_be_visible()
    expect(page.get_by_role("button", name="Change the limits")).to_have_count(0)
    # The stream ends with the job, which is no loss.
    expect(page.locator(".lost")).to_be_empty()


def test_a_long_note_hides_no_column_of_the_list(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    for note in ("ملاحظة: the long messages of autumn, before the audit of the ministry", "x" * 90):
        manager.acting_for("ana").create("support", "triage", {"note": note, "tag": "production"})
    work_off(manager)
    page = watched.page
    page.goto(client.url)
    for width, height in (WIDE, MIDDLE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        assert no_sideways_scrolling(page)
        assert page.evaluate(
            "[...document.querySelectorAll('.jobs th, .jobs td')].every(cell => cell.hidden || "
            "cell.getBoundingClientRect().right <= document.documentElement.clientWidth)"
        )


def test_pages_work_without_a_script(browser: Browser, client: Client, manager: JobManager) -> None:
    page = new_page(browser, java_script_enabled=False)
    page.goto(f"{client.url}/login?code={client.access.new_code()}")
    page.get_by_role("link", name="New job").click()
    page.get_by_role("textbox", name="Test calls").fill("60")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".badge").first).to_have_text("queued")
    work_off(manager)
    page.reload()
    expect(page.locator(".badge").first).to_have_text(re.compile("improved|better"))
    page.get_by_role("link", name="Workers").click()
    expect(page.get_by_text("No worker is running.")).to_be_visible()
    page.context.close()


def test_a_form_of_another_site_does_nothing(client: Client, manager: JobManager) -> None:
    with closing(client.browser()) as session:
        form = {"prompt": "support/triage", "what": "submit"}
        refused = session.post("/new", data=form, headers={"Origin": "https://evil.example"})
        assert refused.status_code == 403
        crossed = session.post("/new", data=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert crossed.status_code == 403
        assert manager.list() == []
        assert session.post("/new", data=form).status_code == 303
    assert len(manager.list()) == 1


def test_every_page_has_a_strict_policy(client: Client, manager: JobManager, done: Job) -> None:
    with closing(client.browser()) as session:
        for path in ("/", "/new", "/tags", "/workers", f"/jobs/{done.id}", "/live/table"):
            answer = session.get(path)
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert "No tag holds a change" in session.get("/tags").text
        cookie = session.cookies.jar
        assert [(one.name, one.path) for one in cookie] == [("promptgraft_session", "/")]
    assert load_project(manager.projects["support"].path).names


HOSTILE_TEXTS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=2>",
    "<svg onload=window.pwned=3>",
    '"><b onmouseover=window.pwned=4>',
    "'><i onclick=window.pwned=5>",
    "javascript:window.pwned=6",
    "<a href=javascript:window.pwned=7>x</a>",
    "</textarea><script>window.pwned=8</script>",
    "</style><script>window.pwned=9</script>",
    "</title><script>window.pwned=10</script>",
    "<!--<script>window.pwned=11</script>",
    "<iframe srcdoc='<script>parent.pwned=12</script>'></iframe>",
    "{{ 7*7 }}",
    "{% for x in ().__class__.__mro__ %}{{ x }}{% endfor %}",
    "${7*7}",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<form action=//evil.example><button name=what>",
    "&lt;script&gt;window.pwned=19&lt;/script&gt;",
    "<style>*{display:none}</style>",
)


def test_hostile_texts_are_shown_as_texts(
    browser: Browser, client: Client, manager: JobManager
) -> None:
    text = "\n".join(HOSTILE_TEXTS)
    job = large_job(manager, candidates=4, cases=5, text=text)
    page = new_page(browser)
    with closing(page.context):
        watched = Watched(page, client)
        at = f"{client.url}/jobs/{job.id}"
        for path in ("/", at, f"{at}/candidates/1", f"{at}/report", "/tags", "/workers"):
            page.goto(path if path.startswith("http") else f"{client.url}{path}")
            page.evaluate("document.querySelectorAll('details').forEach(x => x.open = true)")
            assert page.evaluate("window.pwned") is None, path
            assert page.locator("iframe, base, [onerror], [onload], [onclick]").count() == 0, path
        page.goto(f"{at}/candidates/1")
        page.get_by_text("section rules", exact=True).last.click()
        shown = page.locator("main").inner_text()
        assert [one for one in HOSTILE_TEXTS if one not in shown] == []
        page.goto(at)
        assert HOSTILE_TEXTS[0] in page.locator("header.head").inner_text()
        assert watched.faults == []


def test_pages_of_a_large_job_stay_small(
    browser: Browser, client: Client, manager: JobManager
) -> None:
    job = large_job(manager)
    page = new_page(browser, viewport={"width": 390, "height": 800})
    with closing(page.context):
        watched = Watched(page, client)
        for path in ("", "/live", "/candidates/499", "/report"):
            answer = watched.page.goto(f"{client.url}/jobs/{job.id}{path}")
            assert answer is not None
            assert answer.status == 200
            assert len(answer.body()) < 2_000_000, path
            assert no_sideways_scrolling(watched.page), path
        assert watched.faults == []


def test_jobs_that_are_chosen_in_the_list_are_changed_together(
    client: Client, manager: JobManager
) -> None:
    jobs = [manager.create("support", "triage", {"note": f"{n}"}) for n in range(4)]
    manager.cancel(jobs[3].id)
    with closing(client.browser()) as browser:
        page = browser.get("/").text
        assert re.findall(r'name="what" value="(\w+)">\w+ them', page) == ["cancel", "delete"]
        form = {"what": "cancel", "job": [job.id for job in jobs[:2]]}
        answer = browser.post("/", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert [manager.get(job.id).state for job in jobs] == ["cancelled"] * 2 + [
            "queued",
            "cancelled",
        ]
        mixed = {"what": "pause", "job": [jobs[2].id, jobs[3].id, "0" * 32]}
        answer = browser.post("/", data=mixed, headers={"Accept": "text/html"})
        assert answer.status_code == 409
        assert "pause: refused for 3 of 3 jobs" in answer.text
        assert f"job {jobs[3].id} is cancelled" in answer.text
        for wrong in ({"what": "pause"}, {"what": "fork", "job": jobs[2].id}):
            assert browser.post("/", data=wrong).status_code == 422
        whole = {"what": "cancel", "job": [job.id for job in jobs for _ in range(13)]}
        assert browser.post("/", data=whole).status_code in (303, 409)
        assert "Cancel them</button>" not in browser.get("/").text


def test_ended_jobs_are_deleted_after_a_confirmation(client: Client, manager: JobManager) -> None:
    jobs = [manager.create("support", "triage", {"note": f"why {n}"}) for n in range(3)]
    with closing(client.browser()) as browser:
        page_of_queued = browser.get("/").text
        assert "Delete them</button>" not in page_of_queued
        assert "Delete old jobs" not in page_of_queued
        for job in jobs[:2]:
            manager.cancel(job.id)
        assert "Delete them</button>" in browser.get("/").text
        assert "Delete old jobs" in browser.get("/").text
        nothing_chosen = browser.post("/", data={"what": "delete"})
        assert nothing_chosen.status_code == 422
        assert "no job is chosen; tick jobs in the list" in nothing_chosen.text
        accepts = {"Accept": "text/html"}
        refusal = browser.post("/", data={"what": "delete"}, headers=accepts).text
        assert '<a href="/">Back</a>' in refusal
        assert ">Back</a>" not in browser.get("/nothing", headers=accepts).text
        form: dict[str, object] = {"what": "delete", "job": [job.id for job in jobs]}
        refused = browser.post("/", data=form)
        assert (refused.status_code, refused.text.count("is queued")) == (409, 1)
        form["job"] = [job.id for job in jobs[:2]]
        page = browser.post("/", data=form)
        assert re.findall(r">(why \d)<", page.text) == ["why 0", "why 1"]
        assert (page.status_code, "Delete 2 jobs?" in page.text) == (200, True)
        assert len(manager.list()) == 3
        fields = re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', page.text)
        assert ("sure", "yes") in fields
        assert [id_ for name, id_ in fields if name == "job"] == form["job"]
        assert browser.post("/", data=form | {"sure": "yes"}).status_code == 303
        assert [job.id for job in manager.list()] == [jobs[2].id]


def test_old_jobs_are_found_by_their_age(client: Client, manager: JobManager) -> None:
    jobs = [manager.create("support", "triage", {"note": f"{n}"}) for n in range(3)]
    for job in jobs[:2]:
        manager.cancel(job.id)
    with closing(client.browser()) as browser:
        none = browser.post("/", data={"what": "prune", "days": "1"}).text
        assert "No job ended so long ago" in none
        page = browser.post("/", data={"what": "prune", "days": "0"}).text
        shown = re.findall(r'name="job" value="(\w+)"', page)
        assert shown == [job.id for job in jobs[:2]]
        for wrong in ("", "-1", "many", "9" * 30):
            assert browser.post("/", data={"what": "prune", "days": wrong}).status_code == 422
        failed = {"what": "prune", "days": "0", "state": "failed"}
        assert "No failed job ended so long ago" in browser.post("/", data=failed).text
        for state, found in (("cancelled", True), ("completed", False), ("", True)):
            page_of_state = browser.post("/", data=failed | {"state": state}).text
            assert (jobs[0].id[:8] in page_of_state) is found
        for wrong in ("running", "old"):
            refused = browser.post("/", data=failed | {"state": wrong})
            assert (refused.status_code, "completed, failed, cancelled" in refused.text) == (
                422,
                True,
            )
        offered = re.findall(
            r"<option>(\w+)</option>", browser.get("/").text.partition("Delete old")[2]
        )
        assert offered == ["completed", "failed", "cancelled"]
        sure = {"what": "delete", "job": shown, "sure": "yes"}
        assert browser.post("/", data=sure).status_code == 303
    assert [job.id for job in manager.list()] == [jobs[2].id]


def test_names_in_messages_are_code_and_nothing_else_of_them_is(client: Client) -> None:
    with closing(client.browser()) as browser:
        page = browser.get("/jobs/<b>", headers={"Accept": "text/html"}).text
    assert "begins with <code>&lt;b&gt;</code>; <code>promptgraft jobs list</code>" in page


def test_the_oldest_of_many_jobs_are_found_with_few_statements(
    client: Client, manager: JobManager
) -> None:
    manager.cancel(manager.create("support", "triage").id)
    jobs = manager.database.tables.jobs

    def fill(connection: Connection) -> None:
        row = connection.execute(select(jobs)).one()._asdict()
        rows = [{**row, "number": n, "id": f"{n:032x}"} for n in range(2, 2_001)]
        connection.execute(insert(jobs), rows)

    manager.database.write(fill)
    with closing(client.browser()) as browser:
        statements: list[object] = []
        engine = manager.database._engine
        event.listen(engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
        page = browser.post("/", data={"what": "prune", "days": "0"}).text
        assert len(statements) < 10
    assert "the oldest 50 of 2,000 jobs" in page
    assert "promptgraft jobs prune --older-than 0</code> deletes all of them" in page
    shown = re.findall(r'name="job" value="(\w+)"', page)
    assert shown[1:] == [f"{n:032x}" for n in range(2, 51)]


def test_the_columns_of_the_list_are_chosen_in_its_address(
    client: Client, manager: JobManager
) -> None:
    manager.create("support", "triage", {"tag": "next"})

    def heads(page: str) -> list[str]:
        return re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?([^<]+)', page)

    with closing(client.browser()) as browser:
        usual = heads(browser.get("/").text)
        assert usual[:2] == ["Job", "Verdict"]
        assert "Worker" not in usual
        page = browser.get("/?columns=worker&columns=tag&columns=none&state=queued").text
        assert heads(page) == ["Job", "Tag", "Worker"]
        assert re.findall(r'name="columns" value="(\w+)" checked', page) == ["tag", "worker"]
        # Links that sort and the table that is fetched anew keep them.
        [link] = re.findall(r'href="/(\?[^"]*sort=prompt[^"]*)"', page)
        assert heads(browser.get(f"/{link.replace('&amp;', '&')}").text) == heads(page)
        [live] = re.findall(r'data-from="([^"]+)"', page)
        assert heads(browser.get(live.replace("&amp;", "&")).text) == heads(page)
        assert heads(browser.get("/?columns=none").text) == usual


def test_nobody_changes_jobs_of_others_in_the_list(client: Client, manager: JobManager) -> None:
    job, ended = (manager.create("support", "triage") for _ in range(2))
    manager.cancel(ended.id)
    tokens = TokenStore(manager.database)
    for name, scopes, projects, status in (
        ("reader", ["read"], None, 403),
        ("stranger", ["read", "submit"], ["other"], 409),
    ):
        token = tokens.create(name, scopes, projects)
        with asking(client.url) as browser:
            browser.post("/login", data={"token": token})
            assert "them</button>" not in browser.get("/").text
            answer = browser.post("/", data={"what": "cancel", "job": job.id})
            assert answer.status_code == status
            sure = {"what": "delete", "job": ended.id, "sure": "yes"}
            assert browser.post("/", data=sure).status_code == status
            if status != 403:
                page = browser.post("/", data={"what": "prune", "days": "0"}).text
                assert ended.id not in page
    assert manager.get(job.id).state == "queued"
    assert manager.get(ended.id).state == "cancelled"
