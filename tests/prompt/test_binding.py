"""Parameters: bound by class, looked up by name, never guessed."""

from __future__ import annotations

import dataclasses
from datetime import date
from enum import Enum
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from pydantic import BaseModel, Field

from promptgraft.errors import BindingError, PromptRenderError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, PromptRendered, PromptTemplate
from promptgraft.runtime import Session


@attrs.frozen
class Ticket:
    subject: str
    urgent: bool = False


@dataclasses.dataclass
class Customer:
    name: str
    subject: str = "the customer's"


def prompt_of(template: str, **options: Any) -> Prompt[object]:
    section = MarkdownSection(title="Rules", key="rules", template=template, **options)
    return Prompt(PromptTemplate(ns="tests", key="binding", sections=[section]))


def body(prompt: Prompt[object]) -> str:
    return prompt.render().sections[0].text


def refusal(prompt: Prompt[object]) -> str:
    with pytest.raises(BindingError) as caught:
        prompt.render()
    return str(caught.value)


def test_fields_of_attrs_classes_dataclasses_and_mappings_are_values() -> None:
    prompt = prompt_of("$subject from $name in $city").bind(Ticket("Lost key"), {"city": "Bern"})
    with_customer = prompt_of("$urgent $name $city").bind(
        Ticket("Lost key"), Customer("Ada"), MappingProxyType({"city": "Bern"})
    )
    assert body(with_customer) == "False Ada Bern"
    assert refusal(prompt) == (
        "section `rules` needs a value for `$name`; bound values: `subject`, `urgent`, `city`; "
        "bind a parameter with that field"
    )


def test_the_first_missing_value_is_spelled_as_in_the_template() -> None:
    assert refusal(prompt_of("{{ a }}{{b}}", syntax="jinja")).startswith(
        "section `rules` needs a value for `{{ a }}`; bound values: nothing;"
    )


def test_the_path_of_a_nested_section_is_in_the_message() -> None:
    inner = MarkdownSection(title="Refunds", key="refunds", template="$customer")
    prompt = prompt_of("x", children=[inner])
    assert refusal(prompt).startswith("section `rules/refunds` needs a value for `$customer`;")


@pytest.mark.parametrize(
    ("template", "syntax"),
    [("$subject", "dollar"), ("{{ subject }}", "jinja"), ("{{ subject|upper }}", "jinja")],
)
def test_a_name_that_two_parameters_have_is_refused_where_it_is_used(
    template: str, syntax: str
) -> None:
    prompt = prompt_of(template, syntax=syntax).bind(Ticket("a"), Customer("b"))
    assert refusal(prompt) == (
        "section `rules`: two bound parameters have a field `subject`; "
        "give the section a params_type"
    )
    assert body(prompt_of("$name").bind(Ticket("a"), Customer("b"))) == "b"


def test_a_section_with_a_class_sees_the_values_of_that_class_only() -> None:
    prompt = prompt_of("$subject", params_type=Customer)
    assert body(prompt.bind(Ticket("a"), Customer("b"))) == "the customer's"
    assert refusal(prompt.bind(Ticket("a"))) == (
        "section `rules` needs a bound `Customer`; bound: Ticket"
    )
    assert refusal(prompt) == "section `rules` needs a bound `Customer`; bound: nothing"


def test_binding_returns_a_new_prompt_and_changes_none() -> None:
    bare = prompt_of("$subject")
    one, two = bare.bind(Ticket("one")), bare.bind(Ticket("two"))
    assert bare.params == ()
    assert (body(one), body(two)) == ("one", "two")
    assert "needs a value" in refusal(bare)
    assert one.bind() == one
    assert one.template is bare.template
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.params = ()  # type: ignore[misc]


def test_a_parameter_replaces_the_earlier_one_of_its_class() -> None:
    prompt = prompt_of("$subject $name").bind(Ticket("one"), Customer("Ada"))
    with pytest.raises(BindingError, match="two bound parameters have a field `subject`"):
        prompt.render()
    replaced = prompt_of("$subject").bind(Ticket("one")).bind({"x": 1}).bind(Ticket("two"))
    assert body(replaced) == "two"
    assert replaced.params == (Ticket("two"), {"x": 1})


def test_a_dictionary_replaces_an_earlier_one_name_by_name() -> None:
    prompt = prompt_of("$a $b").bind({"a": 1, "b": 2})
    assert body(prompt.bind({"a": 3})) == "3 2"
    assert body(prompt) == "1 2"
    assert prompt.bind({"a": 3}).params == ({"a": 3, "b": 2},)


@pytest.mark.parametrize("two", [(Ticket("a"), Ticket("b")), ({"subject": "a"}, {"urgent": "b"})])
def test_two_parameters_of_one_class_are_refused(two: tuple[object, ...]) -> None:
    kind = type(two[0]).__name__
    refused = (
        f"bind: expected one parameter of each class, found two of `{kind}`; put their values into "
        "one, or give them different classes"
    )
    with pytest.raises(BindingError) as caught:
        prompt_of("$subject").bind(*two)
    assert str(caught.value) == refused
    assert refusal(Prompt(prompt_of("$subject").template, params=two)) == refused


@pytest.mark.parametrize("param", [5, "subject", None, ["subject"], Ticket, {1: "x"}, object()])
def test_what_has_no_named_fields_cannot_be_bound(param: object) -> None:
    with pytest.raises(BindingError, match=r"^bind: expected attrs or dataclass instances, or map"):
        prompt_of("").bind(param)


def test_values_are_shown_as_text_and_not_rendered_again() -> None:
    values = {"a": "$b {{ b }} {% if b %}", "b": None, "c": 1.5, "d": ["x"]}
    assert body(prompt_of("$a|$b|$c|$d").bind(values)) == '$b {{ b }} {% if b %}|None|1.5|["x"]'
    jinja = prompt_of("{{ a }}|{{ b }}|{{ c }}|{{ d }}", syntax="jinja").bind(values)
    assert body(jinja) == '$b {{ b }} {% if b %}|None|1.5|["x"]'


@attrs.frozen
class Passage:
    title: str
    lines: tuple[object, ...] = ()


class Spoken(dict[str, str]):
    def __str__(self) -> str:
        return "as its class says"


class Urgency(str, Enum):  # noqa: UP042 - a StrEnum has a `__str__`
    HIGH = "high"


@dataclasses.dataclass
class Account:
    owner: object
    password: str = dataclasses.field(default="hunter2", repr=False)


@attrs.frozen
class Login:
    owner: str
    password: str = attrs.field(default="hunter2", repr=False)


class Booking(BaseModel):
    owner: str
    password: str = Field(default="hunter2", repr=False)


class SpokenBooking(Booking):
    def __str__(self) -> str:
        return f"booking of {self.owner}"


DATA = [
    ({"b": [True, None], "a": "Zoë"}, '{"a": "Zoë", "b": [true, null]}'),
    (FrozenMap({"d": frozenset({"y", "x"})}), '{"d": ["x", "y"]}'),
    (("x", 1.5, date(2026, 5, 1)), '["x", 1.5, "2026-05-01"]'),
    (
        Passage("Mill", (Passage("Lane"),)),
        '{"lines": [{"lines": [], "title": "Lane"}], "title": "Mill"}',
    ),
    (Customer("Ada"), '{"name": "Ada", "subject": "the customer\'s"}'),
    (Spoken(a="b"), "as its class says"),
    (SpokenBooking(owner="Ada"), "booking of Ada"),
    ([SpokenBooking(owner="Ada")], '["booking of Ada"]'),
    # What a class keeps out of its `repr` is not sent to a model either.
    *((kind(owner="Ada"), '{"owner": "Ada"}') for kind in (Account, Login, Booking)),
    (Urgency.HIGH, "high"),
    ([Urgency.HIGH], '["high"]'),
]


@pytest.mark.parametrize(("value", "text"), DATA)
def test_objects_and_lists_are_shown_as_json(value: object, text: str) -> None:
    assert body(prompt_of("$a").bind({"a": value})) == text
    written = ("a", "w.a", "w.a ~ ''", "a|string", "[a]|join", "a if a")
    jinja = "|".join(f"{{{{ {expression} }}}}" for expression in written)
    bound = prompt_of(jinja, syntax="jinja").bind({"a": value, "w": {"a": value}})
    assert body(bound) == "|".join([text] * 6)


def test_equal_data_makes_equal_prompts() -> None:
    prompt = prompt_of("$a")
    first, second = ({"x": 1, "y": {"k": 2, "l": 3}}, {"y": {"l": 3, "k": 2}, "x": 1})
    assert body(prompt.bind({"a": first})) == body(prompt.bind({"a": second}))


def holding_itself() -> list[object]:
    values: list[object] = []
    values.append(values)
    return values


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, r"\{1: 2\}, with a key that is no text; make all its keys texts"),
        (b"abc", "3 bytes; bind an Image or a File, or decode them"),
        (open, "a builtin_function_or_method, which has no text"),
        (holding_itself(), r"a \w+ that is nested too deeply or holds itself"),
    ],
)
def test_a_value_without_a_text_is_refused_in_objects_too(value: object, message: str) -> None:
    for outer in (value, [value], {"k": value}, Account(value), [Passage("Mill", (value,))]):
        with pytest.raises(BindingError, match=f"bind: a: .*found {message}"):
            prompt_of("$a").bind({"a": outer})


def test_bytes_in_an_object_are_refused_by_jinja() -> None:
    prompt = prompt_of("{{ w.a }}", syntax="jinja").bind({"w": {"a": [b"abc"]}})
    with pytest.raises(PromptRenderError, match="it shows 3 bytes; use an Image or a File"):
        prompt.render()


def test_values_that_no_section_uses_are_no_fault() -> None:
    assert body(prompt_of("x").bind(FrozenMap({"a": 1}), Customer("Ada"))) == "x"


def test_store_and_tag_stay_with_a_bound_prompt() -> None:
    template = prompt_of("$subject").template
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(template, overrides_store=store, overrides_tag="v2").bind(Ticket("a"))
    assert prompt.overrides_store is store
    assert prompt.overrides_tag == "v2"


def test_rendering_tells_the_session_what_the_model_will_see() -> None:
    session = Session()
    prompt = prompt_of("$subject").bind(Ticket("a"))
    first, second = prompt.render(session), prompt.render(session)
    assert first == second == prompt.render()
    assert session.select_all(PromptRendered) == (PromptRendered(first), PromptRendered(second))


def test_a_prompt_that_does_not_render_tells_the_session_nothing() -> None:
    session = Session()
    with pytest.raises(BindingError):
        prompt_of("$subject").render(session)
    assert session.select_all(object) == ()
