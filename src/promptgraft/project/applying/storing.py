"""A winner that goes into a store: one revision, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from promptgraft.errors import HashMismatchError
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PartDiff,
    PromptLike,
    PromptOverride,
    Revision,
    diff_override,
    diff_revisions,
)
from promptgraft.overrides.checks import is_fresh
from promptgraft.parts.entry import Entry
from promptgraft.project.applying.winner import (
    Winner,
    check_source,
    check_tag_contents,
    merged_into,
)


class StaleWinnerError(HashMismatchError):
    """The source, the tag or a file is not what the winner was made for.

    Attributes:
        faults: a line for each part.
    """

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults

    def __reduce__(self) -> tuple[type[StaleWinnerError], tuple[tuple[str, ...]]]:
        return type(self), (self.faults,)


@attrs.frozen(kw_only=True)
class Stored:
    """What became of a winner in a store.

    Attributes:
        address: prompt and tag.
        before: what the tag pointed at.
        after: what it points at now; what it pointed at before when nothing was written.
        parts: how what models are told changes, part by part.
    """

    address: OverrideAddress
    before: Revision | None
    after: Revision | None
    parts: tuple[PartDiff, ...]


def fresh_entries(winner: Winner, prompt: PromptLike, tag: str) -> tuple[Entry, ...]:
    """Return what of a winner is to be written under a tag.

    What the source says itself by now is not. Under a tag that the run did not begin with, what
    the winner was tried with belongs to it: what of the base applies.

    Raises:
        StaleWinnerError: the source has changed in a part that the winner changes.
    """
    found = check_source(prompt, winner.touched)
    if found.stale:
        raise StaleWinnerError(found.stale)
    if tag == winner.base.tag:
        return found.fresh
    return (*found.fresh, *check_source(prompt, winner.untouched).fresh)


def store_winner(
    store: LocalPromptOverridesStore, winner: Winner, prompt: PromptLike, tag: str, *, dry: bool
) -> Stored:
    """Let a tag hold a winner, with everything else that it holds; one revision at most.

    ``dry`` writes nothing. Checks and write are one step for all other writers.

    Raises:
        StaleWinnerError: the source, or what the tag holds, has changed since the run began in
            a part that the winner says something of.
        InvalidOverrideError: the winner contradicts what the tag holds besides.
        StoreError: the store cannot be read or written.
    """
    entries = fresh_entries(winner, prompt, tag)
    address = OverrideAddress(winner.base.ns, winner.base.prompt_key, tag)
    told: list[PartDiff] = []

    def change(present: PromptOverride) -> PromptOverride:
        if stale := check_tag_contents(winner, entries, present):
            raise StaleWinnerError(stale)
        told[:] = in_force_changes(prompt, present, entries)
        return merged_into(present, entries, prompt.descriptor)

    before = _current(store, address)
    if dry:
        change(before.override if before else address.empty())
        after = before
    else:
        store.mutate(address, change, provenance=winner.provenance)
        after = _current(store, address)
    return Stored(address=address, before=before, after=after, parts=tuple(told))


def in_force_changes(
    prompt: PromptLike, present: PromptOverride, entries: Iterable[Entry]
) -> Iterator[PartDiff]:
    """Yield how each of ``entries`` differs from what is in force: an override, or the source."""
    for entry in entries:
        held = present.find(entry)
        written = present.holding([entry])
        if held is not None and is_fresh(prompt.descriptor, held):
            yield from diff_revisions(present.holding([held]), written)
        else:
            yield from diff_override(prompt, written)


def _current(store: LocalPromptOverridesStore, address: OverrideAddress) -> Revision | None:
    return store.current(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)
