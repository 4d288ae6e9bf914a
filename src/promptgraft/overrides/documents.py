"""Overrides as plain data, and back: what files, journals and digests are made of.

Each kind of entry has a list of its own; kinds without entries are left out.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any, TypeVar

import attrs

from promptgraft.errors import DataFormatError, InvalidIdentifierError, InvalidOverrideError
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.entry import Entry
from promptgraft.parts.kinds import KINDS, in_order
from promptgraft.serde import Json, structure

T = TypeVar("T")


def plain_entries(override: PromptOverride) -> dict[str, Json]:
    """Return the entries of an override as plain data, in one order."""
    lists: dict[str, list[Json]] = {}
    for entry in in_order(override.entries()):
        lists.setdefault(entry.listed, []).append(entry.plain())
    return {**lists}


def read_entries(data: object, address: PromptOverride, *, where: str) -> PromptOverride:
    """Return the override that ``data`` holds, for the prompt and tag of ``address``.

    Raises:
        DataFormatError: with the place of each fault.
    """
    return entries_of(structure(data, document_class(object), where=where), address, where=where)


def document_class(base: type[T]) -> type[T]:
    """Return a class like ``base`` that also has a list for each kind of entry."""
    key = (base, *KINDS.values())
    if key not in _DOCUMENTS:
        lists: dict[str, Any] = {}
        for kind in KINDS.values():
            listed: Any = GenericAlias(tuple, (kind.document or kind, ...))
            lists[kind.listed] = attrs.field(type=listed, default=())
        _DOCUMENTS[key] = attrs.make_class(
            "EntriesDocument", lists, bases=(base,), frozen=True, kw_only=True
        )
    made: type[T] = _DOCUMENTS[key]
    return made


# The converter remembers classes; so the same kinds have the same class.
_DOCUMENTS: dict[tuple[type, ...], Any] = {}


def entries_of(document: object, address: PromptOverride, *, where: str) -> PromptOverride:
    """Return the override that a document holds, for the prompt and tag of ``address``.

    Raises:
        DataFormatError: a text is not Unicode or too long, what should be JSON is none, a path
            is empty, a hash, key or index is none, steps are replaced in two ways, or a part
            or a step occurs twice.
    """
    entries = [
        kind.read(found, where=where)
        for kind in KINDS.values()
        for found in getattr(document, kind.listed)
    ]
    for entry in entries:
        _check_entry(entry, where)
    override = address.holding(entries)
    if len(override.entries()) != len(entries):
        raise DataFormatError(f"{where}: one part occurs twice")
    return override


def _check_entry(entry: Entry, where: str) -> None:
    try:
        entry.check_address()
        entry.check_texts()
        entry.check_stored(f"{where}: {entry.part}")
    except (InvalidOverrideError, InvalidIdentifierError) as error:
        raise DataFormatError(f"{where}: {error}") from None
