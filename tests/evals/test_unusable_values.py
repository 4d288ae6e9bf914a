"""Wrong values in data sets and cases raise one typed, one-line error and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals import metrics
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.types import Answer, Case, ToolUse, Turn

ROWS = [{"id": "a", "input": "question"}]
HUGE = 10**5_000
NAN, INFINITE = float("nan"), float("inf")


def load(**options: Any) -> object:
    return Dataset.load("cases.jsonl", **options)


def of(rows: Any = ROWS, **options: Any) -> object:
    return Dataset.of(rows, **options)


def case(**fields: Any) -> object:
    return Dataset.of([Case(**{"id": "a", "input": "question", **fields})])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: of(fields={"input": [["a"]]}),
            "fields: expected the name of a column for `input`",
        ),
        (lambda: of(fields={"id": ["a"]}), "fields: expected the name of a column for `id`"),
        (lambda: of(fields={"input": 5}), "fields: expected the name of a column for `input`"),
        (lambda: of(fields={"input": {}}), "fields: expected the name of a column for `input`"),
        (lambda: of(fields={"input": {1: "a"}}), "expected the name of a column for `input`"),
        (lambda: of(keep=[["a"]]), r"keep: expected a list of columns, found \[\['a'\]\]"),
        (lambda: of(keep="id"), "keep: expected a list of columns, found 'id'"),
        (lambda: of([{"id": HUGE, "input": "a"}]), "found an integer of 5,001 digits"),
        (lambda: load(format=["a"]), r"format: expected one of .*, found \['a'\]"),
        (lambda: Dataset.load("a\0.jsonl"), "path: expected the name of a file"),
        (lambda: Dataset.load("x" * 5_000 + ".jsonl"), "cannot be read: File name too long"),
        (lambda: case(id=[1]), r"cases: id: expected a text, found \[1\]"),
        (lambda: case(id=5), "cases: id: expected a text, found 5"),
        (lambda: case(hints=[1]), r"expected an object, found \[1\]"),
        (lambda: case(fields=5), "expected an object, found 5"),
        (lambda: case(state={1}), r"expected an object, found \{1\}"),
        (lambda: case(tools=[1]), r"tools: expected a tuple of ToolUse, found \[1\]"),
        (lambda: case(tools=(5,)), r"tools: expected a tuple of ToolUse, found \(5,\)"),
        (lambda: case(turns=(Turn(user="a", tools={"a": 1}),)), "tools: expected a tuple"),  # type: ignore[arg-type]
        (lambda: Answer(text="a", tools=5), "tools: expected a tuple of ToolUse, found 5"),  # type: ignore[arg-type]
        (lambda: ToolUse(name="a", arguments=[1]), r"expected an object, found \[1\]"),  # type: ignore[arg-type]
        (lambda: metrics.regex().check(Case(id="a", input="b", expected=HUGE)), "needs a pattern"),
        (lambda: metrics.number().check(Case(id="a", input="b", expected=NAN)), "needs one number"),
        (lambda: metrics.length(max=2**63), "max: expected an integer of at least 0, found "),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused_in_one_line(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises((ConfigError, DataFormatError), match=said) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 500


def test_what_is_not_finite_is_the_same_as_no_number() -> None:
    metric = metrics.json_match(relative_tolerance=0.5)
    for expected in (NAN, INFINITE):
        case = Case(id="a", input="b", expected={"a": expected})
        for found in (1.5, NAN, INFINITE):
            with pytest.raises(DataFormatError, match="expected a finite number"):
                metric.judge(case, Answer(text="", output={"a": found}))
