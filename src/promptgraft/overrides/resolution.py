"""Which of the overrides that a store holds apply to a prompt as it is now."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.overrides.checks import is_fresh, shared_name, skip_reason, source_of
from promptgraft.overrides.entries import Entry, OutputFieldOverride, SectionOverride, SectionPath
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.overrides.types import (
    AppliedOverride,
    PromptOverride,
    SkippedOverride,
    SkipReason,
)


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
    shared = _sharing(descriptor, override)
    for entry in override.entries():
        reason = SkipReason.NAME_TAKEN if entry in shared else skip_reason(descriptor, entry)
        if reason is None:
            fresh.append(entry)
            applied.append(AppliedOverride(part=entry.part, expected_hash=entry.expected_hash))
            continue
        source = source_of(descriptor, entry)
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


def _sharing(descriptor: PromptDescriptor, override: PromptOverride) -> tuple[Entry, ...]:
    """Return the overrides of fields that give a name which that of an earlier field gives.

    No store takes both; a store laid over another one may show both.
    """
    entries = [entry for entry in override.output_overrides.values() if entry.aliases]
    if len(entries) < 2:
        return ()
    kept: list[OutputFieldOverride] = []
    sharing: list[Entry] = []
    for entry in sorted(entries, key=lambda entry: entry.field):
        if is_fresh(descriptor, entry):
            (sharing if shared_name(entry, kept) else kept).append(entry)
    return tuple(sharing)
