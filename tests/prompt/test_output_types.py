"""Answers of any type that JSON can hold: pydantic, unions, lists, dictionaries, numbers, dates."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal
from uuid import UUID

import attrs
import jsonschema
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft import MarkdownSection, Prompt, PromptTemplate
from promptgraft.adapters.calling.schemas import answer_in, native_schema
from promptgraft.adapters.openai import RULES
from promptgraft.errors import OutputError, PromptDefinitionError
from promptgraft.ground.serde import unstructure
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.project.markdown import load_markdown_prompt
from promptgraft.prompt import Described, Tool
from promptgraft.prompt.rendered import RenderedPrompt


class Author(pydantic.BaseModel):
    name: str = pydantic.Field(description="The whole name.", alias="fullName")
    born: dt.date | None = None


class Shelf(pydantic.BaseModel):
    name: str = pydantic.Field(description="Where it stands.")
    copies: Annotated[int, Described("How many there are.")] = 1
    authors: list[Author] = []


class Tree(pydantic.BaseModel):
    name: str
    inner: list[Tree] = []


@attrs.frozen
class Box:
    shelf: Shelf
    tags: tuple[str, ...] = ()


@dataclasses.dataclass
class Sum:
    net: Decimal
    at: dt.time


@attrs.frozen
class Bill:
    sums: list[Sum]
    tax: Decimal = Decimal("0.19")


class Total(pydantic.BaseModel):
    net: Decimal


def rendered(kind: Any, store: InMemoryPromptOverridesStore | None = None) -> RenderedPrompt[Any]:
    sections = [MarkdownSection(title="T", key="t", template="$note")]
    template = PromptTemplate(ns="b", key="k", output_type=kind, sections=sections)
    return Prompt(template, overrides_store=store).bind({"note": "n"}).render()


CASES: list[tuple[Any, str, Any]] = [
    (Shelf, '{"name": "top"}', Shelf(name="top")),
    (Shelf, 'See {"Name": "top", "copies": 2, "more": 1}.', Shelf(name="top", copies=2)),
    (
        Shelf,
        '{"name": "top", "authors": [{"name": "Ann", "born": "1900-01-02"}]}',
        Shelf(name="top", authors=[Author(fullName="Ann", born=dt.date(1900, 1, 2))]),
    ),
    (Tree, '{"name": "a", "inner": [{"name": "b"}]}', Tree(name="a", inner=[Tree(name="b")])),
    (Box, '{"shelf": {"name": "top"}, "tags": ["x"]}', Box(Shelf(name="top"), ("x",))),
    (Shelf | Box, '{"shelf": {"name": "top"}}', Box(Shelf(name="top"))),
    (Shelf | None, "null", None),
    (list[Shelf], 'Here: [{"name": "top"}]', [Shelf(name="top")]),
    (list[str], '```json\n["a", "b"]\n```', ["a", "b"]),
    (tuple[int, str], '[1, "a"]', (1, "a")),
    (dict, '{"a": 1}', {"a": 1}),
    (dict[str, list[int]], '{"a": [1]}', {"a": [1]}),
    (int, "42", 42),
    (float, "1.5", 1.5),
    (bool, "true", True),
    (str | None, "maps", "maps"),
    (str | None, "42", "42"),
    (str | None, "null", None),
    (Literal["a", "b"] | None, "a", "a"),
    (int | str, "5", 5),
    (int | str, "five", "five"),
    (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
    (dt.date, '"2026-01-02"', dt.date(2026, 1, 2)),
    (list[dt.date], '["2026-01-02"]', [dt.date(2026, 1, 2)]),
    (UUID, f"`{UUID(int=7)}`", UUID(int=7)),
    (dt.time, "10:30", dt.time(10, 30)),
    (Decimal, "12.50", Decimal("12.5")),
    (Decimal, '"0.10"', Decimal("0.1")),
    (Decimal | None, "null", None),
    (dict[str, Decimal], '{"net": 1e2}', {"net": Decimal(100)}),
    (Bill, '{"sums": [{"net": 0.1, "at": "09:00"}]}', Bill([Sum(Decimal("0.1"), dt.time(9))])),
    (Bill, '{"sums": [], "tax": 5}', Bill([], tax=Decimal(5))),
    (Total, '{"net": 2.5}', Total(net=Decimal("2.5"))),
]


@pytest.mark.parametrize(("kind", "text", "value"), CASES)
def test_an_answer_becomes_a_value_of_its_type(kind: Any, text: str, value: Any) -> None:
    prompt = rendered(kind)
    assert prompt.parse(text) == value
    jsonschema.validate(unstructure(value), prompt.output_schema or {})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Shelf, '{"name": 5}'),
        (Shelf, '{"copies": 2}'),
        (list[int], '["a"]'),
        (int, "many"),
        (int, "1.5"),
        (bool, '"maybe"'),
        (dict[str, int], '{"a": "b"}'),
        (dt.date, "tomorrow"),
        (UUID, "7"),
        (Decimal, "NaN"),
        (Decimal, "true"),
        (Decimal, '"1.234,50"'),
        (dt.time, "noon"),
    ],
)
def test_an_answer_of_another_type_is_refused_in_one_line(kind: Any, text: str) -> None:
    with pytest.raises(OutputError, match=r"^answer:") as caught:
        rendered(kind).parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "kind", [bytes, object, complex, Callable, list[bytes], 5, "str", list[set[bytes]]]
)
def test_types_that_json_cannot_hold_are_refused_at_once(kind: Any) -> None:
    with pytest.raises(PromptDefinitionError, match=r"^prompt `b/k`: output_type: "):
        rendered(kind)


def test_fields_of_pydantic_models_are_parts_that_overrides_describe() -> None:
    prompt = rendered(Shelf)
    schema = json.dumps(prompt.output_schema)
    for said in ("Where it stands.", "How many there are.", "The whole name."):
        assert said in schema
    sections = [MarkdownSection(title="T", key="t", template="x")]
    template = PromptTemplate(ns="b", key="k", output_type=Shelf, sections=sections)
    fields = [field.field for field in template.descriptor.output_fields]
    assert fields == ["Shelf.name", "Shelf.copies", "Shelf.authors", "Author.name", "Author.born"]
    store = InMemoryPromptOverridesStore()
    store.set_output_field_override(
        template, field="Shelf.copies", description="At least 1.", aliases=["count"]
    )
    prompt = rendered(Shelf, store)
    assert "At least 1." in json.dumps(prompt.output_schema)
    assert prompt.parse('{"name": "top", "count": 3}') == Shelf(name="top", copies=3)


def test_parameters_of_tools_may_be_pydantic_models() -> None:
    tool = Tool(name="find", description="Finds.", params_type=Shelf, result_type=list[Author])
    assert tool.param_descriptions == {
        "name": "Where it stands.",
        "copies": "How many there are.",
        "authors": "",
    }


def test_a_model_is_asked_for_the_type_and_its_wrapped_answer_is_unwrapped() -> None:
    prompt = rendered(list[str])
    native = native_schema(prompt, RULES)
    assert native is not None
    assert native["type"] == "object"
    assert prompt.parse(answer_in(prompt, RULES, '{"answer": ["a"]}')) == ["a"]


# ---- generated types ----

_SCALARS = [str, int, float, bool, dt.date, UUID]


def _class(make: str, fields: dict[str, Any]) -> Any:
    names = {f"field_{n}": kind for n, kind in enumerate(fields.values())}
    if make == "pydantic":
        return pydantic.create_model("Made", **{name: (kind, ...) for name, kind in names.items()})  # type: ignore[call-overload] # as documented
    return attrs.make_class("Made", {n: attrs.field(type=kind) for n, kind in names.items()})


_leaf = st.sampled_from(_SCALARS)
_nested = st.recursive(
    _leaf,
    lambda inner: st.one_of(
        inner.map(lambda kind: GenericAlias(list, (kind,))),
        inner.map(lambda kind: GenericAlias(dict, (str, kind))),
        inner.map(lambda kind: kind | None),
        st.tuples(inner, inner).map(lambda pair: GenericAlias(tuple, pair)),
    ),
    max_leaves=4,
)
_classes = st.builds(
    _class,
    st.sampled_from(["pydantic", "attrs"]),
    st.dictionaries(st.sampled_from("abcd"), _nested, min_size=1, max_size=3),
)


@given(
    data=st.data(),
    kind=st.one_of(_nested, _classes, _classes.map(lambda kind: GenericAlias(list, (kind,)))),
)
@settings(max_examples=50, deadline=None)
def test_values_of_any_type_survive_the_way_to_the_model_and_back(
    data: st.DataObject, kind: Any
) -> None:
    prompt = rendered(kind)
    value = data.draw(_values(kind))
    plain = unstructure(value)
    if prompt.output_schema is not None:
        jsonschema.validate(plain, prompt.output_schema)
    if kind is not str:
        assert prompt.parse(json.dumps(plain)) == value


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Values that JSON can hold: finite numbers, whole characters."""
    whole = st.text(st.characters(codec="utf-8"), max_size=8)
    known = {
        str: whole,
        float: st.floats(allow_nan=False, allow_infinity=False),
        int: st.integers(-(2**53), 2**53),
        bool: st.booleans(),
        dt.date: st.dates(),
        UUID: st.uuids(),
        type(None): st.none(),
    }
    if kind in known:
        return known[kind]
    arguments = [_values(one) for one in getattr(kind, "__args__", ())]
    origin = getattr(kind, "__origin__", None)
    if origin is list:
        return st.lists(arguments[0], max_size=3)
    if origin is dict:
        return st.dictionaries(whole, arguments[1], max_size=3)
    if origin is tuple:
        return st.tuples(*arguments)
    if arguments:
        return st.one_of(*arguments)
    if attrs.has(kind):
        return st.builds(kind, *(_values(field.type) for field in attrs.fields(kind)))
    fields = {name: _values(field.annotation) for name, field in kind.model_fields.items()}
    return st.builds(kind, **fields)


# ---- prompts in files ----


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        ("{type: list of string}", '["a"]', ("a",)),
        ("{type: integer}", "3", 3),
        ("{type: date, optional: true}", "none", None),
        ("{type: date, optional: true}", "2026-01-02", dt.date(2026, 1, 2)),
        ("types.py:Numbers", "[1, 2]", [1, 2]),
        ("types.py:Item", '{"name": "a"}', {"name": "a"}),
    ],
)
def test_a_markdown_prompt_names_its_type(
    tmp_path: Path, output: str, text: str, value: Any
) -> None:
    (tmp_path / "types.py").write_text(
        "import pydantic\n\nNumbers = list[int]\n\nclass Item(pydantic.BaseModel):\n    name: str\n"
    )
    path = tmp_path / "p.md"
    path.write_text(f"---\noutput: {output}\n---\n# Job\n\nAnswer $note.\n")
    found: Any = load_markdown_prompt(path).prompt.bind({"note": "x"}).render().parse(text)
    assert (found.model_dump() if output.endswith("Item") else found) == value
