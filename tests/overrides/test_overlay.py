"""One store seen through another, when the one below is not empty."""

from __future__ import annotations

import attrs
import pytest

from promptgraft.errors import UnknownPartError
from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    OverlayPromptOverridesStore,
    PromptOverridesStore,
)
from promptgraft.testing.prompts import PROMPT, RULES, TASK, TONE, bodies, entry, override_of


@attrs.frozen
class Stack:
    base: InMemoryPromptOverridesStore
    overlay: InMemoryPromptOverridesStore
    store: OverlayPromptOverridesStore


@pytest.fixture
def stack() -> Stack:
    base, overlay = InMemoryPromptOverridesStore(), InMemoryPromptOverridesStore()
    base.upsert(
        PROMPT.descriptor,
        override_of(PROMPT, entry(PROMPT, TONE, "base"), entry(PROMPT, RULES, "base")),
    )
    return Stack(base, overlay, OverlayPromptOverridesStore(base=base, overlay=overlay))


def seen(store: PromptOverridesStore, tag: str = "latest") -> dict[tuple[str, ...], str]:
    return bodies(store.resolve(PROMPT.descriptor, tag))


def test_what_only_one_store_holds_is_seen(stack: Stack) -> None:
    assert seen(stack.store) == {TONE: "base", RULES: "base"}
    stack.store.set_section_override(PROMPT, tag="other", path=TONE, body="overlay")

    assert seen(stack.store, "other") == {TONE: "overlay"}
    assert seen(stack.store) == {TONE: "base", RULES: "base"}


@pytest.mark.parametrize("several", [False, True])
def test_an_overlay_takes_overrides_in_place_of_a_store(stack: Stack, several: bool) -> None:
    above = override_of(PROMPT, entry(PROMPT, TONE, "overlay"))
    other = attrs.evolve(above, tag="other")
    given = [above, other] if several else above
    store = OverlayPromptOverridesStore(base=stack.base, overlay=given)

    assert seen(store) == {TONE: "overlay", RULES: "base"}
    assert seen(store, "other") == ({TONE: "overlay"} if several else {})
    store.set_section_override(PROMPT, path=RULES, body="overlay")
    assert seen(store) == {TONE: "overlay", RULES: "overlay"}
    assert seen(stack.base) == {TONE: "base", RULES: "base"}


def test_where_both_replace_a_section_the_overlay_wins(stack: Stack) -> None:
    stack.store.set_section_override(PROMPT, path=TONE, body="overlay")

    assert seen(stack.store) == {TONE: "overlay", RULES: "base"}


def test_writes_go_to_the_overlay_only(stack: Stack) -> None:
    before = stack.base.resolve(PROMPT.descriptor)
    stack.store.set_section_override(PROMPT, path=TONE, body="overlay")
    stack.store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TASK, "$question")))
    stack.store.seed(PROMPT)
    stack.store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")

    assert stack.base.resolve(PROMPT.descriptor) == before
    assert stack.overlay.resolve(PROMPT.descriptor) is None


def test_a_stale_entry_above_lets_a_fresh_one_below_through(stack: Stack) -> None:
    stack.store.set_section_override(PROMPT, path=TONE, body="overlay")
    changed = PROMPT.edited(TONE, "Be kinder.")
    stack.base.set_section_override(changed, path=TONE, body="fresh")

    resolved = stack.store.resolve(changed.descriptor)
    assert bodies(resolved) == {TONE: "fresh", RULES: "base"}
    # For the source that it was written for, the overlay wins as before.
    assert seen(stack.store) == {TONE: "overlay", RULES: "base"}


def test_where_both_are_stale_the_overlay_is_reported(stack: Stack) -> None:
    stack.store.set_section_override(PROMPT, path=TONE, body="overlay")
    changed = PROMPT.edited(TONE, "Be kinder.")

    assert bodies(stack.store.resolve(changed.descriptor)) == {TONE: "overlay", RULES: "base"}


def test_removing_and_deleting_uncover_what_is_below(stack: Stack) -> None:
    names = {"ns": PROMPT.ns, "prompt_key": PROMPT.key, "tag": "latest"}
    stack.store.set_section_override(PROMPT, path=TONE, body="overlay")
    stack.store.remove_section_override(**names, path=TONE)
    assert seen(stack.store) == {TONE: "base", RULES: "base"}

    stack.store.set_section_override(PROMPT, path=RULES, body="overlay")
    stack.store.delete(**names)
    assert seen(stack.store) == {TONE: "base", RULES: "base"}


def test_what_only_the_store_below_holds_cannot_be_removed(stack: Stack) -> None:
    with pytest.raises(UnknownPartError, match="keeps no override of `section tone`"):
        stack.store.remove_section_override(ns=PROMPT.ns, prompt_key=PROMPT.key, path=TONE)


def test_a_seed_leaves_alone_what_either_store_holds_fresh(stack: Stack) -> None:
    stack.store.set_section_override(PROMPT, path=RULES, body="overlay")
    stack.store.seed(PROMPT)
    assert seen(stack.overlay) == {RULES: "overlay", TASK: PROMPT.section_body(TASK)}

    changed = PROMPT.edited(TONE, "Be kinder.")
    stack.store.seed(changed)
    assert bodies(stack.store.resolve(changed.descriptor))[TONE] == "Be kinder."


def test_overlays_stack(stack: Stack) -> None:
    top = OverlayPromptOverridesStore(base=stack.store, overlay=InMemoryPromptOverridesStore())
    stack.store.set_section_override(PROMPT, path=TONE, body="middle")
    top.set_section_override(PROMPT, path=TASK, body="$question")

    assert seen(top) == {TASK: "$question", TONE: "middle", RULES: "base"}
