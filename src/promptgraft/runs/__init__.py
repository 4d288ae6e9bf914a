"""Run directories: written while a run is in progress, and readable at any time."""

from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory
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
