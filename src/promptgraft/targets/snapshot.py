"""Overrides as they were at one moment, as a store that nobody writes to."""

from __future__ import annotations

from promptgraft.overrides.memory_store import InMemoryPromptOverridesStore
from promptgraft.overrides.types import PromptOverride


def store_of(override: PromptOverride) -> InMemoryPromptOverridesStore:
    """Return a store of its own that holds ``override``."""
    return InMemoryPromptOverridesStore([override])
