"""Every page on small and large screens, light and dark: axe's rules, no overflow, the keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from playwright.sync_api import Browser, Page

from jobs.job_world import work_off
from promptgraft.runs.report.page import render
from promptgraft.search.verdict import RunVerdict
from promptgraft.service.jobs import ApprovalNeededError, Job, JobManager
from promptgraft.service.server import Scope
from promptgraft.service.server.oidc_settings import OidcGroup, OidcSettings
from runs.report_pages import hostile_run, small_run
from runs.test_report_in_browser import browser as browser_of_reports
from runs.test_report_in_browser import new_page
from server.conftest import managing
from server.oidc_providers import CLIENT, forger
from server.serving import Client, asking, served

browser = browser_of_reports

NARROW, MEDIUM, WIDE = 390, 768, 1440
# Rows of a table are alike, and axe takes its time for each text: most of it for its colours.
LOOKED_AT = "{exclude: ['tbody tr:nth-child(n+4)']}"
ONLY_FAULTS = "resultTypes: ['violations'], selectors: false, preload: false"
RULES = f"""axe.run({LOOKED_AT}, {{
    rules: {{'color-contrast': {{enabled: false}}}}, {ONLY_FAULTS},
}})"""
CONTRAST = f"""axe.run({{exclude: ['[data-alike]']}}, {{
    runOnly: ['color-contrast'], {ONLY_FAULTS},
}})"""
MARK_ALIKE = """() => {
    const seen = new Set();
    const own = found => [
        found.tagName, ...found.getAttributeNames(), found.getAttribute('class'),
        found.getAttribute('style'), [...found.childNodes].some(node => node.nodeType === 3),
    ].join(' ');
    const whole = found => `${own(found)}(${[...found.children].map(whole)})`;
    const visit = (found, above) => {
        const look = above + whole(found);
        if (seen.has(look)) {
            found.dataset.alike = '';
            return;
        }
        seen.add(look);
        for (const child of found.children) visit(child, `${above}${own(found)}>`);
    };
    visit(document.body, '');
}"""
"""Marks what has the style of something before it, in all that is around it and in it."""
# What is hidden on any screen is hidden on a narrow one, so axe sees everything on a wide one.
Screen = tuple[int, Literal["light", "dark"], Sequence[str]]
SCREENS: tuple[Screen, ...] = (
    (NARROW, "light", ()),
    (MEDIUM, "light", ()),
    (WIDE, "light", (RULES, CONTRAST)),
    (WIDE, "dark", (CONTRAST,)),
)
"""Widths in pixels, colours, and what axe looks at; the layout does not depend on colours."""
EXTREMES = (SCREENS[0], SCREENS[2])
"""Where most faults of a page are seen; all colours are in one place, so one page is dark too."""
ONE_OF_EACH = "one of each kind"
UNKNOWN = "/jobs/none"
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
SCROLLERS = """() => [...document.querySelectorAll('.scroll')]
    .filter(found => found.tabIndex < 0 && (
        found.scrollWidth > found.clientWidth + 1 || found.scrollHeight > found.clientHeight + 1))
    .map(found => found.outerHTML.slice(0, 90))"""
WORDS = """() => [...document.querySelectorAll('body, body *')]
    .filter(found => !found.closest('pre, code, script, style'))
    .flatMap(found => [...found.childNodes].filter(node => node.nodeType === 3))
    .filter(node => /\\b(held.out|rollouts?|baselines?)\\b/i.test(node.data))
    .map(node => node.data.trim().slice(0, 90))"""
"""Words of the library that people need not know: your prompt, test calls, unseen cases."""
LAYOUT = f"() => [{SIDEWAYS}, {CLIPPED}, {UNREACHED}, {SCROLLERS}].map(look => look())"

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
    """The script of axe, which knows the rules: half a megabyte, so a page takes it once."""
    base = pytest.importorskip(
        "axe_playwright_python.base", reason="axe-playwright-python is not installed"
    )
    return Path(base.AXE_FILE_PATH).read_text("utf-8")


@attrs.frozen
class Site:
    """A server with one job that has ended and one that waits, and the paths of all its pages."""

    client: Client
    ended: Job
    pages: Mapping[str, Sequence[str]]

    def new_page(self, browser: Browser, **options: Any) -> Page:
        """Return a page that has signed in."""
        page = new_page(browser, **options)
        page.goto(f"{self.client.url}/login?code={self.client.access.new_code()}")
        return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    with managing(root) as manager, served(manager, root / "mirrors") as client:
        yield filled(client, manager)


def filled(client: Client, manager: JobManager) -> Site:
    job = manager.create("support", "triage", {})
    work_off(manager)
    waiting = manager.create("support", "triage", {"note": "a long note " * 8})
    project = manager.projects["support"]
    for body in ("Be kind.", "Be brief."):
        prompt = project.prompt("triage").prompt
        project.store().set_section_override(prompt, tag="prod", path=("rules",), body=body)
    manager.comment(job.id, "Ship it.")
    for count in (30, 31):
        rows = [{"id": f"n{n}", "input": "lost " * 9, "expected": "login"} for n in range(count)]
        manager.save_dataset("support", "hard", "".join(f"{json.dumps(row)}\n" for row in rows))
    ana, ben = (manager.acting_for(name) for name in ("ana", "ben"))
    ana.protect("support", "prod")
    for move in (
        lambda: ana.roll_back("support", "triage", "prod"),
        lambda: ben.apply(job.id, to="prod"),
    ):
        with pytest.raises(ApprovalNeededError):
            move()
    ben.decline(1, comment="Too early, as the long comments of our colleagues have said. " * 9)
    tabs = ("", *(f"/{tab}" for tab in TABS))
    ended = [f"/jobs/{job.id}{tab}" for tab in ("", "/candidates", "/cases", "/texts", "/cost")]
    pages = {
        ONE_OF_EACH: [
            *ended,
            f"/jobs/{job.id}/case?id=l11",
            f"/jobs/{job.id}/compare?candidate=0&candidate=1",
            f"/compare?job={job.id}&job={job.id}",
            *("/datasets/support/hard", "/approvals/1", "/approvals/2"),
            *("/", "/new", "/tags", "/account", "/login", UNKNOWN),
        ],
        "ended": [f"/jobs/{job.id}{tab}" for tab in tabs],
        # Its other tabs say the same: that there is nothing yet.
        "waiting": [f"/jobs/{waiting.id}{tab}" for tab in ("", "/cases", "/events")],
        "details": [
            f"/jobs/{job.id}/case?id=l11",
            f"/jobs/{job.id}/candidates/1",
            f"/jobs/{job.id}/compare?candidate=0&candidate=1",
            f"/compare?job={job.id}&job={job.id}",
        ],
        "data sets": ["/datasets", "/datasets/support/hard"],
        "approvals": ["/approvals", "/approvals/1", "/approvals/2"],
        "others": ["/", "/new", "/tags", "/account", "/login", "/workers", UNKNOWN],
    }
    return Site(client, job, pages)


def faults_of(page: Page, screens: Sequence[Screen] = EXTREMES) -> list[str]:
    """Return what is wrong, on some screens, with a page that has loaded axe."""
    page.evaluate(OPEN_ALL)
    page.evaluate(MARK_ALIKE)
    faults = [f"not a plain word: {text}" for text in page.evaluate(WORDS)]
    for width, scheme, looks in screens:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        shown = faults_of_layout(page)
        for look in looks:
            shown += faults_of_rules(page, look)
        faults += [f"{width} pixels, {scheme}: {fault}" for fault in shown]
    return faults


def faults_of_layout(page: Page) -> list[str]:
    sideways, clipped, unreached, scrollers = page.evaluate(LAYOUT)
    return [
        *([f"{sideways} pixels beyond the screen"] if sideways > 1 else []),
        *(f"clipped: {node}" for node in clipped),
        *(f"out of the keyboard's reach: {node}" for node in unreached),
        *(f"does not scroll by key: {node}" for node in scrollers),
    ]


def faults_of_rules(page: Page, rules: str) -> list[str]:
    violations = page.evaluate(f"async () => (await {rules}).violations")
    return [
        f"{rule['id']} ({rule['help']}): {node['html'][:120]} {json.dumps(node['any'])[:300]}"
        for rule in violations
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize(
    "kind",
    [
        ONE_OF_EACH,
        *(
            pytest.param(kind, marks=pytest.mark.thorough)
            for kind in ("ended", "waiting", "details", "data sets", "approvals", "others")
        ),
    ],
)
def test_every_page_of_the_dashboard_can_be_read_and_used(
    kind: str, browser: Browser, site: Site, axe: str
) -> None:
    page = site.new_page(browser, bypass_csp=True)
    page.add_init_script(axe)
    faults: list[str] = []
    for number, path in enumerate(site.pages[kind]):
        shown = page.goto(f"{site.client.url}{path}")
        assert shown is not None
        assert (shown.status == 200) == (path != UNKNOWN), path
        screens = EXTREMES if number and kind == ONE_OF_EACH else SCREENS
        faults += [f"{path}: {fault}" for fault in faults_of(page, screens)]
    page.context.close()
    assert not faults, "\n".join(faults)


def test_a_rollback_can_be_read_and_confirmed(browser: Browser, site: Site, axe: str) -> None:
    page = site.new_page(browser, bypass_csp=True)
    page.add_init_script(axe)
    page.goto(f"{site.client.url}/tags")
    page.get_by_role("button", name="Roll back …").first.click()
    page.get_by_role("heading", name="Roll prod back?").wait_for()
    faults = faults_of(page)
    page.context.close()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", [pytest.param("small", marks=pytest.mark.thorough), "hostile"])
def test_the_report_can_be_read_and_used(
    name: str, browser: Browser, axe: str, tmp_path: Path
) -> None:
    page = new_page(browser, bypass_csp=True)
    page.add_init_script(axe)
    file = tmp_path / "report.html"
    file.write_text(render(small_run() if name == "small" else hostile_run(cases=2)), "utf-8")
    page.goto(file.as_uri())
    faults = faults_of(page, SCREENS)
    page.context.close()
    assert not faults, "\n".join(faults)


def test_only_a_proven_winner_is_green(browser: Browser, site: Site) -> None:
    page = site.new_page(browser)
    badge = page.locator("table .badge").last
    is_good = "good" in (badge.get_attribute("class") or "").split()
    assert is_good == (badge.inner_text() == "improved")
    assert re.search("improved|better on validation only|not improved|worse", badge.inner_text())
    job = f"{site.client.url}/jobs/{site.ended.id}"
    page.goto(job)
    badge = page.locator("#live .badge").first
    assert is_good == ("good" in (badge.get_attribute("class") or "").split())
    for tab in ("", "/report", *(f"/{tab}" for tab in TABS)):
        page.goto(f"{job}{tab}")
        page.evaluate(OPEN_ALL)
        green = page.evaluate(GREEN)
        assert all(is_good and "proven" in found for found in green), (tab, green)
    page.context.close()


def test_a_phone_shows_what_matters_without_scrolling(browser: Browser, site: Site) -> None:
    page = site.new_page(browser, viewport={"width": NARROW, "height": 900})
    for path, column in (
        ("cases", "table.heat thead th:nth-child(4)"),
        ("cost", "#ledger thead th:nth-child(3)"),
        ("case?id=l11", "thead th:has-text('Winner')"),
    ):
        page.goto(f"{site.client.url}/jobs/{site.ended.id}/{path}")
        box = page.locator(column).first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= NARROW, path
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


def test_signing_in_by_a_provider_can_be_read_and_used(
    browser: Browser, manager: JobManager, tmp_path: Path, axe: str
) -> None:
    label = "the login of a company with a very long name " * 3
    groups = {"*": OidcGroup(roles=frozenset({Scope.READ}))}
    with forger() as provider:
        oidc = OidcSettings(issuer=provider.issuer, client_id=CLIENT, groups=groups, label=label)
        with served(manager, tmp_path / "mirrors", oidc=oidc) as client:
            page = new_page(browser, bypass_csp=True)
            page.add_init_script(axe)
            for path in ("/login", "/login/oidc/callback?state=wrong"):
                page.goto(f"{client.url}{path}")
                assert page.get_by_role("link", name="Sign in with").count() == 1
                faults = faults_of(page)
                assert not faults, (path, "\n".join(faults))
            with asking(client.url) as other:
                query = provider.code(other.get("/login/oidc").headers["location"])
                entered = other.get("/login/oidc/callback", params=query).text
            # As it is seen by somebody whose browser does not go on by itself.
            stays = re.sub("<meta http-equiv.*?>", "", entered)
            page.route(
                "**/stays", lambda route: route.fulfill(body=stays, content_type="text/html")
            )
            page.goto(f"{client.url}/stays")
            faults = faults_of(page)
            assert not faults, "\n".join(faults)
            page.context.close()
