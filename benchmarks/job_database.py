"""What a database costs a job: ``python benchmarks/job_database.py``.

One thread records answers as fast as it can. Then a run evaluates its baseline with sixteen
workers on a model that takes 50 ms; what is lost of the throughput that is ideal is printed, for
a journal in memory too. Servers that are missing are left out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import sqlalchemy

import overhead
from figures import Figure, shown
from promptgraft import (
    Deadline,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    OptimizationContext,
    Prompt,
    Strategy,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import Journal, MemoryJournal
from promptgraft.runtime import SessionProtocol
from promptgraft.service.database import Database, SqlJournal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from database.database_servers import KINDS, missing, running

OutputT = TypeVar("OutputT")

THREADS = 16
SECONDS_OF_A_CALL = 0.05
ROLLOUTS = 1_600
APPENDS = 1_000
MOST_LOST = 15
ANSWER: Json = {"score": 0.5, "feedback": "some words " * 40, "trace": ["a step"] * 10}


class SlowAdapter(overhead.InstantAdapter):
    """A model that takes its time."""

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Answer a moment later."""
        found = super().evaluate(prompt, session=session, deadline=deadline)
        time.sleep(SECONDS_OF_A_CALL)
        return found


@contextmanager
def journal_in(url: str) -> Iterator[SqlJournal]:
    """Give the journal of a new job."""
    database = Database(url)
    jobs = database.tables.jobs
    row = sqlalchemy.insert(jobs).values(
        id=digest_text(str(time.time_ns()))[:32], created=1.0, request=b"{}", fence=1
    )
    made = database.write(lambda connection: connection.execute(row).inserted_primary_key)
    if made is None:
        raise SystemExit("an insert has a key")
    with SqlJournal(database, int(made[0]), fence=1) as journal:
        yield journal
    database.close()


def appends_a_second(journal: Journal, count: int) -> float:
    """Return how many answers one thread records in a second."""
    journal.begin({"what": "appends"})
    started = time.perf_counter()
    for number in range(count):
        journal.append(f"a/{number}", digest_text(str(number)), "rollout", ANSWER)
    return count / (time.perf_counter() - started)


def lost(journal: Journal, rollouts: int) -> float:
    """Return the percentage of the ideal throughput that a run with a journal does not reach."""
    examples = tuple(
        GepaExample(
            id=f"e{number}",
            params=(overhead.Question(text=f"question {number}", context="some context " * 10),),
            label=str(number),
        )
        for number in range(rollouts + overhead.MINIBATCH)
    )
    config = GepaConfig(
        rollout_budget=3 * rollouts,
        minibatch_size=overhead.MINIBATCH,
        pareto_set_size=rollouts,
        target_section_paths=(("role",), ("rules",)),
        training_examples=examples,
        feedback_fn=overhead.feedback,
        strategy=Strategy(preset="paper"),
    )
    task = SlowAdapter(lambda rendered: digest_text(rendered.text))
    reflection = overhead.InstantAdapter(overhead.Pace(0))
    with ThreadPoolExecutor(THREADS) as threads:
        context = OptimizationContext(
            task, reflection_adapter=reflection, journal=journal, executor=threads
        )
        GepaOptimizer(context, config).optimize(overhead.PROMPT)
    moments = sorted(task.moments)[:rollouts]
    seconds = moments[-1] - moments[0] + SECONDS_OF_A_CALL
    return 100 * (1 - rollouts / THREADS * SECONDS_OF_A_CALL / seconds)


def measure(folder: Path, *, rollouts: int = ROLLOUTS, appends: int = APPENDS) -> list[Figure]:
    """Return the figures."""
    in_memory = lost(MemoryJournal(), rollouts)
    found = [Figure("in memory, lost of the ideal", in_memory, "%", None)]
    with ExitStack() as held:
        for kind in KINDS:
            if missing(kind):
                continue
            if kind == "sqlite":
                url = f"sqlite:///{folder}/jobs.db"
            else:
                url = held.enter_context(running(kind, folder.parent)).fresh()
            with journal_in(url) as journal:
                rate = appends_a_second(journal, appends)
            with journal_in(url) as journal:
                share = lost(journal, rollouts)
            found += [
                Figure(f"{kind}, appends a second", rate, "", None),
                Figure(f"{kind}, lost of the ideal", share, "%", MOST_LOST),
            ]
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.exit(shown(measure(Path(name))))
