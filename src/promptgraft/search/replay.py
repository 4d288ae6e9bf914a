"""The journal of a run that has ended, for running it again without a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import JournalError
from promptgraft.ground.serde import Json
from promptgraft.journal import FileJournal
from promptgraft.journal.base import FUNCTIONS, NO_CONTENTS
from promptgraft.journal.records import Contents
from promptgraft.search.job import OptimizationJob
from promptgraft.search.stopping import (
    BuiltIn,
    Plateau,
    RunStoppedError,
    StopFile,
    StopReason,
)

_ANSWERING = ("task_model", "reflection_model", "metrics", FUNCTIONS)
"""What a fingerprint says of those who answer and judge; a replay asks none of them."""

_BY_ANSWERS = (StopReason.BUDGET, StopReason.PERFECT, StopReason.NO_PROGRESS, StopReason.DONE)
"""Reasons to end that follow from the answers alone, whatever else the settings say."""


class ReplayJournal(FileJournal):
    """The journal of a run that has ended: it has all answers, and admits no others.

    Who answered and judged may be replaced by stand-ins: that part of the fingerprint is taken
    from the journal. A replay appends a few records of its own, so give it a copy.

    Args:
        path: the file.
        name: the file in messages.
        reason: why the run ended.
        detail: the same in words.
        replaced: whether stand-ins take the place of models and functions.
    """

    def __init__(
        self, path: Path, *, name: str, reason: StopReason, detail: str, replaced: bool = False
    ) -> None:
        self._reason, self._detail, self._replaced = reason, detail, replaced
        super().__init__(path)
        self._name = name

    def begin(
        self,
        fingerprint: Mapping[str, Json],
        *,
        contents: Contents = NO_CONTENTS,
        reuse_scores: bool = False,
        translated: Callable[[Mapping[str, Json]], Mapping[str, Json]] = dict,
    ) -> Mapping[str, Json]:
        del reuse_scores  # a replay asks no function for a score
        present = dict(fingerprint)
        if self._replaced and self._fingerprint is not None:
            recorded = translated(self._fingerprint)
            present |= {name: recorded[name] for name in _ANSWERING if name in recorded}
        return super().begin(
            present,
            contents=contents,
            reuse_scores=True,
            translated=translated,
        )

    def admit(self, key: str) -> None:
        """End the run as it ended then, if something outside of its answers ended it.

        Raises:
            RunStoppedError: the run was stopped before this answer.
            JournalError: the run has had this answer.
        """
        if self._reason not in _BY_ANSWERS:
            raise RunStoppedError(self._reason, self._detail)
        raise JournalError(
            f"{self._name} has no answer for `{key}`, which the run asks for; restore the journal, "
            "and the data and the version of promptgraft that it was made with"
        )


def without_effects(job: OptimizationJob, reason: StopReason) -> OptimizationJob:
    """Return a job that stores nothing, waits for nothing, and ends for reasons in its answers.

    Args:
        job: the job of a run that has ended.
        reason: why it ended.
    """
    limits = job.config.limits
    stoppers = [
        stopper
        for stopper in job.config.stoppers
        if isinstance(stopper, BuiltIn) and not isinstance(stopper, StopFile)
    ]
    if reason is not StopReason.PLATEAU:
        # Runs of earlier versions went on where one of today would have stopped.
        stoppers = [Plateau(risk=0), *(item for item in stoppers if not isinstance(item, Plateau))]
    config = attrs.evolve(
        job.config,
        persist=False,
        limits=attrs.evolve(limits, timeout=None, stoppers=stoppers),
    )
    context = attrs.evolve(
        job.context, executor=None, deadline=None, cancellation=None, pause=None, event_bus=None
    )
    return attrs.evolve(job, config=config, context=context)
