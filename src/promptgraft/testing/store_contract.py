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

from promptgraft.errors import (
    HashMismatchError,
    InvalidIdentifierError,
    InvalidOverrideError,
    OverrideConflictError,
    UnknownPartError,
)
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides.parts.descriptors import PromptDescriptor, SectionPath, hash_section
from promptgraft.overrides.parts.entry import SkipReason
from promptgraft.overrides.parts.replacements import SectionOverride
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.overrides.store import PromptOverridesStore as Store
from promptgraft.overrides.types import PromptOverride
from promptgraft.testing.prompts import (
    JUDGE,
    LICENCE,
    PROMPT,
    RULES,
    TASK,
    TONE,
    WRITER,
    FakePrompt,
    bodies,
    entry,
    forget,
    override_of,
    set_all,
)

# Most would lead out of a folder, or be names that some file system refuses or confuses.
_BAD_KEYS = {
    "parent": "..",
    "absolute": "/etc",
    "NUL": "a\0b",
    "upper case": "Latest",
    "too long": "a" * 65,
    "empty": "",
    "trailing slash": "a/",
    "not ASCII": "späť",
    "hidden": ".lock",
    "backslash": "a\\b",
    # In a regular expression `$` also matches before a final line feed.
    "newline": "latest\n",
    "not text": 7,
}
_BAD_NAMESPACES = {
    **_BAD_KEYS,
    "parent inside": "a/../b",
    "empty part": "a//b",
    "too long": "/".join(["a" * 64] * 4),
}

_bad_keys = pytest.mark.parametrize("bad", _BAD_KEYS.values(), ids=_BAD_KEYS.keys())
_bad_namespaces = pytest.mark.parametrize(
    "bad", _BAD_NAMESPACES.values(), ids=_BAD_NAMESPACES.keys()
)


class StoreWrites:
    """Refused writes, and atomicity: the second half of the contract of stores."""

    def make_store(self) -> Store:
        """Return a store without overrides."""
        raise NotImplementedError("supply make_store(), or override the fixture `store`")

    @pytest.fixture
    def store(self) -> Store:
        """The store under test."""
        return self.make_store()

    def test_an_unknown_section_is_refused(self, store: Store) -> None:
        with pytest.raises(UnknownPartError, match="toen"):
            store.set_section_override(PROMPT, path=("toen",), body="x")

        stranger = SectionOverride(path=("toen",), expected_hash=_hash("x"), body="x")
        with pytest.raises(UnknownPartError, match="toen"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, stranger))
        assert store.resolve(PROMPT.descriptor) is None

    def test_a_section_that_may_not_be_overridden_is_refused(self, store: Store) -> None:
        with pytest.raises(UnknownPartError, match="licence"):
            store.set_section_override(PROMPT, path=LICENCE, body="x")
        with pytest.raises(UnknownPartError, match="licence"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, LICENCE, "x")))
        assert store.resolve(PROMPT.descriptor) is None

    @pytest.mark.parametrize(
        ("body", "fault"),
        [
            pytest.param(7, "expected text", id="not text"),
            pytest.param(None, "expected text", id="None"),
            pytest.param(b"Be kind.", "expected text", id="bytes"),
            pytest.param("lone \ud800", "surrogate", id="lone surrogate"),
            pytest.param("x" * (MAX_BODY_CHARS + 1), f"at most {MAX_BODY_CHARS}", id="too long"),
        ],
    )
    def test_a_body_that_is_no_text_is_refused(self, store: Store, body: str, fault: str) -> None:
        with pytest.raises(InvalidOverrideError, match=fault):
            store.set_section_override(PROMPT, path=TONE, body=body)
        with pytest.raises(InvalidOverrideError, match=fault):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, body)))
        assert store.resolve(PROMPT.descriptor) is None

    def test_a_body_of_the_greatest_length_is_kept(self, store: Store) -> None:
        body = "é" * MAX_BODY_CHARS
        store.set_section_override(PROMPT, path=TONE, body=body)

        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: body}

    @pytest.mark.parametrize("body", ["no marker", "$$question", "$questions", "{{ question }}"])
    def test_a_body_that_lost_a_placeholder_is_refused(self, store: Store, body: str) -> None:
        with pytest.raises(InvalidOverrideError, match=r"lost the placeholder `\$question`"):
            store.set_section_override(PROMPT, path=TASK, body=body)
        with pytest.raises(InvalidOverrideError, match=r"lost the placeholder `\$question`"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TASK, body)))
        assert store.resolve(PROMPT.descriptor) is None

    @pytest.mark.parametrize("path", ["tone", ["tone"], (), ("tone", 1), None], ids=repr)
    def test_a_path_that_is_no_tuple_of_keys_is_refused(
        self, store: Store, path: SectionPath
    ) -> None:
        with pytest.raises(InvalidOverrideError, match="expected a tuple of section keys"):
            store.set_section_override(PROMPT, path=path, body="x")
        with pytest.raises(InvalidOverrideError, match="expected a tuple of section keys"):
            forget(store, path)

    @pytest.mark.parametrize("path", ["tone", (), ("tone", 1), None], ids=repr)
    def test_an_entry_whose_path_is_no_tuple_of_keys_is_refused(
        self, store: Store, path: SectionPath
    ) -> None:
        wrong = SectionOverride(path=path, expected_hash=_hash("x"), body="x")
        with pytest.raises(InvalidOverrideError, match="expected a tuple of section keys"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, wrong))
        assert store.resolve(PROMPT.descriptor) is None

    def test_an_override_for_another_source_is_refused(self, store: Store) -> None:
        changed = PROMPT.edited(TONE, "Be kinder.")
        with pytest.raises(HashMismatchError, match="tone"):
            store.upsert(changed.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "x")))
        assert store.resolve(PROMPT.descriptor) is None

    def test_an_override_for_another_prompt_is_refused(self, store: Store) -> None:
        other_prompt = attrs.evolve(PROMPT, key="billing")
        with pytest.raises(InvalidOverrideError, match="tests/stores/billing"):
            store.upsert(
                PROMPT.descriptor, override_of(other_prompt, entry(other_prompt, TONE, "x"))
            )
        assert store.resolve(other_prompt.descriptor) is None

    def test_nothing_of_an_upsert_that_is_half_valid_is_written(self, store: Store) -> None:
        before = store.set_section_override(PROMPT, path=TONE, body="before")
        half_valid = override_of(
            PROMPT, entry(PROMPT, TONE, "after"), entry(PROMPT, TASK, "lost"), tag=DEFAULT_TAG
        )
        with pytest.raises(InvalidOverrideError, match="lost the placeholder"):
            store.upsert(PROMPT.descriptor, half_valid)

        assert store.resolve(PROMPT.descriptor) == before

    @_bad_keys
    def test_a_bad_tag_is_refused(self, store: Store, bad: str) -> None:
        with pytest.raises(InvalidIdentifierError, match="tag"):
            store.resolve(PROMPT.descriptor, bad)
        _check_refused(store, PROMPT, tag=bad)

    @_bad_keys
    def test_a_bad_prompt_key_is_refused(self, store: Store, bad: str) -> None:
        prompt = attrs.evolve(PROMPT, key=bad)
        with pytest.raises(InvalidIdentifierError, match="prompt key"):
            store.resolve(prompt.descriptor)
        _check_refused(store, prompt, tag=DEFAULT_TAG)

    @_bad_namespaces
    def test_a_bad_namespace_is_refused(self, store: Store, bad: str) -> None:
        prompt = attrs.evolve(PROMPT, ns=bad)
        with pytest.raises(InvalidIdentifierError, match="ns"):
            store.resolve(prompt.descriptor)
        _check_refused(store, prompt, tag=DEFAULT_TAG)

    # Several prompts

    def test_one_write_of_several_prompts_and_tags_keeps_all_of_them(self, store: Store) -> None:
        store.set_section_override(WRITER, path=RULES, body="kept")
        writes = [
            (WRITER.descriptor, override_of(WRITER, entry(WRITER, TONE, "writer"))),
            (PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "support"))),
            (JUDGE.descriptor, override_of(JUDGE)),
            (PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "other"), tag="other")),
        ]
        returned = store.upsert_all(writes)

        expected = [{RULES: "kept", TONE: "writer"}, {TONE: "support"}, {}, {TONE: "other"}]
        assert [bodies(override) for override in returned] == expected
        for (descriptor, override), override_after in zip(writes, expected, strict=True):
            assert bodies(store.resolve(descriptor, override.tag)) == override_after
        assert store.resolve(JUDGE.descriptor) is None
        assert store.upsert_all([]) == ()

    @pytest.mark.parametrize("faulty", [0, 1, 2])
    def test_a_fault_in_one_of_several_prompts_refuses_them_all(
        self, store: Store, faulty: int
    ) -> None:
        prompts = (PROMPT, WRITER, JUDGE)
        before = store.set_section_override(WRITER, path=TONE, body="before")
        changed = prompts[faulty].edited(TONE, "Be kinder.")
        faults: list[tuple[FakePrompt, SectionPath, type[Exception], str]] = [
            (prompts[faulty], LICENCE, UnknownPartError, "licence"),
            (changed, TONE, HashMismatchError, "tone"),
            (prompts[faulty], TASK, InvalidOverrideError, "lost the placeholder"),
        ]
        for source, path, error, fault in faults:
            writes = [
                (prompt.descriptor, override_of(prompt, entry(prompt, RULES, "after")))
                for prompt in prompts
            ]
            wrong = override_of(prompts[faulty], entry(prompts[faulty], path, "after"))
            writes[faulty] = (source.descriptor, wrong)
            with pytest.raises(error, match=fault):
                store.upsert_all(writes)
            assert store.resolve(WRITER.descriptor) == before
            assert store.resolve(PROMPT.descriptor) is None
            assert store.resolve(JUDGE.descriptor) is None

    def test_two_overrides_of_one_prompt_and_tag_are_refused(self, store: Store) -> None:
        with pytest.raises(InvalidOverrideError, match=r"`tests/stores/support`, tag `latest`"):
            set_all(store, PROMPT, WRITER, PROMPT, path=TONE, body="x")
        with pytest.raises(InvalidOverrideError, match="use those of one prompt"):
            store.upsert_all([(PROMPT.descriptor, override_of(WRITER))])
        assert store.resolve(PROMPT.descriptor) is None
        assert store.resolve(WRITER.descriptor) is None

    def test_a_part_that_another_writer_has_changed_since_it_was_read_is_not_replaced(
        self, store: Store
    ) -> None:
        read = [store.resolve(PROMPT.descriptor), store.resolve(WRITER.descriptor)]
        store.set_section_override(WRITER, path=TONE, body="theirs")
        writes = [
            (PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "ours"))),
            (WRITER.descriptor, override_of(WRITER, entry(WRITER, TONE, "ours"))),
        ]
        with pytest.raises(OverrideConflictError, match="section tone: another writer"):
            store.upsert_all(writes, expected=read)
        assert store.resolve(PROMPT.descriptor) is None
        assert bodies(store.resolve(WRITER.descriptor)) == {TONE: "theirs"}

        read = [store.resolve(PROMPT.descriptor), store.resolve(WRITER.descriptor)]
        store.set_section_override(WRITER, path=RULES, body="another part")
        store.upsert_all(writes, expected=read)
        assert bodies(store.resolve(WRITER.descriptor)) == {TONE: "ours", RULES: "another part"}

    def test_parts_are_removed_in_the_write_that_replaces_others(self, store: Store) -> None:
        before = override_of(PROMPT, entry(PROMPT, TONE, "old"), entry(PROMPT, RULES, "kept"))
        store.upsert_all([(PROMPT.descriptor, before), (WRITER.descriptor, override_of(WRITER))])
        gone = override_of(PROMPT, entry(PROMPT, TONE, "old"))
        task = override_of(PROMPT, entry(PROMPT, TASK, "Ask: $question"))
        both = [(PROMPT.descriptor, task), (WRITER.descriptor, override_of(WRITER))]
        lost = [(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TASK, "lost")))]
        with pytest.raises(InvalidOverrideError, match="lost the placeholder"):
            store.upsert_all(lost, removed=[gone])
        assert store.resolve(PROMPT.descriptor) == before

        (override, _) = store.upsert_all(both, removed=[gone, override_of(WRITER)])
        assert bodies(override) == {RULES: "kept", TASK: "Ask: $question"}
        assert store.resolve(PROMPT.descriptor) == override
        store.upsert_all(both, removed=[gone, override_of(WRITER)])
        assert store.resolve(PROMPT.descriptor) == override

    def test_a_part_that_another_writer_has_changed_since_it_was_read_is_not_removed(
        self, store: Store
    ) -> None:
        read = store.set_section_override(PROMPT, path=TONE, body="read")
        nothing = [(PROMPT.descriptor, override_of(PROMPT))]
        store.set_section_override(PROMPT, path=TONE, body="theirs")
        with pytest.raises(OverrideConflictError, match="section tone: another writer"):
            store.upsert_all(nothing, expected=[read], removed=[read])
        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "theirs"}
        forget(store, TONE)
        store.upsert_all(nothing, expected=[read], removed=[read])
        assert bodies(store.resolve(PROMPT.descriptor)) == {}

    def test_what_is_read_of_one_prompt_of_a_write_is_there_of_the_others(
        self, store: Store
    ) -> None:
        prompts = (PROMPT, WRITER, JUDGE)
        set_all(store, *prompts, path=TONE, body="0")
        written = threading.Event()

        def read() -> int:
            reads = 0
            while not written.is_set():
                numbers = [
                    int(bodies(store.resolve(prompt.descriptor))[TONE]) for prompt in prompts
                ]
                # Read one after the other: a later one may be of a newer write, never of an older.
                assert numbers == sorted(numbers)
                prompt = prompts[reads % 3]
                assert numbers[0] <= int(bodies(store.resolve(prompt.descriptor))[TONE])
                reads += 1
            return reads

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for count in range(1, 20):
                set_all(store, *prompts[:: -1 if count % 2 else 1], path=TONE, body=str(count))
            written.set()
            assert all(reader.result() for reader in readers)

    def test_threads_that_write_overlapping_prompts_lose_nothing(self, store: Store) -> None:
        paths = [(f"s{index}",) for index in range(6)]
        a, b, c = (FakePrompt(key=key, bodies=dict.fromkeys(paths, "source")) for key in "abc")
        sets = [(a, b), (b, c), (c, a), (c, b, a), (b,), (a, c, b)]
        begin = threading.Barrier(len(sets))

        def write(number: int) -> None:
            # All at once: threads that start one after the other would hardly ever overlap.
            begin.wait()
            set_all(store, *sets[number], path=paths[number], body="written")

        with ThreadPoolExecutor(len(sets)) as pool:
            list(pool.map(write, range(len(sets))))
        for prompt in (a, b, c):
            expected = {
                path for path, is_expected in zip(paths, sets, strict=True) if prompt in is_expected
            }
            assert set(bodies(store.resolve(prompt.descriptor))) == expected


def _hash(text: str) -> HexDigest:
    return hash_section(text, PROMPT.syntax)


def _check_refused(store: Store, prompt: FakePrompt, *, tag: str) -> None:
    with pytest.raises(InvalidIdentifierError):
        store.set_section_override(prompt, tag=tag, path=TONE, body="x")
    with pytest.raises(InvalidIdentifierError):
        store.upsert(prompt.descriptor, override_of(prompt, entry(prompt, TONE, "x"), tag=tag))
    with pytest.raises(InvalidIdentifierError):
        store.remove_section_override(ns=prompt.ns, prompt_key=prompt.key, tag=tag, path=TONE)
    with pytest.raises(InvalidIdentifierError):
        store.seed(prompt, tag=tag)
    with pytest.raises(InvalidIdentifierError):
        store.delete(ns=prompt.ns, prompt_key=prompt.key, tag=tag)


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

    def as_written(self, path: SectionPath, body: str) -> str:
        return self._prompt.as_written(path, body)
