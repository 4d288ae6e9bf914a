"""Task example overrides take their path from the key that they are filed under."""

from __future__ import annotations

import pytest

from promptgraft import (
    InMemoryPromptOverridesStore,
    Prompt,
    PromptOverride,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
    hash_task_example,
)
from promptgraft.errors import InvalidOverrideError
from promptgraft.overrides import TaskExampleOverride

EXAMPLE = TaskExample(key="first", objective="Greet Ann.", steps=(), outcome="Hello Ann")
PATH = ("examples", "first")


def override(**fields: object) -> PromptOverride:
    entry = TaskExampleOverride(expected_hash=hash_task_example(EXAMPLE), **fields)  # type: ignore[arg-type]
    return PromptOverride("docs", "greeting", "latest", task_example_overrides={PATH: entry})


def test_an_override_without_a_path_is_that_of_its_key() -> None:
    found = override(objective="Greet Bea.")
    assert found == override(path=PATH, objective="Greet Bea.")
    [entry] = found.entries()
    assert (entry.key, entry.part) == (PATH, "task example examples/first")
    assert PromptOverride.from_json(found.to_json()) == found


def test_it_is_applied() -> None:
    section = TaskExamplesSection(title="Examples", key="examples", examples=(EXAMPLE,))
    template = PromptTemplate[object](ns="docs", key="greeting", sections=[section])
    store = InMemoryPromptOverridesStore()
    store.upsert(template.descriptor, override(objective="Greet Bea."))
    text = Prompt(template, overrides_store=store).render().text
    assert "Greet Bea." in text
    assert "Greet Ann." not in text


def test_another_path_than_the_key_is_refused() -> None:
    with pytest.raises(InvalidOverrideError, match="is filed under"):
        override(path=("examples", "other"))
