"""Optimization jobs in a database: submitted, carried out by workers, paused, resumed, forked.

Needs ``pip install "promptgraft[server]"``.
"""

from promptgraft.service.jobs.approvals import ApprovalNeededError, MoveRequest, ProtectedTag
from promptgraft.service.jobs.client import JobClient
from promptgraft.service.jobs.interface import Jobs
from promptgraft.service.jobs.manager import JobManager
from promptgraft.service.jobs.types import (
    Attempt,
    Job,
    JobChanges,
    JobConflictError,
    JobFilter,
    JobNotFoundError,
    JobsFullError,
    JobState,
    Status,
    Submitted,
    Wish,
)
from promptgraft.service.jobs.worker import Worker

__all__ = [
    "ApprovalNeededError",
    "Attempt",
    "Job",
    "JobChanges",
    "JobClient",
    "JobConflictError",
    "JobFilter",
    "JobManager",
    "JobNotFoundError",
    "JobState",
    "Jobs",
    "JobsFullError",
    "MoveRequest",
    "ProtectedTag",
    "Status",
    "Submitted",
    "Wish",
    "Worker",
]
