"""Stores that are not derived from ours: checked before the first call, used as far as is safe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from optimizers.worlds import PROMPT, Run, config, optimize
from promptgraft.errors import (
    ConfigError,
    InvalidOverrideError,
    StoreError,
    WinnerNotStoredError,
)
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    OverlayPromptOverridesStore,
    PromptDescriptor,
    PromptOverride,
)
from promptgraft.overrides.winner_store import winner_store
from promptgraft.runtime import EventBus
from promptgraft.search.events import RunStarted
from targets import team


class ReadOnly:
    """A store that can only be read."""

    def __init__(self) -> None:
        self.kept = InMemoryPromptOverridesStore()

    def resolve(self, descriptor: PromptDescriptor, tag: str = "latest") -> PromptOverride | None:
        return self.kept.resolve(descriptor, tag)


class Small(ReadOnly):
    """A store as the specification of the core lists it: `upsert` without provenance."""

    def upsert(self, descriptor: PromptDescriptor, override: PromptOverride) -> PromptOverride:
        return self.kept.upsert(descriptor, override)


class Outdated(Small):
    """A store whose `upsert_all` takes nothing back."""

    def upsert_all(self, overrides: Any, *, provenance: Any = None, expected: Any = None) -> Any:
        return self.kept.upsert_all(overrides, provenance=provenance, expected=expected)


def test_a_store_with_upsert_alone_keeps_the_winner_of_one_prompt_and_a_warning_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Small()
    with caplog.at_level(logging.WARNING):
        result = optimize(overrides_store=store)
    assert result.persisted
    assert store.resolve(PROMPT.descriptor) == result.best_override
    assert "`Small` has no `upsert_all`; the winner will be written with `upsert`" in caplog.text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (ReadOnly, "`ReadOnly` cannot store a winner: it has neither `upsert_all` nor `upsert`"),
        (Outdated, "`upsert_all` of `Outdated` takes no `removed`"),
    ],
)
def test_a_store_that_cannot_take_a_winner_is_refused_before_the_first_call(
    make: Callable[[], Any], message: str
) -> None:
    run = Run(overrides_store=make())
    with pytest.raises(ConfigError, match=message) as caught:
        run.start()
    assert "BasePromptOverridesStore" in str(caught.value)
    assert "`persist=False`" in str(caught.value)
    assert len(run.task.requests) == 0


def test_a_store_that_can_only_be_read_serves_a_run_that_writes_nothing() -> None:
    result = optimize(config(persist=False), overrides_store=ReadOnly())
    assert result.found_better
    assert not result.persisted


def test_several_prompts_need_one_write_for_all_of_them() -> None:
    with pytest.raises(ConfigError, match="`upsert_all`, which writes the winner of 2 prompts"):
        team.job(overrides_store=Small()).run()


def test_what_another_writer_changed_meanwhile_is_not_overwritten() -> None:
    store, bus = Small(), EventBus()

    def write(_: RunStarted) -> None:
        store.kept.set_section_override(PROMPT, path=("rules",), body="Theirs")

    bus.subscribe(RunStarted, write)
    with pytest.raises(WinnerNotStoredError, match="section rules: another writer"):
        optimize(overrides_store=store, event_bus=bus)
    kept = store.resolve(PROMPT.descriptor)
    assert kept is not None
    assert [entry.body for entry in kept.sections.values()] == ["Theirs"]


def test_what_only_a_removal_takes_back_is_not_left_beside_a_later_winner() -> None:
    store: Any = Small()
    earlier = store.kept.set_section_override(PROMPT, path=("notes",), body="Earlier")
    later = InMemoryPromptOverridesStore().set_section_override(PROMPT, path=("rules",), body="R")
    written = [(PROMPT.descriptor, later)]
    with pytest.raises(StoreError, match=r"left \(section notes\); delete the tag `latest`, then"):
        winner_store(store, prompts=1).upsert_all(written, expected=[earlier], removed=[earlier])
    assert store.resolve(PROMPT.descriptor) == earlier


def test_a_resumed_run_replaces_the_winner_that_it_has_stored_itself() -> None:
    store, journal = Small(), MemoryJournal()
    assert optimize(config(rollout_budget=60), overrides_store=store, journal=journal).persisted
    result = optimize(config(rollout_budget=300), overrides_store=store, journal=journal)
    assert result.persisted
    assert store.resolve(PROMPT.descriptor) == result.best_override


@pytest.mark.parametrize("make", [Small, ReadOnly])
def test_an_overlay_takes_such_a_store_only_as_its_base(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidOverrideError, match=r"overlay: expected .* found <.*any store may"):
        OverlayPromptOverridesStore(base=None, overlay=make())
    store = make()
    store.kept.set_section_override(PROMPT, path=("rules",), body="Below")
    above = OverlayPromptOverridesStore(base=store, overlay=())
    assert above.resolve(PROMPT.descriptor) == store.resolve(PROMPT.descriptor)
