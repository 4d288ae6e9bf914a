"""Which revision of a tag a rollback means."""

from __future__ import annotations

import re
from collections.abc import Mapping

from promptgraft.errors import InvalidIdentifierError, RevisionNotFoundError
from promptgraft.overrides.types import Revision
from promptgraft.parts.validation import shown_hash
from promptgraft.serde import shown

_REVISION = re.compile(r"[0-9a-f]{4,64}")


def check_revision(revision: str | None) -> None:
    """Refuse what cannot be the beginning of an id.

    Raises:
        InvalidIdentifierError: it is not 4 to 64 hexadecimal digits.
    """
    if revision is not None and not _REVISION.fullmatch(revision):
        raise InvalidIdentifierError(
            f"revision: expected 4 to 64 hexadecimal digits of an id, found {shown(revision)}"
        )


def wanted_revision(present: Revision | None, named: str | None, where: str) -> str | None:
    """Return the id, or the beginning of it, that a tag is to point at; None for nothing.

    Raises:
        RevisionNotFoundError: no revision is named and the tag, ``where``, points at none.
    """
    if named is not None:
        return named
    if present is None:
        raise RevisionNotFoundError(
            f"{where} holds nothing that could be rolled back; name one of its revisions"
        )
    return present.parent


def one_id(known: Mapping[str, object], wanted: str, where: str) -> str:
    """Return the one known id that begins with ``wanted``.

    Raises:
        RevisionNotFoundError: there is none, or several.
    """
    found = sorted(id_ for id_ in known if id_.startswith(wanted))
    if len(found) == 1:
        return found[0]
    if not found:
        raise RevisionNotFoundError(
            f"{where} has no revision {shown_hash(wanted)}; see its history for those it has"
        )
    ids = ", ".join(map(shown_hash, found))
    raise RevisionNotFoundError(f"{where} has several revisions {wanted}…: {ids}; give more digits")
