"""Overrides as they were at one moment, as a store that nobody writes to."""

from __future__ import annotations

from promptgraft.overrides.memory_store import InMemoryPromptOverridesStore
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import PromptOverride


def store_of(override: PromptOverride) -> InMemoryPromptOverridesStore:
    """Return a store of its own that holds ``override``."""
    store = InMemoryPromptOverridesStore()
    address = OverrideAddress(override.ns, override.prompt_key, override.tag)
    store.mutate(address, lambda _: override)
    return store
