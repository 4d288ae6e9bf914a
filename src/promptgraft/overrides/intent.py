"""Writes of several tags at once: recorded whole before the first document changes.

From the moment the intent is on the disk the write is kept: readers read through it, and
the next writer finishes what a killed one has left. Before that moment it never was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from promptgraft.errors import DataFormatError, StoreError
from promptgraft.overrides.codec import marked, one_line, parse_revision
from promptgraft.overrides.revision_files import (
    FOLDER,
    LOCK,
    RevisionFiles,
    StoredRevision,
    read_file,
    remove_file,
    write_file,
)
from promptgraft.overrides.store import OverrideAddress
from promptgraft.serde import parse_json, shown
from promptgraft.strict import structure

VERSION = 1

_MEND = "compare the tags it names with their history, then delete the file"


@attrs.frozen(kw_only=True)
class IntentDocument:
    """One write of several tags as it stands in a file: the documents that they will have."""

    version: int
    documents: tuple[str, ...]


@attrs.frozen
class Intent:
    """The revisions of one write of several tags, by address."""

    revisions: Mapping[OverrideAddress, StoredRevision]

    def over(
        self, address: OverrideAddress, present: StoredRevision | None
    ) -> StoredRevision | None:
        """Return what a tag points at, given what its document holds.

        Once a document is what the intent holds, or has been written again since, it is
        right itself.
        """
        planned = self.revisions.get(address)
        return planned if planned and _follows(planned, present) else present


class IntentFile:
    """The one file of a store that may hold an intent; writers must hold :attr:`lock`.

    Every method raises ``StoreError`` when the system refuses or a file is not what it
    should be.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / FOLDER / ".intent.json"
        self._name = str(self._path)
        self.lock = root / FOLDER / LOCK
        self.paths = (self.lock, self._path)

    def exists(self) -> bool:
        """Tell whether there is an intent; fast, since nearly always there is none."""
        return os.access(self._name, os.F_OK)

    def read(self) -> Intent | None:
        """Return the intent, or None."""
        found = read_file(self._path) if self.exists() else None
        if found is None:
            return None
        try:
            return _intent(found[0], self._path.name)
        except ValueError as error:  # also an integer of more digits than Python reads
            fault = one_line(str(error))
            raise StoreError(f"override intent {self._path}: {fault}; {_MEND}") from None

    def write(self, revisions: Mapping[OverrideAddress, StoredRevision]) -> None:
        """Put an intent where every reader finds it, durably."""
        documents = [stored.data.decode() for stored in revisions.values()]
        plain = {"version": VERSION, "documents": documents}
        data = json.dumps(plain, indent=2, ensure_ascii=False).encode()
        write_file(self._path, data, self._root)

    def complete(self, intent: Intent) -> None:
        """Write the documents that an intent holds, then remove it.

        This may be interrupted and repeated at any point.
        """
        unwritten: list[tuple[RevisionFiles, StoredRevision]] = []
        for address, planned in intent.revisions.items():
            files = RevisionFiles(self._root, address)
            present = files.read()
            if _follows(planned, present):
                unwritten.append((files, planned))
            elif not present or present.revision != planned.revision:
                raise StoreError(
                    f"override intent {self._path} was not made for what override file "
                    f"{files.document} holds; {_MEND}"
                )
        for files, planned in unwritten:
            files.put(planned.data)
        remove_file(self._path)


def _follows(planned: StoredRevision, present: StoredRevision | None) -> bool:
    return planned.revision.parent == (present.revision.id if present else None)


def _intent(data: bytes, where: str) -> Intent:
    document = structure(parse_json(data, where=where), IntentDocument, where=where)
    if document.version != VERSION:
        raise DataFormatError(
            f"{where}: version: expected {VERSION}, found {shown(document.version)}"
        )
    texts = [text.encode() for text in document.documents]
    revisions = tuple(parse_revision(text, None, where=where) for text in texts)
    found = [one.override for one in revisions]
    addresses = [OverrideAddress(one.ns, one.prompt_key, one.tag) for one in found]
    if len(set(addresses)) < max(len(revisions), 2) or marked(revisions) != revisions:
        raise DataFormatError(f"{where}: expected every revision of one write of several tags")
    return Intent(dict(zip(addresses, map(StoredRevision, revisions, texts), strict=True)))
