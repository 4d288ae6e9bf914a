"""What every override store promises of a write of several prompts; part of its suite."""

# ruff: noqa: S101 - a suite is many small methods that assert

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from promptgraft.errors import HashMismatchError, InvalidOverrideError, UnknownPartError
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.parts.descriptors import SectionPath
from promptgraft.testing.prompts import FakePrompt
from promptgraft.testing.samples import (
    JUDGE,
    LICENCE,
    PROMPT,
    RULES,
    TASK,
    TONE,
    WRITER,
    bodies,
    entry,
    override_of,
    set_all,
)
from promptgraft.testing.store_refusals import StoreRefusals


class StoreSteps(StoreRefusals):
    """What ``PromptOverridesStore`` promises of several prompts: all or none."""

    def test_one_write_of_several_prompts_and_tags_keeps_all_of_them(
        self, store: PromptOverridesStore
    ) -> None:
        store.set_section_override(WRITER, path=RULES, body="kept")
        wanted = [
            (WRITER.descriptor, override_of(WRITER, entry(WRITER, TONE, "writer"))),
            (PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "support"))),
            (JUDGE.descriptor, override_of(JUDGE)),
            (PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "other"), tag="other")),
        ]
        returned = store.upsert_all(wanted)

        expected = [{RULES: "kept", TONE: "writer"}, {TONE: "support"}, {}, {TONE: "other"}]
        assert [bodies(override) for override in returned] == expected
        for (descriptor, override), found in zip(wanted, expected, strict=True):
            assert bodies(store.resolve(descriptor, override.tag)) == found
        assert store.resolve(JUDGE.descriptor) is None
        assert store.upsert_all([]) == ()

    @pytest.mark.parametrize("faulty", [0, 1, 2])
    def test_a_fault_in_one_of_several_prompts_refuses_them_all(
        self, store: PromptOverridesStore, faulty: int
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
            wanted = [
                (one.descriptor, override_of(one, entry(one, RULES, "after"))) for one in prompts
            ]
            wrong = override_of(prompts[faulty], entry(prompts[faulty], path, "after"))
            wanted[faulty] = (source.descriptor, wrong)
            with pytest.raises(error, match=fault):
                store.upsert_all(wanted)
            assert store.resolve(WRITER.descriptor) == before
            assert store.resolve(PROMPT.descriptor) is None
            assert store.resolve(JUDGE.descriptor) is None

    def test_two_overrides_of_one_prompt_and_tag_are_refused(
        self, store: PromptOverridesStore
    ) -> None:
        with pytest.raises(InvalidOverrideError, match=r"`tests/stores/support`, tag `latest`"):
            set_all(store, PROMPT, WRITER, PROMPT, path=TONE, body="x")
        with pytest.raises(InvalidOverrideError, match="use those of one prompt"):
            store.upsert_all([(PROMPT.descriptor, override_of(WRITER))])
        assert store.resolve(PROMPT.descriptor) is None
        assert store.resolve(WRITER.descriptor) is None

    def test_what_is_read_of_one_prompt_of_a_write_is_there_of_the_others(
        self, store: PromptOverridesStore
    ) -> None:
        prompts = (PROMPT, WRITER, JUDGE)
        set_all(store, *prompts, path=TONE, body="0")
        written = threading.Event()

        def read() -> int:
            reads = 0
            while not written.is_set():
                seen = [int(bodies(store.resolve(one.descriptor))[TONE]) for one in prompts]
                assert seen == sorted(seen)
                prompt = prompts[reads % 3]
                assert seen[0] <= int(bodies(store.resolve(prompt.descriptor))[TONE])
                reads += 1
            return reads

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for count in range(1, 20):
                set_all(store, *prompts[:: -1 if count % 2 else 1], path=TONE, body=str(count))
            written.set()
            assert all(reader.result() for reader in readers)

    def test_threads_that_write_overlapping_prompts_lose_nothing(
        self, store: PromptOverridesStore
    ) -> None:
        paths = [(f"s{index}",) for index in range(6)]
        a, b, c = (FakePrompt(key=key, bodies=dict.fromkeys(paths, "source")) for key in "abc")
        sets = [(a, b), (b, c), (c, a), (c, b, a), (b,), (a, c, b)]
        begin = threading.Barrier(len(sets))

        def write(number: int) -> None:
            begin.wait()
            set_all(store, *sets[number], path=paths[number], body="written")

        with ThreadPoolExecutor(len(sets)) as pool:
            list(pool.map(write, range(len(sets))))
        for prompt in (a, b, c):
            expected = {path for path, found in zip(paths, sets, strict=True) if prompt in found}
            assert set(bodies(store.resolve(prompt.descriptor))) == expected
