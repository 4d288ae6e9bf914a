"""Every store does what a dictionary would do, whatever the order of calls."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from promptgraft.errors import (
    HashMismatchError,
    InvalidOverrideError,
    PromptgraftError,
    UnknownPartError,
)
from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OverlayPromptOverridesStore,
    PromptOverride,
    PromptOverridesStore,
    SectionOverride,
    SectionPath,
)
from promptgraft.testing import FakePrompt
from promptgraft.testing.prompts import LICENCE, PROMPT, RULES, TASK, TONE, entry

MISSING: SectionPath = ("missing",)
Entries = dict[SectionPath, SectionOverride]

tags = st.sampled_from(["latest", "best", "v1.0"])
paths = st.sampled_from([TASK, RULES, TONE, LICENCE, MISSING])
texts = st.sampled_from(["", "one", "two", "$question", "$$question", "${question}s\n", "\ud800"])


@attrs.define
class Model:
    """What the stores should hold: entries by tag."""

    tags: dict[str, Entries] = attrs.field(factory=dict)

    def upsert(self, prompt: FakePrompt, tag: str, entries: Entries) -> None:
        kept = self.tags.get(tag, {})
        for path, section in entries.items():
            if kept.get(path) != section:
                self._check(prompt, section)
        self._keep(tag, {**kept, **entries})

    def remove(self, tag: str, path: SectionPath) -> None:
        kept = self.tags.get(tag, {})
        if path not in kept:
            raise UnknownPartError
        self._keep(tag, {key: value for key, value in kept.items() if key != path})

    def seed(self, prompt: FakePrompt, tag: str) -> None:
        kept = self.tags.get(tag, {})
        source = {
            path: entry(prompt, path, body)
            for path, body in prompt.bodies.items()
            if path != LICENCE
        }
        fresh = {
            path: section
            for path, section in kept.items()
            if path in source and section.expected_hash == source[path].expected_hash
        }
        self._keep(tag, {**kept, **source, **fresh})

    def delete(self, tag: str) -> None:
        self.tags.pop(tag, None)

    def _keep(self, tag: str, entries: Entries) -> None:
        if entries != self.tags.get(tag, {}):
            self.tags[tag] = entries

    @staticmethod
    def _check(prompt: FakePrompt, section: SectionOverride) -> None:
        if section.path not in prompt.bodies or section.path == LICENCE:
            raise UnknownPartError
        source = prompt.section_body(section.path)
        if section.expected_hash != entry(prompt, section.path, source).expected_hash:
            raise HashMismatchError
        if section.body == "\ud800":
            raise InvalidOverrideError
        plain = section.body.replace("$$", "").replace("${question}", "$question")
        if section.path == TASK and "$question" not in plain:
            raise InvalidOverrideError


class StoresInLockStep(RuleBasedStateMachine):
    """Drives three stores and the model with the same calls."""

    @initialize()
    def begin(self) -> None:
        shared = Path("/dev/shm")
        self.folder = tempfile.mkdtemp(dir=shared if shared.is_dir() else None)
        self.model = Model()
        self.prompt = PROMPT
        self.versions = [PROMPT]
        self.stores: list[PromptOverridesStore] = [
            InMemoryPromptOverridesStore(),
            LocalPromptOverridesStore(self.folder),
            OverlayPromptOverridesStore(
                base=InMemoryPromptOverridesStore(), overlay=InMemoryPromptOverridesStore()
            ),
        ]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _all(
        self, expected: Callable[[], None], call: Callable[[PromptOverridesStore], object]
    ) -> None:
        refusal: type[PromptgraftError] | None = None
        try:
            expected()
        except PromptgraftError as error:
            refusal = type(error)
        for store in self.stores:
            if refusal is None:
                call(store)
            else:
                with pytest.raises(PromptgraftError) as caught:
                    call(store)
                assert caught.type is refusal, store

    @rule(tag=tags, path=paths, body=texts)
    def set(self, tag: str, path: SectionPath, body: str) -> None:
        prompt = self.prompt
        known = path in prompt.bodies
        section = (
            entry(prompt, path, body)
            if known
            else SectionOverride(
                path=path, expected_hash=prompt.descriptor.sections[0].content_hash, body=body
            )
        )
        self._all(
            lambda: self.model.upsert(prompt, tag, {path: section}),
            lambda store: store.set_section_override(prompt, tag=tag, path=path, body=body),
        )

    @rule(
        tag=tags,
        version=st.integers(0, 9),
        bodies=st.dictionaries(st.sampled_from([TASK, RULES, TONE]), texts, max_size=3),
    )
    def upsert(self, tag: str, version: int, bodies: dict[SectionPath, str]) -> None:
        """Write entries for some version of the source: the present one or an older one."""
        prompt, written_for = self.prompt, self.versions[-1 - version % len(self.versions)]
        entries = {
            path: entry(written_for, path, body)
            for path, body in bodies.items()
            if path in written_for.bodies
        }
        override = PromptOverride(ns=prompt.ns, prompt_key=prompt.key, tag=tag, sections=entries)
        self._all(
            lambda: self.model.upsert(prompt, tag, entries),
            lambda store: store.upsert(prompt.descriptor, override),
        )

    @rule(
        wanted=st.dictionaries(tags, st.tuples(st.sampled_from([TASK, RULES, TONE]), texts)),
        version=st.integers(0, 9),
    )
    def upsert_all(self, wanted: dict[str, tuple[SectionPath, str]], version: int) -> None:
        """Write an entry of each of several tags, all or none."""
        prompt, written_for = self.prompt, self.versions[-1 - version % len(self.versions)]
        entries = {
            tag: {path: entry(written_for, path, body)}
            for tag, (path, body) in wanted.items()
            if path in written_for.bodies
        }

        def expected() -> None:
            before = dict(self.model.tags)
            try:
                for tag, sections in entries.items():
                    self.model.upsert(prompt, tag, sections)
            except PromptgraftError:
                self.model.tags = before
                raise

        overrides = [
            PromptOverride(ns=prompt.ns, prompt_key=prompt.key, tag=tag, sections=sections)
            for tag, sections in entries.items()
        ]
        self._all(
            expected,
            lambda store: store.upsert_all([(prompt.descriptor, one) for one in overrides]),
        )

    @rule(tag=tags, path=st.sampled_from([TASK, RULES, TONE]), gone=paths, body=texts)
    def replace(self, tag: str, path: SectionPath, gone: SectionPath, body: str) -> None:
        """Write one entry and forget another in one write."""
        prompt = self.prompt
        sections = {path: entry(prompt, path, body)} if path in prompt.bodies else {}
        left = PromptOverride(ns=prompt.ns, prompt_key=prompt.key, tag=tag, sections=sections)
        held = self.model.tags.get(tag, {})
        removed = left.holding([held[gone]] if gone in held else [])

        def expected() -> None:
            self.model.upsert(prompt, tag, sections)
            if gone in held and gone not in sections:
                self.model.remove(tag, gone)

        self._all(
            expected,
            lambda store: store.upsert_all([(prompt.descriptor, left)], removed=[removed]),
        )

    @rule(tag=tags, other=tags)
    def copy_to_another_tag(self, tag: str, other: str) -> None:
        """Carry what a tag holds to another one, stale entries and all."""
        prompt, entries = self.prompt, dict(self.model.tags.get(tag, {}))
        override = PromptOverride(ns=prompt.ns, prompt_key=prompt.key, tag=other, sections=entries)
        self._all(
            lambda: self.model.upsert(prompt, other, entries),
            lambda store: store.upsert(prompt.descriptor, override),
        )

    @rule(tag=tags, path=paths)
    def remove(self, tag: str, path: SectionPath) -> None:
        self._all(
            lambda: self.model.remove(tag, path),
            lambda store: store.remove_section_override(
                ns=PROMPT.ns, prompt_key=PROMPT.key, tag=tag, path=path
            ),
        )

    @rule(tag=tags)
    def delete(self, tag: str) -> None:
        self._all(
            lambda: self.model.delete(tag),
            lambda store: store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag=tag),
        )

    @rule(tag=tags)
    def seed(self, tag: str) -> None:
        prompt = self.prompt
        self._all(lambda: self.model.seed(prompt, tag), lambda store: store.seed(prompt, tag=tag))

    @rule(path=st.sampled_from([RULES, TONE, TASK]), word=st.sampled_from(["new", "newer"]))
    def edit_the_source(self, path: SectionPath, word: str) -> None:
        body = f"{word} $question" if path == TASK else word
        self.prompt = self.prompt.edited(path, body)
        self.versions.append(self.prompt)

    @rule()
    def remove_a_section_from_the_source(self) -> None:
        self.prompt = self.prompt.without(RULES)
        self.versions.append(self.prompt)

    @rule()
    def reopen(self) -> None:
        self.stores[1] = LocalPromptOverridesStore(self.folder)

    @invariant()
    def all_hold_what_the_model_holds(self) -> None:
        for tag in ("latest", "best", "v1.0"):
            entries = self.model.tags.get(tag)
            expected = (
                entries
                if entries is None
                else PromptOverride(ns=PROMPT.ns, prompt_key=PROMPT.key, tag=tag, sections=entries)
            )
            for store in self.stores:
                assert store.resolve(self.prompt.descriptor, tag) == expected, store


TestStoresInLockStep = StoresInLockStep.TestCase
TestStoresInLockStep.settings = settings(
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
