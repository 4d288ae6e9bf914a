"""The base of all stores, the store in memory, and the overlay of one store over another."""

from __future__ import annotations

import re
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from promptgraft import errors
from promptgraft.ground.serde import shown
from promptgraft.overrides.looks import Look, is_known, record_of
from promptgraft.overrides.parts import KINDS
from promptgraft.overrides.parts.descriptors import PromptDescriptor, PromptLike, SectionPath
from promptgraft.overrides.parts.entry import UNBOUND, Entry
from promptgraft.overrides.parts.task_example import RemovedTaskExample
from promptgraft.overrides.parts.validation import check_path, check_store, shown_hash
from promptgraft.overrides.resolution import (
    bound_entry,
    check_names,
    check_unchanged,
    checked_entry,
    is_fresh,
)
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress, PromptOverridesStore
from promptgraft.overrides.types import PromptOverride, Provenance, Revision, check_provenance

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


class RevisionedStore(BasePromptOverridesStore):
    """A store that keeps every state that a tag had, which projects and commands can name.

    Each tag has revisions of its own; those of one write of several tags share a ``step``.
    All methods raise :class:`InvalidIdentifierError` for an invalid address and
    :class:`StoreError` when the store is damaged or cannot be read.
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """Its location, as ``--store`` takes it: a folder, or a URL without user and password."""

    @property
    def is_of_machine(self) -> bool:
        """Whether it is a file or a folder, which other machines do not see."""
        return False

    def current_at(self, address: OverrideAddress) -> Revision | None:
        """Return the revision that an address points at, or None."""
        return self.current(ns=address.ns, prompt_key=address.prompt_key, tag=address.tag)

    def file_of(self, address: OverrideAddress) -> Path | None:
        """Return the file that holds the revision of a tag; None if the store has no files."""
        return None

    @abstractmethod
    def addresses(self) -> tuple[OverrideAddress, ...]:
        """Return the address of every tag that points at a revision, sorted."""

    @abstractmethod
    def current(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> Revision | None:
        """Return the revision that the tag points at, or None."""

    @abstractmethod
    def history(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> tuple[Revision, ...]:
        """Return every revision that was written under the tag, oldest first."""

    def rollback(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, revision: str | None = None
    ) -> Revision | None:
        """Point the tag at another revision, by default the parent of the present one.

        Revisions are kept, so a later one may be named too. ``revision`` is an id, or a unique
        prefix of at least 4 digits. Returns the revision that the tag points at afterwards; None
        after the first revision was rolled back, which leaves the tag empty.

        Raises:
            RevisionNotFoundError: there is no such revision, more than one, or nothing to
                roll back.
            InvalidIdentifierError: ``revision`` is not 4 to 64 hexadecimal digits.
        """
        address = OverrideAddress(ns, prompt_key, tag)
        return self.rollback_all({address: revision})[address]

    @abstractmethod
    def rollback_all(
        self,
        revisions: Mapping[OverrideAddress, str | None],
        *,
        expected: Mapping[OverrideAddress, str] | None = None,
    ) -> dict[OverrideAddress, Revision | None]:
        """Point several tags at other revisions, each as :meth:`rollback` does.

        If one is refused, none moves. In a database all of them move or none even if the process
        is killed; in files one moves after another.

        Args:
            revisions: an id for each tag, or None for the parent of its present revision.
            expected: ids of the revisions that tags point at now, an empty one for none; compared
                under the locks of the store.

        Raises:
            OverrideConflictError: a tag points at another revision than expected.
        """


def check_expected(
    present: Mapping[OverrideAddress, Revision | None],
    expected: Mapping[OverrideAddress, str] | None,
) -> None:
    """Refuse to move tags that do not point at the expected revisions; an empty id is for none.

    Raises:
        OverrideConflictError: one has moved.
    """
    for address, revision_id in (expected or {}).items():
        now = present[address]
        if revision_id != (now.id if now else ""):
            raise errors.OverrideConflictError(
                f"tag `{address.tag}` of `{address.ns}/{address.prompt_key}` was moved meanwhile; "
                "look at it again"
            )


_REVISION = re.compile(r"[0-9a-f]{4,64}")


def check_revision(revision: str | None) -> None:
    """Refuse anything that cannot be the start of an id.

    Raises:
        InvalidIdentifierError: it is not 4 to 64 hexadecimal digits.
    """
    if revision is not None and not _REVISION.fullmatch(revision):
        raise errors.InvalidIdentifierError(
            f"revision: expected 4 to 64 hexadecimal digits of an id, found {shown(revision)}"
        )


def wanted_revision(present: Revision | None, named: str | None, where: str) -> str | None:
    """Return the id, or its prefix, that a tag should point at after a rollback; None for nothing.

    Raises:
        RevisionNotFoundError: no revision is named and the tag, called ``where``, is empty.
    """
    if named is not None:
        return named
    if present is None:
        raise errors.RevisionNotFoundError(f"{where} has nothing to roll back to; name a revision")
    return present.parent


def one_id(known: Mapping[str, object], wanted: str, where: str) -> str:
    """Return the unique known id that starts with ``wanted``.

    Raises:
        RevisionNotFoundError: there is none, or there are several.
    """
    ids_found = sorted(id_ for id_ in known if id_.startswith(wanted))
    if len(ids_found) == 1:
        return ids_found[0]
    if not ids_found:
        raise errors.RevisionNotFoundError(
            f"{where} has no revision {shown_hash(wanted)}; see its history for those it has"
        )
    ids = ", ".join(map(shown_hash, ids_found))
    raise errors.RevisionNotFoundError(
        f"{where} has several revisions {wanted}…: {ids}; give more digits"
    )


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
