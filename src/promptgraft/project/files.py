"""Files of a project: the one that describes it, and those that its prompts are written in.

Importing this module is cheap: commands that only list runs need no more of a project.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Protocol

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.strict.checks import TEXT
from promptgraft.strict.nodes import Source, read_source

FILE_NAME = "promptgraft.yaml"
SCHEMA_FILE = "promptgraft.schema.json"
"""Stands beside a new project file, so that editors know its keys without a network."""
SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
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


def project_path(file: str | None) -> Path:
    """Return the project file that ``--project`` names: it or its folder; None for the nearest.

    Raises:
        ConfigError: there is none.
    """
    if file is None:
        return find_project()
    path = Path(file)
    if path.is_dir():
        path /= FILE_NAME
    if not path.is_file():
        raise ConfigError(f"--project: expected a project file, found none at {path}")
    return path


def project_around() -> Path | None:
    """Return the file of the project around the current folder; None when there is none."""
    with contextlib.suppress(ConfigError):
        return find_project()
    return None


def runs_folder_of(path: Path) -> Path:
    """Return the folder of run directories of a project; nothing else of its file is looked at.

    Raises:
        DataFormatError: the file is no YAML, or ``runs`` no text.
    """
    source = source_file(path)
    runs = source.root.member("runs")
    name = DEFAULT_RUNS if runs.value is None else TEXT.read(runs)
    source.raise_all()
    return path.absolute().parent / str(name)


def source_file(path: Path) -> Source:
    """Return a project file as plain data with its lines."""
    source = read_source(path, mend=_quoted)
    if source.document.value is None:
        raise DataFormatError(f"{path}: expected a project file, found an empty one")
    return source


def _quoted(written: str, fault: str) -> str:
    """Say how to mend the fault that ``${NAME}`` leads to where YAML sees an object in it."""
    bare = fault.startswith("not YAML") and _BARE_REFERENCE.search(written)
    return f'{fault}; between braces, quote it: "{bare[1]}"' if bare else fault


@attrs.frozen
class FileChange:
    """One file as it is, and as it is to be.

    Attributes:
        path: the file.
        before: its whole text now: its bytes as UTF-8, line breaks and byte order mark kept.
        after: its whole text afterwards.
    """

    path: Path
    before: str
    after: str


class PromptSource(Protocol):
    """The files that a prompt is written in."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the prompt is read from."""
        ...
