"""Overrides in memory, and a store seen through another: a candidate over a project's own."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from promptgraft.overrides.base_store import BasePromptOverridesStore, Changes
from promptgraft.overrides.resolution import is_fresh
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance
from promptgraft.parts.descriptors import PromptDescriptor
from promptgraft.parts.entry import Entry


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


class OverlayPromptOverridesStore(BasePromptOverridesStore):
    """Reads both stores, writes only the overlay.

    Where both replace the same part the overlay wins, unless its entry is stale and the
    base's is not. ``delete`` and the removal of an override uncover what the base holds.

    Args:
        base: the store below; None for nothing.
        overlay: the store above, or the overrides that one in memory holds at first.
    """

    def __init__(
        self,
        *,
        base: PromptOverridesStore | None,
        overlay: BasePromptOverridesStore | PromptOverride | Iterable[PromptOverride],
    ) -> None:
        self._base = base
        if isinstance(overlay, PromptOverride):
            overlay = [overlay]
        if not isinstance(overlay, BasePromptOverridesStore):
            overlay = InMemoryPromptOverridesStore(overlay)
        self._overlay = overlay

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        above = self._overlay.resolve(descriptor, tag)
        below = self._base.resolve(descriptor, tag) if self._base is not None else None
        if above is None or below is None:
            return below if above is None else above
        return overlaid(descriptor, below, above)

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        return self._overlay.mutate_all(changes, provenance=provenance)

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        self._overlay.delete(ns=ns, prompt_key=prompt_key, tag=tag)

    def _visible(
        self, descriptor: PromptDescriptor, tag: str, present: PromptOverride
    ) -> PromptOverride:
        below = self._base.resolve(descriptor, tag) if self._base is not None else None
        return present if below is None else overlaid(descriptor, below, present)


def overlaid(
    descriptor: PromptDescriptor, below: PromptOverride, above: PromptOverride
) -> PromptOverride:
    """Return what is seen of ``below`` through ``above``."""
    if not below:
        return below.merged_with(above)
    winning = [
        entry
        for entry in above.entries()
        if _wins(descriptor, entry, below.find(entry) or below.undone_by(entry))
    ]
    return below.merged_with(above.holding(winning))


def _wins(descriptor: PromptDescriptor, entry: Entry, other: Entry | None) -> bool:
    return other is None or is_fresh(descriptor, entry) or not is_fresh(descriptor, other)
