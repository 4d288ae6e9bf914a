"""A project whose runs are short, for jobs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy

from further import thorough
from programs import Started
from promptgraft.ground.serde import Json
from promptgraft.service.database import Database
from promptgraft.service.jobs import Job, JobManager, Worker

sqlite_first = pytest.mark.parametrize(
    "kept_database",
    ["sqlite", *thorough(["postgresql", "mariadb"])],
    indirect=True,
    scope="module",
)
"""What other tests ask the other databases as well is asked of SQLite in ``make test``."""

AGENT = """
from enum import Enum
from promptgraft import MarkdownSection, PromptTemplate

class Queue(Enum):
    BILLING = "billing"
    LOGIN = "login"

TRIAGE = PromptTemplate(ns="support", key="triage", output_type=Queue, sections=[
    MarkdownSection(title="Rules", key="rules", template="Choose a queue."),
    MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),
])
OTHER = PromptTemplate(ns="support", key="other", output_type=Queue, sections=[
    MarkdownSection(title="Rules", key="rules", template="Choose."),
    MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),
])
"""
FILE = """
version: 1
prompts: {triage: agent.py:TRIAGE, other: agent.py:OTHER}
dataset: {path: tickets.csv}
metrics: [{name: exact}]
models:
  task: {provider: offline}
  judges: {strict: {provider: offline}}
optimizer: {rollout_budget: 150, minibatch_size: 3}
workers: 4
"""


PRICED = """
from decimal import Decimal
from promptgraft.adapters.base import ModelCalled, PromptResponse, Usage
from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.runtime.session import Charge

class Counting:
    identity = "counting"
    def __init__(self):
        self._inner = OfflineAdapter()
    def evaluate(self, prompt, *, session, deadline=None):
        response = self._inner.evaluate(prompt, session=session, deadline=deadline)
        usage, cost = Usage(input_tokens=10, output_tokens=1), Decimal("0.001")
        if session.budget is not None:
            session.budget.pay(Charge(cost=cost, tokens=11))
        session.dispatch(
            ModelCalled(model="m", requests=1, usage=usage, cost=cost, seconds=0.0)
        )
        return response

MODEL = Counting()
"""
"""A model whose calls cost 0.001 US dollars and 11 tokens."""


def write_priced(folder: Path, *, more: str = "") -> Path:
    """Write the project with a model that costs something, and return its file."""
    file = FILE.replace("{provider: offline}\n  judges", "{python: own.py:MODEL}\n  judges")
    path = write_project(folder, file=file + more)
    (folder / "own.py").write_text(PRICED)
    return path


def write_project(folder: Path, *, file: str = FILE) -> Path:
    """Write the project, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.py").write_text(AGENT)
    rows = [
        f"b{n},the invoice {n} has a wrong amount,billing\nl{n},my password {n} is lost,login\n"
        for n in range(15)
    ]
    (folder / "tickets.csv").write_text("id,input,expected\n" + "".join(rows))
    path = folder / "promptgraft.yaml"
    path.write_text(file)
    return path


def work_off(manager: JobManager, *, most: int = 20) -> int:
    """Carry out what waits, in this process; return how many jobs that were."""
    worker = Worker(manager, name="here")
    for count in range(most):
        claim = worker.claim()
        if claim is None:
            return count
        worker.run_here(claim)
    raise AssertionError("jobs do not end")


def until(condition: Callable[[], bool], process: Started | None = None) -> bool:
    """Wait until something holds; False when the process has ended before."""
    for _ in range(24_000):
        if condition():
            return True
        if process is not None and process.poll() is not None:
            return condition()
        threading.Event().wait(0.005)
    raise AssertionError("it does not happen")


def expire(manager: JobManager) -> None:
    """Let all leases be over, as if half a minute had passed."""
    jobs = manager.database.tables.jobs
    manager.database.write(
        lambda connection: connection.execute(sqlalchemy.update(jobs).values(lease=1.0))
    )


def outcome(manager: JobManager, job: Job) -> dict[str, Json]:
    """Return what came of a job, but for ids and times."""
    found = manager.result(job.id) or {}
    for name in ("ledger", "run_id"):
        found.pop(name, None)
    return found


def kept_lines(database: Database, job: Job) -> list[bytes]:
    """Return the lines of a job's journal, in the order of keys: threads may end in any."""
    from promptgraft.service.jobs.rows import JobRows

    with database.reading() as connection:
        return sorted(JobRows(database).lines(connection, job.number, 0))


STOPS = int(os.environ.get("PROMPTGRAFT_STOPS", "1"))
RESTARTS = int(os.environ.get("PROMPTGRAFT_RESTARTS", "1"))
KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "1"))
