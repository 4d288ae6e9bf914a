"""Overrides in memory, for candidates and tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from promptgraft.overrides.base_store import BasePromptOverridesStore, Changes
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance
from promptgraft.parts.descriptors import PromptDescriptor


class InMemoryPromptOverridesStore(BasePromptOverridesStore):
    """Keeps overrides for the life of the object; without history.

    Args:
        kept: what it holds at first.
    """

    def __init__(self, kept: Iterable[PromptOverride] = ()) -> None:
        self._kept = {OverrideAddress(one.ns, one.prompt_key, one.tag): one for one in kept}
        self._lock = threading.Lock()

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        # Writers replace the whole dictionary: what was read stays one state of all tags.
        return self._kept.get(OverrideAddress(descriptor.ns, descriptor.key, tag))

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        del provenance
        with self._lock:
            before = {address: self._kept.get(address, address.empty()) for address in changes}
            after = {address: change(before[address]) for address, change in changes.items()}
            changed = {at: override for at, override in after.items() if override != before[at]}
            self._kept = {**self._kept, **changed}
            return after

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        address = OverrideAddress(ns, prompt_key, tag)
        with self._lock:
            self._kept = {kept: value for kept, value in self._kept.items() if kept != address}
