"""Sections of which every character is literal: handed over to the byte, placeholders kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plain_texts import QUERY, plain_texts
from promptgraft.errors import (
    DataFormatError,
    InvalidOverrideError,
    PromptDefinitionError,
    UnknownPartError,
)
from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    SkipReason,
)
from promptgraft.overrides.differences import diff_override
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
    Tool,
    ToolExample,
    plain_section,
    text_of_section,
)


@attrs.frozen
class Lookup:
    word: str


FILES = 1_000
BATCH = 200


def template_of(*sections: MarkdownSection) -> PromptTemplate[object]:
    return PromptTemplate(ns="tests", key="plain", sections=sections)


def test_file_to_section_to_unchanged_override_to_file_is_identical_to_the_byte(
    tmp_path: Path,
) -> None:
    files = [text.encode() for text in plain_texts(FILES, seed="files")]
    assert len(set(files)) > FILES // 2
    store = LocalPromptOverridesStore(tmp_path)
    for start in range(0, FILES, BATCH):
        batch = {f"s{at}": files[at] for at in range(start, start + BATCH)}
        sections = [
            plain_section(key, content, [QUERY] if QUERY.encode() in content else [])
            for key, content in batch.items()
        ]
        template = PromptTemplate[object](ns="tests", key=f"p{start}", sections=sections)
        prompt = Prompt(template, overrides_store=store)
        store.seed(prompt)
        source, overridden = Prompt(template).render(), prompt.render()
        assert len(overridden.applied) == BATCH
        for rendered in (source, overridden):
            found = {key: text_of_section(rendered, key).encode() for key in batch}
            assert found == batch


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_handed_over_as_it_is(text: str) -> None:
    template = template_of(plain_section("a", text.encode(), title="A"), plain_section("b", text))
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(template, overrides_store=store).bind({"y": 1, "HOME": 2})
    assert text_of_section(prompt.render(), "a") == text
    store.set_section_override(prompt, path=("b",), body=f"{text}$HOME {{{{ y }}}}{text}")
    assert text_of_section(prompt.render(), "b") == f"{text}$HOME {{{{ y }}}}{text}"
    assert prompt.section_body(("a",)) == text


def test_bytes_that_are_no_utf_8_are_refused_with_the_first_of_them() -> None:
    with pytest.raises(DataFormatError) as caught:
        plain_section("router", b"caf\xc3\xa9 \xff\xfe")
    assert str(caught.value) == (
        "section `router`: expected UTF-8, found the byte 0xFF at offset 6; save the file as UTF-8"
    )
    with pytest.raises(
        DataFormatError, match=r"^prompts/r\.md: expected UTF-8, found the byte 0xC3"
    ):
        plain_section("router", b"caf\xc3", where="prompts/r.md")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"template": "{ctx}", "placeholders": ["{ctx}", QUERY]},
            "section `a`: the text does not hold the placeholder `{query}`; write it into the text",
        ),
        (
            {"template": "$id_of", "placeholders": ["$id", "$id_of"]},
            "section `a`: the text does not hold the placeholder `$id`",
        ),
        (
            {"template": "x", "placeholders": [" \t"]},
            "section `a`: placeholders: expected printable characters such as '{query}', found",
        ),
        (
            {"template": "x", "placeholders": ["a\nb"]},
            "section `a`: placeholders: expected printable characters",
        ),
        ({"template": "{query}", "placeholders": QUERY}, "placeholders: expected a list"),
        (
            {"template": "{query}", "placeholders": [QUERY], "syntax": "dollar"},
            "section `a`: placeholders: expected none beside the syntax 'dollar'",
        ),
        ({"params_type": Lookup}, "section `a`: params_type: expected none in a plain section"),
    ],
)
def test_what_a_plain_section_cannot_be_is_refused_by_name(
    settings: dict[str, Any], fault: str
) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        MarkdownSection(**{"title": "A", "key": "a", "syntax": "plain", **settings})
    assert str(caught.value).startswith(fault)


def test_placeholders_are_a_list() -> None:
    with pytest.raises(PromptDefinitionError, match=r"found '\{query\}'; write \['\{query\}'\]"):
        plain_section("a", "{query}", QUERY)


def test_an_override_that_loses_a_placeholder_is_refused_on_write_by_name() -> None:
    template = template_of(plain_section("a", "{query} and <<ctx>>", [QUERY, "<<ctx>>"]))
    prompt = Prompt(template, overrides_store=InMemoryPromptOverridesStore())
    assert prompt.overrides_store is not None
    with pytest.raises(InvalidOverrideError) as caught:
        prompt.overrides_store.set_section_override(prompt, path=("a",), body="{query} < <ctx>>")
    assert str(caught.value) == ("section a lost the placeholder `<<ctx>>`; keep it in the body")
    assert text_of_section(prompt.render(), "a") == "{query} and <<ctx>>"


@pytest.mark.parametrize(
    "source",
    [
        plain_section("a", "{query} {b}.", [QUERY]),
        plain_section("a", "{query} {b}", [QUERY, "{b}"]),
        plain_section("a", "{query} {b}"),
        MarkdownSection(title="", key="a", template="{query} {b}"),
    ],
)
def test_another_text_syntax_or_placeholder_makes_an_override_stale(
    source: MarkdownSection,
) -> None:
    store = InMemoryPromptOverridesStore()
    before = Prompt(template_of(plain_section("a", "{query} {b}", [QUERY])), overrides_store=store)
    store.set_section_override(before, path=("a",), body="{query} or {b}")
    assert text_of_section(before.render(), "a") == "{query} or {b}"
    rendered = Prompt(template_of(source), overrides_store=store).render()
    assert text_of_section(rendered, "a") == source.template
    assert [skipped.reason for skipped in rendered.skipped] == [SkipReason.STALE]


def test_only_the_text_of_the_whole_prompt_has_headings_and_no_outer_blank_lines() -> None:
    examples = TaskExamplesSection(
        title="Cases",
        key="cases",
        syntax="plain",
        template="$cases\n",
        examples=[TaskExample(key="one", objective="Ask.", outcome="Say.")],
    )
    rendered = Prompt(template_of(plain_section("a", "\n$x\r\n", title="A"), examples)).render()
    assert rendered.text.startswith("## A\n\n$x\r\n\n## Cases\n\n$cases\n\n### Example: one\n\n")
    assert text_of_section(rendered, "a") == "\n$x\r\n"
    assert text_of_section(rendered, "cases") == "$cases\n"
    assert text_of_section(rendered, "cases/one").startswith("Objective: Ask.")
    assert all(
        segment.placeholder is None for found in rendered.sections for segment in found.segments
    )
    with pytest.raises(UnknownPartError) as caught:
        text_of_section(rendered, "case")
    assert str(caught.value) == (
        "prompt `tests/plain` shows no section `case` (did you mean `cases`?); "
        "sections: a, cases, cases/one"
    )


def test_example_calls_of_tools_are_shown_behind_a_plain_text_and_are_no_part_of_it() -> None:
    tool = Tool(
        name="find",
        description="Finds.",
        params_type=Lookup,
        result_type=str,
        handler=None,
        examples=[ToolExample(description="One.", input=Lookup("a"), output="b")],
    )
    section = attrs.evolve(plain_section("a", "$x\n\n", title="A"), tools=[tool])
    rendered = Prompt(template_of(section, plain_section("b", "end"))).render()
    assert text_of_section(rendered, "a") == "$x\n\n"
    assert rendered.text == (
        "## A\n\n$x\n\nExample calls of `find`:\n\n"
        '1. One.\n   input: {"word": "a"}\n   output: "b"\n\nend'
    )


def test_one_changed_word_is_one_changed_line_of_a_difference() -> None:
    template = template_of(plain_section("a", "\ufeffone\r\ntwo\r\nthree"))
    store = InMemoryPromptOverridesStore()
    store.set_section_override(Prompt(template), path=("a",), body="\ufeffone\r\n2\r\nthree")
    (part,) = diff_override(Prompt(template), store.resolve(template.descriptor))
    assert [line for line in part.text.split("\n") if line[:1] in "+-"][2:-1] == ["-two\r", "+2\r"]
