"""Wrong arguments are refused where they are given, in one line that names them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import attrs
import pytest

import promptgraft as pg
from promptgraft.errors import ConfigError, DataFormatError, PromptgraftError
from promptgraft.evals import metrics
from promptgraft.evals.metrics import Exact

ROOM = pg.MarkdownSection(title="Room", key="room", template="$text")
TEMPLATE = pg.PromptTemplate(ns="tests", key="misuse", sections=[ROOM])
PROMPT = pg.Prompt(TEMPLATE)
CASES = pg.Dataset.of({"input": f"room {n}", "expected": f"floor {n}"} for n in range(30))
EXAMPLES = pg.examples_from(PROMPT, CASES)
STORE = pg.InMemoryPromptOverridesStore
MODEL = pg.OfflineAdapter()
ANY: Any = pg
"""The library, for calls that type checkers refuse."""
ANY_METRIC: Any = metrics


async def later(event: object) -> None:
    """Handle an event that nobody awaits."""


REFUSED: dict[str, Callable[[], object]] = {
    "overrides_store: expected a store of overrides, found <class": lambda: ANY.Prompt(
        TEMPLATE, overrides_store=STORE
    ),
    "overrides_store: expected a store of overrides, found 'here'": lambda: ANY.Prompt(
        TEMPLATE, overrides_store="here"
    ),
    "overrides_store: expected a store of overrides, found <class ": lambda: (
        ANY.OptimizationContext(MODEL, overrides_store=STORE)
    ),
    "base: expected a store of overrides, found <class": lambda: ANY.OverlayPromptOverridesStore(
        base=STORE, overlay=[]
    ),
    "template: expected a PromptTemplate, found 'Sort.'": lambda: ANY.Prompt("Sort."),
    "sections: expected a list of sections, found None": lambda: ANY.PromptTemplate(
        ns="a", key="b", sections=None
    ),
    "sections: expected a list of sections, found ['Sort.']": lambda: ANY.PromptTemplate(
        ns="a", key="b", sections=["Sort."]
    ),
    "sections: expected a list of sections, found MarkdownSection(": lambda: ANY.MarkdownSection(
        title="a", key="b", template="c", children=ROOM
    ),
    "section `b`: template: expected a text, found None": lambda: ANY.MarkdownSection(
        title="a", key="b", template=None
    ),
    "section `b`: title: expected a text, found 3": lambda: ANY.MarkdownSection(title=3, key="b"),
    "tools: expected a list of tools, found ['look_up']": lambda: ANY.MarkdownSection(
        title="a", key="b", tools=["look_up"]
    ),
    "tool: name: expected a text, found None": lambda: ANY.Tool(
        name=None, description="Reads.", params_type=pg.Case, result_type=str
    ),
    "tool `a`: description: expected a text, found None": lambda: ANY.Tool(
        name="a", description=None, params_type=pg.Case, result_type=str
    ),
    "examples: expected a list of examples, found 3": lambda: ANY.Tool(
        name="a", description="Reads.", params_type=pg.Case, result_type=str, examples=3
    ),
    "tags: expected a mapping of texts, found ['nightly']": lambda: ANY.Session(tags=["nightly"]),
    "train: expected a Dataset, found [1]": lambda: ANY.Splits([1], CASES),
    "dataset: expected a Dataset, found [1]": lambda: ANY.Splits.by_ratio([1]),
    "prompt: expected a Prompt, found PromptTemplate(": lambda: ANY.evaluate(
        TEMPLATE, CASES, [Exact()], adapter=MODEL
    ),
    "prompt: expected a Prompt, found 'Sort.'": lambda: ANY.examples_from("Sort.", CASES),
    "cases:1: expected a Case, found ('a', 'b')": lambda: ANY.evaluate(
        PROMPT, [("a", "b")], [Exact()], adapter=MODEL
    ),
    "cases: expected a list of cases, found 'cases.jsonl'; `Dataset.load` reads a file": lambda: (
        ANY.examples_from(PROMPT, "cases.jsonl")
    ),
    "cases:1: expected a Case, found {'input': 'room 1'}; `Dataset.of` reads mappings": lambda: (
        ANY.examples_from(PROMPT, [{"input": "room 1"}])
    ),
    "cases:2: expected a Case, found 'b'": lambda: ANY.Dataset((pg.Case(id="a", input="a"), "b")),
    "train: expected a share between 0 and 1, found '0.5'": lambda: ANY.Splits.by_ratio(
        CASES, train="0.5"
    ),
    "labels: expected a list of texts, found 'a'": lambda: ANY_METRIC.classification(labels="a"),
    "labels:1: expected a text, found 1": lambda: ANY_METRIC.classification(labels=[1, "b"]),
    "texts: expected a list of texts, found None": lambda: ANY_METRIC.contains(texts=None),
    "paths:1: expected a text, found 1": lambda: ANY_METRIC.json_match(paths=[1]),
    "expected_path: expected a text, found None": lambda: ANY_METRIC.exact(expected_path=None),
    "metrics: expected a list of metrics, found Exact(": lambda: ANY_METRIC.AllOf(metrics=Exact()),
    "metrics: expected metrics such as metrics.exact(), found <class": lambda: ANY_METRIC.AllOf(
        metrics=[Exact]
    ),
    "placeholders: expected a list of placeholders, found 'text'": lambda: ANY.MarkdownSection(
        title="a", key="b", template="text", syntax="plain", placeholders="text"
    ),
    "section `b`: syntax: expected 'dollar', 'jinja', 'format' or 'plain', found []": lambda: (
        ANY.MarkdownSection(title="a", key="b", syntax=[])
    ),
    "executor: expected an Executor, found 4": lambda: ANY.evaluate(
        PROMPT, CASES, [Exact()], adapter=MODEL, executor=4
    ),
    "deadline: expected a Deadline, found 60": lambda: ANY.evaluate(
        PROMPT, CASES, [Exact()], adapter=MODEL, deadline=60
    ),
    "deadline: expected seconds > 0, found '60'": lambda: ANY.Deadline.after("60"),
    "kind: expected a class of events, found 'RunEnded'": lambda: ANY.EventBus().subscribe(
        "RunEnded", print
    ),
    "handler: expected a plain function of an event, found None": lambda: ANY.EventBus().subscribe(
        str, None
    ),
    "handler: expected a plain function of an event, found <function later>": lambda: (
        ANY.EventBus().subscribe(str, later)
    ),
    "handler: expected a plain function of an event, found <function <lambda>": lambda: (
        ANY.EventBus().subscribe(str, lambda: None)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_wrong_argument_is_named_where_it_is_given(message: str) -> None:
    with pytest.raises(PromptgraftError) as caught:
        REFUSED[message]()
    assert str(caught.value).startswith(message.strip())
    assert "\n" not in str(caught.value)


NEEDED: dict[str, Any] = {
    "build": metrics.exact,
    "labels": ["a", "b"],
    "metrics": [Exact()],
    "expression": "true",
    "expressions": ["true"],
    "function": lambda case, answer: 1.0,
    "limit": 1,
    "schema": {},
    "id": "a",
    "input": "b",
    "title": "a",
    "key": "a",
    "ns": "a",
    "sections": [ROOM],
    "objective": "a",
    "outcome": "b",
    "name": "a",
    "description": "b",
    "params_type": pg.Case,
    "result_type": pg.Case,
}
KINDS = [getattr(metrics, name) for name in metrics.__all__]
FLAGS = [
    (kind, field.name)
    for kind in (*KINDS, pg.Case, pg.MarkdownSection, pg.PromptTemplate, pg.TaskExample, pg.Tool)
    if isinstance(kind, type) and attrs.has(kind) and not inspect.isabstract(kind)
    for field in attrs.fields(kind)
    if field.type in (bool, "bool") and field.init
]


@pytest.mark.parametrize(("kind", "name"), FLAGS)
def test_a_text_is_neither_true_nor_false(kind: Any, name: str) -> None:
    # `required="no"` would mean yes.
    fields = [field for field in attrs.fields(kind) if field.init and field.name != name]
    needed = [field.name for field in fields if field.default is attrs.NOTHING]
    with pytest.raises(ConfigError, match=rf"{name}: expected true or false, found 'no'"):
        kind(**{each: NEEDED[each] for each in needed}, **{name: "no"})


@pytest.mark.parametrize("kind", ["GepaExample", "Dataset", "Splits"])
def test_what_holds_answers_is_no_case(kind: str) -> None:
    # As an object of an unknown class it would be all input, and the model see the label.
    wrong: dict[str, Any] = {
        "GepaExample": EXAMPLES,
        "Dataset": [CASES, CASES],
        "Splits": [pg.Splits.by_ratio(CASES)],
    }
    model = pg.ScriptedAdapter(lambda asked: "floor 1")
    with pytest.raises(
        DataFormatError, match=rf"^cases:1: expected .* a tuple of both, found a {kind}"
    ):
        pg.optimize("Sort.", wrong[kind], lambda case, answer: 1.0, model=model)
    assert model.calls == 0


def test_rows_of_ones_own_classes_and_mappings_are_cases() -> None:
    case = pg.Case(id="a", input={"room": "12"}, fields={"input": "room 1", "expected": "floor 1"})
    [made] = pg.Dataset.of([case.fields])
    assert (made.input, made.expected) == ("room 1", "floor 1")


def test_objects_say_what_they_are() -> None:
    cancelled = pg.Cancellation()
    cancelled.set("enough")
    named = {
        repr(MODEL): f"<OfflineAdapter {MODEL.identity}>",
        repr(pg.ScriptedAdapter(["a"], identity="echo/2")): "<ScriptedAdapter echo/2>",
        repr(pg.MemoryJournal()): "<MemoryJournal 'the journal in memory'>",
        repr(pg.Cancellation()): "<Cancellation>",
        repr(cancelled): "<Cancellation 'enough'>",
    }
    assert list(named) == list(named.values())


def test_a_key_is_in_no_repr() -> None:
    model = pg.OpenAIAdapter("m", api_key="k-secret", headers={"Authorization": "Bearer secret"})
    assert "secret" not in f"{model!r} {pg.OptimizationContext(model)!r}"


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"^config: expected settings such as a GepaConfig, found"
    ):
        ANY.GepaOptimizer(pg.OptimizationContext(MODEL), {"rollout_budget": 3})
