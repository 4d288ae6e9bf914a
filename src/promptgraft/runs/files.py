"""Derived files: whoever reads one sees the old text or the new one, never a part.

Nothing here is synced: everything but the journal can be made again from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from promptgraft.errors import DataFormatError
from promptgraft.files import named_in_errors, write_all
from promptgraft.serde import Json, parse_json, shown

VERSION = 1
"""Of every JSON document of a run directory."""


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, in one step. One writer at a time.

    Raises:
        OSError: the system refuses; it names ``path``, and the old file is left.
    """
    with named_in_errors(path):
        _replace(path, text)


def _replace(path: Path, text: str) -> None:
    temporary = f"{path.parent}/.{path.name}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(descriptor, text.encode("utf-8", "backslashreplace"))
    finally:
        os.close(descriptor)
    os.replace(temporary, path)  # noqa: PTH105 - the call that tests interrupt


def write_document(path: Path, document: Mapping[str, Json]) -> None:
    """Replace ``path`` by a JSON document of this version, in one step.

    Raises:
        OSError: the system refuses; the old file is left.
    """
    write_text(path, json.dumps({"version": VERSION, **document}, indent=1) + "\n")


def read_document(path: Path) -> dict[str, Json]:
    """Return a JSON document of this version.

    Raises:
        OSError: it cannot be read.
        DataFormatError: it is no such document.
    """
    mend = "restore it" if path.name == "config.json" else "`promptgraft resume` writes it again"
    try:
        document = parse_json(path.read_bytes(), where=str(path))
    except DataFormatError as error:
        raise DataFormatError(f"{error}; {mend}") from None
    if not isinstance(document, dict):
        raise DataFormatError(f"{path}: expected a JSON object, found {shown(document)}; {mend}")
    if document.get("version") != VERSION:
        raise DataFormatError(
            f"{path}: expected version {VERSION}, found {shown(document.get('version'))}; use the "
            "version of promptgraft that has written it"
        )
    return document
