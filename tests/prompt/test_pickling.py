"""Templates and prompts travel to the processes of a pool."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping

import attrs

from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, SectionVisibility

ELSEWHERE = """
import pickle, sys
sys.stdout.write(pickle.load(sys.stdin.buffer).render().text)
"""


@attrs.frozen
class Ticket:
    subject: str
    tags: tuple[str, ...] = ()


def has_tags(values: Mapping[str, object]) -> bool:
    return bool(values["tags"])


def in_full(values: Mapping[str, object]) -> SectionVisibility:
    return SectionVisibility.FULL if values["subject"] else SectionVisibility.SUMMARY


JINJA = MarkdownSection(
    title="Tags",
    key="tags",
    template=(
        "{% set n = tags|length %}{% for t in tags %}[{{ t }}]{% endfor %}{{ n }} {{ subject }}"
    ),
    syntax="jinja",
)
TEMPLATE: PromptTemplate[str] = PromptTemplate(
    ns="tests",
    key="pickling",
    sections=[
        MarkdownSection(title="Task", key="task", template="About $subject.", params_type=Ticket),
        attrs.evolve(
            JINJA, enabled=has_tags, summary="Tagged.", visibility=in_full, params_type=Ticket
        ),
    ],
    output_type=str,
)


def test_a_template_that_was_pickled_is_and_renders_the_same() -> None:
    again = pickle.loads(pickle.dumps(TEMPLATE))
    assert again == TEMPLATE
    assert again.descriptor == TEMPLATE.descriptor
    assert again.section_body(("tags",)) == TEMPLATE.section_body(("tags",))
    for ticket in (Ticket("keys"), Ticket("keys", ("a", "b")), Ticket("", ("a",))):
        expected = Prompt(TEMPLATE).bind(ticket).render()
        assert Prompt(again).bind(ticket).render() == expected
        assert pickle.loads(pickle.dumps(expected)) == expected


def test_a_bound_prompt_renders_the_same_in_another_process() -> None:
    prompt = Prompt(attrs.evolve(TEMPLATE, sections=[JINJA])).bind(
        {"subject": "keys", "tags": ["a", "b"]}
    )
    for bound in (prompt, pickle.loads(pickle.dumps(prompt))):
        bound.render()
        ended = subprocess.run(
            [sys.executable, "-c", ELSEWHERE],
            input=pickle.dumps(bound),
            capture_output=True,
            check=True,
        )
        assert ended.stdout.decode() == "## Tags\n\n[a][b]2 keys"
