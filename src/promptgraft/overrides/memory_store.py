"""Overrides in memory, for candidates and tests."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from promptgraft.overrides.base_store import BasePromptOverridesStore, Change
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance


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
        # A dictionary's get is atomic; a value never changes once it is kept.
        return self._kept.get(OverrideAddress(descriptor.ns, descriptor.key, tag))

    def mutate(
        self, address: OverrideAddress, change: Change, *, provenance: Provenance | None = None
    ) -> PromptOverride:
        del provenance
        with self._lock:
            present = self._kept.get(address, address.empty())
            changed = change(present)
            if changed != present:
                self._kept[address] = changed
            return changed

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        with self._lock:
            self._kept.pop(OverrideAddress(ns, prompt_key, tag), None)
