"""A job with many candidates on many cases, as rows: no run is made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from msgspec.structs import replace
from sqlalchemy import Connection, delete

from jobs.job_world import work_off
from promptgraft.runs.event_file import encoded
from promptgraft.search.events import (
    CandidateAdded,
    Event,
    MutationAccepted,
    MutationProposed,
    MutationRejected,
    RunPlanned,
    RunStarted,
)
from promptgraft.service.jobs import Job, JobManager
from promptgraft.service.jobs.lines import OF_THE_RUN, JobLine, LineKind
from promptgraft.service.jobs.rows import JobRows
from promptgraft.targets.base import RejectionReason

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def events(candidates: int, cases: int, *, text: str) -> Iterator[Event]:
    """Yield what a long run tells."""
    draw = random.Random(20)
    texts = {"section rules": text}
    yield RunStarted(
        run_id="large",
        prompt="support/triage",
        seed=0,
        settings={},
        modules=("section rules",),
        texts=texts,
        pareto_ids=tuple(f"case-{n}" for n in range(cases)),
    )
    yield RunPlanned(budget=1_000_000, line="a plan", warnings=())
    best = 0
    mean = 0.2
    for n in range(candidates):
        scores = [float(draw.random() < 0.2 + 0.6 * n / candidates) for _ in range(cases)]
        parent = draw.randrange(max(0, n - 20), n) if n else None
        if parent is not None:
            after = f"{text} {n}"
            yield MutationProposed(
                step=n, parent=parent, module="section rules", before=text, after=after
            )
            yield MutationRejected(
                step=n,
                parent=parent,
                module="section rules",
                reason=RejectionReason.NOT_BETTER,
                detail=text,
                before=text,
                text=after,
            )
        found = sum(scores) / cases
        best, mean = (n, found) if found > mean or not n else (best, mean)
        yield CandidateAdded(
            step=n,
            candidate=n,
            mean=found,
            best=best,
            scores=scores,
            objectives={"exact": found},
            parents=() if parent is None else (parent,),
            module=None if parent is None else "section rules",
            rollouts=cases * (n + 1),
            reflections=n,
            tokens=1_000 * n,
            cost=Decimal(n) / 1000,
            texts={"section rules": f"{text} {n}" if n else text},
            entries={"support/triage": {}},
        )
        if parent is not None:
            yield MutationAccepted(
                step=n,
                candidate=n,
                parent=parent,
                module="section rules",
                parent_score=0.0,
                child_score=1.0,
                pareto_mean=found,
                best_pareto_mean=mean,
            )


def large_job(
    manager: JobManager, *, candidates: int = 500, cases: int = 300, text: str = "Choose a queue."
) -> Job:
    """Return a job that has ended, and whose events tell of a long run."""
    job = manager.create("support", "triage", {"budget": 60, "store": False, "note": text})
    work_off(manager)
    rows, table = JobRows(manager.database), manager.database.tables.events
    lines = [
        JobLine(
            LineKind.PASSING if isinstance(event, RunPlanned) else LineKind.NUMBERED,
            encoded(replace(event, number=n, time=MOMENT)).encode(),
        )
        for n, event in enumerate(events(candidates, cases, text=text), 1)
    ]

    def tell(connection: Connection) -> None:
        told = (table.c.job == job.number, table.c.kind.in_(OF_THE_RUN))
        connection.execute(delete(table).where(*told))
        rows.append(connection, job.number, lines)

    manager.database.write(tell)
    return manager.get(job.id)
