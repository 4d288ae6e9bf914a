"""The project file ``promptgraft.yaml`` and what it names (``specs/project.md``).

Names are imported at their first use, because finding a project needs less than reading one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.project.files import (
        FILE_NAME,
        FileChange,
        PromptSource,
        find_project,
        runs_folder_of,
    )
    from promptgraft.project.format import project_schema
    from promptgraft.project.optimizing import OptimizeOptions, aoptimize, optimize
    from promptgraft.project.project import Project, load_project, open_project
    from promptgraft.project.project_prompt import ProjectPrompt

__all__ = [
    "FILE_NAME",
    "FileChange",
    "OptimizeOptions",
    "Project",
    "ProjectPrompt",
    "PromptSource",
    "aoptimize",
    "find_project",
    "load_project",
    "open_project",
    "optimize",
    "project_schema",
    "runs_folder_of",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
