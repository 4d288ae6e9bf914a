"""Run directories: written while a run is in progress, and readable at any time.

Names are imported at their first use, because a command may need no run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.runs.folder import RunFolder
    from promptgraft.runs.history import RunActivity, RunHistory
    from promptgraft.runs.reading import (
        RunRecord,
        RunSummary,
        State,
        Transcript,
        find_run,
        list_runs,
        read_run,
        transcripts,
    )

__all__ = [
    "RunActivity",
    "RunFolder",
    "RunHistory",
    "RunRecord",
    "RunSummary",
    "State",
    "Transcript",
    "find_run",
    "list_runs",
    "read_run",
    "transcripts",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
