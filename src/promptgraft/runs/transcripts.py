"""Rollouts and questions of a run, read without its lock."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.journal.records import decode_record, record_key
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory, StepCandidates
from promptgraft.runs.reading import RunRecord, read_events
from promptgraft.search.answers import record_from_json
from promptgraft.search.place import QUESTIONS, Phase, Place
from promptgraft.targets.types import Change, RolloutRecord, read_changes

_BASE = "base"
"""The journal's key for the content of the tag at the beginning of the run."""


@attrs.frozen(kw_only=True)
class Transcript:
    """One rollout in the journal.

    Attributes:
        position: its place in the run, such as ``step/12/child/3``.
        phase: ``baseline``, ``parent``, ``child``, ``pareto``, ``merge``, ``final`` or
            ``held-out``.
        step: the step; 0 outside of the steps.
        candidate: position of the candidate; None for a child or merge that did not join the
            pool, or not unchanged, and for the parent in a step without a proposal.
        record: the rollout: input, answer, trace, score and feedback.
    """

    position: str
    phase: str
    step: int
    candidate: int | None
    record: RolloutRecord

    @property
    def case(self) -> str:
        """The id of the example."""
        return self.record.example_id


def transcripts(
    run: RunFolder | RunRecord,
    *,
    candidates: Collection[int] | None = None,
    case: str | None = None,
) -> Iterator[Transcript]:
    """Yield the rollouts of a run in the order in which they were recorded.

    Reads the journal without its lock, even while the run is in progress; an incomplete last
    line is skipped.

    Args:
        run: the run; given as a record, its events are not read again.
        candidates: only those of these candidates.
        case: only those on this example.

    Raises:
        OSError: a file cannot be read.
        JournalCorruptError: a line of the journal is damaged.
        DataFormatError: a line of ``events.jsonl`` is invalid.
    """
    if isinstance(run, RunRecord):
        folder, tried = run.folder, run.tried
    else:
        folder, history = run, RunHistory()
        read_events(folder, history)
        tried = history.tried
    try:
        file = folder.journal.open("rb")
    except FileNotFoundError:
        return
    with file:
        next(file, None)  # the header
        for line in file:
            # The writer is still at it, or was killed; nothing can follow.
            if not line.endswith(b"\n"):
                return
            place = Place.of_rollout(record_key(line))
            # Only the key is decoded so far: most lines of a long journal are filtered out.
            if place is None:
                continue
            candidate = _candidate_at(place, tried)
            if candidates is None or candidate in candidates:
                record = decode_record(line)
                # In the race of a merge, too, the best candidate is evaluated for validation.
                is_best = place.phase is Phase.IDLE or place.leg == "race/best"
                transcript = Transcript(
                    position=record.key,
                    phase=str(Phase.PARETO if is_best else place.phase),
                    step=place.step,
                    candidate=candidate,
                    record=record_from_json(record.answer, record.key),
                )
                if case in (None, transcript.case):
                    yield transcript


def base_of(folder: RunFolder, tag: str) -> Mapping[str, Change]:
    """Return the content of the tag at the beginning of the run, from the journal.

    Raises:
        ConfigError: the journal has no record of it.
    """
    with folder.journal.open("rb") as file:
        next(file, None)  # the header
        for line in file:
            if line.endswith(b"\n") and record_key(line) == _BASE:
                where = f"{folder.journal}: {_BASE}"
                return read_changes(decode_record(line).answer, tag, where=where)
    raise ConfigError(f"{folder.journal} has no record of the baseline; restore the journal")


def _candidate_at(place: Place, steps: Mapping[int, StepCandidates]) -> int | None:
    """Return the candidate that was evaluated at a place; None if it is not in the pool."""
    match place.phase:
        case Phase.BASELINE:
            return 0
        case Phase.INITIAL:
            return 1
        case Phase.FINAL | Phase.HELD_OUT:
            return place.candidate
        case Phase.SHORTEN:
            # Trial texts without a line never join, and the events do not name the best in a race.
            return None if place.leg in ("line", "race/best") else place.candidate
    step = steps.get(place.step, StepCandidates())
    match place.phase:
        case Phase.PARENT | Phase.TRAIN:
            return step.parent
        case Phase.VALIDATE if place.leg == "parent":
            return step.parent
        case Phase.MOVE:
            return None
        case Phase.CHILD:
            # With several proposals, only their combination joins, not the child of each.
            return step.child if step.is_child_as_tried and not place.proposal else None
        case Phase.IDLE:
            return step.scored
        case Phase.PARETO if place.leg == "best":
            # With overlapping steps, the best may be evaluated on more although no child joins.
            return step.scored if step.child is None else step.best_of_child
        case Phase.MERGE:
            return step.best_of_merge if place.leg == "race/best" else step.merge
    return step.child


def questions_of(folder: RunFolder) -> Mapping[Place, Path]:
    """Return the files of the questions to the reflection model by place, in order."""
    questions = {}
    for path in folder.questions.glob("*.txt") if folder.questions.is_dir() else ():
        with contextlib.suppress(DataFormatError):  # not a file of this run
            questions[Place.parse(path.stem.replace("+", "/"))] = path

    def order(place: Place) -> tuple[object, ...]:
        phase = QUESTIONS.index(place.phase) if place.phase in QUESTIONS else 0
        return place.step, place.proposal, phase, place.leg, place.count

    return {place: questions[place] for place in sorted(questions, key=order)}
