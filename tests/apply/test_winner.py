"""What a winner changes, against today's source and against what the tag holds today."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_prompts import ADDRESS, LEAK, SOURCE, Source, written
from promptgraft.overrides import (
    AddedTaskExample,
    OutputFieldOverride,
    OverrideAddress,
    PromptOverride,
    Provenance,
    RemovedTaskExample,
    SectionOverride,
    SummaryOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.project.applying import (
    Winner,
    check_source,
    check_tag_contents,
    fresh_entries,
    merged_into,
)

KINDS: tuple[type[Entry], ...] = (
    SectionOverride,
    SummaryOverride,
    ToolOverride,
    ToolExampleOverride,
    TaskExampleOverride,
    AddedTaskExample,
    RemovedTaskExample,
    OutputFieldOverride,
    VisibilityOverride,
)
EVERY = ADDRESS.empty().holding(written(kind, SOURCE.prompt()) for kind in KINDS)
EDITED = Source(role="Read $language code.", search_says="Look up.", example_line=4)


def winner(base: PromptOverride, *changes: Entry) -> Winner:
    return Winner(
        base=base,
        changes=base.holding(changes),
        provenance=Provenance(run_id="run"),
    )


def test_a_source_that_has_not_changed_takes_everything() -> None:
    found = check_source(SOURCE.prompt(), EVERY)
    assert (set(found.fresh), found.settled, found.stale) == (set(EVERY.entries()), (), ())


def test_every_stale_part_is_named_with_both_hashes_and_the_mend() -> None:
    found = check_source(EDITED.prompt(), EVERY)

    assert len(found.stale) == 3
    now = EDITED.prompt().descriptor.section(("role",))
    then = EVERY.sections["role",].expected_hash
    assert now is not None
    assert found.stale[0] == (
        f"section role: stale: the winner was made for source {then[:12]}, the source is now "
        f"{now.content_hash[:12]}; run `promptgraft optimize` on the new source, or restore the "
        "old one"
    )
    assert [line.partition(":")[0] for line in found.stale[1:]] == [
        "tool search",
        "tool example search/0",
    ]
    assert len(found.fresh) == len(EVERY.entries()) - 3


def test_a_part_that_is_gone_is_stale_too() -> None:
    found = check_source(Source(search_name="find").prompt(), EVERY)
    (line,) = (line for line in found.stale if line.startswith("tool search:"))
    assert "the source is no longer there; the prompt no longer has this part" in line


def test_what_the_source_says_itself_by_now_is_settled() -> None:
    role = written(SectionOverride, SOURCE.prompt())
    rewritten = Source(role="\nReview $language code well.\n\n")

    found = check_source(rewritten.prompt(), ADDRESS.empty().holding([role]))

    assert (found.fresh, found.settled, found.stale) == ((), (role,), ())


def test_a_tool_whose_source_says_every_replaced_text_is_settled() -> None:
    tool = ToolOverride(
        name="search",
        expected_hash=written(ToolOverride, SOURCE.prompt()).expected_hash,
        description="Look up.",
    )
    override = ADDRESS.empty().holding([tool])

    assert check_source(EDITED.prompt(), override).settled == (tool,)
    other = override.holding([attrs.evolve(tool, param_descriptions={"query": "A word."})])
    assert check_source(EDITED.prompt(), other).settled == ()


def test_an_added_example_that_the_source_has_now_is_settled() -> None:
    source = SOURCE.prompt().descriptor.task_examples[0].example
    added = AddedTaskExample(
        container_path=LEAK[:-1],
        example_key="sqli",
        expected_hash=SOURCE.prompt().descriptor.interface_hash,
        objective=source.objective,
        outcome_json=source.outcome_json,
        steps_json=source.steps_json,
    )
    assert check_source(SOURCE.prompt(), ADDRESS.empty().holding([added])).settled == (added,)
    another = attrs.evolve(added, objective="Find something else.")
    (line,) = check_source(SOURCE.prompt(), ADDRESS.empty().holding([another])).stale
    assert line.startswith("added task example guide/security/sqli: key taken by the source")


def test_a_removal_of_what_the_source_does_not_have_is_settled() -> None:
    removal = written(RemovedTaskExample, SOURCE.prompt())
    found = check_source(Source(with_examples=False).prompt(), ADDRESS.empty().holding([removal]))
    assert found.settled == (removal,)


ROLE = next(iter(EVERY.sections.values()))
OTHER_ROLE = attrs.evolve(ROLE, body="Review $language code with care.")
THIRD_ROLE = attrs.evolve(ROLE, body="Review $language code twice.")
TOOL = EVERY.tool_overrides["search"]
EMPTY = ADDRESS.empty()


def merge(found: Winner, present: PromptOverride) -> PromptOverride | tuple[str, ...]:
    entries = fresh_entries(found, SOURCE.prompt(), present.tag)
    return check_tag_contents(found, entries, present) or merged_into(
        present, entries, SOURCE.prompt().descriptor
    )


def test_parts_that_the_winner_does_not_touch_stay_as_they_are_today() -> None:
    base = EMPTY.holding([written(OutputFieldOverride, SOURCE.prompt())])
    present = EMPTY.holding([TOOL])  # the field is gone since, and a tool has come

    assert merge(winner(base, ROLE), present) == EMPTY.holding([TOOL, ROLE])


def test_a_tag_that_holds_the_winner_already_stays_as_it_is() -> None:
    present = EMPTY.holding([ROLE, TOOL])
    assert merge(winner(EMPTY, ROLE), present) == present


@pytest.mark.parametrize(
    ("then", "now"), [(None, OTHER_ROLE), (OTHER_ROLE, None), (OTHER_ROLE, THIRD_ROLE)]
)
def test_a_part_that_somebody_changed_since_the_run_began_is_stale(
    then: Entry | None, now: Entry | None
) -> None:
    base, present = (EMPTY.holding(filter(None, [entry])) for entry in (then, now))

    found = merge(winner(base, ROLE), present)

    assert isinstance(found, tuple)
    (line,) = found
    assert line.startswith("section role: tag `latest` has changed since the run began: expected ")
    assert ("expected no override" in line) == (then is None)
    assert ("found no override" in line) == (now is None)
    assert "see `promptgraft history`" in line


def test_what_a_tool_says_is_merged_with_what_the_tag_said_when_the_run_began() -> None:
    described = attrs.evolve(TOOL, description=None, param_descriptions={"limit": "How many."})
    base = EMPTY.holding([described])
    change = attrs.evolve(TOOL, param_descriptions={})

    merged = merge(winner(base, change), base)

    assert isinstance(merged, PromptOverride)
    assert merged.tool_overrides["search"] == attrs.evolve(
        TOOL, param_descriptions={"limit": "How many."}
    )
    assert merge(winner(base, change), merged) == merged


def test_under_another_tag_the_winner_is_what_was_tried_whole() -> None:
    canary = OverrideAddress(ADDRESS.ns, ADDRESS.prompt_key, "canary").empty()
    found = winner(EMPTY.holding([TOOL]), ROLE)

    assert merge(found, canary) == canary.holding([TOOL, ROLE])
    assert merge(found, canary.holding([TOOL])) == canary.holding([TOOL, ROLE])
    assert isinstance(merge(found, canary.holding([OTHER_ROLE])), tuple)
    # What did not apply when the run began was not tried either.
    stale = attrs.evolve(TOOL, expected_hash=ROLE.expected_hash)
    assert merge(winner(EMPTY.holding([stale]), ROLE), canary) == canary.holding([ROLE])


versions = st.sampled_from([None, ROLE, OTHER_ROLE, THIRD_ROLE])


@given(then=versions, now=versions, change=versions.filter(bool), bystander=st.booleans())
def test_a_merge_takes_the_winner_loses_nothing_or_says_what_changed(
    then: Entry | None, now: Entry | None, change: Entry, bystander: bool
) -> None:
    base = EMPTY.holding(filter(None, [then]))
    present = EMPTY.holding(filter(None, [now, TOOL if bystander else None]))

    found = merge(winner(base, change), present)

    if now in (then, change):
        kept = itertools.filterfalse(lambda entry: entry is now, present.entries())
        assert found == EMPTY.holding([*kept, change])
    else:
        assert isinstance(found, tuple)
