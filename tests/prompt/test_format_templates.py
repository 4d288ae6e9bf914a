"""Templates in the syntax of ``str.format``, as f-strings and many libraries spell placeholders."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import BindingError, PromptDefinitionError
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, Segment

VALUES = {"name": "Ada", "n": 7, "_x1": "{name} $name"}


def prompt_of(template: str) -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template=template, syntax="format")
    return Prompt(PromptTemplate(ns="tests", key="format", sections=[section]))


def rendered(template: str) -> str:
    return prompt_of(template).bind(VALUES).render().sections[0].text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("Hello {name}, {n}th", "Hello Ada, 7th"),
        ('{{"team": "{name}"}}', '{"team": "Ada"}'),
        ("{{name}} is {name}", "{name} is Ada"),
        ("{{{name}}}", "{Ada}"),
        ("costs $5, $name", "costs $5, $name"),
        ("{_x1}", "{name} $name"),
    ],
)
def test_placeholders_are_replaced_and_doubled_braces_are_braces(template: str, text: str) -> None:
    assert rendered(template) == text


@pytest.mark.parametrize("written", ["{mail!r}", "{mail:>10}", "{mail!s:.2f}"])
def test_a_value_that_is_formatted_is_refused_by_name(written: str) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        prompt_of(f"Sort\n{written}.")
    assert str(caught.value) == (
        f"section `task`:2: `{written}` formats its value, and values are texts as they are; "
        "write `{mail}`"
    )


@pytest.mark.parametrize(
    ("template", "line", "brace"),
    [
        ("Reply {", 1, "{"),
        ('a\nReply {"team": 1}', 2, "{"),
        ("a\n\n} b", 3, "}"),
        ("{}", 1, "{"),
        ("{0}", 1, "{"),
        ("{größe}", 1, "{"),
        ("{{name}", 1, "}"),
    ],
)
def test_a_lone_brace_is_refused_with_section_and_line(
    template: str, line: int, brace: str
) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        prompt_of(template)
    assert str(caught.value) == (
        f"section `task`:{line}: a lone `{brace}`; write `{2 * brace}` for a brace or `{{name}}`, "
        "of letters a to z, digits and `_`, for a placeholder"
    )


TOKENS = ["{", "}", "{{", "}}", "{name}", "{n}", "{missing}", "$", "name", "\\", "é", "\n"]
TEMPLATES = st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=8).map("".join)


@given(TEMPLATES)
def test_rendering_is_that_of_the_standard_library(template: str) -> None:
    try:
        text = rendered(template)
    except PromptDefinitionError:
        return
    except BindingError:
        with pytest.raises(KeyError):
            template.format(**VALUES)
        return
    assert text == template.format(**VALUES)


@given(TEMPLATES)
def test_the_source_as_an_override_renders_as_the_source(template: str) -> None:
    try:
        prompt = prompt_of(template)
    except PromptDefinitionError:
        return
    names = prompt.descriptor.sections[0].placeholders
    bound = prompt.bind({name: f"{{{name}}} $name" for name in names})
    store = InMemoryPromptOverridesStore()
    store.set_section_override(prompt, path=("task",), body=prompt.section_body(("task",)))

    overridden = attrs.evolve(bound, overrides_store=store).render().sections[0]
    assert overridden.segments == bound.render().sections[0].segments


def test_an_override_is_data_with_the_placeholders_of_the_source() -> None:
    prompt = prompt_of('Sort {name} as {{"team": ...}}.').bind(VALUES)
    store = InMemoryPromptOverridesStore()
    store.set_section_override(
        prompt, path=("task",), body='{name}: reply {"team": "{n}"}, {0} or \\{name}'
    )
    (section,) = attrs.evolve(prompt, overrides_store=store).render().sections
    assert section.text == 'Ada: reply {"team": "{n}"}, {0} or {name}'
    assert section.segments[0] == Segment("Ada", "name")


def test_placeholders_of_other_syntaxes_have_a_hint() -> None:
    hints = prompt_of("Sort $mail, ${team} and {{ desk }} for {name}.").template.lookalikes()
    assert hints == {
        "mail": (
            "section `task` has `$mail`, which is plain text; write `{mail}`, or set the syntax to "
            "`dollar`"
        ),
        "desk": "section `task` has `{ desk }`, which is plain text; write `{desk}`",
    }
