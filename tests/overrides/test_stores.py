"""The conformance suites over every store that promptgraft has."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    OverlayPromptOverridesStore,
)
from promptgraft.testing import PromptOverridesStoreContract, RevisionedStoreContract


class TestInMemoryStore(PromptOverridesStoreContract):
    def make_store(self) -> InMemoryPromptOverridesStore:
        return InMemoryPromptOverridesStore()


class TestLocalStore(RevisionedStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalPromptOverridesStore:
        return LocalPromptOverridesStore(tmp_path)


class TestOverlayOfAnEmptyBase(PromptOverridesStoreContract):
    def make_store(self) -> OverlayPromptOverridesStore:
        return OverlayPromptOverridesStore(
            base=InMemoryPromptOverridesStore(), overlay=InMemoryPromptOverridesStore()
        )


class TestOverlayWithoutABase(PromptOverridesStoreContract):
    def make_store(self) -> OverlayPromptOverridesStore:
        return OverlayPromptOverridesStore(base=None, overlay=InMemoryPromptOverridesStore())


class TestOverlayOnDisk(PromptOverridesStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> OverlayPromptOverridesStore:
        return OverlayPromptOverridesStore(
            base=InMemoryPromptOverridesStore(), overlay=LocalPromptOverridesStore(tmp_path)
        )
