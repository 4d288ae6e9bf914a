"""Documents with a list for each kind of entry, whatever override or revision they are of."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, TypeVar

import attrs

from promptgraft.errors import (
    DataFormatError,
    InvalidIdentifierError,
    InvalidOverrideError,
    StoreError,
)
from promptgraft.ground.serde import Json, parse_json, shown
from promptgraft.ground.strict import structure
from promptgraft.overrides.parts import KINDS
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import check_key, check_ns, check_tag

T = TypeVar("T")

VERSION = 1
"""The version of the format."""

# Cached, because the converter caches a hook for every class that it sees.
_DOCUMENTS: dict[tuple[type, ...], Any] = {}


@attrs.frozen(kw_only=True)
class OverrideDocument:
    """An override as a document holds it, without its entries."""

    version: int
    ns: str
    prompt_key: str
    tag: str


def read_override(text: str | bytes, *, where: str) -> OverrideDocument:
    """Return the document of an override alone; its lists are attributes of their own.

    Raises:
        DataFormatError: naming ``where`` and the place in it.
        StoreError: it has another version.
    """
    plain = parse_json(text, where=where)
    check_version(plain, where)
    document = structure(plain, document_class(OverrideDocument), where=where)
    try:
        check_ns(document.ns)
        check_key(document.prompt_key, "prompt key")
        check_tag(document.tag)
    except InvalidIdentifierError as error:
        raise DataFormatError(f"{where}: {error}") from None
    return document


def entries_in(document: object, *, where: str) -> list[Entry]:
    """Return the checked entries of a document."""
    entries = [
        kind.read(entry, where=where)
        for kind in KINDS.values()
        for entry in getattr(document, kind.listed)
    ]
    for entry in entries:
        _check_entry(entry, where)
    return entries


def document_class(base: type[T]) -> type[T]:
    """Return a subclass of ``base`` with a list for each kind of entry."""
    # The kinds belong to the key, because third parties may register more.
    key = (base, *KINDS.values())
    if key not in _DOCUMENTS:
        lists: dict[str, Any] = {}
        for kind in KINDS.values():
            listed: Any = GenericAlias(tuple, (kind.document or kind, ...))
            lists[kind.listed] = attrs.field(type=listed, default=())
        _DOCUMENTS[key] = attrs.make_class(
            "EntriesDocument", lists, bases=(base,), frozen=True, kw_only=True
        )
    document_type: type[T] = _DOCUMENTS[key]
    return document_type


def _check_entry(entry: Entry, where: str) -> None:
    try:
        entry.check_address()
        entry.check_texts()
        entry.check_stored(f"{where}: {entry.part}")
    except (InvalidOverrideError, InvalidIdentifierError) as error:
        raise DataFormatError(f"{where}: {error}") from None


def check_version(plain: Json, where: str) -> None:
    """Raise a ``StoreError`` if a document has another version."""
    version = plain.get("version") if isinstance(plain, dict) else None
    if type(version) is int and version != VERSION:
        raise StoreError(
            f"{where}: version: expected {VERSION}, found {shown(version)}; "
            "read it with the promptgraft that wrote it, or a newer one"
        )
