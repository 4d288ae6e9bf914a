"""Revisions as JSON documents, and back: strict, versioned, verified by their id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import attrs

from promptgraft.errors import DataFormatError, StoreError
from promptgraft.overrides.documents import EntriesDocument, entries_of, plain_entries
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import PromptOverride, Provenance, Revision
from promptgraft.overrides.validation import shown_hash
from promptgraft.serde import HexDigest, Json, digest, parse_json, shown, structure

VERSION = 1

_MEND = (
    "restore the file from version control, or remove it and roll back to an archived revision; "
    "change overrides through the store, not in an editor"
)


@attrs.frozen(kw_only=True)
class RevisionDocument(EntriesDocument):
    """One revision as it stands in a file."""

    version: int
    id: str
    number: int
    parent: str | None
    time: datetime
    ns: str
    prompt_key: str
    tag: str
    provenance: Provenance


def make_revision(
    *,
    number: int,
    parent: HexDigest | None,
    time: datetime,
    provenance: Provenance,
    override: PromptOverride,
) -> Revision:
    """Return the revision with these contents and the id that follows from them."""
    revision = Revision(
        id=HexDigest(""),
        number=number,
        parent=parent,
        time=time.astimezone(UTC),
        provenance=provenance,
        override=override,
    )
    return attrs.evolve(revision, id=_content_id(_plain(revision)))


def encode_revision(revision: Revision) -> bytes:
    """Return the document of ``revision``: indented, in a fixed order, entries by kind and part."""
    return f"{json.dumps(_plain(revision), indent=2, ensure_ascii=False)}\n".encode()


def decode_revision(data: bytes, address: OverrideAddress, *, where: str) -> Revision:
    """Return the revision that ``data`` holds for ``address``.

    Raises:
        StoreError: naming ``where`` and the place in it: not JSON, another version, wrong
            types, unknown or missing keys, an id that does not fit, or another address.
    """
    try:
        plain = parse_json(data, where=where)
        _check_version(plain, where)
        document = structure(plain, RevisionDocument, where=where)
        _check_id(plain, document, where)
        _check_address(document, address, where)
        return _revision(document, where)
    except ValueError as error:  # also an integer of more digits than Python reads
        raise StoreError(f"{error}; {_MEND}") from None


def _plain(revision: Revision) -> dict[str, Json]:
    override = revision.override
    scores = sorted(revision.provenance.scores.items())
    return {
        "version": VERSION,
        "id": revision.id,
        "number": revision.number,
        "parent": revision.parent,
        "time": revision.time.isoformat(),
        "ns": override.ns,
        "prompt_key": override.prompt_key,
        "tag": override.tag,
        "provenance": {
            "run_id": revision.provenance.run_id,
            "note": revision.provenance.note,
            "scores": {name: float(score) for name, score in scores},
        },
        **plain_entries(override),
    }


def _content_id(plain: Mapping[str, Json]) -> HexDigest:
    return digest({key: value for key, value in plain.items() if key != "id"})


def _check_version(plain: Json, where: str) -> None:
    found = plain.get("version") if isinstance(plain, dict) else None
    if isinstance(found, int) and found != VERSION:
        raise StoreError(
            f"{where}: version: expected {VERSION}, found {shown(found)}; "
            "read it with the promptgraft that wrote it, or a newer one"
        )


def _check_id(plain: Json, document: RevisionDocument, where: str) -> None:
    found = _content_id(plain) if isinstance(plain, dict) else None
    if found != document.id:
        raise DataFormatError(
            f"{where}: id: the contents have {shown_hash(found or '')}…, the document says "
            f"{shown_hash(document.id)}…: edited by hand or damaged"
        )


def _check_address(document: RevisionDocument, address: OverrideAddress, where: str) -> None:
    found = f"{document.ns}/{document.prompt_key}/{document.tag}"
    expected = f"{address.ns}/{address.prompt_key}/{address.tag}"
    if found != expected:
        raise DataFormatError(f"{where}: expected the overrides of `{expected}`, found `{found}`")


def _revision(document: RevisionDocument, where: str) -> Revision:
    if document.number < 1:
        raise DataFormatError(f"{where}: number: expected at least 1, found {document.number}")
    address = PromptOverride(ns=document.ns, prompt_key=document.prompt_key, tag=document.tag)
    return Revision(
        id=HexDigest(document.id),
        number=document.number,
        parent=None if document.parent is None else HexDigest(document.parent),
        time=document.time,
        provenance=document.provenance,
        override=entries_of(document, address, where=where),
    )
