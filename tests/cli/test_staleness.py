"""For every kind of part: a change of its source makes only its own override stale."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from agent_prompts import received
from cli.console import Console
from cli.kinds import NAME, PARTS, TEMPLATE, edit_source, files, kept, make_project, prompt_of
from promptgraft.overrides import (
    AddedTaskExample,
    LocalPromptOverridesStore,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    SummaryOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.entry import Entry


@attrs.frozen
class Edit:
    """An edit of the source of one part, and what tells whether its override is applied.

    Attributes:
        before: in the module.
        after: what the author writes instead.
        given: what the model receives of the override; None for a removal or a hidden part.
        source: what it receives of the source otherwise, edited or not; None for an addition.
    """

    before: str
    after: str
    given: str | None
    source: str | None


def more(text: str, given: str | None, source: str | None = None) -> Edit:
    """Return the edit that writes one more sentence."""
    return Edit(text, f"{text} Now.", given, source or text)


EDITS: Mapping[type[Entry], Edit] = {
    SectionOverride: more(
        "Review $language code.", "Review Python code well.", "Review Python code."
    ),
    SummaryOverride: more("Older reviews are kept.", "Ask for older reviews."),
    ToolOverride: more("Search the code.", "Search every file."),
    ToolExampleOverride: more("Find tasks.", "FIXME", "TODO"),
    TaskExampleOverride: more("Find SQL injection.", "Find injected SQL."),
    # Bound to the types of all tools and of the answer.
    AddedTaskExample: Edit("result_type=str", "result_type=float", "Find leaked keys.", None),
    RemovedTaskExample: more("Find cross-site scripting.", None),
    OutputFieldOverride: more("How bad it is.", "How urgent it is."),
    VisibilityOverride: more("Short names are fine.", None),
}
KINDS = pytest.mark.parametrize("kind", EDITS, ids=lambda kind: kind.__name__)


def is_applied(edit: Edit, text: str) -> bool:
    """Tell whether the model receives the override, and not the source."""
    given = None if edit.given is None else edit.given in text
    source = None if edit.source is None else edit.source in text
    assert given is not source
    return given is True or source is False


@KINDS
def test_one_changed_source_makes_one_override_stale_and_deletes_nothing(
    kind: type[Entry], console: Console, project: Path
) -> None:
    store = make_project(project)
    before, entry = files(project), _entry(kind, project)
    assert is_applied(EDITS[kind], received(prompt_of(project, store)))

    edit_source(project, EDITS[kind].before, EDITS[kind].after)
    document = json.loads(console("show", NAME, "--template", TEMPLATE, "--json").out)
    prompt = prompt_of(project, store)
    rendered, text = prompt.render(), received(prompt)

    (stale,) = [part for part in document["parts"] if part["status"] != "applied"]
    assert (stale["part"], stale["status"], stale["reason"]) == (PARTS[kind], "skipped", "stale")
    assert stale["expected_hash"] == entry.expected_hash != stale["found_hash"]
    assert [part["part"] for part in document["parts"]] == list(PARTS.values())
    assert all(is_applied(EDITS[other], text) == (other is not kind) for other in PARTS)
    assert [found.part for found in rendered.skipped] == [PARTS[kind]]
    assert {found.part for found in rendered.applied} == set(PARTS.values()) - {PARTS[kind]}
    assert files(project) == before


def test_what_is_stale_is_said_until_its_source_is_as_it_was(
    console: Console, project: Path
) -> None:
    make_project(project)
    fresh = console("show", NAME, "--template", TEMPLATE)
    assert fresh.out.count(": applied\n") == len(PARTS)
    for edit in EDITS.values():
        edit_source(project, edit.before, edit.after)

    document = json.loads(console("show", NAME, "--template", TEMPLATE, "--json").out)
    shown = console("show", NAME, "--template", TEMPLATE)
    compared = console("diff", NAME, "--template", TEMPLATE)

    for part in document["parts"]:
        assert f"\n{part['part']}: {_stale(part)}\n" in shown.out
        assert f"\n{part['part']} is not applied: stale\n" in compared.out
    assert "\napplied   0 of 9 overrides\n" in shown.out

    for edit in EDITS.values():
        edit_source(project, edit.after, edit.before)
    assert console("show", NAME, "--template", TEMPLATE) == fresh


def _entry(kind: type[Entry], project: Path) -> Entry:
    entries = kept(LocalPromptOverridesStore(project)).entries()
    (found,) = [entry for entry in entries if type(entry) is kind]
    return found


def _stale(part: Mapping[str, str]) -> str:
    return (
        f"not applied, stale: written for source {part['expected_hash'][:12]}, "
        f"the source is now {part['found_hash'][:12]}"
    )


def test_overrides_of_parts_that_are_gone_are_listed(console: Console, project: Path) -> None:
    make_project(project)
    before = files(project)
    edit_source(project, '\n    name="search"', '\n    name="find"')
    edit_source(project, 'tool_name="search"', 'tool_name="find"')

    shown = console("show", NAME, "--template", TEMPLATE)

    assert "\ntool search: not applied, unknown part\n" in shown.out
    assert "\ntool example search/0: not applied, unknown part\n" in shown.out
    assert "\nsection role: applied\n" in shown.out
    assert files(project) == before


def test_two_overrides_that_give_one_name_are_told_apart_everywhere(
    console: Console, project: Path
) -> None:
    store = make_project(project)
    edit_source(project, "How bad it is.", "How grave it is.")
    # Allowed while the override of the other field is stale.
    store.set_output_field_override(prompt_of(project), field="Review.note", aliases=["urgency"])
    edit_source(project, "How grave it is.", "How bad it is.")

    shown = console("show", NAME, "--template", TEMPLATE)
    compared = json.loads(console("diff", NAME, "--template", TEMPLATE, "--json").out)

    part, reason = "output field Review.severity", "name taken by another field"
    assert f"\n{part}: not applied, {reason}\n" in shown.out
    assert [found["part"] for found in compared["parts"] if found["reason"] == reason] == [part]
    assert [found.part for found in prompt_of(project, store).render().skipped] == [part]
