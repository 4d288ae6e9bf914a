"""The fields of an answer: what the schema says of them, and how leniently they are read."""

from __future__ import annotations

import json
import keyword
import operator
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from promptgraft.errors import OutputError, PromptDefinitionError
from promptgraft.ground.serde import Json, unstructure
from promptgraft.overrides.parts.descriptors import fold_name
from promptgraft.prompt import Described, Prompt, PromptTemplate
from promptgraft.prompt.answers import read_output
from promptgraft.prompt.schema import own_names, schema_of, shown_names


class Level(Enum):
    VERY_HIGH = "very-high"
    LOW = "low"


@attrs.frozen
class Person:
    name: Annotated[str, Described("Who.", aliases=("who", "full name"))]
    team: str = ""


@attrs.frozen
class Report:
    level: Annotated[Level, Described("How bad.", aliases=("severity",), values={"low": "Fine."})]
    note: Annotated[str, Described("Why.")] = ""
    owner: Person | None = None
    people: tuple[Person, ...] = ()
    by_team: dict[str, Person] = attrs.field(factory=dict)
    pair: tuple[Level, Person] | None = None
    deep: list[list[Person]] | None = None
    kinds: Annotated[list[Literal["bug", "idea"]], Described(values={"bug": "Broken."})] = (
        attrs.field(factory=list)
    )


@dataclass(frozen=True)
class Note:
    text: Annotated[str, Described("What.", aliases=("body",))]
    urgent: bool = False


@attrs.frozen
class Tree:
    value: Annotated[int, Described(aliases=("number",))]
    below: tuple[Tree, ...] = ()


@attrs.frozen
class Ids:
    user_id: str
    userid: str


@attrs.frozen
class Optionals:
    first: str = ""
    second: int = 0


ADA = Person("Ada")


def prompt_for(output_type: Any) -> Prompt[Any]:
    return Prompt(PromptTemplate(ns="tests", key="fields", output_type=output_type))


# What the schema says


def parsed(kind: Any, text: str) -> Any:
    return read_output(kind, text).output


def test_the_schema_of_an_answer_says_what_people_say_of_its_fields() -> None:
    schema = prompt_for(Report).render().output_schema
    assert schema is not None
    Draft202012Validator.check_schema(schema)
    properties = schema["properties"]
    assert isinstance(properties, dict)

    assert schema["required"] == ["severity"]
    assert list(properties) == [
        "severity", "note", "owner", "people", "by_team", "pair", "deep", "kinds",
    ]  # fmt: skip
    assert properties["severity"] == {
        "enum": ["low", "very-high"],
        "description": "How bad.\n- low: Fine.",
    }
    assert properties["note"] == {"type": "string", "default": "", "description": "Why."}
    assert properties["kinds"] == {
        "type": "array",
        "items": {"enum": ["bug", "idea"]},
        "description": "- bug: Broken.",
    }
    assert properties["owner"] == {
        "anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}],
        "default": None,
    }
    assert schema["$defs"] == {
        "Person": {
            "title": "Person",
            "type": "object",
            "properties": {
                "who": {"type": "string", "description": "Who."},
                "team": {"type": "string", "default": ""},
            },
            "required": ["who"],
        },
        "Level": {"title": "Level", "enum": ["low", "very-high"]},
    }


def test_a_dataclass_and_a_class_that_holds_itself_have_schemas() -> None:
    note = prompt_for(Note).render().output_schema
    tree = prompt_for(Tree).render().output_schema

    assert note == {
        "title": "Note",
        "type": "object",
        "properties": {
            "body": {"type": "string", "description": "What."},
            "urgent": {"type": "boolean", "default": False},
        },
        "required": ["body"],
    }
    assert tree is not None
    validator = Draft202012Validator(tree)
    validator.validate({"number": 1, "below": [{"number": 2, "below": []}]})
    assert not validator.is_valid({"number": 1, "below": [{"value": 2}]})


@pytest.mark.parametrize("output_type", [None, str])
def test_an_answer_that_is_a_text_has_no_schema(output_type: Any) -> None:
    assert prompt_for(output_type).render().output_schema is None


@pytest.mark.parametrize(
    ("output_type", "name"), [(Level, "Level"), (Literal["yes", "no"], "answer")]
)
def test_a_choice_is_one_field_of_its_type(output_type: Any, name: str) -> None:
    prompt = prompt_for(output_type)

    assert [field.field for field in prompt.descriptor.output_fields] == [name]
    schema = prompt.render().output_schema
    assert schema is not None
    assert set(schema) == {"enum"}


def test_the_fields_of_every_class_of_the_answer_may_be_overridden() -> None:
    fields = [field.field for field in prompt_for(Report).descriptor.output_fields]

    assert fields == [
        *(f"Report.{field.name}" for field in attrs.fields(Report)),
        "Person.name",
        "Person.team",
    ]


def made_of(**kinds: Any) -> type[Any]:
    fields = {name: attrs.field(type=kind) for name, kind in kinds.items()}
    return attrs.make_class("Answer", fields)


def aliased(**aliases: tuple[str, ...]) -> type[Any]:
    said = {name: Described(aliases=given) for name, given in aliases.items()}
    return made_of(**{name: Annotated[str, described] for name, described in said.items()})


@pytest.mark.parametrize(
    ("output_type", "said"),
    [
        (aliased(a=("b",), b=()), "field `Answer.a`: the alias 'b' is empty or taken"),
        (aliased(a=("x",), b=("X",)), "field `Answer.a`: the alias 'x' is empty or taken"),
        (aliased(a=("",)), "field `Answer.a`: the alias '' is empty or taken"),
        (
            made_of(a=Person, b=attrs.make_class("Person", ["x"])),
            "two classes are named `Person` (",
        ),
        (
            made_of(a=Person | Note),
            "field `Answer.a`: type `",
        ),
    ],
)
def test_an_answer_whose_fields_cannot_be_told_apart_is_refused(
    output_type: Any, said: str
) -> None:
    with pytest.raises(PromptDefinitionError, match=re.escape(said)) as caught:
        prompt_for(output_type)
    assert str(caught.value).startswith("prompt `tests/fields`: output_type: ")


# What is read


@pytest.mark.parametrize(
    "name", ["level", "severity", "Level", "SEVERITY", "se_ver-i ty", "LE VEL", "Severity "]
)
def test_a_field_is_found_by_name_or_alias_in_any_spelling(name: str) -> None:
    assert parsed(Report, json.dumps({name: "low"})) == Report(Level.LOW)


@pytest.mark.parametrize("option", ["very-high", "VERY-HIGH", "Very high", "very_high", "veryhigh"])
def test_an_option_is_found_in_any_spelling(option: str) -> None:
    read = parsed(Report, json.dumps({"level": option, "pair": [option, {"who": "Ada"}]}))

    assert read == Report(Level.VERY_HIGH, pair=(Level.VERY_HIGH, ADA))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"owner": {"WHO": "Ada"}}, {"owner": ADA}, id="optional"),
        pytest.param({"owner": None}, {"owner": None}, id="null"),
        pytest.param({"people": [{"full-name": "Ada"}]}, {"people": (ADA,)}, id="list"),
        pytest.param({"by_team": {"Who": {"who": "Ada"}}}, {"by_team": {"Who": ADA}}, id="mapping"),
        pytest.param(
            {"Pair": ["LOW", {"Who": "Ada"}]}, {"pair": (Level.LOW, ADA)}, id="fixed tuple"
        ),
        pytest.param({"deep": [[{"fullname": "Ada"}], []]}, {"deep": [[ADA], []]}, id="deep"),
        pytest.param({"kinds": ["BUG", "Idea"]}, {"kinds": ["bug", "idea"]}, id="options"),
    ],
)
def test_names_are_found_at_every_depth(given: dict[str, Json], expected: dict[str, Any]) -> None:
    read = parsed(Report, json.dumps({"level": "low", **given}))

    assert read == Report(Level.LOW, **expected)


def test_a_class_that_holds_itself_is_read_at_every_depth() -> None:
    text = '{"Number": 1, "below": [{"value": 2, "Below": [{"number": 3}]}]}'

    assert parsed(Tree, text) == Tree(1, (Tree(2, (Tree(3),)),))


def test_names_that_are_spelled_alike_are_told_apart_by_their_spelling() -> None:
    assert parsed(Ids, '{"user_id": "a", "userid": "b"}') == Ids("a", "b")
    assert parsed(Ids, '{"userid": "b", "user_id": "a"}') == Ids("a", "b")


def test_of_two_names_of_one_field_the_first_one_counts() -> None:
    read = parsed(Report, '{"severity": "low", "level": "very-high"}')

    assert read == Report(Level.LOW)


def test_keys_that_no_field_has_are_passed_over_at_every_depth() -> None:
    text = '{"thoughts": [1], "level": "low", "owner": {"who": "Ada", "age": 36}, "": {}}'

    assert parsed(Report, text) == Report(Level.LOW, owner=ADA)


@pytest.mark.parametrize(
    "text",
    [
        '{"level": "low", "note": "`x` {y}"}',
        '```json\n{"level": "low", "note": "`x` {y}"}\n```',
        '```JSON\n{"level": "low", "note": "`x` {y}"}\n```\n',
        '```\n{"level": "low", "note": "`x` {y}"}\n```',
        'Here it is:\n```json\n{"level": "low", "note": "`x` {y}"}\n```\nAnything else?',
        'Sure! {"level": "low", "note": "`x` {y}"} Done.',
        '\ufeff  \n{"level": "low", "note": "`x` {y}"}\n',
        'I fill {placeholders} and sets {1, 2}: {\n "level": "low", "note": "`x` {y}"}',
    ],
    ids=[
        "bare",
        "fence",
        "upper case",
        "plain fence",
        "prose and fence",
        "prose",
        "mark",
        "braces",
    ],
)
def test_an_object_is_found_in_fences_and_prose(text: str) -> None:
    assert parsed(Report, text) == Report(Level.LOW, "`x` {y}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "answer: required key missing @ $.level"),
        ('{"note": 5}', "answer: expected a string, found 5 @ $.note"),
        ('{"level": "medium"}', "answer: expected one of 'very-high', 'low', found 'medium' @ $.l"),
        ('{"level": "low", "owner": {"team": "x"}}', "answer: required key missing @ $.owner.name"),
        (
            '{"level": "low", "people": [{"who": "a"}, {"who": 1}]}',
            "answer: expected a string, found 1 @ $.people[1].name",
        ),
        (
            '{"level": "low", "by_team": {"x": {}}}',
            "answer: required key missing @ $.by_team['x'].name",
        ),
        ('{"level": "low", "pair": ["low"]}', "answer: expected 2 items, found 1 @ $.pair"),
        ('{"level": "low", "level": "low"}', "answer: the key 'level' occurs twice in one object"),
        ('{"level": "low", "people": {}}', "answer: expected a list, found {} @ $.people"),
        ("[1]", "answer: expected an object, found [1] @ $"),
        ("null", "answer: expected an object, found None @ $"),
        ("", "answer:1:1: Expecting value"),
        ("I cannot say.", "answer:1:1: Expecting value"),
        ('{"level": NaN}', "answer: expected a finite number, found NaN"),
        ("[" * 100_000, "answer: the JSON is nested too deeply"),
        ('{"a":' * 100_000, "answer: the JSON is nested too deeply"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(OutputError) as caught:
        parsed(Report, text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_fault_of_an_answer_is_named() -> None:
    with pytest.raises(OutputError) as caught:
        parsed(Report, '{"note": 5, "owner": {"who": 6}}')

    assert str(caught.value) == (
        "answer: required key missing @ $.level; "
        "answer: expected a string, found 5 @ $.note; "
        "answer: expected a string, found 6 @ $.owner.name"
    )


@pytest.mark.parametrize(
    "text",
    ['{"first": "a", "more": {"second": 3}', '{"first": "a", "second"', 'So: {"first": "'],
)
def test_what_is_left_of_an_answer_that_was_cut_off_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(OutputError):
        parsed(Optionals, text)


def test_an_empty_object_in_prose_is_an_answer_of_defaults() -> None:
    assert parsed(Optionals, "Nothing to say: {}") == Optionals()


# Any class, any instance, any spelling

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_names = st.from_regex(r"[a-z][a-z0-9]{0,4}(_[a-z0-9]{1,3}){0,2}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
_aliases = st.text(f"{_LETTERS}ABCÄéß019 _-", min_size=1, max_size=8).filter(
    lambda alias: bool(fold_name(alias))
)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_numbers = st.floats(allow_nan=False, allow_infinity=False)


@attrs.frozen
class Kind:
    """A type of a field, and how to draw its values."""

    type: Any
    values: st.SearchStrategy[Any]


_SCALARS = (
    Kind(str, _texts),
    Kind(int, st.integers()),
    Kind(float, _numbers),
    Kind(bool, st.booleans()),
    Kind(Level, st.sampled_from(Level)),
    Kind(Literal["yes", "No way"], st.sampled_from(["yes", "No way"])),
)


def _wrapped(kind: Kind) -> tuple[Kind, ...]:
    """Return a type and others that are made of it."""
    values, few = kind.values, st.lists(kind.values, max_size=2)
    several: Any = types.GenericAlias(list, (kind.type,))
    return (
        kind,
        Kind(operator.or_(kind.type, None), st.none() | values),
        Kind(several, few),
        Kind(operator.or_(several, None), st.none() | few),
        Kind(types.GenericAlias(tuple, (kind.type, ...)), few.map(tuple)),
        Kind(types.GenericAlias(tuple, (int, kind.type)), st.tuples(st.integers(), values)),
        Kind(
            types.GenericAlias(dict, (str, kind.type)), st.dictionaries(_texts, values, max_size=2)
        ),
    )


@st.composite
def classes(draw: st.DrawFn, depth: int = 2) -> Kind:
    """Draw an attrs class with aliased fields, and how to draw its instances."""
    count = draw(st.integers(1, 4))
    names = draw(
        st.lists(_names | _aliases, min_size=count, max_size=3 * count, unique_by=fold_name)
    )
    own = [name for name in names if name.isidentifier() and not keyword.iskeyword(name)]
    own = [name for name in own if name[0] in _LETTERS][:count] or ["only"]
    spare = [name for name in names if name not in own and fold_name(name) != "only"]
    fields: dict[str, Any] = {}
    values: dict[str, st.SearchStrategy[Any]] = {}
    for name in own:
        simple = depth == 0 or draw(st.booleans())
        kind = draw(st.sampled_from(_SCALARS) if simple else classes(depth - 1))
        kind = draw(st.sampled_from(_wrapped(kind)))
        aliases = [spare.pop() for _ in range(min(len(spare), draw(st.integers(0, 2))))]
        annotated: Any = Annotated[kind.type, Described("d", aliases=aliases)]
        fields[name] = attrs.field(type=annotated)
        values[name] = kind.values
    made = attrs.make_class(f"C{draw(st.uuids()).hex}", fields, frozen=True)
    return Kind(made, st.builds(made, **values))


def _respelled(draw: st.DrawFn, name: str) -> str:
    for separator in "_- ":
        name = name.replace(separator, draw(st.sampled_from(["", "_", "-", " ", "__"])))
    return draw(st.sampled_from([name, name.upper(), name.lower(), name.title(), f" {name}"]))


def _said(value: Any, draw: st.DrawFn | None) -> Json:
    """Return an instance as plain data under other names: any of them, or those that are shown."""
    if attrs.has(type(value)):
        said = {
            _name_of(field, draw): getattr(value, field.name) for field in attrs.fields(type(value))
        }
        return {name: _said(inner, draw) for name, inner in said.items()}
    if isinstance(value, Mapping):
        return {key: _said(inner, draw) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_said(inner, draw) for inner in value]
    if isinstance(value, Level) and draw:
        return _respelled(draw, value.value)
    return unstructure(value)


def _name_of(field: attrs.Attribute[Any], draw: st.DrawFn | None) -> str:
    described: Described = field.type.__metadata__[0]  # type: ignore[union-attr]
    if draw is None:
        return described.aliases[0] if described.aliases else field.name
    return _respelled(draw, draw(st.sampled_from([field.name, *described.aliases])))


@st.composite
def answers(draw: st.DrawFn) -> tuple[type[Any], Any, Json, str]:
    """Draw a class, an instance, what the schema makes of it, and what a model may write."""
    kind = draw(classes())
    value = draw(kind.values)
    text = json.dumps(
        _said(value, draw),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 1])),
    )
    wrapping = draw(
        st.sampled_from(["{}", " {}\n", "```json\n{}\n```", "Here:\n{}\nDone.", "So: {} {{}}"])
    )
    return kind.type, value, _said(value, None), wrapping.format(text)


@given(answers())
@settings(max_examples=8)
def test_any_instance_is_read_back_whatever_a_model_makes_of_its_names(
    drawn: tuple[type[Any], Any, Json, str],
) -> None:
    kind, value, shown, text = drawn

    assert parsed(kind, text) == value
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(shown)
    assert shown_names(unstructure(value), kind, {}) == shown
    assert own_names(shown, kind, {}, where="example") == unstructure(value)
