"""Sections: keys, headings, what is shown of them and what is hidden, and their hashes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from promptgraft.errors import (
    InvalidIdentifierError,
    PromptDefinitionError,
    UnknownPartError,
)
from promptgraft.overrides import SectionDescriptor
from promptgraft.overrides.parts.body import BodySyntax
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, SectionVisibility


def section(key: str, template: str = "", **options: Any) -> MarkdownSection:
    return MarkdownSection(title=key.title(), key=key, template=template, **options)


def prompt_of(*sections: MarkdownSection) -> Prompt[object]:
    return Prompt(PromptTemplate(ns="tests", key="sections", sections=sections))


def rendered(*sections: MarkdownSection, **values: object) -> str:
    return prompt_of(*sections).bind(values).render().text


def test_sections_follow_each_other_with_headings_by_depth() -> None:
    inner = section("three", "3", children=[section("four", children=[section("five", "5")])])
    text = rendered(section("one", "1", children=[section("two", "2\n", children=[inner])]))
    assert text == (
        "## One\n\n1\n\n### Two\n\n2\n\n#### Three\n\n3\n\n##### Four\n\n###### Five\n\n5"
    )


def test_no_heading_is_deeper_than_markdown_has_levels() -> None:
    deep = section("k7", "bottom")
    for level in range(6, 0, -1):
        deep = section(f"k{level}", children=[deep])
    headings = [line for line in rendered(deep).splitlines() if line.startswith("#")]
    assert headings == [
        *(f"{'#' * (level + 1)} K{level}" for level in range(1, 6)),
        "###### K6",
        "###### K7",
    ]


def test_a_title_is_text_and_never_a_template() -> None:
    titled = MarkdownSection(title="$name {{ name }}", key="a", template="x")
    assert prompt_of(titled).render().text == "## $name {{ name }}\n\nx"


def test_empty_lines_around_a_body_are_the_sections_own_but_not_of_the_whole_text() -> None:
    (only,) = prompt_of(section("a", "\n\n  x\n\n")).render().sections
    assert only.text == "\n\n  x\n\n"
    assert rendered(section("a", "\n\n  x\n\n"), section("b", "\n")) == "## A\n\n  x\n\n## B"


@pytest.mark.parametrize(
    "key", ["", "A", "a b", "a/b", "-a", "_a", "É", "e\u0301", "a" * 65, "a\n", "a.b", 5]
)
def test_a_key_that_is_no_identifier_is_refused(key: Any) -> None:
    with pytest.raises(InvalidIdentifierError, match=r"^section key: expected 1 to 64 lower-case"):
        MarkdownSection(title="T", key=key)
    with pytest.raises(InvalidIdentifierError, match="prompt key: expected 1 to 64 lower-case"):
        PromptTemplate(ns="tests", key=key)


@pytest.mark.parametrize("key", ["a", "0", "refund-rules_2", "a" * 64])
def test_identifiers_are_lower_case_words(key: str) -> None:
    template: PromptTemplate[object] = PromptTemplate(
        ns=f"x/{key}", key=key, sections=[section(key)]
    )
    assert template.section((key,)).key == key


@pytest.mark.parametrize("ns", ["", "/", "a/", "/a", "a//b", "..", "A", "a/b/..", "a" * 201, None])
def test_a_namespace_that_is_not_made_of_identifiers_is_refused(ns: Any) -> None:
    with pytest.raises(InvalidIdentifierError, match="ns: expected lower-case identifiers joined"):
        PromptTemplate(ns=ns, key="k")


@pytest.mark.parametrize("tag", ["", "Latest", "a/b", ".a", "a" * 65, None])
def test_a_tag_that_is_no_identifier_is_refused(tag: Any) -> None:
    with pytest.raises(InvalidIdentifierError, match="tag: expected"):
        Prompt(PromptTemplate(ns="a", key="k"), overrides_tag=tag)


def test_siblings_may_not_share_a_key_but_cousins_may() -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        prompt_of(section("a"), section("b"), section("a"))
    assert str(caught.value) == "prompt `tests/sections`: two sections have the key `a`"
    with pytest.raises(PromptDefinitionError) as caught:
        section("top", children=[section("a"), section("a")])
    assert str(caught.value) == "section `top`: two sections have the key `a`"

    cousins = prompt_of(
        section("a", children=[section("a")]), section("b", children=[section("a")])
    )
    assert [path for path, _ in cousins.template.walked] == [
        ("a",),
        ("a", "a"),
        ("b",),
        ("b", "a"),
    ]


def test_a_section_that_is_not_there_is_named_with_those_that_are() -> None:
    prompt = prompt_of(section("rules", children=[section("refunds")]), section("tone"))
    assert prompt.template.section(("rules", "refunds")).title == "Refunds"
    with pytest.raises(UnknownPartError) as caught:
        prompt.section_body(("rules", "refund"))
    assert str(caught.value) == (
        "prompt `tests/sections` has no section `rules/refund` (did you mean `rules/refunds`?); "
        "sections: rules, rules/refunds, tone"
    )
    with pytest.raises(UnknownPartError, match="has no section `a`; sections: none"):
        prompt_of().section_body(("a",))


def test_a_disabled_section_is_hidden_with_its_children() -> None:
    def eager(values: Mapping[str, object]) -> bool:
        return values["mood"] == "eager"

    sections = (
        section("one", "1"),
        section("two", "2", enabled=eager, children=[section("in", "$gone")]),
        section("twofold", "3"),
    )
    assert rendered(*sections, mood="calm") == "## One\n\n1\n\n## Twofold\n\n3"
    assert "## Two\n\n2\n\n### In\n\nnow" in rendered(*sections, mood="eager", gone="now")


def test_the_children_of_an_enabled_section_may_be_disabled_alone() -> None:
    inner = [section("a", "1", enabled=lambda _: False), section("b", "2")]
    assert rendered(section("top", children=inner)) == "## Top\n\n### B\n\n2"


def test_a_summary_takes_the_place_of_text_and_children() -> None:
    long = section(
        "long",
        "$missing",
        summary="Short: $5 {{ x }}",
        visibility=SectionVisibility.SUMMARY,
        children=[section("in", "hidden $missing")],
    )
    prompt = prompt_of(long, section("next", "1"))
    found = prompt.render()
    assert found.text == "## Long\n\nShort: $5 {{ x }}\n\n## Next\n\n1"
    assert [shown.summarized for shown in found.sections] == [True, False]


def test_a_function_of_the_values_decides_about_the_summary() -> None:
    def visibility(values: Mapping[str, object]) -> SectionVisibility:
        return SectionVisibility.SUMMARY if values["brief"] else SectionVisibility.FULL

    long = section("long", "All.", summary="Short.", visibility=visibility)
    assert rendered(long, brief=True) == "## Long\n\nShort."
    assert rendered(long, brief=False) == "## Long\n\nAll."


@pytest.mark.parametrize(
    "visibility", [SectionVisibility.SUMMARY, lambda _: SectionVisibility.FULL]
)
def test_a_section_that_may_be_summarized_needs_a_summary(visibility: Any) -> None:
    with pytest.raises(PromptDefinitionError, match="section `a`: the visibility may be a summary"):
        section("a", visibility=visibility)
    section("a", visibility=visibility, summary="")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"syntax": "mustache"},
            "section `a`: syntax: expected 'dollar', 'jinja', 'format' or 'plain', ",
        ),
        ({"enabled": True}, "section `a`: enabled: expected a function of the bound values, found"),
        ({"visibility": "full"}, "section `a`: visibility: expected a SectionVisibility or a fun"),
        ({"params_type": int}, "section `a`: params_type: expected an attrs class or dataclass"),
    ],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        section("a", **options)
    assert str(caught.value).startswith(message)


@attrs.frozen
class Ticket:
    subject: str
    lines: tuple[str, ...] = ()


@dataclasses.dataclass
class Customer:
    name: str


@pytest.mark.parametrize(
    ("template", "syntax", "kind", "missing"),
    [
        ("$subject $body", "dollar", Ticket, "body"),
        ("{{ subject }} {{ body }}", "jinja", Ticket, "body"),
        ("{% for line in liens %}{{ line }}{% endfor %}", "jinja", Ticket, "liens"),
        ("{{ nam|upper }}", "jinja", Customer, "nam"),
    ],
)
def test_placeholders_are_checked_against_the_fields_of_their_class(
    template: str, syntax: str, kind: type, missing: str
) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        section("a", template, syntax=syntax, params_type=kind)
    fields = "subject, lines" if kind is Ticket else "name"
    assert str(caught.value) == (
        f"section `a`: placeholder `{missing}` is not a field of `{kind.__name__}`; "
        f"fields: {fields}"
    )


def test_names_that_a_template_makes_itself_are_no_fields() -> None:
    template = "{% set n = lines|length %}{{ n }}{% for x in lines %}{{ x }}{% endfor %}"
    kept = section("a", template, syntax="jinja", params_type=Ticket)
    text = prompt_of(kept).bind(Ticket("s", ("x", "y"))).render().text
    assert text == "## A\n\n2xy"


def descriptor_of(*sections: MarkdownSection) -> tuple[SectionDescriptor, ...]:
    return prompt_of(*sections).descriptor.sections


def test_the_descriptor_says_what_stores_need() -> None:
    found = descriptor_of(
        section("a", "$x $y $x", children=[section("b", "{{ x|upper }}", syntax="jinja")]),
        section("c", overridable=False),
    )
    assert [(s.path, s.syntax, s.placeholders, s.overridable) for s in found] == [
        (("a",), BodySyntax.DOLLAR, ("x", "y"), True),
        (("a", "b"), BodySyntax.JINJA, ("expr_1",), True),
        (("c",), BodySyntax.DOLLAR, (), False),
    ]


def test_a_hash_changes_with_template_and_syntax_and_with_nothing_else() -> None:
    def hash_of(**options: Any) -> str:
        found = MarkdownSection(**{"title": "T", "key": "k", "template": "a", **options})
        return descriptor_of(found)[0].content_hash

    same = hash_of()
    # Stored overrides carry these digits; another form of hashing would make all of them stale.
    assert same == "61e4b513faedd05173c24161c9adee11867456b28e96d8f49fd14eb80e029a6e"
    for option in (
        {"title": "Other"},
        {"key": "other"},
        {"enabled": bool},
        {"summary": "s", "visibility": SectionVisibility.SUMMARY},
        {"overridable": False},
        {"params_type": Ticket},
        {"children": [section("b", "x")]},
    ):
        assert hash_of(**option) == same, option
    for option in ({"template": "b"}, {"template": "a "}, {"syntax": "jinja"}):
        assert hash_of(**option) != same, option


def test_equal_templates_are_equal_and_know_nothing_of_each_other() -> None:
    def made() -> PromptTemplate[object]:
        return PromptTemplate(ns="a", key="b", sections=iter([section("s", "$x")]))

    assert made() == made()
    assert made().sections == (section("s", "$x"),)
    assert "source" not in repr(made())
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made().key = "c"  # type: ignore[misc]
