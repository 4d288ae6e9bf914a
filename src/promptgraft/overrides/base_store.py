"""The base of all stores, and the store in memory."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from promptgraft import errors
from promptgraft.overrides.looks import Look, is_known
from promptgraft.overrides.parts import KINDS
from promptgraft.overrides.parts.descriptors import PromptDescriptor, PromptLike, SectionPath
from promptgraft.overrides.parts.entry import UNBOUND, Entry
from promptgraft.overrides.parts.task_example import RemovedTaskExample
from promptgraft.overrides.parts.validation import check_path
from promptgraft.overrides.resolution import (
    bound_entry,
    check_names,
    check_unchanged,
    checked_entry,
    is_fresh,
)
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance, check_provenance

Change = Callable[[PromptOverride], PromptOverride]
"""Computes the next state of a tag from the present one; pure, raises to refuse the write."""

Changes = Mapping[OverrideAddress, Change]


class BasePromptOverridesStore(PromptOverridesStore):
    """A store built on three primitives: ``resolve``, ``mutate_all`` and ``delete``.

    All checks of what is written are made here, in the changes that ``mutate_all`` applies. A
    subclass keeps these rules:

    * ``resolve`` and ``delete`` build an :class:`OverrideAddress` first, and so raise
      ``InvalidIdentifierError``: a bad identifier could lead out of a folder.
    * ``mutate_all`` calls each change with the state at its address, or with ``address.empty()``,
      under a lock that no other writer passes, and writes the results in one step.
    * A state that stays equal is not written: an empty tag still resolves to None.
    * ``resolve`` returns stale entries too, and never half of a write.
    """

    @abstractmethod
    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        """Apply a change to the state at each address, all in one atomic write.

        Reading, changing and writing are one critical section, so no concurrent change is lost.
        If a change raises, nothing is written. Addresses whose state stays equal are not written.
        Returns the states afterwards, in the order of ``changes``.
        """

    def mutate(
        self, address: OverrideAddress, change: Change, *, provenance: Provenance | None = None
    ) -> PromptOverride:
        """Apply a change to one address, as :meth:`mutate_all` does; return its state."""
        return self.mutate_all({address: change}, provenance=provenance)[address]

    def upsert_all(
        self,
        overrides: Iterable[tuple[PromptDescriptor, PromptOverride]],
        *,
        provenance: Provenance | None = None,
        expected: Iterable[PromptOverride | None] | None = None,
        removed: Iterable[PromptOverride] | None = None,
    ) -> tuple[PromptOverride, ...]:
        changes: dict[OverrideAddress, Change] = {}
        pairs = tuple(overrides)
        befores = _one_for_each(pairs, expected, "expected")
        removals = _one_for_each(pairs, removed, "removed")
        for (descriptor, override), before, removal in zip(pairs, befores, removals, strict=True):
            # With `expected`, None stands for a tag that was empty.
            expected_override = None if expected is None else before or override.holding(())
            address = _address(descriptor, override)
            if address in changes:
                raise errors.InvalidOverrideError(
                    f"two overrides are for prompt `{address.ns}/{address.prompt_key}`, tag "
                    f"`{address.tag}`; merge them into one"
                )
            changes[address] = self._insertion(descriptor, override, expected_override, removal)
        if provenance is not None:
            check_provenance(provenance)
        return tuple(self.mutate_all(changes, provenance=provenance).values())

    def remove_task_example(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        descriptor = prompt.descriptor
        removed = RemovedTaskExample(path=check_path(path), expected_hash=UNBOUND)

        def change(present: PromptOverride) -> PromptOverride:
            added = present.added_task_examples.get(path)
            remaining = present if added is None else present.without(added)
            below = self._visible(descriptor, tag, remaining).added_task_examples
            if path in below and descriptor.task_example(path) is None:
                # It hides an addition of a store below, so it is bound like an addition.
                entry: Entry = attrs.evolve(removed, expected_hash=descriptor.interface_hash)
            elif added is not None:
                return remaining
            else:
                entry = bound_entry(descriptor, removed)
            return remaining.with_entries([checked_entry(descriptor, entry)])

        return self.mutate(OverrideAddress(descriptor.ns, descriptor.key, tag), change)

    def remove_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, part: str
    ) -> PromptOverride:
        def change(present: PromptOverride) -> PromptOverride:
            for entry in present.entries():
                if entry.part == part:
                    return present.without(entry)
            names_present = ", ".join(f"`{entry.part}`" for entry in present.entries()) or "none"
            raise errors.UnknownPartError(
                f"tag `{tag}` of prompt `{ns}/{prompt_key}` keeps no override of `{part}`; "
                f"kept: {names_present}"
            )

        return self.mutate(OverrideAddress(ns, prompt_key, tag), change)

    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        descriptor = prompt.descriptor

        def change(present: PromptOverride) -> PromptOverride:
            visible = self._visible(descriptor, tag, present)
            missing = [
                checked_entry(descriptor, entry)
                for kind in KINDS.values()
                for entry in kind.sources(prompt)
                if _is_open(descriptor, visible, entry)
            ]
            return present.merged_with(present.holding(missing))

        return self.mutate(OverrideAddress(descriptor.ns, descriptor.key, tag), change)

    def _insertion(
        self,
        descriptor: PromptDescriptor,
        override: PromptOverride,
        expected: PromptOverride | None,
        removal: PromptOverride | None,
    ) -> Change:
        """Return a change that checks and writes the entries of an override."""
        removed_entries = () if removal is None else removal.entries()

        def change(present: PromptOverride) -> PromptOverride:
            # Checked here, under the lock of the writer, against the state that is replaced.
            visible = self._visible(descriptor, override.tag, present)
            if expected is not None:
                check_unchanged(override, removed_entries, expected, visible)
            written = override.holding(_written(descriptor, override, present, visible))
            changed = present.without(*removed_entries).merged_with(written)
            # After the merge, because the same write may free the name.
            check_names(descriptor, written, self._visible(descriptor, override.tag, changed))
            return changed

        return change

    def _visible(
        self, descriptor: PromptDescriptor, tag: str, present: PromptOverride
    ) -> PromptOverride:
        """Return what a reader would see: here ``present``, in an overlay the base as well."""
        return present


T = TypeVar("T")


def _one_for_each(
    pairs: Sequence[object], argument: Iterable[T] | None, name: str
) -> tuple[T | None, ...]:
    overrides = (None,) * len(pairs) if argument is None else tuple(argument)
    if len(overrides) != len(pairs):
        raise errors.InvalidOverrideError(
            f"{name}: expected one for each of {len(pairs)} overrides, found {len(overrides)}"
        )
    return overrides


def _address(descriptor: PromptDescriptor, override: PromptOverride) -> OverrideAddress:
    address = OverrideAddress(override.ns, override.prompt_key, override.tag)
    if (address.ns, address.prompt_key) != (descriptor.ns, descriptor.key):
        raise errors.InvalidOverrideError(
            f"the override is for prompt `{address.ns}/{address.prompt_key}`, the descriptor "
            f"for `{descriptor.ns}/{descriptor.key}`; use those of one prompt"
        )
    return address


def _written(
    descriptor: PromptDescriptor,
    override: PromptOverride,
    present: PromptOverride,
    visible: PromptOverride,
) -> Iterator[Entry]:
    """Yield the entries to write; those that are stored already are not checked again."""
    for entry in override.entries():
        if present.find(entry) == entry:
            yield entry
        # Stale entries of a store below are not copied: they keep showing through.
        elif visible.find(entry) != entry or is_fresh(descriptor, entry):
            yield checked_entry(descriptor, entry)


def _is_open(descriptor: PromptDescriptor, override: PromptOverride, entry: Entry) -> bool:
    """Return whether a part may be overridden and has no fresh entry in ``override`` yet."""
    source, part = entry.source(descriptor), override.find(entry)
    is_replaced = part is not None and is_fresh(descriptor, part)
    return source is not None and source.overridable and not is_replaced


class InMemoryPromptOverridesStore(BasePromptOverridesStore):
    """Keeps overrides in memory, without history.

    Args:
        kept: the initial overrides.
    """

    def __init__(self, kept: Iterable[PromptOverride] = ()) -> None:
        self._kept = {
            OverrideAddress(override.ns, override.prompt_key, override.tag): override
            for override in kept
        }
        self._lock = threading.Lock()
        self._looks: list[Look] = []

    def looks(self) -> Sequence[Look]:
        with self._lock:
            return tuple(self._looks)

    def remember_look(self, look: Look) -> None:
        with self._lock:
            if not is_known(look, self._looks):
                self._looks.append(look)

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        # No lock: writers replace the whole dictionary, so a read sees one state of all tags.
        return self._kept.get(OverrideAddress(descriptor.ns, descriptor.key, tag))

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        with self._lock:
            before = {address: self._kept.get(address, address.empty()) for address in changes}
            after = {address: change(before[address]) for address, change in changes.items()}
            # All changes are computed before one is kept: if one raises, nothing has changed.
            changed = {at: override for at, override in after.items() if override != before[at]}
            self._kept = {**self._kept, **changed}
            return after

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        address = OverrideAddress(ns, prompt_key, tag)
        with self._lock:
            self._kept = {at: value for at, value in self._kept.items() if at != address}
