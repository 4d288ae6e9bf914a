"""Overrides of what is said of tools and parameters: from the store to the model and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import attrs
import pytest

from agent_prompts import (
    SOURCE,
    STORES,
    TEMPLATE,
    Source,
    Store,
    Write,
    check_refused,
    check_skipped,
    edits,
    fields_class,
    received,
    set_search,
)
from promptgraft.errors import HashMismatchError, InvalidOverrideError, UnknownPartError
from promptgraft.overrides import (
    AddedTaskExample,
    SkipReason,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.prompt import Described

STALE, UNKNOWN = SkipReason.STALE, SkipReason.UNKNOWN_PART

_params = {
    "query": (Annotated[str, Described("What to look for.")], attrs.NOTHING),
    "limit": (Annotated[int, Described("How many at most.")], 5),
}
REWORDED = fields_class(
    "SearchParams", **{**_params, "query": (Annotated[str, Described("Words.")], attrs.NOTHING)}
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


def test_a_tool_description_reaches_the_tool_that_is_offered(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_tool_override(prompt, name="search", description="Search every file.")

    assert edits(received(SOURCE.prompt()), received(prompt)) == (
        ['"description": "Search the code."'],
        ['"description": "Search every file."'],
    )
    search, _ = prompt.render().tools
    assert search.description == "Search every file."
    assert [found.part for found in prompt.render().applied] == ["tool search"]


def test_a_parameter_description_reaches_the_schema_of_the_parameters(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_tool_override(prompt, name="search", param_descriptions={"limit": "At least 3."})

    assert edits(received(SOURCE.prompt()), received(prompt)) == (
        ['"description": "How many at most."'],
        ['"description": "At least 3."'],
    )
    search, _ = prompt.render().tools
    assert search.params_schema["properties"] == {
        "query": {"type": "string", "description": "What to look for."},
        "limit": {"type": "integer", "default": 5, "description": "At least 3."},
    }


def test_a_text_of_a_model_is_no_template_and_keeps_every_character(store: Store) -> None:
    said = 'Search $language {{ 1 + 1 }}\n"quoted" \\ \u2028 🙂'
    prompt = SOURCE.prompt(store)
    store.set_tool_override(prompt, name="search", description=said)

    assert prompt.render().tools[0].description == said


def test_a_later_write_to_a_tool_keeps_the_fields_that_it_does_not_give(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_tool_override(prompt, name="search", description="First.")
    store.set_tool_override(prompt, name="search", param_descriptions={"query": "A word."})
    store.set_tool_override(prompt, name="search", param_descriptions={"limit": "At least 3."})
    kept = store.set_tool_override(prompt, name="search", description="Last.")

    (entry,) = kept.entries()
    assert entry == ToolOverride(
        name="search",
        expected_hash=entry.expected_hash,
        description="Last.",
        param_descriptions={"query": "A word.", "limit": "At least 3."},
    )


def test_a_write_for_a_new_source_keeps_nothing_of_the_stale_override(store: Store) -> None:
    set_search(store, SOURCE.prompt(store))
    edited = Source(search_says="Look through the code.").prompt(store)
    store.set_tool_override(edited, name="search", param_descriptions={"limit": "At least 3."})

    gone, come = edits(received(attrs.evolve(edited, overrides_store=None)), received(edited))
    assert (gone, come) == (
        ['"description": "How many at most."'],
        ['"description": "At least 3."'],
    )


@pytest.mark.parametrize(
    ("edited", "skipped"),
    [
        pytest.param(
            Source(search_says="Look through the code."),
            {ToolOverride: STALE},
            id="the description of the tool",
        ),
        pytest.param(
            Source(params_type=REWORDED), {ToolOverride: STALE}, id="the description of a parameter"
        ),
        pytest.param(
            Source(search_name="find"),
            {
                ToolOverride: UNKNOWN,
                ToolExampleOverride: UNKNOWN,
                TaskExampleOverride: STALE,
                AddedTaskExample: STALE,
            },
            id="the name of the tool",
        ),
    ],
)
def test_a_source_that_changes_makes_the_override_stale(
    edited: Source, skipped: dict[type[Entry], SkipReason], store: Store
) -> None:
    check_skipped(store, edited, skipped)


def test_a_parameter_that_is_new_makes_the_override_of_the_tool_stale(store: Store) -> None:
    set_search(store, SOURCE.prompt(store))
    wider = fields_class("SearchParams", **_params, whole_words=(bool, False))
    rendered = Source(params_type=wider).prompt(store).render()

    assert [found.reason for found in rendered.skipped] == [SkipReason.STALE]
    assert rendered.tools[0].description == "Search the code."


def _tool(name: str = "search", description: str | None = None, **param_descriptions: str) -> Write:
    return lambda store, prompt: store.set_tool_override(
        prompt, name=name, description=description, param_descriptions=param_descriptions
    )


_untyped: object = 7

REFUSED: list[tuple[str, Write, type[Exception], tuple[str, ...]]] = [
    (
        "an unknown tool",
        _tool("serch", "x"),
        UnknownPartError,
        (
            "prompt `tests/agents/review` has no tool `serch` (did you mean `search`?)",
            "overridable: `search`, `read`",
        ),
    ),
    (
        "a tool whose name is a sentence",
        _tool("search the code", "x"),
        UnknownPartError,
        ("has no tool `search the code`",),
    ),
    (
        "an unknown parameter",
        _tool(querry="x"),
        InvalidOverrideError,
        ("tool search: there is no parameter 'querry'; parameters: `query`, `limit`",),
    ),
    ("nothing replaced", _tool(), InvalidOverrideError, ("tool search: replaces nothing",)),
    (
        "an empty description",
        _tool(description=""),
        InvalidOverrideError,
        ("tool search: description: expected a text, found nothing",),
    ),
    (
        "a blank parameter description",
        _tool(query=" \n"),
        InvalidOverrideError,
        ("tool search: parameter `query`: expected a text, found nothing",),
    ),
    (
        "a lone surrogate",
        _tool(description="a\ud800"),
        InvalidOverrideError,
        ("tool search: description", "found a lone surrogate at character 1"),
    ),
    (
        "a lone surrogate of a parameter",
        _tool(limit="\udfff"),
        InvalidOverrideError,
        ("tool search: parameter `limit`", "found a lone surrogate at character 0"),
    ),
    (
        "a description that is too long",
        _tool(description="x" * (MAX_BODY_CHARS + 1)),
        InvalidOverrideError,
        ("tool search: description", "expected at most 1000000 characters, found 1000001"),
    ),
    (
        "a description that is no text",
        lambda store, prompt: store.set_tool_override(
            prompt,
            name="search",
            description=_untyped,  # type: ignore[arg-type]
        ),
        InvalidOverrideError,
        ("tool search: description: expected text, found 7",),
    ),
]


@pytest.mark.parametrize(
    ("write", "error", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_wrong_write_is_refused(
    write: Write, error: type[Exception], said: tuple[str, ...], store: Store
) -> None:
    check_refused(store, write, error, *said)


def test_a_tool_that_may_not_be_overridden_is_refused_and_named(store: Store) -> None:
    check_refused(
        store,
        set_search,
        UnknownPartError,
        "does not allow overrides of tool `search`; overridable: `read`",
        source=Source(overridable=False),
    )


def test_an_override_written_for_another_description_is_refused(store: Store) -> None:
    entry = ToolOverride(
        name="search",
        expected_hash=Source(search_says="Old.").template().descriptor.tools[0].content_hash,
        description="New.",
    )
    now = TEMPLATE.descriptor.tools[0].content_hash

    def write(store: Store, _: object) -> None:
        override = store.resolve(TEMPLATE.descriptor)
        assert override is not None
        store.upsert(TEMPLATE.descriptor, override.holding([entry]))

    check_refused(
        store,
        write,
        HashMismatchError,
        f"tool search: the override was written for source {entry.expected_hash[:12]}",
        f"the source is now {now[:12]}",
    )


def test_texts_of_the_greatest_length_are_kept(store: Store) -> None:
    said = "é" * MAX_BODY_CHARS
    prompt = SOURCE.prompt(store)
    store.set_tool_override(
        prompt, name="search", description=said, param_descriptions={"query": said}
    )

    search, _ = prompt.render().tools
    assert search.description == search.param_descriptions["query"] == said
