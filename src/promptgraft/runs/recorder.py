"""Keeps a run while it goes: told of every event, it writes the files of the run directory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from promptgraft.algorithms.gepa.events import (
    GepaCandidateAdded,
    GepaCandidateScored,
    GepaMutationRejected,
    GepaOptimizationCompleted,
    GepaOptimizationStarted,
)
from promptgraft.algorithms.gepa.job import OptimizationJob
from promptgraft.algorithms.gepa.types import GepaResult
from promptgraft.clock import Clock, SystemClock
from promptgraft.errors import PromptgraftError
from promptgraft.journal import FileJournal
from promptgraft.parts.descriptors import PromptLike
from promptgraft.runs.documents import frontier_document, ledger_document, result_document
from promptgraft.runs.event_file import EventFile
from promptgraft.runs.event_lines import EventLines
from promptgraft.runs.files import write_document, write_text
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.pages import candidate_page, rejection_page, waiting_baseline
from promptgraft.runs.summary import summary_page
from promptgraft.runtime.events import EventBus


class Recorder:
    """Writes what a run tells; a context manager. Safe to share between threads.

    The cost of an event does not grow with the run. When the system refuses to write, the run
    goes on: ``failure`` says why, and nothing more is written.

    Args:
        folder: where to; its lock is held.
        prompt: the source that the winner is compared with.
        clock: the times of events.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: RunFolder, prompt: PromptLike, *, clock: Clock) -> None:
        for inside in (folder.candidates, folder.rejected):
            inside.mkdir(exist_ok=True)
        self._folder = folder
        self._prompt = prompt
        self._file = EventFile(folder.events)
        self._lines = EventLines(clock)
        self._lock = threading.Lock()
        self._started: GepaOptimizationStarted | None = None
        self._pool: list[GepaCandidateAdded] = []
        self._attempt = (0, 0)
        self._pages: set[Path] = set()
        self._anew: set[Path] = set()
        self.failure = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def on_event(self, event: object) -> None:
        """Write what an event tells."""
        with self._lock:
            if self.failure:
                return
            try:
                self._record(event)
            except OSError as error:
                self.failure = (
                    f"{error.filename or self._folder.path} cannot be written: {error.strerror}; "
                    f"make space, then `promptgraft resume {self._folder.id}` writes what is "
                    "missing, without a call"
                )
            except PromptgraftError as error:
                self.failure = f"the report of run {self._folder.id} is not written: {error}"

    def _record(self, event: object) -> None:
        if isinstance(event, GepaOptimizationStarted):
            self._started = event
            self._write_page(self._folder.candidate(0), lambda: waiting_baseline(event), known=True)
        for line in self._lines.of(event):
            known = self._file.holds(line)
            # Whoever reads a line finds what it tells of.
            self._write(event, known=known)
            if not known:
                self._file.append(line)
        if isinstance(event, GepaOptimizationCompleted):
            from promptgraft.runs.report import write_report

            write_report(self._folder)

    def _write(self, event: object, *, known: bool) -> None:
        if isinstance(event, GepaCandidateAdded) and self._started is not None:
            self._write_candidate(self._started, event, known=known)
        elif isinstance(event, GepaCandidateScored) and self._started is not None:
            self._write_scores(self._started, event, known=known)
        elif isinstance(event, GepaMutationRejected):
            step, attempt = self._attempt
            attempt = attempt + 1 if step == event.step else 1
            self._attempt = (event.step, attempt)
            path = self._folder.rejection(event.step, attempt)
            self._write_page(path, lambda: rejection_page(event, attempt), known=known)
        elif isinstance(event, GepaOptimizationCompleted):
            self._write_documents(event.result)

    def _write_candidate(
        self, started: GepaOptimizationStarted, event: GepaCandidateAdded, *, known: bool
    ) -> None:
        self._pool.append(event)
        path = self._folder.candidate(event.candidate)
        self._write_page(path, lambda: self._page_of(started, event.candidate), known=known)

    def _write_scores(
        self, started: GepaOptimizationStarted, event: GepaCandidateScored, *, known: bool
    ) -> None:
        self._pool[event.candidate] = attrs.evolve(
            self._pool[event.candidate],
            scores=event.scores,
            objectives=event.objectives,
            mean=event.mean,
        )
        path = self._folder.candidate(event.candidate)
        self._write_page(path, lambda: self._page_of(started, event.candidate), known=known)

    def _page_of(self, started: GepaOptimizationStarted, position: int) -> str:
        added = self._pool[position]
        return candidate_page(started, added, tuple(self._pool[at] for at in added.value.parents))

    def _write_page(self, path: Path, text: Callable[[], str], *, known: bool) -> None:
        """Write a page; one that is there already is left when its event is ``known``.

        What was written anew knows nothing of later events, so these are written too.
        """
        self._pages.add(path)
        if not (known and path.exists()) or path in self._anew:
            self._anew.add(path)
            write_text(path, text())

    def _write_documents(self, result: GepaResult) -> None:
        started, folder = self._started, self._folder
        if started is None:
            return
        budget = started.rollout_budget
        document = result_document(result, self._prompt, seed=started.seed, budget=budget)
        write_document(folder.result, document)
        write_document(folder.frontier, frontier_document(result))
        write_document(folder.ledger, ledger_document(result))
        write_text(folder.summary, summary_page(folder, result, self._prompt, budget))
        self._write_means(started, result)
        self._remove_pages_of_others()

    def _write_means(self, started: GepaOptimizationStarted, result: GepaResult) -> None:
        """Write the pages again of those whose estimates have changed with the baseline's mean."""
        told = [one.mean for one in self._pool]
        self._pool = [
            attrs.evolve(one, mean=mean) for one, mean in zip(self._pool, result.means, strict=True)
        ]
        for position, mean in enumerate(result.means):
            if mean != told[position]:
                path = self._folder.candidate(position)
                write_text(path, self._page_of(started, position))

    def _remove_pages_of_others(self) -> None:
        """Remove what a run with a larger budget has left behind."""
        for inside in (self._folder.candidates, self._folder.rejected):
            for path in inside.iterdir():
                if path not in self._pages:
                    path.unlink()


@contextlib.contextmanager
def recorded(
    folder: RunFolder, job: OptimizationJob, *, clock: Clock | None = None
) -> Iterator[tuple[OptimizationJob, Recorder]]:
    """Give ``job`` as a run that is kept in ``folder``, with what keeps it.

    The folder is locked, its journal takes the place of the job's, and the events of the run
    are written as they happen. Inside, run the job; what the folder holds is not paid again.

    Raises:
        JournalLockedError: another process works in the folder.
        JournalError: its journal cannot be used.
        OSError: the folder cannot be written.
    """
    bus = job.context.event_bus or EventBus()
    with (
        folder.held(),
        FileJournal(folder.journal) as journal,
        Recorder(folder, job.prompt, clock=clock or SystemClock()) as recorder,
        contextlib.ExitStack() as subscribed,
    ):
        subscribed.callback(bus.subscribe(object, recorder.on_event))
        context = attrs.evolve(job.context, event_bus=bus, journal=journal)
        yield attrs.evolve(job, context=context), recorder
