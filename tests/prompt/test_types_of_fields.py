"""Types of fields: each is carried there and back, or refused when the prompt is built.

Without postponed annotations, so that types in quotes stay inside of others as they are written.
"""

import dataclasses
import json
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, NewType, Optional, Union

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizers.worlds import TEMPLATE, Run, config
from promptgraft import MarkdownSection, Prompt, PromptTemplate, RolloutFeedback, Tool, ToolExample
from promptgraft.errors import OutputError, PromptDefinitionError
from promptgraft.ground.serde import unstructure
from promptgraft.prompt.schema import takes_bare_text


@attrs.frozen
class Branch:
    name: str
    parent: Optional["Branch"] = None
    children: list["Branch"] = attrs.field(factory=list)
    named: dict[str, "Branch"] = attrs.field(factory=dict)


@dataclasses.dataclass
class Reply:
    text: str
    replies: tuple["Reply", ...] = ()
    later: list["Later"] = dataclasses.field(default_factory=list)


@attrs.frozen
class Later:
    number: int


class Colour(Enum):
    RED = "red"


@attrs.frozen
class Mixed:
    id: int | str
    size: float | int | None = None
    rows: list[Union[bool, str, "Later"]] = attrs.field(factory=list)
    colour: Colour | int = 0
    nothing: None = None


def build(kind: Any) -> Prompt[Any]:
    section = MarkdownSection(title="Task", key="task", template="Answer.")
    return Prompt(PromptTemplate(ns="t", key="p", sections=(section,), output_type=kind))


def parse(kind: Any, data: object) -> object:
    return build(kind).render().parse(json.dumps(data))


BRANCHES: st.SearchStrategy[Branch] = st.deferred(
    lambda: st.builds(
        Branch,
        st.text(max_size=3),
        st.none() | BRANCHES,
        st.lists(BRANCHES, max_size=2),
        st.dictionaries(st.text(max_size=2), BRANCHES, max_size=1),
    )
)
REPLIES: st.SearchStrategy[Reply] = st.deferred(
    lambda: st.builds(
        Reply,
        st.text(max_size=3),
        st.lists(REPLIES, max_size=2).map(tuple),
        st.lists(st.builds(Later, st.integers()), max_size=2),
    )
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
MIXED = st.builds(
    Mixed,
    st.integers() | st.text(max_size=3),
    st.none() | NUMBERS,
    st.lists(st.booleans() | st.text(max_size=3) | st.builds(Later, st.integers()), max_size=3),
    st.sampled_from(Colour) | st.integers(),
)


@settings(max_examples=25)
@given(BRANCHES | REPLIES | MIXED)
def test_the_right_answer_of_a_type_that_is_accepted_is_read_as_it_was(value: Any) -> None:
    found = parse(type(value), unstructure(value))
    assert found == value
    assert repr(found) == repr(value)  # an integer stays one, also where a number would do


def test_an_answer_with_a_type_that_holds_itself_scores_what_it_deserves() -> None:
    def feedback(example: Any, response: Any, session: Any) -> RolloutFeedback:
        right = response.output == Branch("root", children=[Branch("leaf")])
        return RolloutFeedback(score=float(right), feedback="")

    run = Run(
        config(feedback_fn=feedback),
        prompt=Prompt(attrs.evolve(TEMPLATE, output_type=Branch)),
        task=lambda _: '{"name": "root", "children": [{"name": "leaf"}]}',
    )
    assert run.start().baseline_pareto_mean == 1.0


@pytest.mark.parametrize(
    ("kind", "data", "fault"),
    [
        (Branch, {"name": "a", "parent": {"name": 1}}, "expected a string, found 1 @ $.parent.na"),
        (Mixed, {"id": True}, "expected int or str, found True @ $.id"),
        (Mixed, {"id": 1, "rows": [{"number": "x"}]}, "expected an integer, found 'x' @ $.rows[0]"),
        (Mixed, {"id": 1, "rows": [1]}, "expected bool or str or Later, found 1 @ $.rows[0]"),
        (Mixed, {"id": 1, "colour": "blue"}, "expected Colour or int, found 'blue' @ $.colour"),
        (Mixed, {"id": 1, "nothing": 0}, "expected null, found 0 @ $.nothing"),
    ],
)
def test_a_wrong_answer_is_refused_with_its_place(kind: Any, data: object, fault: str) -> None:
    with pytest.raises(OutputError) as caught:
        parse(kind, data)
    assert fault in str(caught.value)


def of(kind: Any) -> Any:
    return attrs.make_class("Answer", {"odd": attrs.field(type=kind)}, frozen=True)


REFUSED = [
    (bytes, "no plain data can become <class 'bytes'>"),
    (list[bytes | None], "no plain data can become <class 'bytes'>"),
    (object, "no plain data can become <class 'object'>"),
    (dict[int, str], "the keys of an object are strings, found dict[int, str]"),
    (Branch | Reply, "type `"),
    (deque[int], "type `collections.deque[int]` has no JSON Schema: "),
    (Callable, "no plain data can become "),
]


@pytest.mark.parametrize(("kind", "fault"), REFUSED)
def test_a_type_that_no_answer_becomes_is_refused_with_its_field(kind: Any, fault: str) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        build(of(kind))
    assert str(caught.value).startswith(f"prompt `t/p`: output_type: field `Answer.odd`: {fault}")
    for name in ("params_type", "result_type"):
        with pytest.raises(PromptDefinitionError) as caught:
            tool(**{name: of(kind)})
        assert str(caught.value).startswith(f"tool `t`: {name}: field `Answer.odd`: {fault}")


def test_a_type_that_is_defined_nowhere_is_refused_with_its_field() -> None:
    @attrs.frozen
    class Lost:
        right: int
        wrong: list["Nowhere"]  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(PromptDefinitionError) as caught:
        build(Lost)
    assert str(caught.value) == (
        "prompt `t/p`: output_type: field `Lost.wrong`: name 'Nowhere' is not defined; define the "
        "annotated types at module level"
    )
    with pytest.raises(PromptDefinitionError, match=r"result_type: no plain data can become 'Now"):
        tool(result_type=list["Nowhere"])  # type: ignore[name-defined]  # noqa: F821


def tool(**changes: Any) -> Tool[Any, Any]:
    plain: dict[str, Any] = {"description": "d", "params_type": Later, "result_type": str}
    return Tool(name="t", **(plain | changes))


@pytest.mark.parametrize("kind", [None, type(None)])
def test_a_tool_may_return_nothing(kind: Any) -> None:
    call = ToolExample[Any, Any](description="Deletes it.", input=Later(1), output=None)
    made = tool(result_type=kind, examples=(call,))
    section = MarkdownSection(title="Task", key="task", template="Go.", tools=(made,))
    prompt = Prompt(PromptTemplate[object](ns="t", key="p", sections=(section,)))
    assert "output: null" in prompt.render().text
    with pytest.raises(PromptDefinitionError, match=r"example 0: output: expected null, found 'x'"):
        tool(result_type=kind, examples=(attrs.evolve(call, output="x"),))


class _Note(str):
    """A text with a type of its own."""


_Zip = NewType("_Zip", str)


@pytest.mark.parametrize(
    "kind",
    [
        str,
        _Zip,
        NewType("_Home", _Zip),
        NewType("_Work", Annotated[str, "at work"]),
        Annotated[_Note, "of a case"],
    ],
)
def test_types_made_of_texts_take_a_bare_text(kind: object) -> None:
    assert takes_bare_text(kind)


@pytest.mark.parametrize("kind", [int, NewType("Count", int), list[str]])
def test_other_types_take_no_bare_text(kind: object) -> None:
    assert not takes_bare_text(kind)
