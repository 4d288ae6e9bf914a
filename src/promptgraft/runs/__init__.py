"""How a run is kept and shown: its directory, written while it goes and read at any time."""

from promptgraft.runs.finding import find_run, list_runs
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.reading import read_run
from promptgraft.runs.records import (
    CandidateRecord,
    MergeRecord,
    RejectionRecord,
    RunRecord,
    RunSummary,
    State,
    WaitRecord,
)
from promptgraft.runs.transcripts import Transcript, transcripts

__all__ = [
    "CandidateRecord",
    "MergeRecord",
    "RejectionRecord",
    "RunFolder",
    "RunRecord",
    "RunSummary",
    "State",
    "Transcript",
    "WaitRecord",
    "find_run",
    "list_runs",
    "read_run",
    "transcripts",
]
