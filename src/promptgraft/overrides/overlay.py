"""The overlay of one store over another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from promptgraft import errors
from promptgraft.ground.serde import shown
from promptgraft.overrides.base_store import (
    BasePromptOverridesStore,
    Changes,
    InMemoryPromptOverridesStore,
)
from promptgraft.overrides.looks import Look, record_of
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import check_store
from promptgraft.overrides.resolution import is_fresh
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance


class OverlayPromptOverridesStore(BasePromptOverridesStore):
    """Reads two stores and writes only the upper one.

    Where both replace the same part, the overlay wins, unless its entry is stale and the
    base's is not. ``delete`` and removals uncover the entries of the base.

    Args:
        base: the store below; None for none.
        overlay: the store above, or the initial overrides of one in memory.
    """

    def __init__(
        self,
        *,
        base: PromptOverridesStore | None,
        overlay: BasePromptOverridesStore | PromptOverride | Iterable[PromptOverride],
    ) -> None:
        if base is not None:
            check_store(base, "base")
        self._base = base
        if isinstance(overlay, PromptOverride):
            overlay = [overlay]
        if not isinstance(overlay, (BasePromptOverridesStore, Iterable)):
            raise errors.InvalidOverrideError(
                "overlay: expected overrides or a store derived from BasePromptOverridesStore, "
                f"which is locked while it is changed, found {shown(overlay)}; "
                "any store may be the base"
            )
        if not isinstance(overlay, BasePromptOverridesStore):
            overlay = InMemoryPromptOverridesStore(overlay)
        self._overlay = overlay
        self._record = record_of(base, overlay)

    def looks(self) -> Sequence[Look]:
        return () if self._record is None else self._record.looks()

    def remember_look(self, look: Look) -> None:
        if self._record is not None:
            self._record.remember_look(look)

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
    """Return ``below`` with the entries of ``above`` that win."""
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
