"""Override bodies of Jinja templates, written as the author of the template would write them."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.errors import BindingError, PromptDefinitionError, PromptRenderError
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.body import BodySyntax, Slot, write_body
from promptgraft.prompt.syntax import SectionSource, compile_source

from .test_jinja_templates import TEMPLATES, TEXT, VALUES, prompt_of, rendered

SORT = """\
{# Keep in step with desk.py. #}
{% macro row(name) %}- {{ name }}{% endmacro %}
Sort {{mail}} by team.
{% if mail -%}
  Be quick.
{%- endif %}

{# The teams: #}
{{ row("north") }}
Use {% raw %}{{ json }}{% endraw %} only.
"""
BODY = """\
Sort {{ mail }} by team.
{{ if_1 }}


{{ expr_1 }}
Use {{ json }} only."""


def source_of(template: str) -> SectionSource:
    return compile_source(template, BodySyntax.JINJA, where="section `task`")


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (("by team", "by city"), ("by team", "by city")),
        (("only.", "only.\nNo mail."), ("only.", "only.\nNo mail.")),
        (
            ("\n\n{{ expr", "\nFor all:\n{{ expr"),
            ("{# The teams: #}\n", "{# The teams: #}For all:\n"),
        ),
        (("team.\n{{ if_1 }}", "team. {{if_1}}"), ("team.\n{% if", "team. {% if")),
        (("Sort {{ mail }} by team.\n", ""), ("Sort {{mail}} by team.\n", "")),
        (
            ("{{ json }} only", "{{ json }} or {{ mail }}"),
            (
                "{% raw %}{{ json }}{% endraw %} only",
                "{% raw %}{{{% endraw %} json }} or {{ mail }}",
            ),
        ),
    ],
)
def test_what_a_body_keeps_is_written_as_before(
    body: tuple[str, str], written: tuple[str, str]
) -> None:
    assert source_of(SORT).as_template(BODY.replace(*body)) == SORT.replace(*written).rstrip("\n")


def test_definitions_come_before_blocks_that_have_moved() -> None:
    moved = "{{ expr_1 }} {{ if_1 }} {{ mail }}"
    assert source_of(SORT).as_template(moved) == (
        "{# Keep in step with desk.py. #}{% macro row(name) %}- {{ name }}{% endmacro %}"
        '{# The teams: #}{{ row("north") }} {% if mail -%}\n  Be quick.\n{%- endif %} {{ mail }}'
    )


@settings(max_examples=25)
@given(TEMPLATES, st.data())
def test_a_written_body_renders_like_the_override(template: str, data: st.DataObject) -> None:
    prompt = prompt_of(template) if _renders(template) else prompt_of("{{ a }}")
    source = prompt.template.section(("task",)).source
    added = [
        piece if isinstance(piece, Slot) else data.draw(TEXT) + piece * data.draw(st.booleans())
        for piece in source.pieces
    ]
    body = write_body(added, BodySyntax.JINJA, frozenset(source.placeholders))
    store = InMemoryPromptOverridesStore()
    store.set_section_override(prompt, path=("task",), body=body)
    overridden = attrs.evolve(prompt, overrides_store=store).bind(VALUES).render()
    # Line feeds around a section are not rendered in a prompt.
    there = "\n".join(overridden.sections[0].text.splitlines()).strip("\n")
    assert "\n".join(rendered(source.as_template(body)).splitlines()).strip("\n") == there


def _renders(template: str) -> bool:
    try:
        rendered(template)
    except (BindingError, PromptDefinitionError, PromptRenderError):
        return False
    return True
