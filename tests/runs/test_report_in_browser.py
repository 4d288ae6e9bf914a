"""The report in a browser: headless Chromium, from Debian's package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from promptgraft.ground.text import visible
from promptgraft.runs.report.page import render
from runs.report_pages import HOSTILE, candidate, hostile_run, overviews, small_run
from runs.toy_runs import kept_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# The shell draws pages as the whole browser does, and starts in less time.
BROWSERS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
CHROMIUM = next(filter(Path.exists, BROWSERS), BROWSERS[0])
# Each window loads two pages for the address bar, which nobody sees here: 0.6 of its 0.75 CPU
# seconds. Chromium obeys the last such list only, so Playwright's is repeated in it.
DISABLED = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsUpgrades", "HttpsFirstBalancedModeAutoEnable"),
    *("LensOverlay", "MediaRouter", "PaintHolding", "ThirdPartyStoragePartitioning"),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying"),
    *("AimEnabled", "PreconnectToSearch"),
)
ARGUMENTS = [
    f"--disable-features={','.join(DISABLED)}",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 120_000  # a busy machine may be slow; how fast pages are is no matter of these tests
PARTS = ("held-out", "verdict", "score", "family", "frontier", "cases", "changes", "rejected")


OUTSIDE = """width => [...document.querySelectorAll('main *')]
    .filter(one => !one.closest('.scroll, .hidden, svg') && one.getClientRects().length
            && one.getBoundingClientRect().right > width + 1)
    .map(one => one.outerHTML.slice(0, 80))"""
NAMELESS = """[...document.querySelectorAll("input, select, button, a, summary, img, table, nav")]
    .concat([...document.querySelectorAll("svg:not([aria-hidden]), [role=group]")])
    .filter(one => !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
            || one.textContent.trim() || one.alt || (one.labels && one.labels.length)))
    .map(one => one.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}; `apt-get install {CHROMIUM.name}` brings it")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


def new_page(browser: Browser, **options: Any) -> Page:
    """Return a page in a context of its own; ``page.context.close()`` closes both."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with reports."""
    folder = tmp_path_factory.mktemp("reports")
    many = tuple(
        candidate(number, parents=(number // 2,) if number else ()) for number in range(90)
    )
    reports = {
        "small": small_run(),
        "hostile": hostile_run(),
        "many": small_run(candidates=many, winner=89, frontier=(40, 89)),
    }
    two, all_runs = overviews(kept_run(tmp_path_factory.mktemp("runs")))
    texts = {name: render(run) for name, run in reports.items()} | {"two": two, "all": all_runs}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return folder


@attrs.define
class Opened:
    """A page, and everything that it asked for or complained about."""

    page: Page
    said: list[str] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)


class _Open:
    def __init__(self, browser: Browser, pages: Path) -> None:
        self._browser = browser
        self._pages = pages

    def __call__(
        self, name: str, *, width: int = 1280, dark: bool = False, script: bool = True, at: str = ""
    ) -> Opened:
        page = new_page(
            self._browser,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        found = Opened(page)
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        found.page.on("dialog", lambda dialog: found.said.append(dialog.message))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto((self._pages / f"{name}.html").as_uri() + at)
        # What a link leads to opens by itself; a reader opens the rest.
        for fold in [] if at else found.page.locator("details.fold:not([id])").all():
            fold.evaluate("fold => fold.open = true")
        return found


@pytest.fixture
def opened(browser: Browser, pages: Path) -> Iterator[_Open]:
    """Open reports by name."""
    yield _Open(browser, pages)
    for context in browser.contexts:
        context.close()


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("small", 390),
        ("hostile", 390),
        ("hostile", 1280),
        ("many", 1280),
        ("two", 390),
        ("all", 390),
        ("all", 1280),
    ],
)
def test_a_page_asks_for_nothing_complains_of_nothing_and_never_scrolls_sideways(
    opened: _Open, name: str, width: int
) -> None:
    found = opened(name, width=width, dark=width == 390)
    page = found.page
    page.evaluate("document.querySelectorAll('details').forEach(row => row.open = true)")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OUTSIDE, width) == []
    assert found.said == []
    assert [url for url in found.asked if not url.startswith("data:")] == [page.url]
    assert page.evaluate("window.pwned") is None


def test_hostile_texts_are_shown_as_text(opened: _Open) -> None:
    page = opened("hostile").page
    shown = page.evaluate("document.body.textContent")
    for text in HOSTILE:
        assert visible(text) in shown, text
    counts = page.evaluate(
        "Object.fromEntries(['script', 'style', 'iframe', 'form', 'base', 'textarea', 'title']"
        ".map(tag => [tag, document.querySelectorAll(tag).length]))"
    )
    assert counts == {
        **dict.fromkeys(("iframe", "form", "base", "textarea"), 0),
        **dict.fromkeys(("script", "style", "title"), 1),
    }
    links = page.evaluate("[...document.links].map(a => a.protocol)")
    assert set(links) == {"file:"}


def test_without_scripts_everything_is_there(opened: _Open) -> None:
    page = opened("small", script=False).page
    assert page.locator("#score h2").is_hidden()
    page.get_by_text("Search details", exact=True).last.click()
    for part in PARTS:
        assert page.locator(f"#{part} h2").is_visible()
    assert page.locator("#every .controls").is_hidden()
    row = page.locator("#candidates .row").nth(1)
    row.locator("summary").click()
    assert row.locator("ins").first.is_visible()
    answer = page.locator("#validation-cases .row").first
    answer.locator("summary").first.click()
    assert answer.get_by_text("answer 3.1").is_visible()
    assert page.get_by_text("red, says 3").first.is_visible()


def test_a_link_to_a_candidate_opens_its_row_without_scripts_too(opened: _Open) -> None:
    page = opened("many", script=False, at="#c30").page
    assert page.locator("#c30").is_visible()
    assert page.locator("#c31").is_hidden()
    page.locator("#frontier a", has_text="#40").click()
    assert page.locator("#c40").is_visible()


def test_candidates_can_be_filtered_ordered_and_jumped_to(opened: _Open) -> None:
    found = opened("many")
    page = found.page
    page.locator("#search > summary").click()
    controls = page.locator("#every .controls")
    controls.get_by_label("Filter").fill("#7")
    rows = page.locator("#candidates .row")
    numbers = [number for number in range(90) if f"{number}".startswith("7")]
    assert rows.filter(visible=True).count() == len(numbers)
    assert controls.get_by_role("status").inner_text() == f"{len(numbers)} of 90"
    controls.get_by_label("Filter").fill("")
    controls.get_by_label("Order").select_option("mean")
    first = page.locator("#candidates .list").first.locator(".row").first
    assert first.get_attribute("data-mean") == "0.625"
    controls.get_by_label("Jump to").fill("3")
    controls.get_by_label("Jump to").press("Enter")
    assert page.locator("#c3").is_visible()
    controls.get_by_label("Jump to").fill("500")
    controls.get_by_label("Jump to").press("Enter")
    assert controls.get_by_role("status").inner_text() == "no line for #500"
    assert found.said == []


def test_estimates_come_after_means_and_have_no_difference_from_the_baseline(
    opened: _Open,
) -> None:
    page = opened("small").page
    page.locator("#search > summary").click()
    page.locator("#every .controls").get_by_label("Order").select_option("mean")
    rows = page.locator("#candidates .row")
    assert rows.evaluate_all("rows => rows.map((row) => row.dataset.number)") == list("2301")
    assert rows.last.locator("summary").inner_text().split()[-1] == "~0.500"
    assert rows.first.locator(".delta").count() == 1


def test_cases_can_be_searched_and_limited_to_those_that_changed_or_failed(opened: _Open) -> None:
    found = opened("small")
    page = found.page
    controls = page.locator("#answers .controls").last
    rows = page.locator("#validation-cases .row").filter(visible=True)
    status = controls.get_by_role("status")
    controls.get_by_label("Search").fill("ANSWER 3.2")
    assert (rows.count(), status.inner_text()) == (1, "1 of 3")
    controls.get_by_label("Search").fill("")
    controls.get_by_label("only changed").check()
    assert (rows.count(), status.inner_text()) == (3, "3 of 3")
    controls.get_by_label("only failed").check()
    assert (rows.count(), status.inner_text()) == (0, "0 of 3")

    controls = page.locator("#cases .controls")
    cells = page.locator("#heat tbody tr").filter(visible=True)
    controls.get_by_label("only failed").check()
    assert cells.locator("th").all_inner_texts() == ["t-2", "t-4"]
    controls.get_by_label("Search").fill("question 2")
    assert cells.locator("th").all_inner_texts() == ["t-2"]
    assert found.said == []


def test_the_whole_prompt_can_be_copied(opened: _Open) -> None:
    found = opened("small")
    button = found.page.locator("#whole .copy")
    button.click()
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect(button).to_have_text(re.compile("Copied|Selected: press Ctrl[+]C"))
    chosen = found.page.evaluate("getSelection().toString()")
    assert chosen == "## Rules\n\nAnswer in one word.\n\n$ticket"
    assert found.said == []


def test_a_page_can_be_walked_with_the_keyboard_and_printed(opened: _Open) -> None:
    page = opened("small").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    details = page.locator("#search > summary")
    details.focus()
    page.keyboard.press("Enter")
    head = page.locator("#frontier th button", has_text="Mean")
    head.focus()
    page.keyboard.press("Enter")
    assert page.locator("#frontier th[aria-sort=descending]").count() == 1
    row = page.locator("#candidates .row summary").first
    row.focus()
    page.keyboard.press("Enter")
    assert page.locator("#c0").is_visible()
    assert page.evaluate(NAMELESS) == []
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(one => Number(one.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(later <= earlier + 2 for earlier, later in pairwise(levels))

    page.emulate_media(media="print")
    assert page.locator(".contents").is_hidden()
    assert page.locator("#every .controls").is_hidden()
    assert page.locator("#held-out h2").is_visible()
