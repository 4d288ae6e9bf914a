"""Overrides as they were at one moment: as plain data, and as a store that nobody writes to."""

from __future__ import annotations

import attrs

from promptgraft.overrides.memory_store import InMemoryPromptOverridesStore
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import PromptOverride, SectionOverride
from promptgraft.serde import HexDigest, Json


def store_of(override: PromptOverride) -> InMemoryPromptOverridesStore:
    """Return a store of its own that holds ``override``."""
    store = InMemoryPromptOverridesStore()
    address = OverrideAddress(override.ns, override.prompt_key, override.tag)
    store.mutate(address, lambda _: override)
    return store


def override_to_plain(override: PromptOverride) -> Json:
    """Return the entries of an override in one order."""
    return {
        "sections": [
            [list(path), section.expected_hash, section.body]
            for path, section in sorted(override.sections.items())
        ]
    }


def override_from_plain(data: Json, address: PromptOverride) -> PromptOverride | None:
    """Return the override for the prompt and tag of ``address``; None if it is none."""
    sections = {}
    match data:
        case {"sections": list(entries)}:
            pass
        case _:
            return None
    for entry in entries:
        match entry:
            case [list(keys), str(expected), str(body)]:
                path = tuple(str(key) for key in keys)
                sections[path] = SectionOverride(
                    path=path, expected_hash=HexDigest(expected), body=body
                )
            case _:
                return None
    return attrs.evolve(address, sections=sections)
