"""Tools and their examples: checked when they are made, offered where their section is shown."""

from __future__ import annotations

import datetime as dt
import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar

import attrs
import pytest
from jsonschema import Draft202012Validator

from agent_prompts import TEMPLATE, fields_class
from promptgraft.errors import PromptDefinitionError
from promptgraft.ground.serde import Json, parse_json
from promptgraft.prompt import (
    Described,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedTool,
    SectionVisibility,
    Tool,
    ToolExample,
)

T = TypeVar("T")


class Mode(Enum):
    EXACT = "exact"
    FUZZY = "fuzzy"


@attrs.frozen
class Span:
    first: Annotated[int, Described("First line.")]
    last: Annotated[int | None, Described("Last line, if it ends.")] = None


@attrs.frozen
class Search:
    """Looks through files."""

    query: Annotated[str, Described("What to look for.")]
    mode: Annotated[Mode, Described("How.", values={"fuzzy": "Typing errors are fine."})] = (
        Mode.EXACT
    )
    spans: Annotated[list[Span], Described("Where.")] = attrs.field(factory=list)
    order: Annotated[Literal["name", "age"] | None, Described("By.")] = None


@dataclass(frozen=True)
class Read:
    path: Annotated[str, Described("A file.", aliases=("file",))]
    spans: tuple[Span, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)


@attrs.frozen
class Tree:
    name: str
    below: tuple[Tree, ...] = ()


@attrs.frozen
class Found:
    files: tuple[str, ...] = ()


@attrs.frozen
class Page(Generic[T]):
    items: tuple[T, ...]


def tool(**changed: Any) -> Tool[Any, Any]:
    said: dict[str, Any] = {
        "name": "search",
        "description": "Search.",
        "params_type": Search,
        "result_type": Found,
    }
    return Tool(**{**said, **changed})


def example(given: object, result: object, description: str = "d") -> ToolExample[Any, Any]:
    return ToolExample(description=description, input=given, output=result)


def offered(*sections: MarkdownSection, **values: object) -> tuple[RenderedTool, ...]:
    template: PromptTemplate[None] = PromptTemplate(ns="tests", key="tools", sections=sections)
    return Prompt(template).bind(values).render().tools


def section(key: str, **changed: Any) -> MarkdownSection:
    return MarkdownSection(**{"title": key.title(), "key": key, "template": "Text.", **changed})


def schema_of(params_type: type[Any]) -> dict[str, Json]:
    (rendered,) = offered(section("a", tools=(tool(params_type=params_type),)))
    Draft202012Validator.check_schema(rendered.params_schema)
    return rendered.params_schema


# What a model is told


def test_the_schema_of_a_class_says_what_each_parameter_means() -> None:
    assert schema_of(Search) == {
        "title": "Search",
        "description": "Looks through files.",
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "mode": {
                "enum": ["exact", "fuzzy"],
                "description": "How.\n- fuzzy: Typing errors are fine.",
                "default": "exact",
            },
            "spans": {
                "type": "array",
                "items": {"$ref": "#/$defs/Span"},
                "description": "Where.",
            },
            "order": {
                "anyOf": [{"enum": ["age", "name"]}, {"type": "null"}],
                "default": None,
                "description": "By.",
            },
        },
        "required": ["query"],
        "$defs": {
            "Span": {
                "title": "Span",
                "type": "object",
                "properties": {
                    "first": {"type": "integer", "description": "First line."},
                    "last": {
                        "anyOf": [{"type": "integer"}, {"type": "null"}],
                        "default": None,
                        "description": "Last line, if it ends.",
                    },
                },
                "required": ["first"],
            }
        },
    }


def test_the_schema_of_a_dataclass_has_names_by_which_it_is_shown() -> None:
    schema = schema_of(Read)

    assert schema["required"] == ["file"]
    assert schema["properties"] == {
        "file": {"type": "string", "description": "A file."},
        "spans": {"type": "array", "items": {"$ref": "#/$defs/Span"}, "default": []},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    }


def test_the_schema_of_a_class_that_holds_itself_ends() -> None:
    schema = schema_of(Tree)

    assert schema["$ref"] == "#/$defs/Tree"
    tree = {"name": "a", "below": [{"name": "b", "below": []}]}
    Draft202012Validator(schema).validate(tree)
    assert not Draft202012Validator(schema).is_valid({"name": "a", "below": [{}]})


def test_a_parameter_that_nothing_is_said_of_has_no_description() -> None:
    assert schema_of(Tree)["$defs"] == {
        "Tree": {
            "title": "Tree",
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []},
            },
            "required": ["name"],
        }
    }


def test_the_examples_fit_the_schema_that_the_model_is_shown() -> None:
    tools = Prompt(TEMPLATE).bind({"language": "x", "ask": "y"}).render().tools
    checked = 0
    for rendered in tools:
        for call in rendered.examples:
            shown = parse_json(call.input_json, where="input")
            Draft202012Validator(rendered.params_schema).validate(shown)
            checked += 1
    assert checked == 2


def test_examples_stand_after_the_text_of_the_section_of_their_tool() -> None:
    read = tool(
        name="read", params_type=Read, examples=[example(Read("a.py"), Found(("ä",)), "Read it.")]
    )
    plain = tool()
    child = section("child", template="Below.")
    template: PromptTemplate[None] = PromptTemplate(
        ns="tests", key="t", sections=(section("a", tools=(plain, read), children=(child,)),)
    )

    assert Prompt(template).render().text == (
        "## A\n\nText.\n\n"
        "Example calls of `read`:\n\n"
        "1. Read it.\n"
        '   input: {"path": "a.py", "spans": [], "labels": {}}\n'
        '   output: {"files": ["ä"]}\n\n'
        "### Child\n\nBelow."
    )


def test_a_section_without_text_begins_with_the_examples_of_its_tools() -> None:
    shown = tool(examples=[example(Search("x"), Found())])
    template: PromptTemplate[None] = PromptTemplate(
        ns="tests", key="t", sections=(section("a", template="", tools=(shown,)),)
    )

    assert Prompt(template).render().text.startswith("## A\n\nExample calls of `search`:\n\n1. d")


def test_tools_are_offered_in_reading_order_with_their_handlers() -> None:
    def look(params: Search) -> Found:
        return Found((params.query,))

    first = tool(name="first", handler=look)
    second, third = tool(name="second"), tool(name="third")
    inner = section("inner", tools=(second,))
    tools = offered(section("a", tools=(first,), children=(inner,)), section("b", tools=(third,)))

    assert [rendered.name for rendered in tools] == ["first", "second", "third"]
    assert tools[0].tool.handler is look


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param({"enabled": lambda values: values["on"]}, id="disabled"),
        pytest.param(
            {"visibility": SectionVisibility.SUMMARY, "summary": "Short."}, id="collapsed"
        ),
        pytest.param(
            {
                "visibility": lambda values: SectionVisibility(values["how"]),
                "summary": "Short.",
            },
            id="collapsed by a function",
        ),
    ],
)
def test_tools_of_a_section_that_is_not_shown_are_not_offered(hidden: dict[str, Any]) -> None:
    shown = tool(name="shown")
    inside = tool(name="inside", examples=[example(Search("secret"), Found())])
    below = section("below", tools=(tool(name="below"),))
    away = section("away", tools=(inside,), children=(below,), **hidden)
    template: PromptTemplate[None] = PromptTemplate(
        ns="tests", key="t", sections=(away, section("b", tools=(shown,)))
    )
    rendered = Prompt(template).bind({"on": False, "how": "summary"}).render()

    assert [found.name for found in rendered.tools] == ["shown"]
    assert "secret" not in rendered.text
    if "enabled" not in hidden:
        assert "## Away\n\nShort." in rendered.text


def test_tools_of_a_section_that_is_shown_again_are_offered_again() -> None:
    away = section("away", tools=(tool(),), enabled=lambda values: bool(values["on"]))

    assert [found.name for found in offered(away, on=True)] == ["search"]
    assert offered(away, on=False) == ()


# What is refused when a tool or a template is made


@pytest.mark.parametrize(
    ("given", "result", "said"),
    [
        pytest.param(
            {"query": "x"},
            Found(),
            "input: {'query': 'x'} does not survive JSON; it comes back as Search(",
            id="a mapping for an instance",
        ),
        pytest.param(
            Found(), Found(), "input: required key missing @ $.query; ", id="another class"
        ),
        pytest.param(
            Search(query=5),  # type: ignore[arg-type]
            Found(),
            "input: expected a string, found 5 @ $.query",
            id="a field of the wrong type",
        ),
        pytest.param(
            Search("x", spans=[Span("1")]),  # type: ignore[arg-type]
            Found(),
            "input: expected an integer, found '1' @ $.spans[0].first",
            id="a field of the wrong type inside",
        ),
        pytest.param(
            Search("x", mode="exact"),  # type: ignore[arg-type]
            Found(),
            "input: Search(query='x', mode='exact', spans=[], order=None) does not survive JSON",
            id="the value of an option for the option",
        ),
        pytest.param(
            Search("x", order="size"),  # type: ignore[arg-type]
            Found(),
            "input: expected one of 'name', 'age', found 'size' @ $.order",
            id="no option",
        ),
        pytest.param(
            Search("x"), "nothing", "output: expected an object, found 'nothing' @ $", id="output"
        ),
        pytest.param(
            Search("x"),
            Found(files=["a"]),  # type: ignore[arg-type]
            "output: Found(files=['a']) does not survive JSON; it comes back as Found(files=('a',)",
            id="a list for a tuple",
        ),
        pytest.param(
            Search("x"),
            Found(files=(object(),)),  # type: ignore[arg-type]
            "$.files[0]: expected plain data, an attrs class or a dataclass, found <object object",
            id="what JSON cannot hold",
        ),
    ],
)
def test_an_example_that_does_not_fit_is_refused_with_its_place(
    given: object, result: object, said: str
) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        tool(examples=[example(Search("fits"), Found()), example(given, result)])

    message = str(caught.value)
    assert said in message
    assert message.startswith("tool `search`: example 1: ")


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (float, math.nan, "expected a finite number, found nan"),
        (float, math.inf, "expected a finite number, found inf"),
        (dt.datetime, dt.datetime(2026, 1, 2, 3, 4), "an ISO 8601 time with its off"),  # noqa: DTZ001
        (str, b"x", "expected plain data"),
        (tuple[int, str], (1,), "expected 2 items, found 1"),
        (set[str], ["a"], "does not survive JSON"),
    ],
    ids=["NaN", "infinity", "naive time", "bytes", "too few items", "a list"],
)
def test_a_result_that_json_cannot_carry_is_refused(kind: Any, value: object, said: str) -> None:
    with pytest.raises(PromptDefinitionError, match=re.escape(said)) as caught:
        tool(result_type=kind, examples=[example(Search("x"), value)])
    assert str(caught.value).startswith("tool `search`: example 0: output: ")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "text"),
        (int, 3),
        (float, 3),
        (bool, True),
        (list[Found], [Found(("a",))]),
        (dict[str, Found], {"a": Found()}),
        (tuple[int, str], (1, "x")),
        (frozenset[str], frozenset({"a"})),
        (Found | None, None),
        (dt.date, dt.date(2026, 1, 2)),
        (dt.datetime, dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
        (Any, {"a": [1, None]}),
        (Tree, Tree("a", (Tree("b"),))),
        (Mode, Mode.FUZZY),
    ],
    ids=lambda value: None if isinstance(value, type) else repr(value)[:30],
)
def test_a_result_may_be_of_any_type_that_json_carries(kind: Any, value: object) -> None:
    made = tool(result_type=kind, examples=[example(Search("x"), value)])

    assert made.examples[0].output == value


@pytest.mark.parametrize("name", ["", "two words", "späti", "a" * 65, "a\n", "a.b", "$x"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(
        PromptDefinitionError, match="tool name: expected 1 to 64 letters"
    ) as caught:
        tool(name=name)
    assert str(caught.value).endswith(f"found {name!r}")


@pytest.mark.parametrize("kind", [str, dict, Mode, list[int], int | None])
def test_parameters_that_are_no_class_of_fields_are_refused(kind: Any) -> None:
    with pytest.raises(
        PromptDefinitionError,
        match="tool `search`: params_type: expected an attrs class or dataclass, found",
    ):
        tool(params_type=kind)


@attrs.frozen
class Complex:
    number: complex


@attrs.frozen
class Either:
    one: Span | Found


@attrs.frozen
class Pages:
    page: Page[int]


@attrs.frozen
class Endless:
    most: float = math.inf


OTHER_SPAN = fields_class("Span", width=(int, 0))
ENUM_SPAN = Enum("Span", {"A": "a"})  # type: ignore[misc]  # its name is the point
TwoSpans = fields_class(
    "TwoSpans", a=(Span, attrs.NOTHING), b=(types.GenericAlias(list, OTHER_SPAN), attrs.NOTHING)
)
SpanAndEnum = fields_class("SpanAndEnum", a=(Span, attrs.NOTHING), b=(ENUM_SPAN, attrs.NOTHING))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Complex, "field `Complex.number`: no plain data can become <class 'complex'>"),
        (Either, "field `Either.one`: type `"),
        (Pages, "Page[int] is a generic class; expected one without type parameters"),
        (TwoSpans, "two classes are named `Span` ("),
        (SpanAndEnum, "type `SpanAndEnum`: two types "),
        (Endless, "type `Endless`: a default: "),
    ],
    ids=["complex", "two classes", "generic", "one name", "class and enum", "infinity"],
)
def test_parameters_that_have_no_schema_are_refused(kind: type[Any], said: str) -> None:
    with pytest.raises(PromptDefinitionError, match=re.escape(said)) as caught:
        tool(params_type=kind)
    assert str(caught.value).startswith("tool `search`: params_type: ")
    assert "\n" not in str(caught.value)


def _described(described: Described, kind: Any = str) -> Callable[[], object]:
    params = fields_class(
        "Params", first=(Annotated[kind, described], attrs.NOTHING), second=(str, "")
    )
    return lambda: tool(params_type=params)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            _described(Described(aliases=("second",))),
            "field `Params.first`: the alias 'second' is empty or taken",
        ),
        (
            _described(Described(aliases=("Sec-ond",))),
            "field `Params.first`: the alias 'Sec-ond' is empty or taken",
        ),
        (
            _described(Described(aliases=("a", "a"))),
            "field `Params.first`: the alias 'a' is empty or taken",
        ),
        (_described(Described(aliases=(" ",))), "the alias ' ' is empty or taken"),
        (
            _described(Described(values={"fuzy": "x"}), Mode),
            "field `Params.first`: values: there is no option 'fuzy'; options: exact, fuzzy",
        ),
        (_described(Described(values={"a": "x"})), "there is no option 'a'; options: none"),
        (lambda: Described("d", aliases="level"), "expected a list of texts, found 'level'"),
    ],
    ids=["a name", "spelled otherwise", "twice", "blank", "no option", "no choice", "one text"],
)
def test_what_is_said_of_a_field_must_fit_it(make: Callable[[], object], said: str) -> None:
    with pytest.raises(PromptDefinitionError, match=re.escape(said)):
        make()


def test_two_tools_of_one_name_are_refused_wherever_they_stand() -> None:
    inner = section("inner", tools=(tool(),))
    with pytest.raises(
        PromptDefinitionError, match="prompt `tests/tools`: two tools are named `search`"
    ):
        offered(section("a", tools=(tool(),)), section("b", children=(inner,)))
    with pytest.raises(PromptDefinitionError, match="two tools are named `search`"):
        offered(section("a", tools=(tool(), tool(description="Another."))))


def test_the_hash_of_a_tool_covers_what_is_said_and_that_of_an_example_its_values() -> None:
    def descriptor(**changed: Any) -> Any:
        sections = (section("a", tools=(tool(**changed),)),)
        template: PromptTemplate[None] = PromptTemplate(ns="t", key="t", sections=sections)
        return template.descriptor.tools[0]

    shown = [example(Search("x"), Found())]
    base = descriptor(examples=shown)
    assert descriptor(examples=[]).content_hash == base.content_hash
    assert descriptor(description="Other.").content_hash != base.content_hash
    assert descriptor(params_type=Tree).content_hash != base.content_hash
    hashes = {
        base.examples[0].content_hash,
        *(
            descriptor(examples=[other]).examples[0].content_hash
            for other in (
                example(Search("y"), Found()),
                example(Search("x", mode=Mode.FUZZY), Found()),
                example(Search("x"), Found(("",))),
                example(Search("x"), Found(), "other"),
            )
        ),
    }
    assert len(hashes) == 5
