"""Project files: where they are, and what stands in them as plain data.

Importing this module is cheap: commands that only list runs need no more of a project.
"""

from __future__ import annotations

import re
from pathlib import Path

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.faults import Faults
from promptgraft.evals.reading import read_text
from promptgraft.project.nodes import SourceFile, found
from promptgraft.yaml_text import Note, read_yaml

FILE_NAME = "promptgraft.yaml"
DEFAULT_RUNS = "runs"

_BARE_REFERENCE = re.compile(r"\{.*: *(\$\{\w+\})")


def find_project(start: Path | None = None, *, option: str = "--project FILE") -> Path:
    """Return the project file of a folder: its own, or that of the nearest folder above it.

    Args:
        start: the folder; None for the current one.
        option: what names another file on the caller's command line, for the message.

    Raises:
        ConfigError: there is none.
    """
    folder = (start or Path()).resolve()
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            path, here = place / FILE_NAME, Path.cwd()
            # What stands below the current folder is named as a user would name it.
            return path.relative_to(here) if path.is_relative_to(here) else path
    raise ConfigError(
        f"there is no {FILE_NAME} in {folder} or above it; `promptgraft init` makes one, and "
        f"`{option}` names another"
    )


def runs_folder_of(path: Path) -> Path:
    """Return the folder of run directories of a project; nothing else of its file is looked at.

    Raises:
        DataFormatError: the file is no YAML, or ``runs`` no text.
    """
    file = source_file(path)
    runs = file.root.member("runs")
    name = DEFAULT_RUNS if runs.value is None else runs.value
    if not isinstance(name, str) or not name.strip():
        line = file.line(runs.path, f"expected a text, found {found(name)}")
        raise DataFormatError(line, (line,))
    return path.absolute().parent / name


def source_file(path: Path) -> SourceFile:
    """Return a project file as plain data with its lines.

    Raises:
        DataFormatError: it cannot be read, is no YAML, or says nothing.
    """
    faults = Faults(str(path))
    try:
        text = read_text(path, faults)
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be read: {error.strerror}") from None
    document = None if text is None else read_yaml(text, _noted(text, faults))
    faults.raise_all()
    if document is None or document.value is None:
        raise DataFormatError(f"{path}: expected a project file, found an empty one")
    return SourceFile(path, document)


def _noted(text: str, faults: Faults) -> Note:
    """Say how to mend the fault that ``${NAME}`` leads to where YAML sees an object in it."""
    lines = text.splitlines()

    def note(line: int, fault: str) -> None:
        written = lines[line - 1] if 0 < line <= len(lines) else ""
        bare = fault.startswith("not YAML") and _BARE_REFERENCE.search(written)
        faults.add(line, f'{fault}; between braces, quote it: "{bare[1]}"' if bare else fault)

    return note
