"""What is about to be written into source files, on disk before the first of them changes."""

from __future__ import annotations

import json
from pathlib import Path, PurePath, PurePosixPath

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.files import write_atomically
from promptgraft.project.files import FILE_NAME as PROJECT_FILE
from promptgraft.serde import parse_json, shown, structure, unstructure

FILE_NAME = "apply.json"
VERSION = 1

_SUFFIXES = {".md", ".yaml", ".yml"}


@attrs.frozen(kw_only=True)
class PlannedFile:
    """One file that is to change.

    Attributes:
        path: relative to the project's folder, with `/`.
        before: its whole text before.
        after: its whole text afterwards.
    """

    path: str
    before: str
    after: str


@attrs.frozen(kw_only=True)
class Intent:
    """The record of one write to source files.

    Attributes:
        run: id of the run.
        candidate: the candidate that is written.
        done: whether every file was written.
        files: the files, in the order in which they are written.
        version: of this format.
    """

    run: str
    candidate: int
    done: bool
    files: tuple[PlannedFile, ...]
    version: int = VERSION


def read_intent(path: Path) -> Intent | None:
    """Return what ``path`` records; None when nothing was ever begun.

    Raises:
        DataFormatError: it is no such record.
        OSError: the system refuses.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    where = str(path)
    mend = "; restore it, or delete it when every prompt file is as you want it"
    try:
        intent = structure(parse_json(data, where=where), Intent, where=where)
    except DataFormatError as error:
        raise DataFormatError(f"{error}{mend}") from None
    if intent.version != VERSION:
        raise DataFormatError(f"{where}: version: expected {VERSION}, found {intent.version}{mend}")
    for file in intent.files:
        if not may_hold_a_prompt(PurePosixPath(file.path)):
            raise DataFormatError(
                f"{where}: files: expected Markdown and YAML files of a prompt, found "
                f"{shown(file.path)}{mend}"
            )
    return intent


def may_hold_a_prompt(path: PurePath) -> bool:
    """Tell whether a file may be one of a prompt: none that says what code is run."""
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix in _SUFFIXES and path.name != PROJECT_FILE


def record_intent(path: Path, intent: Intent) -> None:
    """Write the record, durably; raises ``OSError``."""
    document = json.dumps(unstructure(intent), indent=2, ensure_ascii=False)
    write_atomically(path, f"{document}\n".encode())
