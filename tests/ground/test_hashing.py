"""A frozen class hashes whatever its values are: what may not hash takes no part in it."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import pytest

import promptgraft
from promptgraft.adapters.base import PromptResponse
from promptgraft.agents.call import AgentAnswer
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.types import Answer, Case, ToolUse
from promptgraft.ground.serde import Json
from promptgraft.prompt.sections import TaskExample, TaskStep, ToolExample
from promptgraft.targets.types import GepaExample

# In annotations that only type checkers resolve.
UNHASHED = re.compile(r"\b(?:Json|JsonObject|object|Any|dict|list|set)\b")
# Values of users: some that hash, and the shapes of JSON that do not.
VALUES: list[Json] = ["text", 3, None, ["a", "b"], {"subject": "Hi"}, {"a": [{"b": None}]}]


@pytest.fixture(scope="module")
def frozen_classes() -> list[type]:
    """The classes that take their hash from their fields."""
    for module in pkgutil.walk_packages(promptgraft.__path__, "promptgraft."):
        try:
            importlib.import_module(module.name)
        except ImportError:  # a bridge to a package that is not installed
            continue
    return sorted(
        {
            value
            for name, module in list(sys.modules.items())
            if name.startswith("promptgraft.")
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == name and _hashes_fields(value)
        },
        key=lambda kind: (kind.__module__, kind.__qualname__),
    )


def _hashes_fields(kind: type) -> bool:
    return attrs.has(kind) and kind.__hash__ not in (None, object.__hash__)


def _hashed_types(kind: type) -> Iterator[tuple[str, object]]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError:  # a name that only type checkers import
        hints = {}
    for field in attrs.fields(kind):
        if field.eq if field.hash is None else field.hash:
            yield field.name, hints.get(field.name, field.type)


def values_that_may_not_hash(annotation: object) -> str:
    """Return the part of an annotation that allows lists, objects or values of users; else ''."""
    if isinstance(annotation, (str, typing.ForwardRef)):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        has_hash = text.startswith(("Callable[", "Prompt[", "type["))
        return "" if has_hash else ", ".join(UNHASHED.findall(text))
    if annotation in (typing.Any, object, dict, list, set):
        return repr(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (dict, list, set):
        return repr(annotation)
    if isinstance(annotation, typing.TypeVar):
        return f"~{annotation.__name__}"
    if origin in (typing.Annotated, frozenset):
        arguments = arguments[:1]
    elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        arguments = arguments[1:]
    elif origin not in (tuple, typing.Union, types.UnionType, Sequence):
        return ""
    return next(filter(None, map(values_that_may_not_hash, arguments)), "")


def test_no_frozen_class_hashes_what_may_not_hash(frozen_classes: list[type]) -> None:
    assert len(frozen_classes) > 200
    wrong = [
        f"{kind.__module__}.{kind.__qualname__}.{name}: {part} needs hash=False"
        for kind in frozen_classes
        for name, annotation in _hashed_types(kind)
        if (part := values_that_may_not_hash(annotation))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "annotation",
    [Json, list[str], dict[str, int], tuple[Json, ...], Mapping[str, Json], int | list[int]],
)
def test_the_search_for_such_fields_finds_them(annotation: object) -> None:
    assert values_that_may_not_hash(annotation)


MAKERS: dict[str, Callable[[Json], object]] = {
    "example with such parameters": lambda value: GepaExample(id="a", params=(value,)),
    "example with such a label": lambda value: GepaExample(id="a", params=(), label=value),
    "input of a case": lambda value: Case(id="a", input=value),
    "expected of a case": lambda value: Case(id="a", input="", expected=value),
    "field of a case": lambda value: Case(id="a", input="", fields={"more": value}),
    "state of a case": lambda value: Case(id="a", input="", state={"more": value}),
    "tools of a case": lambda value: Case(
        id="a", input="", tools=(ToolUse(name="t", arguments={"x": value}, result=value),)
    ),
    "data set": lambda value: Dataset((Case(id="a", input=value),), "cases"),
    "answer": lambda value: Answer(text="", output=value),
    "answer of an agent": lambda value: AgentAnswer(text="", output=value),
    "response": lambda value: PromptResponse(text="", output=value),
    "tool example": lambda value: ToolExample(description="", input=value, output=value),
    "task example": lambda value: TaskExample(
        key="a",
        objective="",
        outcome=value,
        steps=(
            TaskStep(tool_name="t", example=ToolExample(description="", input=value, output=value)),
        ),
    ),
}


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("kind", MAKERS)
def test_equal_values_hash_alike_whatever_users_put_into_them(kind: str, value: Json) -> None:
    first, again = MAKERS[kind](value), MAKERS[kind](value)
    assert first == again
    assert {first: 1}[again] == 1


class Incomparable:
    """A parameter like an array: it does not compare to one truth value."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment] # as arrays do


def test_examples_with_parameters_that_cannot_be_compared_are_found_by_id() -> None:
    examples = [
        GepaExample(id=name, params=(Incomparable(),), label=Incomparable()) for name in "abc"
    ]
    again = GepaExample(id="b", params=(Incomparable(),))
    assert examples.index(again) == 1
    assert again in dict.fromkeys(examples)
    assert GepaExample(id="d", params=()) not in examples
