"""Validation and resolution of overrides against the source of a prompt."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import attrs

from promptgraft import errors
from promptgraft.ground.serde import did_you_mean, shown
from promptgraft.overrides.parts import in_order
from promptgraft.overrides.parts.descriptors import PromptDescriptor, SectionPath
from promptgraft.overrides.parts.entry import EffectiveParts, Entry, SkipReason, SourcePart
from promptgraft.overrides.parts.replacements import SectionOverride
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.types import AppliedOverride, PromptOverride, SkippedOverride


def require_source(descriptor: PromptDescriptor, entry: Entry) -> SourcePart:
    """Return the part that ``entry`` replaces.

    Raises:
        InvalidOverrideError: its path is not a tuple of keys.
        UnknownPartError: the prompt has no such part, or does not allow overrides of it; the
            message lists the parts that can be overridden.
    """
    entry.check_address()
    source = entry.source(descriptor)
    if source is not None and source.overridable:
        return source
    names = list(entry.known(descriptor))
    problem = "has no" if source is None else "does not allow overrides of"
    name, needed = str(entry.replaced), entry.needed(descriptor)
    raise errors.UnknownPartError(
        f"prompt `{descriptor.ns}/{descriptor.key}` {problem} {entry.replaces} `{name}`"
        f"{did_you_mean(name, names) if source is None else ''}"
        f"{f', because {needed}' if needed else ''}; overridable: "
        + (", ".join(f"`{part}`" for part in names) or "none")
    )


def bound_entry(descriptor: PromptDescriptor, entry: Entry) -> Entry:
    """Return ``entry`` bound to the current source of the part that it replaces."""
    return attrs.evolve(entry, expected_hash=require_source(descriptor, entry).content_hash)


def checked_entry(descriptor: PromptDescriptor, entry: Entry) -> Entry:
    """Return ``entry`` as stores keep it: JSON on one line, defaults filled in.

    Raises:
        UnknownPartError: there is no such part, or it may not be overridden.
        HashMismatchError: the override was written for another source.
        InvalidOverrideError: its content is empty, too long, not Unicode, of the wrong type,
            or loses a placeholder.
    """
    source = require_source(descriptor, entry)
    if entry.expected_hash != source.content_hash:
        raise errors.HashMismatchError(
            f"{entry.part}: the override was written for source "
            f"{shown_hash(entry.expected_hash)}, the source is now "
            f"{shown_hash(source.content_hash)}; write it again for this source"
        )
    try:
        checked = entry.checked(descriptor)
    except errors.DataFormatError as error:
        raise errors.InvalidOverrideError(str(error)) from None
    # Checked last: JSON escapes may hide lone surrogates, and defaults make texts longer.
    checked.check_texts()
    return checked


def skip_reason(descriptor: PromptDescriptor, entry: Entry) -> SkipReason | None:
    """Return why an override does not apply to the current prompt; None if it does."""
    source = entry.source(descriptor)
    if source is None:
        return SkipReason.UNKNOWN_PART
    if not source.overridable:
        return SkipReason.NOT_OVERRIDABLE
    if entry.expected_hash != source.content_hash:
        return SkipReason.STALE
    return entry.misfit(descriptor)


def is_fresh(descriptor: PromptDescriptor, entry: Entry) -> bool:
    """Return whether an override applies to the current prompt."""
    return skip_reason(descriptor, entry) is None


def check_names(
    descriptor: PromptDescriptor, written: PromptOverride, visible: PromptOverride
) -> None:
    """Refuse a name in ``written`` that another part of ``visible`` already uses.

    Raises:
        InvalidOverrideError: naming both parts.
    """
    claimed = [
        (name, entry)
        for entry in visible.entries()
        for name in entry.claims()
        if is_fresh(descriptor, entry)
    ]
    for entry in written.entries():
        if not is_fresh(descriptor, entry):
            continue
        claims = entry.claims()
        for name, rival in claimed:
            if name in claims and rival.part != entry.part:
                raise errors.InvalidOverrideError(
                    f"{entry.part}: the name {shown(claims[name])} is taken by the override of "
                    f"`{rival.name}`"
                )


@attrs.frozen(kw_only=True)
class Resolution:
    """The overrides of a prompt, split into those that apply and those that are skipped.

    Attributes:
        fresh: the entries that apply; None when there are none.
        applied: the parts whose source is replaced.
        skipped: the parts whose override is stored but not applied, and why.
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
    """Split a stored override into the entries that apply and those that are skipped."""
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
    # The usual case, an override that applies completely, needs no copy.
    applicable = override if not skipped else override.holding(fresh)
    return Resolution(fresh=applicable or None, applied=tuple(applied), skipped=tuple(skipped))


def _sharing(descriptor: PromptDescriptor, override: PromptOverride) -> list[Entry]:
    """Return the entries that claim a name which an earlier one claims.

    A single store refuses the second; an overlay may show both.
    """
    claiming = [entry for entry in override.entries() if entry.claims()]
    if len(claiming) < 2:
        return []
    claimed: set[Hashable] = set()
    sharing: list[Entry] = []
    # In a fixed order, because which of them comes first decides which one applies.
    for entry in in_order(claiming):
        if is_fresh(descriptor, entry):
            names = entry.claims()
            if claimed.isdisjoint(names):
                claimed.update(names)
            else:
                sharing.append(entry)
    return sharing


def effective_parts(descriptor: PromptDescriptor, fresh: PromptOverride | None) -> EffectiveParts:
    """Return the parts of a prompt with the fresh overrides applied."""
    parts = EffectiveParts.of_source(descriptor)
    # Sorted, because equal overrides must render alike and stores do not keep an order.
    for entry in in_order(fresh.entries()) if fresh else ():
        entry.apply(parts)
    return parts


def left_by(
    candidates: Iterable[PromptOverride], base: PromptOverride, stored: PromptOverride
) -> PromptOverride:
    """Return the entries of ``stored`` that were left by earlier candidates over ``base``."""
    merged = [base.merged_with(candidate) for candidate in candidates]
    return stored.holding(
        entry
        for entry in stored.entries()
        if entry != base.find(entry) and any(entry == override.find(entry) for override in merged)
    )


def uncovered(
    descriptor: PromptDescriptor, base: PromptOverride, leftover: PromptOverride
) -> PromptOverride:
    """Return the fresh entries of ``base`` that ``leftover`` has replaced."""
    entries_found = (base.find(entry) or base.undone_by(entry) for entry in leftover.entries())
    return base.holding(
        entry for entry in entries_found if entry is not None and is_fresh(descriptor, entry)
    )


def check_unchanged(
    written: PromptOverride, removed: Sequence[Entry], read: PromptOverride, visible: PromptOverride
) -> None:
    """Refuse a write if a part that it writes or removes has changed since ``read``.

    Raises:
        OverrideConflictError: naming the part.
    """
    for entry in (*written.entries(), *removed):
        # No conflict if the other writer wrote the same entry.
        if visible.find(entry) not in (read.find(entry), written.find(entry)):
            raise errors.OverrideConflictError(
                f"{entry.part}: another writer has changed it under tag `{written.tag}` of prompt "
                f"`{written.ns}/{written.prompt_key}`"
            )
