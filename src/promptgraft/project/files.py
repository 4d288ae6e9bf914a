"""The project file, and changes of the files of prompts.

Importing this module is cheap: commands that only list runs need nothing else of a project.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.files import as_path, named_in_errors
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import TEXT
from promptgraft.ground.strict.nodes import Source, read_source

FILE_NAME = "promptgraft.yaml"
SCHEMA_FILE = "promptgraft.schema.json"
"""Written beside a new project file, so that editors know its keys without a network."""
SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
DEFAULT_RUNS = "runs"

_BARE_REFERENCE = re.compile(r"\{.*: *(\$\{\w+\})")


def find_project(start: Path | None = None, *, option: str = "--project FILE") -> Path:
    """Return the project file of a folder, or of the nearest folder above it.

    Args:
        start: the folder; None for the current one.
        option: the command-line option that names another file, for the message.

    Raises:
        ConfigError: there is none.
    """
    folder = (start or Path()).resolve()
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            path, here = place / FILE_NAME, Path.cwd()
            # Below the current folder, a relative path is what a user would type.
            return path.relative_to(here) if path.is_relative_to(here) else path
    raise ConfigError(
        f"there is no {FILE_NAME} in {folder} or above it; `promptgraft init` makes one, and "
        f"`{option}` names another"
    )


def project_path(file: str | None) -> Path:
    """Return the project file that ``--project`` names, a file or a folder; None for the nearest.

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
    """Return the project file of the current folder, or of one above it, if there is one."""
    with contextlib.suppress(ConfigError):
        return find_project()
    return None


def runs_folder_of(path: str | Path) -> Path:
    """Return the folder of run directories of a project, without checking the rest of its file.

    Raises:
        DataFormatError: the file is not YAML, or ``runs`` is not a text.
    """
    path = as_path(path)
    source = source_file(path)
    runs = source.root.member("runs")
    name = DEFAULT_RUNS if runs.value is None else TEXT.read(runs)
    source.raise_all()
    return path.absolute().parent / str(name)


def source_file(path: Path) -> Source:
    """Read a project file as plain data with line numbers."""
    source = read_source(path, mend=_quoted)
    if source.document.value is None:
        raise DataFormatError(
            f"{path}: expected a project file, found an empty one; remove it, and "
            "`promptgraft init` writes one"
        )
    return source


def _quoted(written: str, fault: str) -> str:
    """Add a hint to the YAML fault that an unquoted ``${NAME}`` inside braces causes."""
    bare = fault.startswith("not YAML") and _BARE_REFERENCE.search(written)
    # In place of the usual mend of a line that cannot be read.
    return f'{fault.partition("; ")[0]}; between braces, quote it: "{bare[1]}"' if bare else fault


@attrs.frozen
class FileChange:
    """A change of one file.

    Attributes:
        path: the file.
        before: its current text, decoded from UTF-8, with line breaks and byte order mark.
        after: its new text.
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


@attrs.define
class ProjectFile:
    """A project file that a command makes, unless it is there already.

    Attributes:
        path: where it is, or will be.
        settings: what it is made of; None if it is there already.
    """

    path: Path
    settings: Mapping[str, Json] | None

    @contextlib.contextmanager
    def written(self) -> Iterator[Path]:
        """Write the file if it is not there, and remove it again if the command fails early."""
        if self.settings is None:
            yield self.path
            return
        # JSON is YAML too, and quotes every text.
        text = "".join(
            f"{name}: {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in self.settings.items()
        )
        try:
            # Never over a file that someone else has written since it was looked for.
            with self.path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error
        try:
            yield self.path
        finally:
            # Kept from the start of a run on, because `resume` reads it.
            if self.settings is not None:
                self.path.unlink(missing_ok=True)

    def keep(self) -> str:
        """Keep the file, because a run has been started with it; return a line about it."""
        if self.settings is None:
            return ""
        self.settings = None
        return f"wrote {self.path}; change it to change the run"


def write_new(files: Mapping[Path, bytes]) -> None:
    """Create files, and the folders that they need; all or none, and never over another file.

    An ``OSError`` names the file.
    """
    with contextlib.ExitStack() as undo:
        for path, data in files.items():
            with named_in_errors(path):
                folders = (path.parent, *path.parent.parents)
                missing = [folder for folder in folders if not folder.exists()]
                for folder in reversed(missing):
                    folder.mkdir()
                    undo.callback(_remove, folder)
                with path.open("xb") as file:
                    undo.callback(_remove, path)
                    file.write(data)
        undo.pop_all()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir() if path.is_dir() else path.unlink()
