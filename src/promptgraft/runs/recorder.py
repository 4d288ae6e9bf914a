"""Writing the files of a run directory from the events of the run."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs

from promptgraft.adapters.abilities import opened
from promptgraft.errors import DataFormatError, JournalCorruptError, PromptgraftError
from promptgraft.ground.clock import Clock, SystemClock
from promptgraft.ground.folders import ReplacedFolderError, folder_opened, remove_tree
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import integer
from promptgraft.ground.text import counted
from promptgraft.journal import FileJournal
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.runs import documents, pages
from promptgraft.runs.event_file import EventFile, EventLines, read_lines
from promptgraft.runs.folder import (
    RunFolder,
    endings_of,
    field_of,
    read_document,
    write_document,
    write_text,
    write_texts,
)
from promptgraft.runs.reading import base_of, summarize
from promptgraft.runtime.session import EventBus
from promptgraft.search import events
from promptgraft.search.events import Event, QuestionAsked
from promptgraft.search.job import OptimizationJob
from promptgraft.search.round_events import RoundEnded, RoundEvent
from promptgraft.search.stopping import StopFile
from promptgraft.targets.types import Candidate, Change, read_changes

_FULL = {errno.ENOSPC, errno.EDQUOT}


def _identity(folder: RunFolder) -> tuple[int, int]:
    status = folder.path.stat()
    return status.st_dev, status.st_ino


class Recorder:
    """Writes the events of a run to its folder. Safe to share between threads.

    The caller holds the lock of the folder. The cost of an event does not grow with the run.

    Attributes:
        failure: why a file could not be written; empty if all were. The run continues after a
            failure, but nothing more is written.
    """

    def __init__(
        self, folder: RunFolder, prompts: Mapping[str, Prompt[object]], *, clock: Clock
    ) -> None:
        for inside in (folder.candidates, folder.rejected, folder.questions):
            inside.mkdir(exist_ok=True)
        self._folder = folder
        self._identity = _identity(folder)
        self._prompts = prompts
        self._endings = endings_of(folder)
        self._file = EventFile(folder.events)
        self._lines = EventLines(clock)
        self._history = self._lines.history
        self._lock = threading.Lock()
        self._pages: set[Path] = set()
        self._rewritten: set[Path] = set()
        self._best = 0
        self._round: list[RoundEvent] = []
        self.failure = ""

    def close(self) -> None:
        """Release the files."""
        self._file.close()

    def write_rest(self) -> None:
        """Write how far a run came that has failed."""
        with self._lock:
            try:
                for line in () if self.failure else self._lines.rest():
                    if not self._file.holds(line):
                        self._file.append(line)
            except OSError as error:
                self.failure = self._why(error)

    def on_event(self, event: object) -> None:
        """Record an event."""
        with self._lock:
            # A file with a gap would be worse than one that ends early, which a resume completes.
            if self.failure:
                return
            try:
                self._record(event)
            except OSError as error:
                self.failure = self._why(error)
            except PromptgraftError as error:
                self.failure = f"the report of run {self._folder.id} is not written: {error}"

    def _why(self, error: OSError) -> str:
        if not self._folder.path.is_dir():
            return f"the run directory {self._folder.path} is gone: nothing of this run is kept"
        mend = "make space" if error.errno in _FULL else "fix the cause"
        return (
            f"{error.filename or self._folder.path} cannot be written: {error.strerror}; {mend}, "
            f"then `promptgraft resume {self._folder.id}` writes what is missing, without a call"
        )

    def _record(self, event: object) -> None:
        if isinstance(event, QuestionAsked):
            self._check_folder()
            page = self._folder.question(event.position)
            self._write_page(page, lambda: event.text, is_recorded=True)
            return
        lines = self._lines.of(event)
        if lines:
            self._check_folder()
        for line in lines:
            is_recorded = self._file.holds(line)
            # Pages are written before the line, so that readers of the line find them.
            self._write(line, is_recorded=is_recorded)
            if isinstance(line, events.RunEnded):
                self._remove_pages_of_others()
            if not is_recorded:
                self._file.append(line)
        if isinstance(event, events.RunEnded):
            self._write_report()

    def _check_folder(self) -> None:
        """Refuse to write if the folder is another one: an agent can reach the run directory."""
        if _identity(self._folder) != self._identity:
            raise ReplacedFolderError(self._folder.path)

    def write_missing(self, *, pages: bool = True) -> None:
        """Write the derived files that are missing, from the lines of ``events.jsonl``.

        Without ``pages`` only those of the end of the run, which its report is made from.
        """
        is_over = False
        for _, line in read_lines(self._folder.events):
            self._history.add(line)
            is_over = isinstance(line, events.RunEnded)
            if pages:
                self._write(line, is_recorded=True)
            elif isinstance(line, events.RunEnded):
                self._write_documents(line)
        if is_over and pages:
            self._remove_pages_of_others()
            self._write_report()

    def _write_report(self) -> None:
        from promptgraft.runs.report.page import write_report

        write_report(self._folder)

    def _write(self, line: Event, *, is_recorded: bool) -> None:
        if isinstance(line, RoundEvent):
            # The page of a round is written from all of its events when it ends.
            same = self._round and self._round[0].step == line.step
            self._round = [*(self._round if same else []), line]
        match line:
            case events.RunStarted():
                page = self._folder.candidate(0)
                self._write_page(page, lambda: pages.waiting_baseline(line), is_recorded=True)
                write_texts(self._folder.baseline_prompts, line.texts, endings=self._endings)
            case events.CandidateAdded() | events.CandidateScored():
                page = self._folder.candidate(line.candidate)
                self._write_page(
                    page, lambda: self._page_of(line.candidate), is_recorded=is_recorded
                )
                if isinstance(line, events.CandidateAdded):
                    self._write_source(page, line, is_recorded=is_recorded)
                self._write_best(line.best)
            case events.MutationRejected():
                page = self._folder.rejection(line.step, line.attempt)
                self._write_page(page, lambda: pages.rejection_page(line), is_recorded=is_recorded)
            case RoundEnded():
                self._write_round(is_recorded=is_recorded)
            case events.RunEnded():
                # A run that stops within a round still gets the page of that round.
                if self._round and not isinstance(self._round[-1], RoundEnded):
                    self._write_round(is_recorded=False)
                self._write_documents(line)
                # The baseline has been evaluated on more cases, which changes all estimates.
                for candidate in (
                    candidate for candidate in self._history.candidates if candidate.estimated
                ):
                    page = self._folder.candidate(candidate.candidate)
                    write_text(page, self._page_of(candidate.candidate))

    def _write_source(self, page: Path, line: events.CandidateAdded, *, is_recorded: bool) -> None:
        """Write a candidate as one file, for prompts whose texts form a single source file."""
        for prompt in self._prompts.values():
            if isinstance(prompt, TextsPrompt) and prompt.as_file is not None:
                path = page.with_suffix(prompt.ending)
                self._write_page(
                    path, partial(documents.source_of, prompt, line), is_recorded=is_recorded
                )

    def _write_round(self, *, is_recorded: bool) -> None:
        round_events = self._round
        self._folder.rounds.mkdir(exist_ok=True)
        self._write_page(
            self._folder.round(round_events[0].step),
            lambda: pages.round_page(round_events),
            is_recorded=is_recorded,
        )

    def _write_best(self, best: int) -> None:
        """Write the texts of the best candidate; remove them while that is the baseline."""
        folder = self._folder.best_prompts
        if best and best != self._best:
            texts = self._history.candidates[best].texts
            write_texts(folder, texts, endings=self._endings)
        elif not best:
            remove_tree(folder)
        self._best = best

    def _page_of(self, position: int) -> str:
        pool, started = self._history.candidates, self._history.started
        assert started is not None  # noqa: S101 - a run tells of its start first
        added = pool[position]
        parents = [pool[at] for at in added.parents]
        return pages.candidate_page(
            started, added, parents, why=pages.reasons_of(self._history, added)
        )

    def _write_page(self, path: Path, text: Callable[[], str], *, is_recorded: bool) -> None:
        """Write a page, unless the event is ``is_recorded`` and the page exists already.

        A page that was written once by this process lacks later events, so it is always rewritten.
        """
        self._pages.add(path)
        if not (is_recorded and path.exists()) or path in self._rewritten:
            self._rewritten.add(path)
            write_text(path, text())

    def _write_documents(self, ended: events.RunEnded) -> None:
        folder, history = self._folder, self._history
        baseline, winner = (
            read_changes(history.candidates[at].entries, ended.tag, where=f"candidate {at}")
            for at in (0, ended.best)
        )
        changes = documents.changed_parts(
            self._prompts, baseline, winner, history.candidates[0].texts
        )
        warnings = documents.warnings_of(ended.remarks, self._prompts, changes)
        document = documents.result_document(
            ended,
            history.started.prompt if history.started else folder.id,
            winner,
            changes,
            warnings=warnings,
            seed=history.seed or 0,
            budget=history.budget or 0,
            kept_rewrites=history.accepted,
            examples=len(history.pareto_ids),
            taught=[*history.taught],
        )
        write_document(folder.result, {**document, "prompts": self._whole(ended, baseline, winner)})
        self._write_best(ended.best)
        write_document(folder.frontier, documents.frontier_document(history, ended))
        write_document(folder.ledger, documents.ledger_document(ended))
        page = pages.summary_page(folder, history, ended, changes, warnings=warnings)
        write_text(folder.summary, page)

    def _whole(
        self, ended: events.RunEnded, baseline: Mapping[str, Change], winner: Mapping[str, Change]
    ) -> dict[str, Json]:
        if not self._prompts:
            return {}
        base = Candidate(changes=base_of(self._folder, ended.tag)).overrides
        sides = {"baseline": Candidate(changes=baseline), "winner": Candidate(changes=winner)}
        return {
            at: {
                name: documents.whole_prompt(prompt, base[at], side.overrides[at])
                for name, side in sides.items()
            }
            for at, prompt in self._prompts.items()
        }

    def _remove_pages_of_others(self) -> None:
        """Remove pages that this run does not have, left by an earlier one with a larger budget."""
        folder = self._folder
        for inside in (folder.candidates, folder.rejected, folder.questions, folder.rounds):
            with contextlib.suppress(FileNotFoundError), folder_opened(inside) as descriptor:
                with os.scandir(descriptor) as entries:
                    names = [entry.name for entry in entries if entry.is_file()]
                for name in names:
                    # All pages of this run have been told by now, also those of earlier processes;
                    # a file with another name is not ours.
                    if folder.is_page(inside / name) and inside / name not in self._pages:
                        os.unlink(name, dir_fd=descriptor)


def write_missing(
    folder: RunFolder, prompts: Mapping[str, Prompt[object]], *, pages: bool = True
) -> None:
    """Write the missing files of a run directory that has its events. The caller holds its lock.

    ``prompts`` are the sources by address, as far as they are known. Without ``pages`` only what
    the report is made from is written.

    Raises:
        DataFormatError: a line of ``events.jsonl`` is invalid.
        OSError: a file cannot be written.
    """
    with contextlib.closing(Recorder(folder, prompts, clock=SystemClock())) as recorder:
        recorder.write_missing(pages=pages)


@contextlib.contextmanager
def recorded(
    folder: RunFolder, job: OptimizationJob, *, clock: Clock | None = None
) -> Iterator[tuple[OptimizationJob, Recorder]]:
    """Yield ``job`` changed so that its run is kept in ``folder``, and the recorder of the run.

    Run the job inside the context. The folder is locked, its journal replaces that of the job,
    and events are written as they happen. A file ``optimize.stop`` in the folder ends the run.
    Answers in the journal are not paid for again.

    Raises:
        JournalError: its journal cannot be used or lacks answers that the run has paid for, or
            another process works in the folder.
        OSError: the folder cannot be written.
    """
    bus = job.context.event_bus or EventBus()
    with (
        # The lock first, and released last: nothing below may be touched by two processes.
        folder.held(),
        opened(job.context.around(job.subject).adapter, folder.path),
        _journal_of(folder) as journal,
        contextlib.closing(Recorder(folder, job.prompts, clock=clock or SystemClock())) as recorder,
        contextlib.ExitStack() as subscribed,
    ):
        subscribed.callback(bus.subscribe(object, recorder.on_event))
        context = attrs.evolve(job.context, event_bus=bus, journal=journal)
        limits = job.config.limits
        limits = attrs.evolve(limits, stoppers=(*limits.stoppers, StopFile(folder.stop)))
        try:
            yield job.within(context, limits=limits), recorder
        except PromptgraftError:
            recorder.write_rest()
            raise


def _journal_of(folder: RunFolder) -> FileJournal:
    """Open the journal of a run; refuse one that has lost what the other files tell of.

    A journal that is absent or empty would otherwise be taken for that of a run that has not begun:
    everything would be paid for again, and the result replaced.
    """
    is_absent = not folder.journal.exists() or not folder.journal.stat().st_size
    has_events = folder.events.exists() and folder.events.stat().st_size > 0
    if is_absent and (has_events or folder.result.exists()):
        raise _lost(folder, f"{folder.journal} is missing or empty")
    journal = FileJournal(folder.journal)
    if _scored_rollouts(folder) > len(journal):
        journal.close()
        raise _lost(folder, f"{folder.journal} has {len(journal)} records")
    return journal


def _scored_rollouts(folder: RunFolder) -> int:
    """Return how many rollouts with a score the result tells of; 0 without a result."""
    used: dict[str, int] = {}
    # A result that cannot be read is written again.
    with contextlib.suppress(DataFormatError, FileNotFoundError):
        document = read_document(folder.result)
        for name in ("used", "unscored"):
            used[name] = field_of(integer(0), document, folder.result, "rollouts", name)
    return used.get("used", 0) - used.get("unscored", 0)


def _lost(folder: RunFolder, what: str) -> JournalCorruptError:
    rollouts = max(summarize(folder).rollouts, _scored_rollouts(folder))
    return JournalCorruptError(
        f"run {folder.id}: {what}, but the run has made {counted(rollouts, 'test call')}, which "
        "would be paid for again; restore the journal from a copy, or start a new run with "
        "`promptgraft optimize`"
    )
