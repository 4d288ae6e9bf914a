"""Schemas as providers demand them, and what a model is told where they cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

import attrs
import jsonschema
import pytest

from agent_prompts import SOURCE
from promptgraft.adapters.anthropic import RULES as ANTHROPIC
from promptgraft.adapters.calling.schemas import (
    SchemaRules,
    answer_in,
    strict_schema,
    with_object_root,
)
from promptgraft.adapters.openai import RULES as OPENAI
from promptgraft.ground.serde import canonical_json, unstructure
from promptgraft.prompt import Described, MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.prompt.by_role import by_role
from promptgraft.prompt.schema import JsonObject, schema_of
from servers.shapes import loose_places

Choice = Literal["yes", "no"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Part:
    size: int
    colour: Annotated[Colour, Described("Its paint.", values={"red": "Warm."})] = Colour.RED


@attrs.frozen
class Whole:
    main: Annotated[Part, Described("The largest one.")]
    other: Part | None = None
    rest: tuple[Part, ...] = ()
    labels: frozenset[str] = frozenset()
    weight: float = 1.5
    sure: Literal["yes", "no"] | None = None


@attrs.frozen
class Tree:
    name: str
    branches: tuple[Tree, ...] = ()


@attrs.frozen
class AnyKeys:
    counts: Mapping[str, int]


@attrs.frozen
class Pair:
    both: tuple[int, str]


WHOLE = Whole(Part(1), other=Part(2), rest=(Part(3, Colour.BLUE),), labels=frozenset("ab"))
RULES = pytest.mark.parametrize("rules", [ANTHROPIC, OPENAI], ids=["anthropic", "openai"])


def strict(kind: Any, rules: SchemaRules) -> JsonObject:
    schema = strict_schema(schema_of(kind), rules)
    assert schema is not None
    return schema


def faults(schema: JsonObject, rules: SchemaRules) -> list[object]:
    return [*loose_places(schema, keywords=rules.keywords, all_required=rules.all_required)]


@RULES
@pytest.mark.parametrize("kind", [Part, Whole, Colour, Choice])
def test_providers_take_the_schemas_of_answers(kind: Any, rules: SchemaRules) -> None:
    assert faults(strict(kind, rules), rules) == []


@RULES
def test_a_whole_answer_fits_the_strict_schema_and_a_wrong_one_does_not(
    rules: SchemaRules,
) -> None:
    check = jsonschema.Draft202012Validator(strict(Whole, rules))
    answer = unstructure(WHOLE)
    assert isinstance(answer, dict)
    check.validate(answer)
    for wrong in ({**answer, "more": 1}, {**answer, "main": {"size": "1"}}, {}):
        assert not check.is_valid(wrong)


@RULES
def test_nothing_that_is_said_is_lost(rules: SchemaRules) -> None:
    text = canonical_json(strict(Whole, rules))
    assert '"description":"The largest one."' in text
    assert '"description":"Its paint.\\n- red: Warm.\\n(default: \\"red\\")"' in text
    assert "uniqueItems: true" in text
    assert '"default"' not in text


def test_defaults_may_be_left_out_only_where_the_provider_lets_them() -> None:
    assert strict(Part, ANTHROPIC)["required"] == ["size"]
    assert strict(Part, OPENAI)["required"] == ["size", "colour"]


@RULES
@pytest.mark.parametrize("kind", [AnyKeys, Pair])
def test_what_cannot_be_guaranteed_has_no_strict_schema(kind: Any, rules: SchemaRules) -> None:
    assert strict_schema(schema_of(kind), rules) is None


def test_only_openai_takes_definitions_that_refer_to_themselves() -> None:
    assert strict_schema(schema_of(Tree), ANTHROPIC) is None
    schema = strict(Tree, OPENAI)
    assert faults(schema, OPENAI) == []
    branch = {"name": "b", "branches": []}
    jsonschema.validate({"answer": {"name": "a", "branches": [branch]}}, schema)


def test_a_schema_stays_as_it_was() -> None:
    schema = schema_of(Whole)
    before = canonical_json(schema)
    strict_schema(schema, OPENAI)
    assert canonical_json(schema) == before


def rendered(output_type: Any, text: str = "Look.", **values: object) -> RenderedPrompt[Any]:
    sections = [MarkdownSection(title="T", key="t", template=text)]
    template = PromptTemplate(ns="n", key="k", sections=sections, output_type=output_type)
    return Prompt(template).bind(values).render()


@pytest.mark.parametrize(
    ("kind", "answer", "text"),
    [
        (Choice, '{"answer": "yes"}', "yes"),
        (Choice, "yes", "yes"),
        (Choice, '{"result": "yes"}', '{"result": "yes"}'),
        (Tree, '{"answer": {"name": "é", "branches": []}}', '{"name": "é", "branches": []}'),
        (Part, '{"answer": 1}', '{"answer": 1}'),
        (None, '{"answer": "yes"}', '{"answer": "yes"}'),
    ],
)
def test_an_answer_is_taken_out_of_what_was_put_around_it(
    kind: Any, answer: str, text: str
) -> None:
    assert answer_in(rendered(kind), OPENAI, answer) == text
    assert answer_in(rendered(kind), None, answer) == answer


def test_the_schema_of_a_tool_is_that_of_an_object() -> None:
    schema = with_object_root(schema_of(Tree))
    assert schema["type"] == "object"
    jsonschema.validate({"name": "a", "branches": [{"name": "b"}]}, schema)
    assert with_object_root(schema_of(Part)) == schema_of(Part)


def test_sections_before_the_first_value_are_the_systems() -> None:
    stable = MarkdownSection(title="Rules", key="rules", template="Be kind.")
    bound = MarkdownSection(title="Note", key="note", template="On $day.")
    last = MarkdownSection(title="End", key="end", template="Answer.")

    def split(*sections: MarkdownSection) -> tuple[str, str]:
        template: PromptTemplate[Any] = PromptTemplate(ns="n", key="k", sections=sections)
        content = by_role(Prompt(template).bind({"day": "Monday"}).render(), say_format=True)
        return content.system, content.user

    rules, note, end = "## Rules\n\nBe kind.", "## Note\n\nOn Monday.", "## End\n\nAnswer."
    assert split(stable, bound, last) == (rules, f"{note}\n\n{end}")
    assert split(bound, stable) == ("", f"{note}\n\n{rules}")
    assert split(stable, last) == ("", f"{rules}\n\n{end}")


def test_the_system_text_is_the_same_for_all_values() -> None:
    def system(ask: str) -> str:
        prompt = Prompt(SOURCE.template()).bind({"language": "C", "ask": ask})
        content = by_role(prompt.render(), say_format=True)
        assert ask in content.user
        return content.system

    assert system("this") == system("that")


def test_wanted_answers_are_said_where_the_model_cannot_be_told_otherwise() -> None:
    choice = by_role(rendered(Choice), say_format=True)
    assert choice.user.endswith("Answer with exactly one of these and nothing else: no, yes.")
    part = by_role(rendered(Part, "$x", x="v"), say_format=True)
    assert '"Its paint.\\n- red: Warm."' in part.user
    assert by_role(rendered(Part), say_format=False).user == "## T\n\nLook."
    assert by_role(rendered(None), say_format=True).user == "## T\n\nLook."
