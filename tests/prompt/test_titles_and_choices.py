"""Sections without a title, and what a source says of an answer that is a choice."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs
import pytest

from promptgraft.errors import PromptDefinitionError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import Described, MarkdownSection, Prompt, PromptTemplate, Tool, ToolExample


class Queue(Enum):
    BILLING = "billing"
    LOGIN = "login"


@attrs.frozen
class Words:
    words: str


def template(**more: Any) -> PromptTemplate[Any]:
    sections = (
        MarkdownSection(title="", key="intro", template="Hello."),
        MarkdownSection(title="", key="empty"),
        MarkdownSection(title="Task", key="task", template="Sort."),
    )
    return PromptTemplate(ns="a", key="b", **{"sections": sections, **more})


def test_a_section_without_a_title_has_no_heading() -> None:
    rendered = Prompt(template()).render()

    assert rendered.text == "Hello.\n\n## Task\n\nSort."
    assert [section.heading for section in rendered.sections] == ["", "", "## Task"]


def test_a_choice_is_described_by_its_source_until_an_override_does() -> None:
    said = Described("Where it goes.", values={"billing": "Money."})
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(template(output_type=Queue, choice=said), overrides_store=store)
    schema = prompt.render().output_schema
    assert schema is not None
    assert schema["description"] == "Where it goes.\n- billing: Money."

    store.set_output_field_override(prompt, field="Queue", value_descriptions={"login": "Doors."})
    schema = prompt.render().output_schema
    assert schema is not None
    assert schema["description"] == "Where it goes.\n- billing: Money.\n- login: Doors."


def test_an_override_of_a_choice_is_stale_when_its_source_says_something_else() -> None:
    store = InMemoryPromptOverridesStore()
    plain = Prompt(template(output_type=Queue), overrides_store=store)
    store.set_output_field_override(plain, field="Queue", description="Old.")
    now = template(output_type=Queue, choice=Described("New."))

    rendered = Prompt(now, overrides_store=store).render()
    assert rendered.output_schema is not None
    assert rendered.output_schema["description"] == "New."
    assert [skipped.part for skipped in rendered.skipped] == ["output field Queue"]


@pytest.mark.parametrize(
    ("kind", "said", "fault"),
    [
        (str, Described("x"), "choice: only an answer that is a choice is described by it"),
        (Words, Described("x"), "choice: only an answer that is a choice is described by it"),
        (Queue, Described(aliases=("x",)), "and a choice has no aliases"),
        (Queue, Described(values={"no": "x"}), "there is no option 'no'; options: billing, login"),
    ],
)
def test_what_is_said_of_a_choice_must_fit_one(kind: type, said: Described, fault: str) -> None:
    with pytest.raises(PromptDefinitionError, match=fault):
        template(output_type=kind, choice=said)


def test_example_calls_stand_one_empty_line_below_the_text_however_it_ends() -> None:
    call = ToolExample(description="Now.", input=Words("a"), output="b")
    tool = Tool(
        name="find", description="Finds.", params_type=Words, result_type=str, examples=[call]
    )
    calls = 'Example calls of `find`:\n\n1. Now.\n   input: {"words": "a"}\n   output: "b"'
    for ending in ("", "\n", "\n\n\n"):
        section = MarkdownSection(title="T", key="t", template=f"Text.{ending}", tools=(tool,))
        assert Prompt(template(sections=(section,))).render().text == f"## T\n\nText.\n\n{calls}"
    bare = MarkdownSection(title="T", key="t", template="$gap", tools=(tool,))
    text = Prompt(template(sections=(bare,))).bind({"gap": "\n\n"}).render().text
    assert text == f"## T\n\n{calls}"
