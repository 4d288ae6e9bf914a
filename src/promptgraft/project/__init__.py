"""The project file ``promptgraft.yaml`` and what it names (``specs/project.md``).

Most names are imported at their first use, because finding a project needs less than reading one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from promptgraft.project.files import (
    FILE_NAME,
    FileChange,
    PromptSource,
    find_project,
    runs_folder_of,
)

if TYPE_CHECKING:
    from promptgraft.project.format import project_schema
    from promptgraft.project.parts import ProjectPrompt
    from promptgraft.project.project import Project, load_project, open_project

__all__ = [
    "FILE_NAME",
    "FileChange",
    "Project",
    "ProjectPrompt",
    "PromptSource",
    "find_project",
    "load_project",
    "open_project",
    "project_schema",
    "runs_folder_of",
]

_HOMES = {
    **dict.fromkeys(("Project", "load_project", "open_project"), "project"),
    "ProjectPrompt": "parts",
    "project_schema": "format",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
