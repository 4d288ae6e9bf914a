"""Calls of tools that a model asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.adapters.base import ToolInvoked
from promptgraft.adapters.calling.conversation import answer_request
from promptgraft.adapters.calling.turns import ToolAnswer, ToolRequest
from promptgraft.errors import DeadlineExceededError, TransientProviderError
from promptgraft.ground.serde import canonical_json
from promptgraft.prompt import Described, Tool
from promptgraft.prompt.rendered import RenderedTool
from promptgraft.runtime import Session


@attrs.frozen
class Query:
    text: Annotated[str, Described("What to look for.", aliases=("words",))]
    most: int = 5


@attrs.frozen
class Hit:
    place: str


Handler = Callable[[Query], object]


def answered(
    arguments: str, handler: Handler | None, *, name: str = "find", result_type: Any = str
) -> tuple[ToolAnswer, ToolInvoked]:
    tool: Tool[Any, Any] = Tool(
        name="find", description="", params_type=Query, result_type=result_type, handler=handler
    )
    rendered = RenderedTool(
        tool=tool, description="Finds.", param_descriptions=tool.param_descriptions, examples=()
    )
    session = Session()
    request = ToolRequest(id="1", name=name, arguments=arguments)
    answer = answer_request(request, [rendered], session)
    (event,) = session.select_all(ToolInvoked)
    assert answer.request is request
    assert answer.failed == bool(event.error)
    return answer, event


def test_a_handler_gets_its_type_and_the_model_its_result() -> None:
    answer, event = answered('{"text": "a", "most": 2}', lambda query: f"{query.text}{query.most}")
    assert answer.content == "a2"
    assert event == ToolInvoked(name="find", params=Query("a", 2), result="a2")


def test_parameters_may_have_the_names_that_the_model_is_shown() -> None:
    _, event = answered('{"words": "a"}', lambda _: "")
    assert event.params == Query("a")


def test_no_arguments_are_an_empty_object() -> None:
    missing = "find: input: required key missing @ $.text"
    for arguments in ("", "null", "{}"):
        _, event = answered(arguments, lambda _: "")
        assert event.error == missing


def test_a_result_that_is_no_text_is_told_as_json() -> None:
    answer, event = answered('{"text": "a"}', lambda _: (Hit("é"),), result_type=tuple[Hit, ...])
    assert answer.content == '[{"place":"é"}]'
    assert event.result == (Hit("é"),)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ('{"text": "a"', "find: input:1:13: Expecting ',' delimiter"),
        ("", "find: input: required key missing @ $.text"),
        ("[1]", "find: input: expected an object, found [1]"),
        ('{"text": 1}', "find: input: expected a string, found 1 @ $.text"),
        ('{"text": "a", "wher": 1}', "find: input: unknown key `wher`"),
        ('{"text": "a", "words": "b"}', "words"),
        ('{"text": "\\ud800"}', "find: input: a text holds half of a character"),
    ],
)
def test_invalid_arguments_are_told_to_the_model_and_nothing_is_called(
    arguments: str, error: str
) -> None:
    def handler(_: Query) -> str:
        raise AssertionError

    answer, event = answered(arguments, handler)
    assert error in answer.content
    assert event.error == answer.content
    assert event.result is None


def test_an_unknown_tool_is_told_with_those_that_there_are() -> None:
    answer, event = answered('{"a": 1}', lambda _: "", name="fined")
    assert answer.content == "there is no tool `fined` (did you mean `find`?); tools: find"
    assert event == ToolInvoked(name="fined", params={"a": 1}, result=None, error=answer.content)


def test_a_tool_without_a_handler_fails() -> None:
    answer, _ = answered('{"text": "a"}', None)
    assert answer.content == "the tool has no handler"


def test_a_handler_that_raises_is_told_in_one_line() -> None:
    def handler(_: Query) -> str:
        raise ValueError("no\nsuch place")

    answer, event = answered('{"text": "a"}', handler)
    assert answer.content == "ValueError: no such place"
    assert event.params == Query("a")


def test_a_result_that_json_cannot_hold_is_a_failure() -> None:
    answer, event = answered('{"text": "a"}', lambda _: object())
    assert "expected plain data" in answer.content
    assert event.result is None


@pytest.mark.parametrize("error", [TransientProviderError("busy"), DeadlineExceededError("late")])
def test_failures_of_providers_and_limits_pass_through_handlers(error: Exception) -> None:
    def handler(_: Query) -> str:
        raise error

    with pytest.raises(type(error)):
        answered('{"text": "a"}', handler)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(st.text() | JSON.map(canonical_json))
def test_whatever_a_model_writes_is_answered(arguments: str) -> None:
    answer, event = answered(arguments, lambda query: query.text)
    assert answer.content == (event.error or event.result)
    assert (event.error == "") == isinstance(event.params, Query)
