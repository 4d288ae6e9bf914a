"""Every page on small and large screens, light and dark: axe's rules, no overflow, the keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from jobs.job_world import work_off
from promptgraft.runs.report.page import render
from promptgraft.search.verdict import RunVerdict
from promptgraft.service.jobs import JobManager
from runs.report_pages import hostile_run, small_run
from runs.test_report_in_browser import browser as browser_of_reports
from runs.test_report_in_browser import new_page
from server.serving import Client

browser = browser_of_reports

WIDTHS = (390, 768, 1440)
TABS = ("candidates", "cases", "rounds", "texts", "cost", "events")
CLIPPED = """() => [...document.querySelectorAll('table, pre, svg')]
    .filter(found => found.getClientRects().length && !found.closest('.scroll, .hidden'))
    .filter(found => found.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(found => found.outerHTML.slice(0, 90))"""
SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPEN_ALL = "() => document.querySelectorAll('details').forEach(found => { found.open = true })"
UNREACHED = """() => [...document.querySelectorAll('a[href], button, input, select, summary')]
    .filter(found => found.getClientRects().length && !found.disabled && found.tabIndex < 0)
    .map(found => found.outerHTML.slice(0, 90))"""
NARROW_SCROLLERS = """() => [...document.querySelectorAll('.scroll')]
    .filter(found => found.scrollWidth > found.clientWidth + 1 && found.tabIndex < 0)
    .map(found => found.outerHTML.slice(0, 90))"""

GREEN = """() => {
    const probe = document.body.appendChild(document.createElement('i'));
    probe.style.setProperty('color', 'var(--good)');
    const good = getComputedStyle(probe).color;
    return [...document.querySelectorAll('.delta, .figure, .figs, td')]
        .filter(found => getComputedStyle(found).color === good)
        .map(found => found.outerHTML);
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe, which knows the rules."""
    base = pytest.importorskip(
        "axe_playwright_python.base", reason="axe-playwright-python is not installed"
    )
    return Path(base.AXE_FILE_PATH).read_text("utf-8")


@pytest.fixture
def pages(manager: JobManager, client: Client) -> Mapping[str, str]:
    """The addresses of all pages of a server with one job that has ended and one that waits."""
    job = manager.create("support", "triage", {})
    work_off(manager)
    waiting = manager.create("support", "triage", {"note": "a long note " * 8})
    project = manager.projects["support"]
    for body in ("Be kind.", "Be brief."):
        prompt = project.prompt("triage").prompt
        project.store().set_section_override(prompt, tag="prod", path=("rules",), body=body)
    manager.comment(job.id, "Ship it.")
    paths = {
        "jobs": "/",
        "new": "/new",
        "ended": f"/jobs/{job.id}",
        "waiting": f"/jobs/{waiting.id}",
        **{f"ended, {tab}": f"/jobs/{job.id}/{tab}" for tab in TABS},
        **{f"waiting, {tab}": f"/jobs/{waiting.id}/{tab}" for tab in TABS},
        "case": f"/jobs/{job.id}/case?id=l11",
        "candidate": f"/jobs/{job.id}/candidates/1",
        "compare": f"/compare?job={job.id}&job={job.id}",
        "tags": "/tags",
        "account": "/account",
        "sign in": "/login",
        "workers": "/workers",
        "problem": "/jobs/none",
    }
    return {name: f"{client.url}{path}" for name, path in paths.items()}


def faults_of(page: Page, axe: str) -> list[str]:
    """Return what is wrong on a page."""
    page.evaluate(OPEN_ALL)
    sideways = page.evaluate(SIDEWAYS)
    faults = [f"{sideways} pixels beyond the screen"] if sideways > 1 else []
    faults += [f"clipped: {found}" for found in page.evaluate(CLIPPED)]
    faults += [f"out of the keyboard's reach: {found}" for found in page.evaluate(UNREACHED)]
    faults += [f"does not scroll by key: {found}" for found in page.evaluate(NARROW_SCROLLERS)]
    page.evaluate(axe)
    found = page.evaluate("async () => (await axe.run()).violations")
    return faults + [
        f"{rule['id']} ({rule['help']}): {node['html'][:120]} {json.dumps(node['any'])[:300]}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_of_the_dashboard_can_be_read_and_used(
    width: int, scheme: str, browser: Browser, client: Client, pages: Mapping[str, str], axe: str
) -> None:
    page = new_page(
        browser, viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page.goto(f"{client.url}/login?code={client.access.new_code()}")
    faults: list[str] = []
    for name, address in pages.items():
        shown = page.goto(address)
        assert shown is not None
        assert (shown.status == 200) == (name != "problem"), address
        faults += [f"{name}: {fault}" for fault in faults_of(page, axe)]
    page.goto(pages["tags"])
    page.get_by_role("button", name="Roll back …").first.click()
    page.get_by_role("heading", name="Roll prod back?").wait_for()
    faults += [f"roll back: {fault}" for fault in faults_of(page, axe)]
    page.context.close()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_can_be_read_and_used(
    width: int, scheme: str, browser: Browser, axe: str, tmp_path: Path
) -> None:
    page = new_page(
        browser, viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    faults: list[str] = []
    for name, run in {"small": small_run(), "hostile": hostile_run()}.items():
        file = tmp_path / f"{name}.html"
        file.write_text(render(run), "utf-8")
        page.goto(file.as_uri())
        faults += [f"{name}: {fault}" for fault in faults_of(page, axe)]
    page.context.close()
    assert not faults, "\n".join(faults)


def test_only_a_proven_winner_is_green(
    browser: Browser, client: Client, manager: JobManager
) -> None:
    manager.create("support", "triage", {"budget": 120})
    work_off(manager)
    page = new_page(browser)
    page.goto(f"{client.url}/login?code={client.access.new_code()}")
    [job] = manager.list()
    badge = page.locator("table .badge").first
    is_good = "good" in (badge.get_attribute("class") or "").split()
    assert is_good == (badge.inner_text() == "improved")
    assert re.search("improved|better on validation only|not improved|worse", badge.inner_text())
    page.goto(f"{client.url}/jobs/{job.id}")
    badge = page.locator("#live .badge").first
    assert is_good == ("good" in (badge.get_attribute("class") or "").split())
    for tab in ("", "/report", *(f"/{tab}" for tab in TABS)):
        page.goto(f"{client.url}/jobs/{job.id}{tab}")
        page.evaluate(OPEN_ALL)
        green = page.evaluate(GREEN)
        assert all(is_good and "proven" in found for found in green), (tab, green)
    page.context.close()


@pytest.mark.parametrize(
    ("path", "column"),
    [
        ("cases", "table.heat thead th:nth-child(4)"),
        ("cost", "#ledger thead th:nth-child(3)"),
        ("case?id=l11", "thead th:has-text('Winner')"),
    ],
)
def test_a_phone_shows_what_matters_without_scrolling(
    browser: Browser, client: Client, manager: JobManager, path: str, column: str
) -> None:
    job = manager.create("support", "triage", {"budget": 120})
    work_off(manager)
    page = new_page(browser, viewport={"width": 390, "height": 900})
    page.goto(f"{client.url}/login?code={client.access.new_code()}")
    page.goto(f"{client.url}/jobs/{job.id}/{path}")
    box = page.locator(column).first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    page.context.close()


def test_no_gain_of_a_search_is_green_and_none_that_is_shown_as_zero(
    browser: Browser, tmp_path: Path
) -> None:
    run = small_run(
        verdict=RunVerdict.NOT_SHOWN,
        gains={"section": 0.3, "merge": 0.0004, "example": -0.0004},
    )
    file = tmp_path / "report.html"
    file.write_text(render(run), "utf-8")
    page = new_page(browser)
    page.goto(file.as_uri())
    page.evaluate(OPEN_ALL)
    assert page.evaluate(GREEN) == []
    helped = page.locator("dd .delta")
    assert helped.all_inner_texts()[-3:] == ["+0.300", "+0.000", "+0.000"]
    classes = [delta.get_attribute("class") for delta in helped.all()[-3:]]
    assert classes == ["delta up", "delta level", "delta level"]
    page.context.close()
