"""Which of the overrides that a store holds apply to a prompt as it is now."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import attrs

from promptgraft.overrides.checks import is_fresh, skip_reason
from promptgraft.overrides.types import AppliedOverride, PromptOverride, SkippedOverride
from promptgraft.parts.descriptors import PromptDescriptor, SectionPath
from promptgraft.parts.effective import EffectiveParts
from promptgraft.parts.entry import Entry, SkipReason
from promptgraft.parts.kinds import in_order
from promptgraft.parts.section import SectionOverride


@attrs.frozen(kw_only=True)
class Resolution:
    """What applies, and what does not.

    Attributes:
        fresh: the entries that apply; None when there are none.
        applied: the parts whose source is replaced.
        skipped: the parts whose override is kept but not applied, and why.
    """

    fresh: PromptOverride | None
    applied: tuple[AppliedOverride, ...]
    skipped: tuple[SkippedOverride, ...]

    @property
    def sections(self) -> Mapping[SectionPath, SectionOverride]:
        """The section bodies that apply, by path."""
        return self.fresh.sections if self.fresh else {}


NOTHING = Resolution(fresh=None, applied=(), skipped=())


def resolve_override(descriptor: PromptDescriptor, override: PromptOverride | None) -> Resolution:
    """Split what a store holds into what applies and what is skipped, and why."""
    if not override:
        return NOTHING
    applied: list[AppliedOverride] = []
    skipped: list[SkippedOverride] = []
    fresh = []
    sharing = _sharing(descriptor, override)
    for entry in override.entries():
        reason = SkipReason.NAME_TAKEN if entry in sharing else skip_reason(descriptor, entry)
        if reason is None:
            fresh.append(entry)
            applied.append(AppliedOverride(part=entry.part, expected_hash=entry.expected_hash))
            continue
        source = entry.source(descriptor)
        skipped.append(
            SkippedOverride(
                part=entry.part,
                reason=reason,
                expected_hash=entry.expected_hash,
                found_hash=source.content_hash if source else None,
            )
        )
    # An override that applies whole, which is the rule, needs no copy.
    kept = override if not skipped else override.holding(fresh)
    return Resolution(fresh=kept or None, applied=tuple(applied), skipped=tuple(skipped))


def _sharing(descriptor: PromptDescriptor, override: PromptOverride) -> list[Entry]:
    """Return the entries that give a name which an earlier one gives.

    No store takes both; a store laid over another one may show both.
    """
    claiming = [entry for entry in override.entries() if entry.claims()]
    if len(claiming) < 2:
        return []
    claimed: set[Hashable] = set()
    sharing: list[Entry] = []
    for entry in in_order(claiming):
        if is_fresh(descriptor, entry):
            names = entry.claims()
            if claimed.isdisjoint(names):
                claimed.update(names)
            else:
                sharing.append(entry)
    return sharing


def effective_parts(descriptor: PromptDescriptor, fresh: PromptOverride | None) -> EffectiveParts:
    """Return the parts of a prompt as overrides that apply leave them."""
    parts = EffectiveParts.of_source(descriptor)
    # In order, because equal overrides must render equally, and stores keep no order.
    for entry in in_order(fresh.entries()) if fresh else ():
        entry.apply(parts)
    return parts
