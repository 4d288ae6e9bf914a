"""Winners in a store: checked against a tag, and written as one revision of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from promptgraft.ground.serde import digest
from promptgraft.overrides import (
    OverrideAddress,
    PartDiff,
    PromptLike,
    PromptOverride,
    Revision,
    RevisionedStore,
    diff_override,
    diff_revisions,
)
from promptgraft.overrides.parts.descriptors import PromptDescriptor
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.resolution import (
    check_names,
    checked_entry,
    is_fresh,
    left_by,
    uncovered,
)
from promptgraft.project.applying.winner import StaleWinnerError, Winner, fresh_entries


def check_tag_contents(
    winner: Winner, entries: Iterable[Entry], present: PromptOverride
) -> tuple[str, ...]:
    """Return a line for each part that has changed under the tag since the run began.

    A part may equal the base or the winner; under another tag than the run's it may also be
    missing.
    """
    return tuple(
        _stale_tag(winner, entry, present)
        for entry in entries
        if present.find(entry) not in (entry, winner.base.find(entry))
        and not (present.tag != winner.base.tag and present.find(entry) is None)
    )


def _stale_tag(winner: Winner, entry: Entry, present: PromptOverride) -> str:
    return (
        f"{entry.part}: tag `{present.tag}` has changed since the run began: expected "
        f"{_named(winner.base.find(entry))}, found {_named(present.find(entry))}; see "
        "`promptgraft history`, then roll back, or run `promptgraft optimize` again"
    )


def _named(entry: Entry | None) -> str:
    return "no override" if entry is None else f"override {shown_hash(digest(entry.plain()))}"


def merged_into(
    present: PromptOverride, entries: Iterable[Entry], descriptor: PromptDescriptor
) -> PromptOverride:
    """Return the overrides of a tag with ``entries`` added or replaced.

    Raises:
        UnknownPartError, HashMismatchError, InvalidOverrideError: an entry does not fit the
            prompt, or contradicts another override.
    """
    written = present.holding(
        entry if present.find(entry) == entry else checked_entry(descriptor, entry)
        for entry in entries
    )
    merged = present.merged_with(written)
    check_names(descriptor, written, merged)
    return merged


@attrs.frozen(kw_only=True)
class Stored:
    """The revision of a tag before and after a write, and how the prompt changes."""

    address: OverrideAddress
    before: Revision | None
    after: Revision | None
    parts: tuple[PartDiff, ...]


def store_winners(
    store: RevisionedStore,
    winners: Sequence[tuple[Winner, PromptLike]],
    tag: str,
    *,
    dry: bool,
) -> tuple[Stored, ...]:
    """Write the winner of each prompt to a tag, keeping the other overrides under it.

    This is one atomic write of at most one revision of each prompt, checked under the lock of the
    store. ``dry`` only checks.

    Raises:
        StaleWinnerError: a part that the winner changes has changed since the run began, in its
            source or under the tag.
        InvalidOverrideError: the winner contradicts another override under the tag.
        StoreError: the store cannot be read or written.
    """
    writes = [_Write(winner, prompt, tag, len(winners) > 1) for winner, prompt in winners]
    before = [store.current_at(write.address) for write in writes]
    if dry:
        for write, revision in zip(writes, before, strict=True):
            write.change(revision.override if revision else write.address.empty())
    else:
        store.mutate_all(
            {write.address: write.change for write in writes}, provenance=winners[0][0].provenance
        )
    return tuple(
        Stored(
            address=write.address,
            before=revision,
            after=revision if dry else store.current_at(write.address),
            parts=tuple(write.told),
        )
        for write, revision in zip(writes, before, strict=True)
    )


class _Write:
    """The write of a winner to the tag of one prompt."""

    def __init__(self, winner: Winner, prompt: PromptLike, tag: str, of_several: bool) -> None:
        self.address = OverrideAddress(winner.base.ns, winner.base.prompt_key, tag)
        self._winner = winner
        self._prompt = prompt
        self._of = f"{winner.of}#" if of_several else ""
        self._entries = fresh_entries(winner, prompt, tag, of=self._of)
        self.told: list[PartDiff] = []

    def change(self, present: PromptOverride) -> PromptOverride:
        winner, descriptor = self._winner, self._prompt.descriptor
        # Another candidate of the run may have been applied before: undo it, so that the tag
        # holds only what was evaluated together.
        base = left_by(winner.candidates, winner.base, winner.beside(present))
        given_back = uncovered(descriptor, winner.base, base).entries()
        freed = present.without(*base.entries()).with_entries(given_back)
        if stale := check_tag_contents(winner, self._entries, freed):
            raise StaleWinnerError(tuple(f"{self._of}{fault}" for fault in stale))
        after = merged_into(freed, self._entries, descriptor)
        gone = base.holding(entry for entry in base.entries() if after.find(entry) is None)
        # Replaced and not extended: a store may call `change` again after a conflict.
        self.told[:] = (
            *in_force_changes(self._prompt, present, (*given_back, *self._entries)),
            *(diff.reversed for diff in diff_override(self._prompt, gone)),
        )
        return after


def in_force_changes(
    prompt: PromptLike, present: PromptOverride, entries: Iterable[Entry]
) -> Iterator[PartDiff]:
    """Yield how each entry differs from the override in force, or else from the source."""
    for entry in entries:
        current = present.find(entry)
        written = present.holding([entry])
        if current is not None and is_fresh(prompt.descriptor, current):
            yield from diff_revisions(present.holding([current]), written)
        else:
            yield from diff_override(prompt, written)
