"""What every override store refuses; the first part of its conformance suite."""

# ruff: noqa: S101 - a suite is many small methods that assert

from __future__ import annotations

import attrs
import pytest

from promptgraft.errors import (
    HashMismatchError,
    InvalidIdentifierError,
    InvalidOverrideError,
    UnknownPartError,
)
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.parts.descriptors import SectionPath, hash_section
from promptgraft.parts.section import SectionOverride
from promptgraft.parts.validation import MAX_BODY_CHARS
from promptgraft.serde import HexDigest
from promptgraft.testing.prompts import FakePrompt
from promptgraft.testing.samples import (
    LICENCE,
    PROMPT,
    TASK,
    TONE,
    bodies,
    entry,
    forget,
    override_of,
)

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


class StoreRefusals:
    """What ``PromptOverridesStore`` refuses, and that nothing is written then."""

    def make_store(self) -> PromptOverridesStore:
        """Return a store without overrides."""
        raise NotImplementedError("supply make_store(), or override the fixture `store`")

    @pytest.fixture
    def store(self) -> PromptOverridesStore:
        """The store under test."""
        return self.make_store()

    def test_an_unknown_section_is_refused(self, store: PromptOverridesStore) -> None:
        with pytest.raises(UnknownPartError, match="toen"):
            store.set_section_override(PROMPT, path=("toen",), body="x")

        stranger = SectionOverride(path=("toen",), expected_hash=_hash("x"), body="x")
        with pytest.raises(UnknownPartError, match="toen"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, stranger))
        assert store.resolve(PROMPT.descriptor) is None

    def test_a_section_that_may_not_be_overridden_is_refused(
        self, store: PromptOverridesStore
    ) -> None:
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
    def test_a_body_that_is_no_text_is_refused(
        self, store: PromptOverridesStore, body: str, fault: str
    ) -> None:
        with pytest.raises(InvalidOverrideError, match=fault):
            store.set_section_override(PROMPT, path=TONE, body=body)
        with pytest.raises(InvalidOverrideError, match=fault):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, body)))
        assert store.resolve(PROMPT.descriptor) is None

    def test_a_body_of_the_greatest_length_is_kept(self, store: PromptOverridesStore) -> None:
        body = "é" * MAX_BODY_CHARS
        store.set_section_override(PROMPT, path=TONE, body=body)

        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: body}

    @pytest.mark.parametrize("body", ["no marker", "$$question", "$questions", "{{ question }}"])
    def test_a_body_that_lost_a_placeholder_is_refused(
        self, store: PromptOverridesStore, body: str
    ) -> None:
        with pytest.raises(InvalidOverrideError, match=r"lost the placeholder `\$question`"):
            store.set_section_override(PROMPT, path=TASK, body=body)
        with pytest.raises(InvalidOverrideError, match=r"lost the placeholder `\$question`"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TASK, body)))
        assert store.resolve(PROMPT.descriptor) is None

    @pytest.mark.parametrize("path", ["tone", ["tone"], (), ("tone", 1), None], ids=repr)
    def test_a_path_that_is_no_tuple_of_keys_is_refused(
        self, store: PromptOverridesStore, path: SectionPath
    ) -> None:
        with pytest.raises(InvalidOverrideError, match="expected a tuple of section keys"):
            store.set_section_override(PROMPT, path=path, body="x")
        with pytest.raises(InvalidOverrideError, match="expected a tuple of section keys"):
            forget(store, path)

    @pytest.mark.parametrize("path", ["tone", (), ("tone", 1), None], ids=repr)
    def test_an_entry_whose_path_is_no_tuple_of_keys_is_refused(
        self, store: PromptOverridesStore, path: SectionPath
    ) -> None:
        wrong = SectionOverride(path=path, expected_hash=_hash("x"), body="x")
        with pytest.raises(InvalidOverrideError, match="expected a tuple of section keys"):
            store.upsert(PROMPT.descriptor, override_of(PROMPT, wrong))
        assert store.resolve(PROMPT.descriptor) is None

    def test_an_override_for_another_source_is_refused(self, store: PromptOverridesStore) -> None:
        changed = PROMPT.edited(TONE, "Be kinder.")
        with pytest.raises(HashMismatchError, match="tone"):
            store.upsert(changed.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "x")))
        assert store.resolve(PROMPT.descriptor) is None

    def test_an_override_for_another_prompt_is_refused(self, store: PromptOverridesStore) -> None:
        other = attrs.evolve(PROMPT, key="billing")
        with pytest.raises(InvalidOverrideError, match="tests/stores/billing"):
            store.upsert(PROMPT.descriptor, override_of(other, entry(other, TONE, "x")))
        assert store.resolve(other.descriptor) is None

    def test_nothing_of_an_upsert_that_is_half_valid_is_written(
        self, store: PromptOverridesStore
    ) -> None:
        before = store.set_section_override(PROMPT, path=TONE, body="before")
        half_valid = override_of(
            PROMPT, entry(PROMPT, TONE, "after"), entry(PROMPT, TASK, "lost"), tag=DEFAULT_TAG
        )
        with pytest.raises(InvalidOverrideError, match="lost the placeholder"):
            store.upsert(PROMPT.descriptor, half_valid)

        assert store.resolve(PROMPT.descriptor) == before

    @_bad_keys
    def test_a_bad_tag_is_refused(self, store: PromptOverridesStore, bad: str) -> None:
        with pytest.raises(InvalidIdentifierError, match="tag"):
            store.resolve(PROMPT.descriptor, bad)
        _check_refused(store, PROMPT, tag=bad)

    @_bad_keys
    def test_a_bad_prompt_key_is_refused(self, store: PromptOverridesStore, bad: str) -> None:
        prompt = attrs.evolve(PROMPT, key=bad)
        with pytest.raises(InvalidIdentifierError, match="prompt key"):
            store.resolve(prompt.descriptor)
        _check_refused(store, prompt, tag=DEFAULT_TAG)

    @_bad_namespaces
    def test_a_bad_namespace_is_refused(self, store: PromptOverridesStore, bad: str) -> None:
        prompt = attrs.evolve(PROMPT, ns=bad)
        with pytest.raises(InvalidIdentifierError, match="ns"):
            store.resolve(prompt.descriptor)
        _check_refused(store, prompt, tag=DEFAULT_TAG)


def _hash(text: str) -> HexDigest:
    return hash_section(text, PROMPT.syntax)


def _check_refused(store: PromptOverridesStore, prompt: FakePrompt, *, tag: str) -> None:
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
