"""Stores that keep every state of a tag."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from promptgraft import errors
from promptgraft.ground.serde import shown
from promptgraft.overrides.base_store import BasePromptOverridesStore
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.overrides.types import Revision


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


def one_id(known_ids: Mapping[str, object], beginning: str, where: str) -> str:
    """Return the unique known id that starts with ``beginning``.

    Raises:
        RevisionNotFoundError: there is none, or there are several.
    """
    ids_found = sorted(id_ for id_ in known_ids if id_.startswith(beginning))
    if len(ids_found) == 1:
        return ids_found[0]
    if not ids_found:
        raise errors.RevisionNotFoundError(
            f"{where} has no revision {shown_hash(beginning)}; see its history for those it has"
        )
    ids = ", ".join(map(shown_hash, ids_found))
    raise errors.RevisionNotFoundError(
        f"{where} has several revisions {beginning}…: {ids}; give more digits"
    )
