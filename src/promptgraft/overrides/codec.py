"""Overrides and revisions as plain data and JSON documents, strict and versioned.

Each kind of entry has a list of its own; empty lists are omitted. A revision is verified by its id.
Anything that no store writes raises ``DataFormatError`` with the place of each fault, another
format version ``StoreError``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import resources

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError, StoreError
from promptgraft.ground.serde import HexDigest, Json, canonical_json, digest, parse_json, shown
from promptgraft.ground.strict import structure
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.parts.entry import check_hash
from promptgraft.overrides.parts.validation import shown_hash
from promptgraft.overrides.store import OverrideAddress
from promptgraft.overrides.types import (
    VERSION,
    PromptOverride,
    Provenance,
    Revision,
    check_provenance,
    check_version,
    document_class,
    override_of,
)

_MEND = (
    "restore the file from version control, or remove it and roll back to an archived revision; "
    "change overrides through the store, not in an editor"
)
_SCHEMA = "revision.schema.json"


@attrs.frozen(kw_only=True)
class RevisionDocument:
    """A revision as a file holds it, without its entries."""

    version: int
    id: str
    number: int
    parent: str | None
    step: str | None = None
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
    step: HexDigest | None = None,
) -> Revision:
    """Return the revision with these contents and the resulting id."""
    revision = Revision(
        id=HexDigest(""),
        number=number,
        parent=parent,
        step=step,
        time=time.astimezone(UTC),
        provenance=provenance,
        override=override,
    )
    return _identified(revision)


def marked(revisions: Iterable[Revision]) -> tuple[Revision, ...]:
    """Return the revisions of one atomic write with a common ``step``, a digest of them all.

    An existing ``step`` is replaced. A single revision gets none.
    """
    alone = tuple(_identified(attrs.evolve(revision, step=None)) for revision in revisions)
    if len(alone) < 2:
        return alone
    step = digest([revision.id for revision in alone])
    return tuple(_identified(attrs.evolve(revision, step=step)) for revision in alone)


def _identified(revision: Revision) -> Revision:
    return attrs.evolve(revision, id=_content_id(_plain(revision)))


def encode_revision(revision: Revision) -> bytes:
    """Return the document of ``revision``: indented, entries sorted by kind and part."""
    return f"{json.dumps(_plain(revision), indent=2, ensure_ascii=False)}\n".encode()


def decode_revision(data: bytes, address: OverrideAddress, *, where: str) -> Revision:
    """Return the revision that ``data`` holds for ``address``.

    Raises:
        StoreError: naming ``where`` and the place in it: not JSON, another version, wrong
            types, unknown or missing keys, a wrong id, another address, or data in another
            form than the store writes.
    """
    try:
        return parse_revision(data, address, where=where)
    except ValueError as error:  # also an integer of more digits than Python reads
        raise StoreError(f"{printable(str(error))}; {_MEND}") from None


def parse_revision(data: bytes, address: OverrideAddress | None, *, where: str) -> Revision:
    """Return the revision that ``data`` holds; without an address, for any address."""
    plain = parse_json(data, where=where)
    # First, because another version may have other keys.
    check_version(plain, where)
    document = structure(plain, document_class(RevisionDocument), where=where)
    _check_id(plain, document, where)
    if address is not None:
        _check_address(document, address, where)
    revision = _revision(document, where)
    _check_form(plain, revision, where)
    return revision


def printable(message: str) -> str:
    """Escape what cannot be printed: messages quote names from files."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)


def _plain(revision: Revision) -> dict[str, Json]:
    override = revision.override
    scores = sorted(revision.provenance.scores.items())
    return {
        "version": VERSION,
        "id": revision.id,
        "number": revision.number,
        "parent": revision.parent,
        **({"step": revision.step} if revision.step else {}),
        "time": revision.time.isoformat(),
        "ns": override.ns,
        "prompt_key": override.prompt_key,
        "tag": override.tag,
        "provenance": {
            "run_id": revision.provenance.run_id,
            "note": revision.provenance.note,
            # Written as floats, so that 1 and 1.0 give the same document and id.
            "scores": {name: float(score) for name, score in scores},
        },
        **plain_lists(override.entries()),
    }


def _content_id(plain: Mapping[str, Json]) -> HexDigest:
    return digest({key: value for key, value in plain.items() if key != "id"})


def _check_id(plain: Json, document: RevisionDocument, where: str) -> None:
    check_hash(document.id, f"{where}: id")
    content_id = _content_id(plain) if isinstance(plain, dict) else None
    if content_id != document.id:
        raise DataFormatError(
            f"{where}: id: the contents have {shown_hash(content_id or '')}…, the document says "
            f"{shown_hash(document.id)}…: edited by hand or damaged"
        )


def _check_address(document: RevisionDocument, address: OverrideAddress, where: str) -> None:
    address_found = f"{document.ns}/{document.prompt_key}/{document.tag}"
    expected = f"{address.ns}/{address.prompt_key}/{address.tag}"
    if address_found != expected:
        raise DataFormatError(
            f"{where}: expected the overrides of `{expected}`, found `{address_found}`"
        )


def _check_form(plain: Json, revision: Revision, where: str) -> None:
    """Refuse data that means ``revision`` but is not written as the store writes it."""
    written = _plain(revision)
    if _content_id(written) != revision.id:
        raise DataFormatError(f"{where}: {next(_differences(plain, written, '$'))}")


def _differences(read: Json, written: Json, place: str) -> Iterator[str]:
    if canonical_json(read) == canonical_json(written):
        return
    match read, written:
        case dict(), dict():
            yield from (
                f"required key missing @ {place}.{key}" for key in written.keys() - read.keys()
            )
            yield from (
                f"expected no empty value @ {place}.{key}" for key in read.keys() - written.keys()
            )
            for key in written:
                yield from _differences(read[key], written[key], f"{place}.{key}")
        case list(), list() if len(read) == len(written):
            for index, (entry_found, entry_written) in enumerate(zip(read, written, strict=True)):
                yield from _differences(entry_found, entry_written, f"{place}[{index}]")
        case _:
            yield f"expected {shown(written)} as stores write it, found {shown(read)} @ {place}"


def _revision(document: RevisionDocument, where: str) -> Revision:
    if document.number < 1:
        raise DataFormatError(f"{where}: number: expected at least 1, found {document.number}")
    for name, revision_id in (("parent", document.parent), ("step", document.step)):
        if revision_id is not None:
            check_hash(revision_id, f"{where}: {name}")
    if document.time.utcoffset():
        raise DataFormatError(f"{where}: time: expected UTC, found {document.time.isoformat()}")
    try:
        check_provenance(document.provenance)
    except InvalidOverrideError as error:
        raise DataFormatError(f"{where}: {error}") from None
    address = PromptOverride(ns=document.ns, prompt_key=document.prompt_key, tag=document.tag)
    return Revision(
        id=HexDigest(document.id),
        number=document.number,
        parent=None if document.parent is None else HexDigest(document.parent),
        step=None if document.step is None else HexDigest(document.step),
        time=document.time,
        provenance=document.provenance,
        override=override_of(document, address, where=where),
    )


def file_schema() -> dict[str, Json]:
    """Return the JSON Schema (draft 2020-12) of override files, format version 1.

    It describes the document of a tag and those of its archive, which share one form;
    ``specs/overrides.md`` lists what a schema cannot express. Each call returns a new copy.
    """
    text = resources.files("promptgraft.overrides").joinpath(_SCHEMA).read_bytes()
    schema = parse_json(text, where=_SCHEMA)
    assert isinstance(schema, dict)  # noqa: S101 - it is shipped with this module
    return schema
