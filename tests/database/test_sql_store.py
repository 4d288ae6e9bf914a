"""The conformance suites over the store in a database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from promptgraft.service.database import Database, SqlPromptOverridesStore
from promptgraft.testing import FakePrompt, RevisionedStoreContract
from promptgraft.testing.prompts import PROMPT, TONE


class TestSqlStore(RevisionedStoreContract):
    @pytest.fixture
    def store(self, database: Database) -> SqlPromptOverridesStore:
        return SqlPromptOverridesStore(database)


def test_threads_share_what_is_in_memory() -> None:
    store = SqlPromptOverridesStore("sqlite://")
    prompts = [attrs.evolve(PROMPT, key=f"p{number}") for number in range(8)]

    def write(prompt: FakePrompt) -> None:
        for body in ("one", "two"):
            store.set_section_override(prompt, path=TONE, body=body)

    with ThreadPoolExecutor(len(prompts)) as threads:
        list(threads.map(write, prompts))
    assert [address.prompt_key for address in store.addresses()] == [one.key for one in prompts]
    assert [len(store.history(ns=one.ns, prompt_key=one.key)) for one in prompts] == [2] * 8
