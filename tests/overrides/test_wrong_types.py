"""Arguments of the wrong type are refused as such, in whatever call and whichever argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent_world import TEMPLATE
from promptgraft import InMemoryPromptOverridesStore, Prompt, PromptOverride
from promptgraft.errors import InvalidOverrideError, PromptgraftError
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import (
    SectionOverride,
    TaskExampleOverride,
    TaskStepOverride,
    ToolOverride,
)

PROMPT = Prompt(TEMPLATE)
FIRST = ("examples", "first")
CALLS: Mapping[str, Mapping[str, Any]] = {
    "set_section_override": {"path": ("rules",), "body": "Be brief."},
    "set_summary_override": {"path": ("notes",), "summary": "Notes."},
    "set_visibility_override": {"path": ("rules",), "visibility": "hidden"},
    "set_tool_override": {
        "name": "search_code",
        "description": "Search.",
        "param_descriptions": {"query": "Words."},
    },
    "set_tool_example_override": {
        "tool_name": "search_code",
        "example_index": 0,
        "description": "Find it.",
        "input_json": '{"query": "it"}',
        "output_json": '"b.py:2"',
    },
    "set_task_example_override": {
        "path": FIRST,
        "objective": "Find it.",
        "outcome_json": '{"severity": "low"}',
        "step_overrides": {0: TaskStepOverride(0, description="Look.")},
    },
    "add_task_example": {
        "container_path": ("examples",),
        "key": "second",
        "objective": "Find it.",
        "outcome_json": '{"severity": "low"}',
        "steps_json": "[]",
    },
    "remove_task_example": {"path": FIRST},
    "set_output_field_override": {
        "field": "Finding.severity",
        "description": "How bad.",
        "aliases": ("level",),
        "value_descriptions": {"high": "Bad."},
    },
}
WRONG: tuple[object, ...] = (
    None,
    3,
    3.5,
    True,
    "x",
    b"x",
    [],
    {},
    ("x",),
    [("x", "y")],
    {"x": 3},
    object(),
)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_an_argument_or_refuses_it(name: str) -> None:
    given = CALLS[name]
    getattr(InMemoryPromptOverridesStore(), name)(PROMPT, **given)
    for argument in given:
        for value in WRONG:
            store = InMemoryPromptOverridesStore()
            try:
                override = getattr(store, name)(PROMPT, **{**given, argument: value})
            except PromptgraftError:
                assert store.resolve(PROMPT.descriptor) is None
            else:
                assert PromptOverride.from_json(override.to_json()) == override


HASH = HexDigest("a" * 64)
TOOL = ToolOverride(name="a", expected_hash=HASH, description="Search.")
LISTED = SectionOverride(path=["rules"], expected_hash=HASH, body="x")  # type: ignore[arg-type]
UNNAMED = ToolOverride(name=["look"], expected_hash=HASH)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TaskExampleOverride(HASH, step_overrides=[TaskStepOverride(0)]),  # type: ignore[arg-type]
            "expected a mapping of TaskStepOverride by step index, found [",
        ),
        (
            lambda: TaskExampleOverride(HASH, step_overrides={0: {"description": "x"}}),  # type: ignore[dict-item]
            "step_overrides: expected a TaskStepOverride by step index, found {'description': 'x'}",
        ),
        (
            lambda: ToolOverride(name="a", expected_hash=HASH, param_descriptions=["x"]),  # type: ignore[arg-type]
            "expected a mapping of texts by name, found ['x']",
        ),
        (
            lambda: PromptOverride("a", "b", "c", None),  # type: ignore[arg-type]
            "sections: expected a mapping by key, found None",
        ),
        (
            lambda: PromptOverride("a", "b", "c", {"a": TOOL}),  # type: ignore[dict-item]
            "sections: expected overrides of its kind, found a ToolOverride",
        ),
        (
            lambda: PromptOverride("a", "b", "c", task_example_overrides={("a",): TOOL}),  # type: ignore[dict-item]
            "task_example_overrides: expected overrides of its kind, found a ToolOverride",
        ),
        (
            lambda: PromptOverride("a", "b", "c", {("rules",): "Be brief."}),  # type: ignore[dict-item]
            "sections: expected overrides of its kind, found a str",
        ),
        (
            lambda: PromptOverride("a", "b", "c", {("rules",): LISTED}),
            "path: expected a tuple of section keys such as ('policies', 'refunds'), found ['rules",
        ),
        (
            lambda: PromptOverride("a", "b", "c", tool_overrides={"look": UNNAMED}),
            "tool: expected the name of one, found ['look']",
        ),
    ],
)
def test_an_override_says_what_it_holds(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidOverrideError) as refusal:
        make()
    assert str(refusal.value).startswith(message)
