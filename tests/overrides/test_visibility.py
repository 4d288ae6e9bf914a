"""Overrides that show and hide sections and task examples, from the store to the text."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import InvalidOverrideError, UnknownPartError
from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    PromptOverride,
    SectionVisibility,
    SkipReason,
    diff_override,
)
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.types import read_entries
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
    Tool,
)

FULL, SUMMARY, HIDDEN = SectionVisibility
ALWAYS = "## Task\n\nSort `Paid twice.`."
STYLE = "## Style\n\nBe short.\n\n### Tone\n\nBe kind."
GOOD = "### Example: good\n\nObjective: Lost card.\n\nOutcome: login"
BAD = "### Example: bad\n\nObjective: Paid twice.\n\nOutcome: login"
CASES = f"## Cases\n\n{GOOD}\n\n{BAD}"


@attrs.frozen
class _Params:
    word: str


def noop(params: Any) -> str:
    return str(params)


def template(
    *,
    tone: str = "Be kind.",
    bad: str = "Paid twice.",
    hides_bad: bool = False,
    style: SectionVisibility = FULL,
    **extra: Any,
) -> PromptTemplate[object]:
    tone_section = MarkdownSection(title="Tone", key="tone", template=tone)
    examples = (
        TaskExample(key="good", objective="Lost card.", outcome="login"),
        TaskExample(key="bad", objective=bad, outcome="login", hidden=hides_bad),
    )
    return PromptTemplate[object](
        ns="tests/shown",
        key="desk",
        sections=[
            MarkdownSection(title="Task", key="task", template="Sort `$text`."),
            MarkdownSection(
                title="Style",
                key="style",
                template="Be short.",
                children=[tone_section],
                summary="Short and kind.",
                visibility=style,
            ),
            TaskExamplesSection(title="Cases", key="cases", examples=examples, **extra),
        ],
    )


def text_of(prompt: Prompt[object]) -> str:
    return prompt.bind({"text": "Paid twice."}).render().text.replace('"login"', "login")


def shown_with(
    store: InMemoryPromptOverridesStore, source: PromptTemplate[object] | None = None
) -> str:
    return text_of(Prompt(source or template(), overrides_store=store))


def store_of(
    *changes: tuple[tuple[str, ...], SectionVisibility],
    source: PromptTemplate[object] | None = None,
) -> InMemoryPromptOverridesStore:
    store = InMemoryPromptOverridesStore()
    for path, visibility in changes:
        store.set_visibility_override(
            Prompt(source or template()), path=path, visibility=visibility
        )
    return store


@pytest.mark.parametrize(
    ("path", "visibility", "text"),
    [
        (("style",), HIDDEN, f"{ALWAYS}\n\n{CASES}"),
        (("style",), SUMMARY, f"{ALWAYS}\n\n## Style\n\nShort and kind.\n\n{CASES}"),
        (("style", "tone"), HIDDEN, f"{ALWAYS}\n\n## Style\n\nBe short.\n\n{CASES}"),
        (("cases",), HIDDEN, f"{ALWAYS}\n\n{STYLE}"),
        (("cases", "bad"), HIDDEN, f"{ALWAYS}\n\n{STYLE}\n\n## Cases\n\n{GOOD}"),
        (("cases", "bad"), FULL, f"{ALWAYS}\n\n{STYLE}\n\n{CASES}"),
    ],
)
def test_the_model_receives_what_is_shown(
    path: tuple[str, ...], visibility: SectionVisibility, text: str
) -> None:
    store = store_of((path, visibility))
    assert shown_with(store) == text
    rendered = Prompt(template(), overrides_store=store).bind({"text": ""}).render()
    assert [part.part for part in rendered.applied] == [f"visibility {'/'.join(path)}"]


def test_what_the_source_hides_can_be_shown() -> None:
    source = template(hides_bad=True, style=HIDDEN)
    assert text_of(Prompt(source)) == f"{ALWAYS}\n\n## Cases\n\n{GOOD}"
    store = store_of((("style",), FULL), (("cases", "bad"), FULL), source=source)
    assert shown_with(store, source) == f"{ALWAYS}\n\n{STYLE}\n\n{CASES}"


def test_overrides_of_what_is_hidden_are_kept_and_not_applied() -> None:
    prompt = Prompt(template())
    store = store_of((("cases", "bad"), HIDDEN), (("style",), HIDDEN))
    store.set_task_example_override(prompt, path=("cases", "bad"), objective="Paid once.")
    store.set_section_override(prompt, path=("style",), body="Be long.")

    rendered = Prompt(template(), overrides_store=store).bind({"text": ""}).render()
    assert [part.part for part in rendered.applied] == ["visibility cases/bad", "visibility style"]
    for part in ("visibility cases/bad", "visibility style"):
        store.remove_override(ns="tests/shown", prompt_key="desk", part=part)
    assert "Be long." in shown_with(store)
    assert "Paid once." in shown_with(store)


@pytest.mark.parametrize(
    ("path", "now", "part"),
    [
        (("style",), template(tone="Be firm."), "visibility style"),
        (("cases", "bad"), template(bad="Card stolen."), "visibility cases/bad"),
        (("cases",), template(bad="Card stolen."), "visibility cases"),
    ],
)
def test_what_has_changed_is_shown_again(
    path: tuple[str, ...], now: PromptTemplate[object], part: str
) -> None:
    rendered = Prompt(now, overrides_store=store_of((path, HIDDEN))).bind({"text": ""}).render()
    [skipped] = rendered.skipped
    assert (skipped.part, skipped.reason) == (part, SkipReason.STALE)
    assert rendered.text == Prompt(now).bind({"text": ""}).render().text


def test_a_sibling_that_changes_leaves_it_hidden() -> None:
    store = store_of((("cases", "good"), HIDDEN))
    assert "Example: good" not in shown_with(store, template(bad="Card stolen."))


def test_what_the_prompt_needs_cannot_be_hidden() -> None:
    tool = Tool(
        name="find", description="Finds.", params_type=_Params, result_type=str, handler=noop
    )
    source = template(
        tools=[tool],
        children=[MarkdownSection(title="", key="plain", template="x", syntax="plain")],
    )
    known = "overridable: `style`, `style/tone`, `cases/good`, `cases/bad`$"
    cases = {
        ("task",): r"`task`, because it has the placeholder `\$text`; ",
        ("cases",): "`cases`, because it offers the tool `find`; ",
        ("cases", "plain"): "`cases/plain`, because the text of it is read by its name; ",
    }
    for path, because in cases.items():
        with pytest.raises(UnknownPartError, match=f"{because}{known}"):
            store_of((path, HIDDEN), source=source)
    with pytest.raises(UnknownPartError, match=r"no section or task example `styel` \(did you"):
        store_of((("styel",), HIDDEN))


def test_what_is_below_it_counts_too() -> None:
    frozen = [MarkdownSection(title="Rules", key="rules", template="Obey.", overridable=False)]
    with pytest.raises(UnknownPartError, match="because `rules` below it may not be overridden;"):
        store_of((("cases",), HIDDEN), source=template(children=frozen))
    chosen = [
        MarkdownSection(
            title="", key="chosen", template="x", summary="y", visibility=lambda _: SUMMARY
        )
    ]
    with pytest.raises(UnknownPartError, match="because a function decides how `chosen` below it"):
        store_of((("cases",), HIDDEN), source=template(children=chosen))


def test_a_section_without_a_summary_is_not_shown_as_one() -> None:
    with pytest.raises(InvalidOverrideError, match="visibility cases: expected full or hidden, fo"):
        store_of((("cases",), SUMMARY))


def test_a_diff_says_it_in_words() -> None:
    override = store_of((("cases", "bad"), HIDDEN)).resolve(Prompt(template()).descriptor)
    [part] = diff_override(Prompt(template()), override)
    assert (part.part, part.before, part.after) == (
        "visibility cases/bad",
        "shown",
        "no longer shown",
    )


PATHS = [("style",), ("style", "tone"), ("cases",), ("cases", "good"), ("cases", "bad")]


@given(st.dictionaries(st.sampled_from(PATHS), st.sampled_from([FULL, HIDDEN])))
def test_every_choice_survives_documents_and_hides_what_is_below(
    chosen: dict[tuple[str, ...], SectionVisibility],
) -> None:
    prompt = Prompt(template())
    kept = store_of(*chosen.items()).resolve(prompt.descriptor)
    empty = PromptOverride(ns="tests/shown", prompt_key="desk", tag="latest")
    override = kept or empty
    assert PromptOverride.from_json(override.to_json()) == override
    assert read_entries(plain_lists(override.entries()), empty, where="here") == override

    store = InMemoryPromptOverridesStore([override])
    paths = {
        section.path
        for section in Prompt(template(), overrides_store=store)
        .bind({"text": ""})
        .render()
        .sections
    }
    for path in PATHS:
        above = [path[:length] for length in range(1, len(path) + 1)]
        assert (path in paths) is not any(chosen.get(each) is HIDDEN for each in above)
