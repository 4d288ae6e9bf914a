"""A task example that a store has added: set and hidden as if the source had it."""

from __future__ import annotations

import types
from pathlib import Path

import attrs
import pytest

from agent_prompts import ADDRESS, LEAK, LEAK_STEP, SOURCE, Source, add_leak, fields_class
from promptgraft.errors import DataFormatError, InvalidOverrideError, UnknownPartError
from promptgraft.overrides import (
    BasePromptOverridesStore,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OverlayPromptOverridesStore,
    TaskStepOverride,
    diff_override,
)
from promptgraft.prompt import Prompt, PromptTemplate

PROMPT = SOURCE.prompt()
HIDDEN = f"removed task example {'/'.join(LEAK)}"


def leak(store: BasePromptOverridesStore, source: Source = SOURCE) -> str | None:
    """Return what a model is shown of the example that was added; None for nothing."""
    rendered = source.prompt(store).render()
    return next((found.text for found in rendered.sections if found.path == LEAK), None)


@pytest.fixture
def base() -> InMemoryPromptOverridesStore:
    store = InMemoryPromptOverridesStore()
    add_leak(store, PROMPT)
    return store


@pytest.fixture(params=["the same store", "an overlay in memory", "an overlay on disk"])
def store(
    request: pytest.FixtureRequest, base: InMemoryPromptOverridesStore, tmp_path: Path
) -> BasePromptOverridesStore:
    if request.param == "the same store":
        return base
    local = request.param == "an overlay on disk"
    above = LocalPromptOverridesStore(tmp_path) if local else InMemoryPromptOverridesStore()
    return OverlayPromptOverridesStore(base=base, overlay=above)


def test_it_is_set_field_by_field(store: BasePromptOverridesStore) -> None:
    before = leak(store)
    assert before is not None
    store.set_task_example_override(PROMPT, path=LEAK, objective="Find a password.")
    changed = leak(store)
    assert changed is not None
    assert changed.splitlines()[1:] == before.splitlines()[1:]
    assert changed.startswith("Objective: Find a password.")

    step = TaskStepOverride(step_index=0, description="Look for passwords.")
    store.set_task_example_override(PROMPT, path=LEAK, step_overrides={0: step})
    assert leak(store) == changed.replace("Look for keys.", "Look for passwords.")

    store.set_task_example_override(PROMPT, path=LEAK, steps_json=f"[{LEAK_STEP}, {LEAK_STEP}]")
    assert "Look for keys." in str(leak(store))
    store.set_task_example_override(PROMPT, path=LEAK, outcome_json='{"severity": "low"}')
    assert '"low"' in str(leak(store)).splitlines()[-1]


def test_what_does_not_fit_it_is_refused(store: BasePromptOverridesStore) -> None:
    before = leak(store)
    far = TaskStepOverride(step_index=7, description="x")
    with pytest.raises(InvalidOverrideError, match=r"step 7: expected the index of one of 1 steps"):
        store.set_task_example_override(PROMPT, path=LEAK, step_overrides={7: far})
    with pytest.raises(InvalidOverrideError, match="replaces nothing"):
        store.set_task_example_override(PROMPT, path=LEAK)
    with pytest.raises(InvalidOverrideError, match="outcome"):
        store.set_task_example_override(PROMPT, path=LEAK, outcome_json='"a text"')
    assert leak(store) == before


def test_it_is_hidden_and_added_again(store: BasePromptOverridesStore) -> None:
    store.remove_task_example(PROMPT, path=LEAK)
    assert leak(store) is None
    rendered = SOURCE.prompt(store).render()
    assert [found for found in rendered.applied if found.part.startswith("added")] == []
    assert rendered.skipped == ()
    with pytest.raises(UnknownPartError):
        store.remove_task_example(PROMPT, path=LEAK)
    add_leak(store, PROMPT)
    assert leak(store) is not None
    store.remove_task_example(PROMPT, path=LEAK)
    assert leak(store) is None


def over(
    base: InMemoryPromptOverridesStore,
) -> tuple[OverlayPromptOverridesStore, InMemoryPromptOverridesStore]:
    above = InMemoryPromptOverridesStore()
    return OverlayPromptOverridesStore(base=base, overlay=above), above


def test_an_overlay_leaves_the_store_below_as_it_is(base: InMemoryPromptOverridesStore) -> None:
    both, above = over(base)
    before = base.resolve(PROMPT.descriptor)
    both.set_task_example_override(PROMPT, path=LEAK, objective="Another.")
    both.remove_task_example(PROMPT, path=LEAK)
    assert leak(both) is None
    assert base.resolve(PROMPT.descriptor) == before
    kept = above.resolve(PROMPT.descriptor)
    assert kept is not None
    assert [entry.part for entry in kept.entries()] == [HIDDEN]
    assert [part.part for part in diff_override(PROMPT, kept)] == [HIDDEN]
    both.remove_override(ns=ADDRESS.ns, prompt_key=ADDRESS.prompt_key, part=HIDDEN)
    assert leak(both) == leak(base)


def test_a_third_store_shows_what_the_second_one_hides(
    base: InMemoryPromptOverridesStore,
) -> None:
    both, _ = over(base)
    both.remove_task_example(PROMPT, path=LEAK)
    third = OverlayPromptOverridesStore(base=both, overlay=InMemoryPromptOverridesStore())
    assert leak(third) is None
    add_leak(third, PROMPT)
    assert leak(third) is not None
    assert leak(both) is None


def test_what_hides_an_addition_for_other_types_does_not_hide_one_for_these(
    base: InMemoryPromptOverridesStore,
) -> None:
    both, _ = over(base)
    both.remove_task_example(PROMPT, path=LEAK)
    wider = fields_class("Hit", file=(str | None, attrs.NOTHING), line=(int, attrs.NOTHING))
    hits = fields_class("Hits", hits=(types.GenericAlias(tuple, (wider, ...)), ()))
    changed = Source(hit_type=wider, hits_type=hits)
    assert leak(both, changed) is None
    add_leak(base, changed.prompt())
    assert leak(both, changed) is not None
    assert leak(both) is None


def test_a_bare_text_as_outcome_is_told_to_stand_in_quotation_marks() -> None:
    plain = Prompt(PromptTemplate[object](ns="a", key="b", sections=()))
    with pytest.raises(DataFormatError, match='a text is JSON only in quotation marks: write "'):
        plain.descriptor.checked_outcome("It is fine.", where="task example a")
    assert plain.descriptor.checked_outcome('"It is fine."', where="a") == '"It is fine."'
