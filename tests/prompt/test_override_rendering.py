"""From the store to the text: what is applied, what is skipped, and that bodies are data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import LONGEST_MESSAGE, StoreError
from promptgraft.ground.serde import HexDigest, digest_text
from promptgraft.overrides import (
    AppliedOverride,
    InMemoryPromptOverridesStore,
    PromptDescriptor,
    PromptOverride,
    SectionOverride,
    SectionPath,
    SkippedOverride,
    SkipReason,
)
from promptgraft.overrides.store import OverrideAddress
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    SectionVisibility,
)

VALUES = {"name": "Ada <$name> {{ name }}", "n": 3, "tags": ["x", "y"]}
OTHER_HASH = digest_text("another source")

TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="tests",
    key="overrides",
    sections=[
        MarkdownSection(title="Dollar", key="dollar", template="Dear $name."),
        MarkdownSection(
            title="Jinja",
            key="jinja",
            template="{{ name }}{% for t in tags %}[{{ t }}]{% endfor %}{{ n + 1 }}",
            syntax="jinja",
            children=[MarkdownSection(title="Inner", key="inner", template="Inner.")],
        ),
        MarkdownSection(title="Fixed", key="fixed", template="Fixed.", overridable=False),
    ],
)


def store_of(
    *bodies: tuple[SectionPath, str], **expected: HexDigest
) -> InMemoryPromptOverridesStore:
    """Return a store that holds anything, as one may that another version has written."""
    entries = {}
    for path, body in bodies:
        source = TEMPLATE.descriptor.section(path)
        fresh = source.content_hash if source else OTHER_HASH
        expected_hash = expected.get(path[-1], fresh)
        entries[path] = SectionOverride(path=path, expected_hash=expected_hash, body=body)
    override = PromptOverride(ns="tests", prompt_key="overrides", tag="latest", sections=entries)
    store = InMemoryPromptOverridesStore()
    store.mutate(OverrideAddress("tests", "overrides", "latest"), lambda _: override)
    return store


def rendered(
    *bodies: tuple[SectionPath, str], values: Mapping[str, object] = VALUES, **expected: HexDigest
) -> RenderedPrompt[object]:
    store = store_of(*bodies, **expected)
    return Prompt(TEMPLATE, overrides_store=store).bind(values).render()


def text_of(found: RenderedPrompt[object], *path: str) -> str:
    (text,) = [section.text for section in found.sections if section.path == path]
    return text


SOURCE = Prompt(TEMPLATE).bind(VALUES).render()


def test_an_override_replaces_its_section_and_no_other() -> None:
    found = rendered((("dollar",), "Hi $name, $$5 for ${n}th."))
    assert text_of(found, "dollar") == f"Hi {VALUES['name']}, $$5 for ${{n}}th."
    assert [s.overridden for s in found.sections] == [True, False, False, False]
    assert found.sections[1:] == SOURCE.sections[1:]
    assert [s.heading for s in found.sections] == [s.heading for s in SOURCE.sections]


def test_nested_sections_are_overridden_by_their_path() -> None:
    found = rendered((("jinja", "inner"), "Outer."), (("inner",), "Lost."))
    assert text_of(found, "jinja", "inner") == "Outer."
    assert text_of(found, "jinja") == text_of(SOURCE, "jinja")


def test_opaque_blocks_can_be_moved_and_repeated_but_not_changed() -> None:
    body = "{{ expr_1 }} {{for_1}} {% for t in tags %}{{ t }}{% endfor %} {{ for_1 }} {{ name }}"
    assert text_of(rendered((("jinja",), body)), "jinja") == (
        f"4 [x][y] {{% for t in tags %}}{{{{ t }}}}{{% endfor %}} [x][y] {VALUES['name']}"
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "Say {{ name }}: {{ for_1 }}!{{ expr_1 }}",
            "Say {{ name }}: {% for t in tags %}[{{ t }}]{% endfor %}!{{ n + 1 }}",
        ),
        (
            "{{ expr_1 }} {{ name }} {{ for_1 }}",
            "{{ n + 1 }} {{ name }} {% for t in tags %}[{{ t }}]{% endfor %}",
        ),
    ],
)
def test_a_text_with_placeholders_has_blocks_as_their_author_wrote_them(
    body: str, text: str
) -> None:
    prompt = Prompt(TEMPLATE, overrides_store=store_of((("jinja",), body)))
    assert text_of(prompt.with_placeholders(), "jinja") == text


def test_what_was_applied_and_what_was_skipped_is_told() -> None:
    found = rendered(
        (("fixed",), "Changed."),
        (("gone",), "Old."),
        (("jinja",), "no name {{ for_1 }}{{ expr_1 }}"),
        (("dollar",), "Hello $name."),
        (("jinja", "inner"), "Stale."),
        inner=OTHER_HASH,
    )
    hashes = {s.path: s.content_hash for s in TEMPLATE.descriptor.sections}
    assert found.applied == (
        AppliedOverride(part="section dollar", expected_hash=hashes["dollar",]),
    )
    assert found.skipped == (
        SkippedOverride(
            part="section fixed",
            reason=SkipReason.NOT_OVERRIDABLE,
            expected_hash=hashes["fixed",],
            found_hash=hashes["fixed",],
        ),
        SkippedOverride(
            part="section gone",
            reason=SkipReason.UNKNOWN_PART,
            expected_hash=OTHER_HASH,
            found_hash=None,
        ),
        SkippedOverride(
            part="section jinja",
            reason=SkipReason.LOST_PLACEHOLDER,
            expected_hash=hashes["jinja",],
            found_hash=hashes["jinja",],
        ),
        SkippedOverride(
            part="section jinja/inner",
            reason=SkipReason.STALE,
            expected_hash=OTHER_HASH,
            found_hash=hashes["jinja", "inner"],
        ),
    )
    assert found.sections[1:] == SOURCE.sections[1:]
    assert text_of(found, "dollar") == f"Hello {VALUES['name']}."


@pytest.mark.parametrize("change", [{"template": "Dear $name!"}, {"syntax": "jinja"}])
def test_an_override_is_stale_once_its_source_has_changed(change: dict[str, Any]) -> None:
    sections = list(TEMPLATE.sections)
    sections[0] = attrs.evolve(sections[0], **change)
    edited = attrs.evolve(TEMPLATE, sections=sections)

    store = store_of((("dollar",), "Hello $name."))
    found = Prompt(edited, overrides_store=store).bind(VALUES).render()
    assert found.text == Prompt(edited).bind(VALUES).render().text
    assert [(s.part, s.reason) for s in found.skipped] == [("section dollar", SkipReason.STALE)]
    assert found.applied == ()


def test_stale_overrides_are_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    sections = [attrs.evolve(TEMPLATE.sections[0], template="Dear $name!"), *TEMPLATE.sections[1:]]
    edited = attrs.evolve(TEMPLATE, sections=sections)
    prompt = Prompt(edited, overrides_store=store_of((("dollar",), "Hello $name."))).bind(VALUES)
    for _ in range(3):
        prompt.render()
    [warning] = caplog.messages
    assert warning == (
        f"prompt `{edited.ns}/{edited.key}`: overrides that do not apply to its source are left "
        "out: section dollar (stale)"
    )


def test_of_many_stale_overrides_the_first_are_named(caplog: pytest.LogCaptureFixture) -> None:
    sections = [
        MarkdownSection(title="S", key=f"section-{number}", template="Old.") for number in range(99)
    ]
    before = attrs.evolve(TEMPLATE, sections=sections)
    store = InMemoryPromptOverridesStore()
    for section in sections:
        store.set_section_override(before, path=(section.key,), body="New.")
    after = [attrs.evolve(section, template="Newer.") for section in sections]
    Prompt(attrs.evolve(before, sections=after), overrides_store=store).render()
    [warning] = caplog.messages
    assert len(warning) < LONGEST_MESSAGE + 100
    assert re.search(r"section section-1 \(stale\); .*; and \d\d more$", warning)


def test_a_new_title_or_place_among_the_siblings_makes_nothing_stale() -> None:
    sections = [attrs.evolve(TEMPLATE.sections[0], title="New"), *TEMPLATE.sections[1:]]
    edited = attrs.evolve(TEMPLATE, sections=reversed(sections))

    store = store_of((("dollar",), "Hello $name."))
    found = Prompt(edited, overrides_store=store).bind(VALUES).render()
    assert text_of(found, "dollar") == f"Hello {VALUES['name']}."
    assert found.skipped == ()


def test_an_override_of_a_section_that_is_not_shown_is_neither_applied_nor_skipped() -> None:
    hidden = {
        "disabled": MarkdownSection(title="A", key="a", template="x", enabled=lambda _: False),
        "summarized": MarkdownSection(
            title="A", key="a", template="x", summary="s", visibility=SectionVisibility.SUMMARY
        ),
    }
    for name, section in hidden.items():
        prompt = Prompt(PromptTemplate[object](ns="tests", key=name, sections=[section]))
        store = InMemoryPromptOverridesStore()
        store.set_section_override(prompt, path=("a",), body="y")
        found = attrs.evolve(prompt, overrides_store=store).render()
        assert "y" not in found.text
        assert (found.applied, found.skipped) == ((), ())


def test_only_the_tag_that_was_asked_for_is_applied() -> None:
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(TEMPLATE, overrides_store=store, overrides_tag="stable")
    store.set_section_override(prompt, path=("dollar",), body="Latest $name.")
    assert prompt.bind(VALUES).render() == SOURCE
    store.set_section_override(prompt, tag="stable", path=("dollar",), body="Stable $name.")
    assert text_of(prompt.bind(VALUES).render(), "dollar") == f"Stable {VALUES['name']}."


def test_each_rendering_asks_the_store_anew() -> None:
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(TEMPLATE, overrides_store=store).bind(VALUES)
    assert prompt.render() == SOURCE
    store.set_section_override(prompt, path=("dollar",), body="Hi $name.")
    assert prompt.render() != SOURCE
    store.delete(ns="tests", prompt_key="overrides", tag="latest")
    assert prompt.render() == SOURCE


class BrokenStore(InMemoryPromptOverridesStore):
    """A store that cannot be read."""

    def resolve(self, descriptor: PromptDescriptor, tag: str = "latest") -> PromptOverride | None:
        raise StoreError(f"cannot read {descriptor.key}:{tag}")


def test_a_store_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(StoreError, match="cannot read overrides:latest"):
        Prompt(TEMPLATE, overrides_store=BrokenStore()).bind(VALUES).render()


DANGEROUS = [
    "{{ 1 + 1 }}",
    "{{ '%1000000000d' % 1 }}",
    "'%1000000000d' % 1",
    "{% for x in range(10 ** 9) %}x{% endfor %}",
    "{% if name %}",
    "{% include '/etc/passwd' %}",
    "{{ name.__class__ }}",
    "{{ unknown }}",
    "{# comment #}",
    "{% raw %}",
    "$unknown",
    "${unknown}",
    "$5 and $$5",
    "$",
    "${",
    "{{ name",
    "%(name)s {name} {0}",
    "\\",
    "\\{{ unknown }}",
]


@pytest.mark.parametrize("literal", DANGEROUS)
def test_a_body_is_text_and_never_a_template(literal: str) -> None:
    found = rendered(
        (("dollar",), f"{literal} $name"),
        (("jinja",), f"{literal} {{{{ name }}}}{{{{ for_1 }}}}{{{{ expr_1 }}}}"),
    )
    assert text_of(found, "dollar") == f"{literal} {VALUES['name']}"
    assert text_of(found, "jinja") == f"{literal} {VALUES['name']}[x][y]4"
    assert found.skipped == ()


def test_an_escaped_placeholder_is_its_own_text() -> None:
    found = rendered(
        (("dollar",), "$$name $$$name $${name}"),
        (("jinja",), "\\{{ name }} \\\\{{ name }}{{ for_1 }}{{ expr_1 }}"),
    )
    assert text_of(found, "dollar") == f"$name ${VALUES['name']} ${{name}}"
    assert text_of(found, "jinja") == f"{{{{ name }}}} \\{VALUES['name']}[x][y]4"


LITERALS = st.one_of(
    st.sampled_from(DANGEROUS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.text(alphabet="${}\\%#_n \n", max_size=6),
)


def kept_apart(literal: str) -> str:
    """Return the text without known names, and with an end that belongs to no placeholder."""
    for name in ("name", "for_1", "expr_1"):
        literal = literal.replace(name, "other")
    return f"{literal}."


@given(st.lists(LITERALS, max_size=5), st.data())
def test_a_body_appears_as_it_is_with_its_placeholders_replaced(
    literals: list[str], data: st.DataObject
) -> None:
    for key, texts in (
        ("dollar", {"${name}": VALUES["name"]}),
        ("jinja", {"{{ name }}": VALUES["name"], "{{for_1}}": "[x][y]", "{{\texpr_1\n}}": "4"}),
    ):
        parts = [kept_apart(literal) for literal in literals]
        markers = [(marker, str(text)) for marker, text in texts.items()]
        plain = [(part, part) for part in parts]
        order = data.draw(st.permutations([*markers, *plain]))

        found = rendered(((key,), "".join(body for body, _ in order)))
        assert found.skipped == ()
        assert text_of(found, key) == "".join(text for _, text in order)
