"""Carrying out a job: its progress, its workers, its journal, and how it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import attrs

from promptgraft.cli.exits import ExitCode
from promptgraft.cli.progress import Progress
from promptgraft.journal import FileJournal
from promptgraft.runtime import Cancellation, EventBus
from promptgraft.search import StopReason
from promptgraft.search.job import OptimizationJob
from promptgraft.search.result import RunResult

MODEL = "embedded offline model"

# All rollouts were used, what was wanted was found, or there was no more to find.
_WENT_TO_ITS_END = {
    StopReason.BUDGET,
    StopReason.PERFECT,
    StopReason.TARGET_SCORE,
    StopReason.OBJECTIVES,
    StopReason.NO_PROGRESS,
    StopReason.NO_IMPROVEMENT,
    StopReason.PROPOSALS,
    StopReason.CANDIDATES,
    StopReason.STOPPER,
    StopReason.DONE,
}


@contextlib.contextmanager
def _side_by_side(workers: int) -> Iterator[Executor | None]:
    if workers == 1:
        yield None
        return
    executor = ThreadPoolExecutor(max_workers=workers)
    try:
        yield executor
    finally:
        # A run that was stopped leaves behind what does not end; so does its command.
        executor.shutdown(wait=False, cancel_futures=True)


def carry_out(
    job: OptimizationJob,
    *,
    progress: Progress,
    cancellation: Cancellation,
    workers: int | None,
    journal: str | None,
) -> RunResult:
    """Run a job; ``workers`` and ``journal`` take the place of what its context has.

    Raises:
        PromptgraftError: as :meth:`Optimizer.optimize` does.
    """
    given = job.context
    bus = given.event_bus or EventBus()
    with contextlib.ExitStack() as held:
        held.callback(bus.subscribe(object, progress.on_event))
        if given.cancellation is not None:
            theirs = given.cancellation
            held.callback(theirs.listen(lambda: cancellation.set(theirs.reason)))
        context = attrs.evolve(
            given,
            event_bus=bus,
            cancellation=cancellation,
            executor=given.executor
            if workers is None
            else held.enter_context(_side_by_side(workers)),
            journal=given.journal if journal is None else held.enter_context(FileJournal(journal)),
        )
        return attrs.evolve(job, context=context).run()


def went_to_its_end(result: RunResult) -> bool:
    """Tell whether a run was not stopped early."""
    return result.stop_reason in _WENT_TO_ITS_END


def exit_code_of_run(result: RunResult) -> ExitCode:
    """Return the exit code of a command that ends with ``result``."""
    return exit_code_for(result.stop_reason, improved=result.improved)


def exit_code_for(stop_reason: str, *, improved: bool) -> ExitCode:
    """Return the exit code of a command about a run that ended for ``stop_reason``."""
    if stop_reason == StopReason.PROVIDER_FAILED:
        return ExitCode.PROVIDER_FAILED
    if stop_reason not in _WENT_TO_ITS_END:
        return ExitCode.STOPPED_EARLY
    return ExitCode.OK if improved else ExitCode.NOT_IMPROVED


def complaint(result: RunResult) -> str:
    """Return what is to be said on standard error of a run; empty for one that went to its end."""
    if result.stop_reason is StopReason.PROVIDER_FAILED:
        return f"the provider failed: {result.stop_detail}"
    if not went_to_its_end(result):
        return f"stopped early: {result.stop_detail}"
    return ""
