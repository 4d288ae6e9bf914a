"""A project file as settings: every fault with its line."""

from __future__ import annotations

from pathlib import Path

from promptgraft.errors import DataFormatError
from promptgraft.project.config import ProjectConfig
from promptgraft.project.files import source_file
from promptgraft.project.format import PROJECT
from promptgraft.project.nodes import SourceFile
from promptgraft.project.secrets import refuse_references, secret_places


def read_project(path: Path) -> tuple[SourceFile, ProjectConfig]:
    """Return a project file and what it says; nothing that it names is looked up.

    Raises:
        DataFormatError: with every fault of the file, one line each.
    """
    file = source_file(path)
    root = file.root
    models = root.value.get("models") if isinstance(root.value, dict) else None
    refuse_references(root, secret_places(models))
    config = PROJECT.read(root)
    file.raise_all()
    if config is None:
        raise DataFormatError(f"{path}: cannot be read as a project file")
    return file, config
