"""What holds for overrides of every kind alike: merging, removing, seeding, writing again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from agent_prompts import (
    ADDRESS,
    LEAK,
    SOURCE,
    SQLI,
    STORES,
    TEMPLATE,
    WRITES,
    XSS,
    AnyPrompt,
    Source,
    Store,
    add_leak,
    check_skipped,
    edits,
    holding,
    received,
    remove_xss,
    set_role,
    set_search,
    set_task_example,
    set_tool_example,
    write_all,
    written,
)
from promptgraft.errors import HashMismatchError, UnknownPartError
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import (
    AddedTaskExample,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OutputFieldOverride,
    OverlayPromptOverridesStore,
    PromptOverride,
    RemovedTaskExample,
    SectionOverride,
    SectionVisibility,
    SkipReason,
    SummaryOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
    diff_override,
    diff_revisions,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.prompt import (
    Described,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
    Tool,
)
from promptgraft.testing import FakeClock

KINDS = pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
OTHER_HASH = HexDigest("0" * 64)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


def reworded(entry: Entry, text: str) -> Entry:
    """Return an override of the same part that says something else."""
    match entry:
        case SectionOverride():
            return attrs.evolve(entry, body=f"$language: {text}")
        case SummaryOverride():
            return attrs.evolve(entry, summary=text)
        case TaskExampleOverride() | AddedTaskExample():
            return attrs.evolve(entry, objective=text)
        case ToolOverride() | ToolExampleOverride() | OutputFieldOverride():
            return attrs.evolve(entry, description=text)
        case VisibilityOverride():
            return attrs.evolve(entry, visibility=SectionVisibility.FULL)
        case _:
            return entry


def with_hash(entry: Entry, expected_hash: HexDigest) -> Entry:
    return attrs.evolve(entry, expected_hash=expected_hash)


def of(*entries: Entry) -> PromptOverride:
    return ADDRESS.empty().holding(entries)


def over(base: PromptOverride, overlay: PromptOverride) -> OverlayPromptOverridesStore:
    """Return a store that shows ``overlay`` over ``base``; both are kept unchecked."""
    return OverlayPromptOverridesStore(base=holding(base), overlay=overlay)


# Sections, and parts that may not be replaced


def test_the_body_of_a_section_reaches_the_text(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    set_role(store, prompt)

    assert edits(received(SOURCE.prompt()), received(prompt)) == (
        ["Review Python code."],
        ["Review Python code well."],
    )
    assert [found.part for found in prompt.render().applied] == ["section role"]


def test_a_section_that_changes_makes_its_override_stale(store: Store) -> None:
    check_skipped(store, Source(role="Check $language code."), {SectionOverride: SkipReason.STALE})


def test_parts_that_may_no_longer_be_overridden_are_skipped(store: Store) -> None:
    reasons = dict.fromkeys(WRITES, SkipReason.NOT_OVERRIDABLE)
    del reasons[OutputFieldOverride], reasons[VisibilityOverride]

    check_skipped(store, Source(overridable=False), reasons)


def test_overrides_of_every_kind_apply_together(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    kept = write_all(store, prompt)

    rendered = prompt.render()
    assert {found.part for found in rendered.applied} == {entry.part for entry in kept.entries()}
    assert rendered.skipped == ()
    for kind in WRITES:
        # The names of the answer's fields stand in every example, also in those that are gone.
        names = [] if kind is OutputFieldOverride else [written(OutputFieldOverride, prompt)]
        alone = received(SOURCE.prompt(holding(of(*names, written(kind, prompt)))))
        gone, come = edits(received(SOURCE.prompt(holding(of(*names)))), alone)
        assert (gone, come) != ([], [])
        missing = [line for line in come if line not in received(prompt)]
        assert not [line for line in missing if names or not line.startswith("Outcome: ")]


def test_what_a_hidden_section_holds_is_not_said_to_be_applied(store: Store) -> None:
    tool = Tool(name="notes", description="d", params_type=Described, result_type=str)
    hidden = MarkdownSection(title="H", key="hidden", tools=(tool,), enabled=lambda _: False)
    shown = MarkdownSection(title="N", key="notes", template="Notes.")
    template: PromptTemplate[None] = PromptTemplate(
        ns="tests", key="hiding", sections=(hidden, shown)
    )
    prompt = Prompt(template, overrides_store=store)
    store.set_tool_override(prompt, name="notes", description="Never offered.")

    assert prompt.render().tools == ()
    assert prompt.render().applied == ()


# One store over another


@KINDS
def test_where_both_stores_replace_a_part_the_overlay_is_shown(kind: type[Entry]) -> None:
    below = written(kind, SOURCE.prompt())
    above = reworded(below, "Above.")
    both = SOURCE.prompt(over(of(below), of(above)))

    assert received(both) == received(SOURCE.prompt(holding(of(above))))
    assert [found.part for found in both.render().applied] == [below.part]


@KINDS
def test_what_only_one_store_replaces_shows_through(kind: type[Entry]) -> None:
    entry = written(kind, SOURCE.prompt())
    others = [written(other, SOURCE.prompt()) for other in WRITES if other is not kind]
    together = received(SOURCE.prompt(holding(of(entry, *others))))

    assert received(SOURCE.prompt(over(of(entry), of(*others)))) == together
    assert received(SOURCE.prompt(over(of(*others), of(entry)))) == together


@KINDS
def test_a_stale_entry_of_the_overlay_does_not_cover_a_fresh_one(kind: type[Entry]) -> None:
    below = written(kind, SOURCE.prompt())
    above = with_hash(reworded(below, "Above."), OTHER_HASH)
    both = SOURCE.prompt(over(of(below), of(above)))

    assert received(both) == received(SOURCE.prompt(holding(of(below))))
    assert both.render().skipped == ()


@KINDS
def test_a_fresh_entry_of_the_overlay_covers_a_stale_one(kind: type[Entry]) -> None:
    above = written(kind, SOURCE.prompt())
    below = with_hash(reworded(above, "Below."), OTHER_HASH)
    both = SOURCE.prompt(over(of(below), of(above)))

    assert received(both) == received(SOURCE.prompt(holding(of(above))))
    assert both.render().skipped == ()


@KINDS
def test_where_both_are_stale_that_of_the_overlay_is_reported(kind: type[Entry]) -> None:
    fresh = written(kind, SOURCE.prompt())
    below, above = with_hash(fresh, HexDigest("1" * 64)), with_hash(fresh, OTHER_HASH)
    rendered = SOURCE.prompt(over(of(below), of(above))).render()

    (skipped,) = rendered.skipped
    assert (skipped.part, skipped.expected_hash) == (fresh.part, OTHER_HASH)
    assert skipped.reason is SkipReason.STALE
    assert skipped.found_hash == fresh.expected_hash


@KINDS
def test_writes_go_to_the_overlay_and_removing_uncovers_the_base(kind: type[Entry]) -> None:
    base, above = InMemoryPromptOverridesStore(), InMemoryPromptOverridesStore()
    both = OverlayPromptOverridesStore(base=base, overlay=above)
    prompt = SOURCE.prompt(both)
    below = WRITES[kind](base, prompt)
    uncovered = received(prompt)

    (entry,) = below.entries()
    both.upsert(prompt.descriptor, of(reworded(entry, "Above.")))
    both.upsert(prompt.descriptor, of(entry))
    assert base.resolve(prompt.descriptor) == below
    assert above.resolve(prompt.descriptor) == below

    both.upsert(prompt.descriptor, of(reworded(entry, "Above.")))
    both.remove_override(**attrs.asdict(ADDRESS), part=entry.part)
    assert base.resolve(prompt.descriptor) == below
    assert not above.resolve(prompt.descriptor)
    assert received(prompt) == uncovered


def test_what_is_said_of_a_tool_is_merged_by_field_across_stores() -> None:
    base, above = InMemoryPromptOverridesStore(), InMemoryPromptOverridesStore()
    both = OverlayPromptOverridesStore(base=base, overlay=above)
    prompt = SOURCE.prompt(both)
    set_search(base, prompt)
    both.set_tool_override(prompt, name="search", param_descriptions={"limit": "At least 3."})
    both.set_tool_override(prompt, name="search", param_descriptions={"query": "Above."})

    search, _ = prompt.render().tools
    assert search.description == "Search every file."
    assert search.param_descriptions == {"query": "Above.", "limit": "At least 3."}
    only_above = above.resolve(prompt.descriptor)
    assert only_above is not None
    assert only_above.tool_overrides["search"].description is None


def test_examples_are_replaced_whole_across_stores() -> None:
    base, above = InMemoryPromptOverridesStore(), InMemoryPromptOverridesStore()
    both = OverlayPromptOverridesStore(base=base, overlay=above)
    prompt = SOURCE.prompt(both)
    set_tool_example(base, prompt)
    set_task_example(base, prompt)
    both.set_tool_example_override(
        prompt, tool_name="search", example_index=0, description="Above."
    )
    both.set_task_example_override(prompt, path=SQLI, outcome_json='{"severity": "low"}')

    come = edits(received(SOURCE.prompt()), received(prompt))[1]
    assert come == ["1. Above.", 'Outcome: {"level": "low", "note": ""}']


def test_additions_and_removals_of_both_stores_count() -> None:
    base, above = InMemoryPromptOverridesStore(), InMemoryPromptOverridesStore()
    both = OverlayPromptOverridesStore(base=base, overlay=above)
    prompt = SOURCE.prompt(both)
    add_leak(base, prompt)
    remove_xss(base, prompt)
    both.remove_task_example(prompt, path=SQLI)
    both.add_task_example(
        prompt,
        container_path=LEAK[:-1],
        key="csrf",
        objective="Find forged requests.",
        outcome_json='{"severity": "high"}',
        steps_json="[]",
    )

    paths = [section.path for section in prompt.render().sections]
    assert [path for path in paths if path[:-1] == LEAK[:-1]] == [(*LEAK[:-1], "csrf"), LEAK]


# Removing


@KINDS
def test_an_override_is_removed_by_the_name_of_its_part(kind: type[Entry], store: Store) -> None:
    prompt = SOURCE.prompt(store)
    kept = write_all(store, prompt)
    (entry,) = (entry for entry in kept.entries() if type(entry) is kind)
    remaining = store.remove_override(**attrs.asdict(ADDRESS), part=entry.part)

    others = [other for other in kept.entries() if other != entry]
    assert remaining == store.resolve(prompt.descriptor) == of(*others)
    assert received(prompt) == received(SOURCE.prompt(holding(of(*others))))
    with pytest.raises(UnknownPartError) as caught:
        store.remove_override(**attrs.asdict(ADDRESS), part=entry.part)
    assert str(caught.value).startswith(
        f"tag `latest` of prompt `tests/agents/review` keeps no override of `{entry.part}`; kept: "
    )
    assert all(f"`{other.part}`" in str(caught.value) for other in others)


@KINDS
def test_a_stale_override_is_removed_too(kind: type[Entry], store: Store) -> None:
    entry = with_hash(written(kind, SOURCE.prompt()), OTHER_HASH)
    store.mutate(ADDRESS, lambda _: of(entry))

    assert not store.remove_override(**attrs.asdict(ADDRESS), part=entry.part)


# Seeding


def test_a_seed_of_every_kind_renders_like_the_source(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    kept = store.seed(prompt)

    assert received(prompt) == received(SOURCE.prompt())
    rendered = prompt.render()
    assert rendered.skipped == ()
    assert {found.part for found in rendered.applied} == {
        "section role",
        "section guide",
        "section guide/security",
        "section guide/style",
        "section task",
        "summary history",
        "tool search",
        "tool read",
        "tool example search/0",
        "tool example search/1",
        "task example guide/security/sqli",
        "task example guide/security/xss",
        "task example guide/style/names",
        "output field Review.severity",
        "output field Review.note",
    }
    assert store.seed(prompt) == kept


def test_a_seed_leaves_out_what_may_not_be_overridden(store: Store) -> None:
    kept = store.seed(Source(overridable=False).prompt(store))

    assert [entry.part for entry in kept.entries()] == [
        "section guide",
        "section guide/style",
        "section task",
        "tool read",
        "task example guide/style/names",
        "output field Review.severity",
        "output field Review.note",
    ]


def test_a_seed_keeps_what_is_fresh_and_replaces_what_is_stale(store: Store) -> None:
    kept = write_all(store, SOURCE.prompt(store))
    edited = Source(sqli_query="exec(", example_line=4)
    fresh = received(edited.prompt(store))
    seeded = store.seed(edited.prompt(store))

    assert received(edited.prompt(store)) == fresh
    assert edited.prompt(store).render().skipped == ()
    assert seeded.find(written(SectionOverride, SOURCE.prompt())) == kept.sections[("role",)]
    assert seeded.task_example_overrides[SQLI] != kept.task_example_overrides[SQLI]
    assert seeded.added_task_examples == kept.added_task_examples
    assert seeded.removed_task_examples == kept.removed_task_examples


def test_a_source_that_says_nothing_is_seeded_without_words(store: Store) -> None:
    @attrs.frozen
    class Params:
        path: str

    @attrs.frozen
    class Answer:
        text: str

    tools = (Tool(name="read", description=" ", params_type=Params, result_type=str),)
    silent = TaskExample(key="silent", objective="", outcome=Answer("x"))
    examples = TaskExamplesSection(title="E", key="e", examples=(silent,), tools=tools)
    template = PromptTemplate(ns="tests", key="silent", sections=(examples,), output_type=Answer)
    seeded = store.seed(Prompt(template))

    assert [entry.part for entry in seeded.entries()] == ["section e", "task example e/silent"]
    assert received(Prompt(template, overrides_store=store)) == received(Prompt(template))


def test_an_overlay_seeds_only_what_the_base_does_not_replace() -> None:
    base = InMemoryPromptOverridesStore()
    write_all(base, SOURCE.prompt())
    above = InMemoryPromptOverridesStore()
    both = OverlayPromptOverridesStore(base=base, overlay=above)
    before = received(SOURCE.prompt(both))
    seeded = both.seed(SOURCE.prompt())

    assert received(SOURCE.prompt(both)) == before
    parts = {entry.part for entry in seeded.entries()}
    assert "section task" in parts
    assert "tool search" not in parts
    assert f"task example {'/'.join(XSS)}" in parts


# Writing again what was read


@pytest.mark.parametrize(
    "source", [SOURCE, Source(sqli_query="exec(", leak_key="leak")], ids=["fresh", "partly stale"]
)
def test_an_upsert_of_what_was_resolved_changes_nothing(source: Source, store: Store) -> None:
    kept = write_all(store, SOURCE.prompt(store))
    before = received(source.prompt(store))

    assert store.upsert(source.template().descriptor, kept) == kept
    assert store.resolve(source.template().descriptor) == kept
    assert received(source.prompt(store)) == before


def test_an_upsert_of_what_was_resolved_is_no_revision(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path, clock=FakeClock())
    kept = write_all(store, SOURCE.prompt(store))
    for kind, write in WRITES.items():
        write(store, SOURCE.prompt(store))
        store.upsert(TEMPLATE.descriptor, of(written(kind, SOURCE.prompt())))
    store.upsert(TEMPLATE.descriptor, kept)

    assert len(store.history(**attrs.asdict(ADDRESS))) == 1


def test_what_an_overlay_shows_of_its_base_may_be_written_back_although_it_is_stale() -> None:
    base = InMemoryPromptOverridesStore()
    write_all(base, SOURCE.prompt())
    both = OverlayPromptOverridesStore(base=base, overlay=InMemoryPromptOverridesStore())
    edited = Source(sqli_query="exec(", search_says="Search well.").prompt(both)
    before, rendered = received(edited), edited.render()
    resolved = both.resolve(edited.descriptor)
    assert resolved is not None
    assert len(rendered.skipped) == 2

    both.upsert(edited.descriptor, resolved)

    assert both.resolve(edited.descriptor) == resolved
    assert received(edited) == before
    assert set(edited.render().skipped) == set(rendered.skipped)


@KINDS
def test_an_entry_with_another_hash_is_refused_by_an_upsert(
    kind: type[Entry], store: Store
) -> None:
    entry = written(kind, SOURCE.prompt())
    with pytest.raises(HashMismatchError) as caught:
        store.upsert(TEMPLATE.descriptor, of(with_hash(entry, OTHER_HASH)))

    assert str(caught.value) == (
        f"{entry.part}: the override was written for source 000000000000, the source is now "
        f"{entry.expected_hash[:12]}; write it again for this source"
    )
    assert store.resolve(TEMPLATE.descriptor) is None


@KINDS
def test_nothing_of_an_upsert_with_one_wrong_entry_is_kept(kind: type[Entry], store: Store) -> None:
    entries = [written(other, SOURCE.prompt()) for other in WRITES]
    wrong = [with_hash(e, OTHER_HASH) if type(e) is kind else e for e in entries]
    with pytest.raises(HashMismatchError):
        store.upsert(TEMPLATE.descriptor, of(*wrong))

    assert store.resolve(TEMPLATE.descriptor) is None


# What people are shown


def diffs(prompt: AnyPrompt, entry: Entry) -> Any:
    (diff,) = diff_override(prompt, of(entry))
    return diff


@KINDS
def test_the_diff_of_an_override_shows_what_changes(kind: type[Entry]) -> None:
    diff = diffs(SOURCE.prompt(), written(kind, SOURCE.prompt()))

    changed = [line for line in diff.text.splitlines()[2:] if line[:1] in {"-", "+"}]
    assert diff.part == written(kind, SOURCE.prompt()).part
    assert diff.state is None
    assert changed


def test_the_diff_of_a_removal_shows_what_is_gone() -> None:
    diff = diffs(SOURCE.prompt(), written(RemovedTaskExample, SOURCE.prompt()))

    assert "-objective: Find cross-site scripting.\n" in diff.text
    assert '-outcome: {"severity": "low", "note": ""}\n' in diff.text
    assert diff.after == ""


def test_the_diff_of_a_field_without_aliases_shows_that_they_are_gone() -> None:
    store = InMemoryPromptOverridesStore()
    kept = store.set_output_field_override(SOURCE.prompt(), field="Review.severity", aliases=())
    (entry,) = kept.entries()
    diff = diffs(SOURCE.prompt(), entry)

    assert (diff.before, diff.after) == ('aliases: ["level"]', "aliases: []")


@KINDS
def test_the_diff_of_two_revisions_names_the_part(kind: type[Entry]) -> None:
    entry = written(kind, SOURCE.prompt())

    for before, after in ((of(), of(entry)), (of(entry), of())):
        (diff,) = diff_revisions(before, after)
        assert diff.part == entry.part
    assert diff_revisions(of(entry), of(entry)) == ()
