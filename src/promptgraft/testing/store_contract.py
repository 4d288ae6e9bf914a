"""The contract of override stores, as a test suite for your own.

A suite is a class; subclass it, name the subclass ``Test...`` and supply ``make_store``, a method
that returns an empty store. For a store that needs a fixture, override the fixture ``store``:

.. code-block:: python

    class TestSqlStore(PromptOverridesStoreContract):
        @pytest.fixture
        def store(self, database: Database) -> SqlStore:
            return SqlStore(database)
"""

# ruff: noqa: S101 - a suite is many small methods that assert

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import attrs
import pytest

from promptgraft.errors import HashMismatchError, InvalidOverrideError, UnknownPartError
from promptgraft.overrides.parts.descriptors import PromptDescriptor, SectionPath
from promptgraft.overrides.parts.entry import SkipReason
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.overrides.store import PromptOverridesStore as Store
from promptgraft.overrides.types import PromptOverride
from promptgraft.testing.prompts import (
    PROMPT,
    RULES,
    TASK,
    TONE,
    FakePrompt,
    bodies,
    entry,
    forget,
    override_of,
)
from promptgraft.testing.store_writes import StoreWrites


class PromptOverridesStoreContract(StoreWrites):
    """The promises of ``PromptOverridesStore``; each test begins with an empty store."""

    # Reading and writing

    def test_nothing_is_resolved_where_nothing_was_written(self, store: Store) -> None:
        assert store.resolve(PROMPT.descriptor) is None
        assert store.resolve(PROMPT.descriptor, "other") is None

    def test_what_is_set_is_resolved(self, store: Store) -> None:
        body = 'Über $question\r\n\t"quoted" \\ \u2028 \x00 🙂 {{ x }} $$ $9'
        returned = store.set_section_override(PROMPT, path=TASK, body=body)

        expected = override_of(PROMPT, entry(PROMPT, TASK, body))
        assert store.resolve(PROMPT.descriptor) == expected
        assert returned == expected

    def test_the_empty_text_is_an_override(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=TONE, body="")

        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: ""}

    def test_setting_a_section_again_replaces_it(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=TONE, body="Be brief.")
        store.set_section_override(PROMPT, path=TONE, body="Be gentle.")

        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "Be gentle."}

    def test_an_upsert_replaces_its_entries_and_keeps_the_others(self, store: Store) -> None:
        old = override_of(PROMPT, entry(PROMPT, RULES, "old"), entry(PROMPT, TONE, "kept"))
        new = override_of(PROMPT, entry(PROMPT, RULES, "new"), entry(PROMPT, TASK, "$question"))
        store.upsert(PROMPT.descriptor, old)
        returned = store.upsert(PROMPT.descriptor, new)

        expected = {RULES: "new", TONE: "kept", TASK: "$question"}
        assert bodies(store.resolve(PROMPT.descriptor)) == expected
        assert bodies(returned) == expected

    def test_an_upsert_without_entries_changes_nothing(self, store: Store) -> None:
        store.upsert(PROMPT.descriptor, override_of(PROMPT))
        assert store.resolve(PROMPT.descriptor) is None

        before = store.set_section_override(PROMPT, path=TONE, body="kept")
        store.upsert(PROMPT.descriptor, override_of(PROMPT))
        assert store.resolve(PROMPT.descriptor) == before

    def test_tags_do_not_mix(self, store: Store) -> None:
        # The last one is how a store of files might name the first.
        for tag in ("latest", "v1.0", "latest.json"):
            store.set_section_override(PROMPT, tag=tag, path=TONE, body=f"for {tag}")
        forget(store, TONE, tag="v1.0")

        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "for latest"}
        assert bodies(store.resolve(PROMPT.descriptor, "v1.0")) == {}
        assert bodies(store.resolve(PROMPT.descriptor, "latest.json")) == {TONE: "for latest.json"}

    def test_prompts_do_not_mix(self, store: Store) -> None:
        # Names that a store might join to the same path or key.
        names = [("a", "b"), ("a/b", "c"), ("a", "c"), ("a/b/c", "latest"), ("a-b", "c")]
        prompts = [attrs.evolve(PROMPT, ns=ns, key=key) for ns, key in names]
        for prompt in prompts:
            store.set_section_override(prompt, path=TONE, body=f"{prompt.ns}:{prompt.key}")

        for prompt in prompts:
            bodies_found = bodies(store.resolve(prompt.descriptor))
            assert bodies_found == {TONE: f"{prompt.ns}:{prompt.key}"}

    # Sources that change

    def test_an_override_of_a_changed_source_is_returned_and_does_not_apply(
        self, store: Store
    ) -> None:
        override = store.set_section_override(PROMPT, path=TONE, body="kept")
        changed = PROMPT.edited(TONE, "Be kinder.")

        assert store.resolve(changed.descriptor) == override
        resolution = resolve_override(changed.descriptor, store.resolve(changed.descriptor))
        assert resolution.sections == {}
        assert [skipped.reason for skipped in resolution.skipped] == [SkipReason.STALE]

    def test_stale_entries_stay_when_their_neighbours_are_written(self, store: Store) -> None:
        old = entry(PROMPT, TONE, "stale"), entry(PROMPT, RULES, "gone")
        store.upsert(PROMPT.descriptor, override_of(PROMPT, *old))
        changed = PROMPT.edited(TONE, "Be kinder.").without(RULES)
        store.set_section_override(changed, path=TASK, body="$question")

        expected = override_of(PROMPT, *old, entry(PROMPT, TASK, "$question"))
        assert store.resolve(changed.descriptor) == expected

    def test_a_stale_entry_may_be_carried_unchanged_and_not_otherwise(self, store: Store) -> None:
        stale = entry(PROMPT, TONE, "stale")
        store.upsert(PROMPT.descriptor, override_of(PROMPT, stale))
        changed = PROMPT.edited(TONE, "Be kinder.")
        carried = override_of(changed, stale, entry(changed, RULES, "new"))
        store.upsert(changed.descriptor, carried)
        assert store.resolve(changed.descriptor) == carried

        changed_override = override_of(changed, attrs.evolve(stale, body="other"))
        with pytest.raises(HashMismatchError, match="tone"):
            store.upsert(changed.descriptor, changed_override)
        assert store.resolve(changed.descriptor) == carried

    def test_a_stale_override_is_replaced_by_a_fresh_one(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=TONE, body="stale")
        changed = PROMPT.edited(TONE, "Be kinder.")
        store.set_section_override(changed, path=TONE, body="fresh")

        expected = override_of(changed, entry(changed, TONE, "fresh"))
        assert store.resolve(changed.descriptor) == expected

    # Removing

    def test_a_removed_override_is_gone_and_its_neighbours_stay(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=TONE, body="removed")
        store.set_section_override(PROMPT, path=RULES, body="kept")
        forget(store, TONE)

        assert bodies(store.resolve(PROMPT.descriptor)) == {RULES: "kept"}

    def test_removing_what_is_not_kept_is_refused(self, store: Store) -> None:
        with pytest.raises(UnknownPartError, match="tone"):
            forget(store, TONE)
        before = store.set_section_override(PROMPT, path=RULES, body="kept")
        with pytest.raises(UnknownPartError, match="task/rules"):
            forget(store, TONE)

        assert store.resolve(PROMPT.descriptor) == before

    def test_a_deleted_tag_holds_nothing_and_may_be_written_again(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=TONE, body="deleted")
        store.set_section_override(PROMPT, tag="other", path=TONE, body="kept")
        store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag=DEFAULT_TAG)
        assert store.resolve(PROMPT.descriptor) is None
        assert bodies(store.resolve(PROMPT.descriptor, "other")) == {TONE: "kept"}

        store.set_section_override(PROMPT, path=RULES, body="new")
        assert bodies(store.resolve(PROMPT.descriptor)) == {RULES: "new"}

    def test_deleting_nothing_is_no_error(self, store: Store) -> None:
        store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag=DEFAULT_TAG)
        store.set_section_override(PROMPT, path=TONE, body="x")
        store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="other")
        store.delete(ns=PROMPT.ns, prompt_key="other", tag=DEFAULT_TAG)

        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "x"}

    # Seeding

    def test_a_seed_renders_like_the_source(self, store: Store) -> None:
        returned = store.seed(PROMPT)

        seeded = store.resolve(PROMPT.descriptor)
        assert returned == seeded
        assert set(bodies(seeded)) == {TASK, RULES, TONE}
        resolution = resolve_override(PROMPT.descriptor, seeded)
        assert resolution.skipped == ()
        for path, section in resolution.sections.items():
            assert section.body == PROMPT.section_body(path)

    def test_a_seed_fills_only_what_is_missing_or_stale(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=TONE, body="stale")
        store.set_section_override(PROMPT, path=RULES, body="fresh")
        changed = PROMPT.edited(TONE, "Be kinder.")
        store.seed(changed)

        assert bodies(store.resolve(changed.descriptor)) == {
            TASK: PROMPT.section_body(TASK),
            RULES: "fresh",
            TONE: "Be kinder.",
        }

    def test_a_source_that_no_body_may_be_is_not_seeded(self, store: Store) -> None:
        for source in ("lone \ud800", "x" * (MAX_BODY_CHARS + 1)):
            with pytest.raises(InvalidOverrideError, match="tone"):
                store.seed(PROMPT.edited(TONE, source))
        assert store.resolve(PROMPT.descriptor) is None

    # Several threads

    def test_threads_that_write_at_once_lose_nothing(self, store: Store) -> None:
        writers, each = 8, 5
        paths = [(f"s{writer}-{index}",) for writer in range(writers) for index in range(each)]
        prompt = FakePrompt(bodies=dict.fromkeys(paths, "source"))
        begin = threading.Barrier(writers)

        def write(writer: int) -> None:
            begin.wait()
            for path in paths[writer * each : (writer + 1) * each]:
                store.set_section_override(prompt, path=path, body=f"by {path[0]}")

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        expected = {path: f"by {path[0]}" for path in paths}
        assert bodies(store.resolve(prompt.descriptor)) == expected

    def test_a_write_in_the_middle_of_another_is_not_lost(self, store: Store) -> None:
        store.set_section_override(PROMPT, path=RULES, body="before")
        begun: list[Future[PromptOverride]] = []

        def interrupt() -> None:
            if not begun:
                body = "in the middle"
                begun.append(pool.submit(store.set_section_override, PROMPT, path=TONE, body=body))
                wait(begun, timeout=0.2)  # a store with a lock does not let it through

        with ThreadPoolExecutor(1) as pool:
            store.seed(_InterruptedPrompt(PROMPT, interrupt))
        assert bodies(store.resolve(PROMPT.descriptor)) == {
            TASK: PROMPT.section_body(TASK),
            RULES: "before",
            TONE: "in the middle",
        }

    def test_readers_never_see_half_a_write(self, store: Store) -> None:
        states = [
            override_of(PROMPT, *(entry(PROMPT, path, word) for path in (RULES, TONE)))
            for word in ("one" * 1000, "two" * 1000)
        ]
        store.upsert(PROMPT.descriptor, states[0])
        written = threading.Event()

        def read() -> int:
            reads = 0
            while not written.is_set():
                assert store.resolve(PROMPT.descriptor) in states
                reads += 1
            return reads

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for count in range(20):
                store.upsert(PROMPT.descriptor, states[count % 2])
            written.set()
            assert all(reader.result() for reader in readers)


class _InterruptedPrompt:
    """A prompt during whose reading something else happens."""

    def __init__(self, prompt: FakePrompt, interrupt: Callable[[], None]) -> None:
        self._prompt = prompt
        self._interrupt = interrupt

    @property
    def descriptor(self) -> PromptDescriptor:
        return self._prompt.descriptor

    def section_body(self, path: SectionPath) -> str:
        self._interrupt()
        return self._prompt.section_body(path)
