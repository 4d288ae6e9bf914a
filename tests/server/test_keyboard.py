"""From an empty database to a promoted winner with the keyboard alone, in a real browser."""

from __future__ import annotations

import attrs
import pytest
from playwright.sync_api import Locator, expect

from jobs.job_world import work_off
from promptgraft.service.jobs import JobManager
from server.large_job import large_job
from server.serving import Client
from server.test_pages import NARROW, WIDE, Watched, browser, watched

__all__ = ["browser", "watched"]  # fixtures

MIDDLE = (768, 1024)
MOST_TABS = 150
"""A user would have given up long before."""


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


@pytest.mark.parametrize("watched", [NARROW, MIDDLE, WIDE], indirect=True)
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
    job = large_job(manager, candidates=200, cases=60)
    page.goto(f"{client.url}/jobs/{job.id}/candidates")
    press(page.get_by_role("navigation", name="On this page").get_by_text("Every candidate"))
    words = page.get_by_label("Filter").first
    for _ in range(3):
        page.keyboard.press("Tab")
        if words.evaluate("node => node === document.activeElement"):
            break
    expect(words).to_be_focused()
    page.get_by_label("Search").fill("#199")
    rows = page.locator("#frontier-rows tbody > tr:visible")
    expect(rows).to_have_count(1)
