"""Writes that hold only as long as nothing has changed since somebody looked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from agent_prompts import SOURCE
from promptgraft.errors import InvalidOverrideError, OverrideConflictError
from promptgraft.overrides import (
    BasePromptOverridesStore,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OverlayPromptOverridesStore,
)
from promptgraft.testing.prompts import PROMPT, RULES, TONE, bodies, entry, override_of

DESCRIPTOR = PROMPT.descriptor
OURS = [(DESCRIPTOR, override_of(PROMPT, entry(PROMPT, TONE, "ours")))]


def test_the_refusal_names_part_tag_and_prompt() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=TONE, body="theirs")
    with pytest.raises(OverrideConflictError) as caught:
        store.upsert_all(OURS, expected=[None])
    assert str(caught.value) == (
        "section tone: another writer has changed it under tag `latest` of prompt "
        "`tests/stores/support`"
    )


def test_what_was_read_and_deleted_since_is_a_change() -> None:
    store = InMemoryPromptOverridesStore()
    read = store.set_section_override(PROMPT, path=TONE, body="read")
    store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")
    with pytest.raises(OverrideConflictError):
        store.upsert_all(OURS, expected=[read])


def test_what_says_the_same_already_is_no_conflict() -> None:
    store = InMemoryPromptOverridesStore()
    store.upsert_all(OURS, expected=[None])
    store.upsert_all(OURS, expected=[None])
    assert bodies(store.resolve(DESCRIPTOR)) == {TONE: "ours"}


def test_one_expectation_is_needed_for_each_override() -> None:
    with pytest.raises(InvalidOverrideError) as caught:
        InMemoryPromptOverridesStore().upsert_all(OURS, expected=[None, None])
    assert str(caught.value) == "expected: expected one for each of 1 overrides, found 2"


def test_through_an_overlay_a_change_of_the_base_is_a_change_of_what_was_read() -> None:
    base = InMemoryPromptOverridesStore()
    store = OverlayPromptOverridesStore(base=base, overlay=InMemoryPromptOverridesStore())
    base.set_section_override(PROMPT, path=TONE, body="base")
    read = [store.resolve(DESCRIPTOR)]
    base.set_section_override(PROMPT, path=RULES, body="elsewhere")
    store.upsert_all(OURS, expected=read)
    base.set_section_override(PROMPT, path=RULES, body="changed again")
    rules = [(DESCRIPTOR, override_of(PROMPT, entry(PROMPT, RULES, "ours")))]
    with pytest.raises(OverrideConflictError, match="section task/rules"):
        store.upsert_all(rules, expected=read)


@pytest.mark.parametrize("kind", ["in memory", "local", "overlay"])
def test_of_writers_that_read_the_same_only_one_replaces_it(kind: str, tmp_path: Path) -> None:
    store: BasePromptOverridesStore = InMemoryPromptOverridesStore()
    if kind == "local":
        store = LocalPromptOverridesStore(tmp_path)
    elif kind == "overlay":
        store = OverlayPromptOverridesStore(base=None, overlay=store)
    read = [store.set_section_override(PROMPT, path=TONE, body="read")]
    begin = threading.Barrier(6)

    def write(number: int) -> bool:
        begin.wait()
        ours = override_of(PROMPT, entry(PROMPT, TONE, str(number)))
        try:
            store.upsert_all([(DESCRIPTOR, ours)], expected=read)
        except OverrideConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(write, range(6))) == 1


def test_one_set_of_removals_is_needed_for_each_override() -> None:
    with pytest.raises(InvalidOverrideError) as caught:
        InMemoryPromptOverridesStore().upsert_all(OURS, removed=[])
    assert str(caught.value) == "removed: expected one for each of 1 overrides, found 0"


def test_a_removal_through_an_overlay_uncovers_what_the_base_holds() -> None:
    base = InMemoryPromptOverridesStore()
    base.set_section_override(PROMPT, path=RULES, body="base")
    store = OverlayPromptOverridesStore(base=base, overlay=InMemoryPromptOverridesStore())
    above = store.set_section_override(PROMPT, path=RULES, body="above")
    removed = above.holding([above.sections[RULES]])
    store.upsert_all(OURS, removed=[removed])
    assert bodies(store.resolve(DESCRIPTOR)) == {TONE: "ours", RULES: "base"}
    assert bodies(base.resolve(DESCRIPTOR)) == {RULES: "base"}


def test_what_is_said_of_a_tool_is_replaced_when_what_was_said_is_removed() -> None:
    prompt, store = SOURCE.prompt(), InMemoryPromptOverridesStore()
    said = store.set_tool_override(prompt, name="search", description="Old.")
    limit = store.set_tool_override(prompt, name="search", param_descriptions={"limit": "Few."})
    only = attrs.evolve(limit.tool_overrides["search"], description=None)
    (kept,) = store.upsert_all([(prompt.descriptor, said.holding([only]))], removed=[said])
    assert kept == said.holding([only])
