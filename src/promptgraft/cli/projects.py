"""The project that a command works on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from promptgraft.errors import ConfigError

if TYPE_CHECKING:
    from promptgraft.project import Project


@contextlib.contextmanager
def loaded_project(file: str | None) -> Iterator[Project]:
    """Give the project of ``--project FILE``, with everything that it names but the models.

    Inside, the code of the project can import its neighbours, and what it prints goes to
    standard error.

    Raises:
        ConfigError: no file is given, and there is none from here upwards.
        DataFormatError: with every fault of the project.
    """
    from promptgraft.project import load_project
    from promptgraft.project.python_source import beside

    project = load_project(project_path(file))
    with beside(project.folder):
        yield project


def opened_project(file: str | None) -> Project:
    """Return the project of ``--project FILE``; what it names is not looked at.

    Raises:
        ConfigError: no file is given, and there is none from here upwards.
        DataFormatError: with every fault of the file.
    """
    from promptgraft.project import open_project

    return open_project(project_path(file))


def project_path(file: str | None) -> Path:
    """Return the path of ``--project FILE``, or of the nearest project file.

    Raises:
        ConfigError: there is no such file.
    """
    from promptgraft.project.files import FILE_NAME, find_project

    if file is None:
        return find_project()
    path = Path(file)
    if path.is_dir():
        path /= FILE_NAME
    if not path.is_file():
        raise ConfigError(f"--project: expected a project file, found none at {path}")
    return path
