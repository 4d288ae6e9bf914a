"""Templates in the syntax of ``string.Template``."""

from __future__ import annotations

import string

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import BindingError, PromptDefinitionError
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, Segment

VALUES = {"name": "Ada", "n": 7, "_x1": "$name {{ n }}"}


def prompt_of(template: str) -> Prompt[object]:
    section = MarkdownSection(title="Task", key="task", template=template)
    return Prompt(PromptTemplate(ns="tests", key="dollar", sections=[section]))


def rendered(template: str) -> str:
    return prompt_of(template).bind(VALUES).render().sections[0].text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("Hello $name.", "Hello Ada."),
        ("${name}s and ${n}th", "Adas and 7th"),
        ("$name$n$name", "Ada7Ada"),
        ("costs $$5", "costs $5"),
        ("$$name is $name", "$name is Ada"),
        ("$$$name", "$Ada"),
        ("$$$$", "$$"),
        ("$${name}", "${name}"),
        ("{{ name }} {% if x %} {# n #}", "{{ name }} {% if x %} {# n #}"),
        ("$_x1", "$name {{ n }}"),
        ("a\r\nb\\$name\n", "a\r\nb\\Ada\n"),
    ],
)
def test_placeholders_are_replaced_and_doubled_dollars_are_dollars(
    template: str, text: str
) -> None:
    assert rendered(template) == text


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("$", 1),
        ("costs $5", 1),
        ("\none\ntwo $ three", 3),
        ("a\n\n${name", 3),
        ("$$$", 1),
        ("$é", 1),
    ],
)
def test_a_lone_dollar_is_refused_with_section_and_line(template: str, line: int) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        MarkdownSection(title="T", key="task", template=template)
    form = ", of letters a to z, digits and `_`," if template == "$é" else ""
    assert str(caught.value) == (
        f"section `task`:{line}: a lone `$`; write `$$` for a dollar sign or "
        f"`$name`{form} for a placeholder"
    )


@pytest.mark.parametrize("written", ["{{$name}}", "{{ $name }}"])
def test_a_variable_of_semantic_kernel_is_refused(written: str) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        MarkdownSection(title="T", key="task", template=f"Hello\n{written}!")
    assert str(caught.value) == (
        f"section `task`:2: `{written}` would be sent with its braces; write `$name`, or "
        "`{{${name}}}` for braces around the value"
    )
    assert rendered("{{${name}}} {{$$name}} {$name}") == "{{Ada}} {{$name}} {Ada}"


def test_text_and_values_can_be_told_apart_in_what_was_rendered() -> None:
    (section,) = prompt_of("Dear $name,\n$$5 for ${n}.").bind(VALUES).render().sections
    assert section.segments == (
        Segment("Dear "),
        Segment("Ada", "name"),
        Segment(",\n$5 for "),
        Segment("7", "n"),
        Segment("."),
    )
    assert section.text == "Dear Ada,\n$5 for 7."


TOKENS = ["$", "$$", "$name", "${n}", "$missing", "{", "}", "name", "n", "_", "é", "\n", "x$", "5"]
TEMPLATES = st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=8).map("".join)
TEMPLATES = TEMPLATES.filter(lambda text: "{{" not in text)  # Semantic Kernel's are refused


@given(TEMPLATES)
def test_rendering_is_that_of_the_standard_library(template: str) -> None:
    try:
        expected = string.Template(template).substitute({k: str(v) for k, v in VALUES.items()})
    except ValueError:
        with pytest.raises(PromptDefinitionError, match=r"^section `task`:\d+: a lone"):
            prompt_of(template)
    except KeyError:
        with pytest.raises((PromptDefinitionError, BindingError)):
            rendered(template)
    else:
        assert rendered(template) == expected


@given(TEMPLATES)
def test_the_source_as_an_override_renders_as_the_source(template: str) -> None:
    try:
        prompt = prompt_of(template)
    except PromptDefinitionError:
        return
    names = prompt.descriptor.sections[0].placeholders
    bound = prompt.bind({name: f"$$ {name} $name" for name in names})
    store = InMemoryPromptOverridesStore()
    store.set_section_override(prompt, path=("task",), body=prompt.section_body(("task",)))

    overridden = attrs.evolve(bound, overrides_store=store).render().sections[0]
    assert overridden.overridden
    assert overridden.segments == bound.render().sections[0].segments
