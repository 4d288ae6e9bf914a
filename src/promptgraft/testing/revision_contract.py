"""The contract of stores with history, in addition to that of all stores."""

# ruff: noqa: S101 - a suite asserts

from __future__ import annotations

import itertools

import pytest

from promptgraft.errors import (
    InvalidIdentifierError,
    InvalidOverrideError,
    OverrideConflictError,
    RevisionNotFoundError,
)
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.overrides import OverrideAddress, Provenance, Revision
from promptgraft.overrides.revisioned import RevisionedStore as Store
from promptgraft.testing.prompts import (
    JUDGE,
    PROMPT,
    RULES,
    TASK,
    TONE,
    WRITER,
    bodies,
    entry,
    forget,
    override_of,
    set_all,
)
from promptgraft.testing.store_contract import PromptOverridesStoreContract


def history_of(store: Store) -> tuple[Revision, ...]:
    """Return the history of the suite's tag, and check its invariants."""
    history = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert [revision.number for revision in history] == list(range(1, len(history) + 1))
    ids = [revision.id for revision in history]
    assert len(set(ids)) == len(ids)
    for index, revision in enumerate(history):
        assert revision.parent is None or revision.parent in ids[:index]
        # With its zone, because several machines may write to one store.
        assert revision.time.utcoffset() is not None
    current = store.current(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert current is None or current in history
    assert store.resolve(PROMPT.descriptor) == (current and current.override)
    return history


def current_of(store: Store) -> Revision:
    """Return the current revision of the suite's tag, which must exist."""
    current = store.current(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert current is not None
    return current


def written(store: Store, *words: str) -> tuple[Revision, ...]:
    """Write each word as a revision of its own and return these."""
    revisions = []
    for word in words:
        store.set_section_override(PROMPT, path=TONE, body=word)
        revisions.append(current_of(store))
    return tuple(revisions)


def roll_back(store: Store, revision: str | None = None) -> Revision | None:
    """Roll the suite's tag back."""
    return store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key, revision=revision)


class RevisionedStoreContract(PromptOverridesStoreContract):
    """The promises of ``RevisionedStore``."""

    def make_store(self) -> Store:
        """Return a store without overrides and without history."""
        raise NotImplementedError("supply make_store(), or override the fixture `store`")

    def test_without_a_write_there_is_no_history(self, store: Store) -> None:
        assert history_of(store) == ()
        assert store.current(ns=PROMPT.ns, prompt_key=PROMPT.key) is None

    def test_each_write_is_a_revision(self, store: Store) -> None:
        provenance = Provenance(
            run_id="run-7", note="läuft", scores=FrozenMap({"baseline": 0.25, "best": 1})
        )
        store.set_section_override(PROMPT, path=TONE, body="one")
        two = override_of(PROMPT, entry(PROMPT, RULES, "two"))
        store.upsert(PROMPT.descriptor, two, provenance=provenance)
        store.seed(PROMPT)
        forget(store, TASK)

        first, second, third, fourth = history_of(store)
        assert bodies(first.override) == {TONE: "one"}
        assert bodies(second.override) == {TONE: "one", RULES: "two"}
        assert set(bodies(third.override)) == {TASK, RULES, TONE}
        assert set(bodies(fourth.override)) == {RULES, TONE}
        parents = [revision.parent for revision in (second, third, fourth)]
        assert first.parent is None
        assert parents == [first.id, second.id, third.id]
        assert second.provenance == provenance
        assert fourth.provenance == Provenance()
        assert current_of(store) == fourth

    def test_a_write_of_several_prompts_is_a_revision_of_each_with_a_common_step(
        self, store: Store
    ) -> None:
        (first,) = written(store, "one")
        provenance = Provenance(run_id="run-7")
        prompts = (PROMPT, WRITER, JUDGE)
        store.upsert_all(
            [
                (prompt.descriptor, override_of(prompt, entry(prompt, TONE, "two")))
                for prompt in prompts
            ],
            provenance=provenance,
        )
        (third,) = written(store, "three")

        second = history_of(store)[1]
        assert history_of(store) == (first, second, third)
        assert second.step is not None
        assert first.step is third.step is None
        for prompt in (WRITER, JUDGE):
            (only,) = store.history(ns=prompt.ns, prompt_key=prompt.key)
            assert (only.number, only.parent, only.step) == (1, None, second.step)
            assert only.provenance == second.provenance == provenance
        set_all(store, WRITER, JUDGE, path=TONE, body="two again")
        again = store.current(ns=WRITER.ns, prompt_key=WRITER.key)
        assert again is not None
        assert again.step not in {None, second.step}

    def test_of_several_prompts_only_those_that_change_get_a_revision(self, store: Store) -> None:
        (first,) = written(store, "same")
        set_all(store, PROMPT, WRITER, path=TONE, body="same")

        assert history_of(store) == (first,)
        (only,) = store.history(ns=WRITER.ns, prompt_key=WRITER.key)
        assert only.step is None

    def test_a_rollback_of_one_prompt_leaves_the_others_of_its_step(self, store: Store) -> None:
        set_all(store, PROMPT, WRITER, path=TONE, body="both")
        assert roll_back(store) is None

        assert bodies(store.resolve(WRITER.descriptor)) == {TONE: "both"}
        (revision,) = history_of(store)
        assert roll_back(store, revision.id) == revision

    def test_several_prompts_are_rolled_back_together(self, store: Store) -> None:
        for body in ("first", "second"):
            set_all(store, PROMPT, WRITER, path=TONE, body=body)
        both = [OverrideAddress(one.ns, one.key, "latest") for one in (PROMPT, WRITER)]
        reached = store.rollback_all(dict.fromkeys(both))

        assert [*reached] == both
        for address, revision in reached.items():
            assert revision is not None
            assert revision == store.history(ns=address.ns, prompt_key=address.prompt_key)[0]
            assert store.current(ns=address.ns, prompt_key=address.prompt_key) == revision

    def test_a_rollback_moves_no_tag_that_is_elsewhere_than_expected(self, store: Store) -> None:
        for body in ("first", "second"):
            set_all(store, PROMPT, WRITER, path=TONE, body=body)
        both = [OverrideAddress(one.ns, one.key, "latest") for one in (PROMPT, WRITER)]
        ids = {
            address: revision.id
            for address in both
            if (revision := store.current(ns=address.ns, prompt_key=address.prompt_key))
        }
        for wrong in ("", "0" * 64):
            with pytest.raises(OverrideConflictError):
                store.rollback_all(dict.fromkeys(both), expected={**ids, both[1]: wrong})
        assert [bodies(store.resolve(one.descriptor)) for one in (PROMPT, WRITER)] == [
            {TONE: "second"},
            {TONE: "second"},
        ]

        store.rollback_all(dict.fromkeys(both), expected=ids)
        assert bodies(store.resolve(WRITER.descriptor)) == {TONE: "first"}

    def test_the_addresses_of_what_is_kept_are_sorted(self, store: Store) -> None:
        assert store.addresses() == ()
        set_all(store, WRITER, PROMPT, JUDGE, path=TONE, body="x")
        for tag in ("v1.0", "best"):
            store.set_section_override(PROMPT, tag=tag, path=TONE, body="x")
        store.delete(ns=WRITER.ns, prompt_key=WRITER.key, tag="latest")

        assert store.addresses() == (
            OverrideAddress("tests/judges", "judge", "latest"),
            OverrideAddress("tests/stores", "support", "best"),
            OverrideAddress("tests/stores", "support", "latest"),
            OverrideAddress("tests/stores", "support", "v1.0"),
        )
        assert roll_back(store) is None
        assert OverrideAddress("tests/stores", "support", "latest") not in store.addresses()

    def test_a_write_that_changes_nothing_is_no_revision(self, store: Store) -> None:
        store.seed(PROMPT)
        revision = current_of(store)
        store.seed(PROMPT)
        store.set_section_override(PROMPT, path=TONE, body=PROMPT.section_body(TONE))
        store.upsert(PROMPT.descriptor, revision.override, provenance=Provenance(note="again"))

        assert history_of(store) == (revision,)

    def test_a_refused_write_is_no_revision(self, store: Store) -> None:
        revision = written(store, "one")
        with pytest.raises(InvalidOverrideError, match="lost the placeholder"):
            store.set_section_override(PROMPT, path=TASK, body="lost")

        assert history_of(store) == revision

    def test_removing_the_last_override_is_a_revision_without_entries(self, store: Store) -> None:
        written(store, "one")
        forget(store, TONE)

        assert [bodies(revision.override) for revision in history_of(store)] == [{TONE: "one"}, {}]

    def test_a_rollback_points_the_tag_at_the_parent_and_keeps_every_revision(
        self, store: Store
    ) -> None:
        first, second, third = written(store, "one", "two", "three")

        assert roll_back(store) == second
        assert current_of(store) == second
        assert roll_back(store) == first
        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "one"}
        assert history_of(store) == (first, second, third)

    def test_rolling_back_the_first_revision_leaves_the_tag_without_overrides(
        self, store: Store
    ) -> None:
        revisions = written(store, "one")

        assert roll_back(store) is None
        assert store.resolve(PROMPT.descriptor) is None
        assert history_of(store) == revisions
        with pytest.raises(RevisionNotFoundError):
            roll_back(store)

    def test_a_revision_may_be_named_by_its_id_or_the_start_of_it(self, store: Store) -> None:
        first, second, third = written(store, "one", "two", "three")

        assert roll_back(store, third.id) == third  # where the tag points already
        assert roll_back(store, first.id) == first
        assert roll_back(store, third.id[:16]) == third
        assert roll_back(store, third.id[:12]) == third
        assert roll_back(store, second.id[:8]) == second
        assert history_of(store) == (first, second, third)

    def test_a_write_after_a_rollback_has_a_number_of_its_own_and_the_right_parent(
        self, store: Store
    ) -> None:
        first, second = written(store, "one", "two")
        roll_back(store)
        (third,) = written(store, "three")

        assert (third.number, third.parent) == (3, first.id)
        assert history_of(store) == (first, second, third)
        assert roll_back(store) == first

    def test_a_deleted_tag_keeps_its_history(self, store: Store) -> None:
        first, second = written(store, "one", "two")
        store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")
        assert history_of(store) == (first, second)
        assert roll_back(store, second.id) == second

        store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")
        (third,) = written(store, "three")
        assert (third.number, third.parent) == (3, None)
        assert history_of(store) == (first, second, third)

    @pytest.mark.parametrize("bad", ["", "123", "abcg", "A" * 12, "../1234", "0" * 65, "1234\n"])
    def test_what_is_no_revision_is_refused(self, store: Store, bad: str) -> None:
        revisions = written(store, "one", "two")
        with pytest.raises(InvalidIdentifierError, match="revision"):
            roll_back(store, bad)

        assert history_of(store) == revisions
        assert current_of(store) == revisions[-1]

    def test_an_unknown_revision_is_refused(self, store: Store) -> None:
        with pytest.raises(RevisionNotFoundError):
            roll_back(store, "0123456789abcdef")
        revisions = written(store, "one")
        # Differs in the first digit only, so that a store cannot find it by comparing the rest.
        unknown = ("f" if revisions[0].id[0] == "0" else "0") + revisions[0].id[1:]
        for revision in (unknown, unknown[:6], revisions[0].id[:12] + "0" * 20):
            with pytest.raises(RevisionNotFoundError):
                roll_back(store, revision)
        assert current_of(store) == revisions[-1]

    def test_revisions_of_tags_do_not_mix(self, store: Store) -> None:
        (first,) = written(store, "one")
        store.set_section_override(PROMPT, tag="other", path=TONE, body="other")

        assert history_of(store) == (first,)
        (revision,) = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="other")
        assert revision.number == 1
        with pytest.raises(RevisionNotFoundError):
            roll_back(store, revision.id)

    @pytest.mark.parametrize(
        ("provenance", "fault"),
        [
            (Provenance(note="\ud800"), "provenance.note"),
            (Provenance(run_id="\ud800"), "provenance.run_id"),
            (Provenance(scores=FrozenMap({"best": float("nan")})), "best"),
            (Provenance(scores=FrozenMap({"best": 10**400})), "best"),
            (Provenance(scores=FrozenMap({"best": True})), "best"),
        ],
        ids=["note", "run_id", "not a number", "too large", "no number"],
    )
    def test_a_provenance_that_could_not_be_given_back_is_refused(
        self, store: Store, provenance: Provenance, fault: str
    ) -> None:
        override = override_of(PROMPT, entry(PROMPT, TONE, "x"))
        with pytest.raises(InvalidOverrideError, match=fault):
            store.upsert(PROMPT.descriptor, override, provenance=provenance)
        assert history_of(store) == ()

    def test_bad_addresses_have_no_history(self, store: Store) -> None:
        for ns, key, tag in itertools.product(("a", "../a"), ("b", "../b"), ("c", "../c")):
            if (ns, key, tag) != ("a", "b", "c"):
                with pytest.raises(InvalidIdentifierError):
                    store.history(ns=ns, prompt_key=key, tag=tag)
                with pytest.raises(InvalidIdentifierError):
                    store.current(ns=ns, prompt_key=key, tag=tag)
                with pytest.raises(InvalidIdentifierError):
                    store.rollback(ns=ns, prompt_key=key, tag=tag)
