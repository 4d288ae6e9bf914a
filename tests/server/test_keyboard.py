"""From an empty database to a promoted winner with the keyboard alone, in a real browser."""

from __future__ import annotations

import attrs
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from jobs.job_world import work_off
from promptgraft.service.jobs import JobManager
from runs.test_report_in_browser import new_page
from server.large_job import large_job
from server.serving import Client
from server.test_pages import NARROW, WIDE, Watched, browser, watched

__all__ = ["browser", "watched"]  # fixtures

MOST_TABS = 150
"""A user would have given up long before."""


SEEN = """() => {
  const focused = document.activeElement;
  if (focused === document.body) return null;
  const box = focused.getClientRects()[0] || focused.getBoundingClientRect();
  const view = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
  let ground = "rgb(255, 255, 255)";
  for (let inside = focused.parentElement; inside; inside = inside.parentElement) {
    const style = getComputedStyle(inside);
    if (style.backgroundColor === "rgba(0, 0, 0, 0)") continue;
    ground = style.backgroundColor;
    break;
  }
  for (const inside of document.querySelectorAll("main *")) {
    const isFrame = inside !== focused && inside.contains(focused);
    if (!isFrame || getComputedStyle(inside).overflowX === "visible") continue;
    const frame = inside.getBoundingClientRect();
    for (const side of ["left", "top"]) view[side] = Math.max(view[side], frame[side]);
    for (const side of ["right", "bottom"]) view[side] = Math.min(view[side], frame[side]);
  }
  const x = (Math.max(box.left, view.left) + Math.min(box.right, view.right)) / 2;
  const y = (Math.max(box.top, view.top) + Math.min(box.bottom, view.bottom)) / 2;
  const hit = document.elementFromPoint(x, y);
  const light = (color) => color.match(/[\\d.]+/g).slice(0, 3)
    .map((part) => part / 255)
    .map((part) => part > 0.04 ? ((part + 0.055) / 1.055) ** 2.4 : part / 12.92)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0.05);
  const style = getComputedStyle(focused);
  const shades = [light(style.outlineColor), light(ground)];
  const faults = [];
  const isOut = box.right < view.left || box.left > view.right;
  if (isOut || box.bottom < view.top || box.top > view.bottom) faults.push("out of view");
  if (!hit || !(focused.contains(hit) || hit.contains(focused))) faults.push("covered");
  if (style.outlineStyle === "none") faults.push("no outline");
  else if (Math.max(...shades) < 3 * Math.min(...shades)) faults.push("a pale outline");
  const place = [...document.querySelectorAll("*")].indexOf(focused);
  return [place, faults.map((fault) => `${fault}: ${focused.outerHTML.slice(0, 100)}`)];
}"""
"""The place of what has the focus in the page, and why a user would not see it."""


def walk(page: Page) -> None:
    """Press Tab from the beginning of a page to its end: all that gets the focus is seen."""
    last = -1
    for _ in range(MOST_TABS * 3):
        page.keyboard.press("Tab")
        stop = page.evaluate(SEEN)
        if stop is None:
            break
        assert stop[1] == []
        assert stop[0] > last, "the focus goes back"
        last = stop[0]
    assert last > 0


# The place depends on the size, the contrast on the theme; a narrow page has all rules for sizes.
@pytest.mark.parametrize(
    ("size", "theme"),
    [(NARROW, "dark"), pytest.param(WIDE, "light", marks=pytest.mark.thorough)],
)
def test_what_has_the_focus_is_seen_on_every_page(
    browser: Browser, client: Client, manager: JobManager, size: tuple[int, int], theme: str
) -> None:
    job = large_job(manager, candidates=5, cases=6)
    manager.save_dataset("support", "hard", '{"id": "a", "input": "a", "expected": "login"}')
    page = new_page(
        browser,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=theme,
        reduced_motion="reduce",  # a page that still scrolls shows nothing yet
    )
    page.goto(client.url)
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(client.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    tabs = [f"/jobs/{job.id}{tab}" for tab in ("", "/candidates", "/cases", "/texts")]
    for path in ("/", "/new", "/datasets/support/hard", "/tags", "/workers", "/account", *tabs):
        page.goto(f"{client.url}{path}")
        walk(page)
    page.context.close()


def focus(control: Locator) -> None:
    """Press Tab until a control has the focus, which must be seen."""
    expect(control).to_be_visible()
    for _ in range(MOST_TABS):
        control.page.keyboard.press("Tab")
        if control.evaluate("node => node === document.activeElement"):
            break
    expect(control).to_be_focused()
    assert control.evaluate(
        "node => getComputedStyle(node).outlineStyle !== 'none' || "
        "getComputedStyle(node).boxShadow !== 'none'"
    ), "the focus cannot be seen"


def press(control: Locator, key: str = "Enter") -> None:
    focus(control)
    control.page.keyboard.press(key)


def test_from_an_empty_database_to_a_promoted_winner(watched: Watched, manager: JobManager) -> None:
    page, keyboard = watched.page, watched.page.keyboard
    press(page.get_by_role("link", name="New job"))
    prompt = page.get_by_label("Prompt")
    focus(prompt)
    keyboard.type("support/triage")
    expect(prompt).to_have_value("support/triage")
    focus(page.get_by_label("Tag", exact=True))
    keyboard.press("ControlOrMeta+a")
    keyboard.type("night")
    press(page.get_by_role("button", name="Submit"))
    expect(page.locator("#live .badge").first).to_have_text("queued")

    work_off(manager)
    expect(page.get_by_role("group", name="Changed texts")).to_contain_text("(")
    press(page.get_by_role("button", name="Apply to night"), "Space")
    expect(page.get_by_role("status")).to_contain_text("Applied to night by local")
    expect(page.get_by_role("button", name="Apply to night")).to_have_count(0)
    press(page.get_by_role("link", name="Tags"))
    focus(page.get_by_label("Promote to tag"))
    keyboard.type("prod")
    press(page.get_by_role("button", name="Promote"), "Space")
    expect(page.get_by_role("heading", name="support/triage: prod")).to_be_visible()

    store = manager.projects["support"].store()
    prod, night = (
        store.current(ns="support", prompt_key="triage", tag=tag) for tag in ("prod", "night")
    )
    assert prod is not None
    assert night is not None
    assert list(prod.override.entries()) == list(night.override.entries())
    triage = manager.projects["support"].prompt("triage").prompt
    for tag, is_changed in (("prod", True), ("unknown", False)):
        bound = attrs.evolve(triage, overrides_store=store, overrides_tag=tag)
        text = bound.bind({"text": "hello"}).render().text
        assert ("words such as these (" in text) is is_changed


def test_a_page_of_many_candidates_is_crossed_with_a_few_keys(
    watched: Watched, client: Client, manager: JobManager
) -> None:
    page = watched.page
    job = large_job(manager, candidates=80, cases=60)
    page.goto(f"{client.url}/jobs/{job.id}/candidates")
    press(page.get_by_role("navigation", name="On this page").get_by_text("Every candidate"))
    words = page.get_by_label("Filter").first
    for _ in range(3):
        page.keyboard.press("Tab")
        if words.evaluate("node => node === document.activeElement"):
            break
    expect(words).to_be_focused()
    page.get_by_label("Search").fill("#79")
    rows = page.locator("#frontier-rows tbody > tr:visible")
    expect(rows).to_have_count(1)
