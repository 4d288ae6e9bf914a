"""Reading run directories: lists of runs, whole runs, their rollouts, questions and events.

Everything can be read while another process writes, and no lock is taken.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

import attrs
import msgspec

from promptgraft.errors import ConfigError, DataFormatError, JournalError
from promptgraft.evals.gains import Gain
from promptgraft.evals.spending import Spending, of_spent_key, spent_from_json
from promptgraft.ground.files import as_path, opened
from promptgraft.ground.notebook import Card, LongText, Shown, first_rows
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.strict.checks import INTEGER, MOMENT, STRING
from promptgraft.ground.text import change, counted, dollars, listed, moment
from promptgraft.journal.base import CALL, MemoryJournal
from promptgraft.journal.records import decode_record, record_key
from promptgraft.runs.event_file import decoded_at, read_lines, tail_of
from promptgraft.runs.folder import RUN_ID, RunFolder, field_of, field_or_none, read_document
from promptgraft.runs.history import RunHistory, StepCandidates, shown_mean
from promptgraft.search.answers import record_from_json
from promptgraft.search.call_log import CallLog
from promptgraft.search.events import (
    CandidateAdded,
    CandidateScored,
    Event,
    RunEnded,
    RunPlanned,
    RunProgress,
)
from promptgraft.search.place import QUESTIONS, Phase, Place
from promptgraft.search.stopping import is_early, stop_sentence
from promptgraft.search.verdict import HeldOut, RunVerdict
from promptgraft.targets.types import Change, RolloutRecord, read_changes


class State(StrEnum):
    """Whether a run is active, ended, stopped, interrupted or damaged."""

    RUNNING = "running"
    """It is in progress: a process holds its lock."""
    ENDED = "ended"
    """It is complete. A resumed run stays so until a new event follows its old end."""
    STOPPED = "stopped"
    """It was stopped early, by Ctrl+C, a limit or a provider; `promptgraft resume` resumes it."""
    INTERRUPTED = "interrupted"
    """Its process was killed or failed; `promptgraft resume` resumes it."""
    DAMAGED = "damaged"
    """A file cannot be read."""


@attrs.frozen(kw_only=True)
class RunSummary:
    """A run in a list, known from its ``config.json`` and its last events.

    Attributes:
        folder: the run directory.
        state: running, ended, stopped, interrupted or damaged.
        created: when the folder was made.
        prompt: the prompt, ``namespace/key``; empty for a damaged run.
        steps: steps begun; before the end, as of the last event that has them.
        candidates: size of the pool, including the baseline.
        rollouts: rollouts used.
        budget: rollouts that may be used; None if neither the plan nor the last events have it.
        baseline_mean: mean of the baseline on the validation set; None if unknown.
        best_mean: mean of the best candidate on the validation set; None if unknown.
        estimated: whether each of the two is an estimate, because some examples have no score.
        ended: the event that ended it; None before the end.
        cost: US dollars; None if a price is unknown.
        fault: what is damaged; empty if nothing is.
    """

    folder: RunFolder
    state: State
    created: datetime
    prompt: str = ""
    steps: int = 0
    candidates: int = 0
    rollouts: int = 0
    budget: int | None = None
    baseline_mean: float | None = None
    best_mean: float | None = None
    estimated: tuple[bool, bool] = (False, False)
    ended: RunEnded | None = None
    cost: Decimal | None = None
    fault: str = ""

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.id

    @property
    def held_out(self) -> Gain | None:
        """The gain on the held-out examples; None if it was not measured."""
        return self.ended.held_out.gain if self.ended and self.ended.held_out else None

    @property
    def verdict(self) -> RunVerdict | None:
        """The verdict on the best candidate; None before the end."""
        return self.ended.verdict if self.ended else None

    @property
    def stop_reason(self) -> str:
        """Why the run ended; empty before the end, as is ``stop_detail``."""
        return self.ended.stop_reason if self.ended else ""

    @property
    def stop_detail(self) -> str:
        return self.ended.stop_detail if self.ended else ""

    def __repr__(self) -> str:
        means = change(self.baseline_mean, self.best_mean, estimated=self.estimated)
        return f"<RunSummary {self.id} {self.state}: {self.prompt}, {means} on the validation set>"


@attrs.define(kw_only=True, repr=False)
class RunRecord(RunHistory, Shown):
    """A whole run: the history of its events, and its directory.

    Attributes:
        folder: the run directory.
        state: running, ended, stopped, interrupted or damaged.
        config: the content of ``config.json``.
        created: when the folder was made.
        prompt: the prompt, ``namespace/key``.
    """

    folder: RunFolder
    state: State
    config: Mapping[str, Json]
    created: datetime
    prompt: str

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.id

    @property
    def held_out(self) -> HeldOut | None:
        """Scores of baseline and winner on the held-out examples; None before the end."""
        return self.ended.held_out if self.ended else None

    @property
    def line(self) -> list[CandidateAdded]:
        """The best candidate and its line of first parents, from the baseline on."""
        line_of_best: list[CandidateAdded] = []
        at = self.best if self.candidates else None
        while at is not None:
            line_of_best.insert(0, self.candidates[at])
            at = line_of_best[0].parents[0] if line_of_best[0].parents else None
        return line_of_best

    @property
    def stopped(self) -> str:
        """Why the run ended, in a sentence; empty before the end."""
        ended = self.ended
        return "" if ended is None else stop_sentence(ended.stop_reason, ended.stop_detail)

    def __repr__(self) -> str:
        means = self._means()
        return (
            f"<RunRecord {self.id} {self.state}: {self.prompt or 'no prompt yet'}, {means} on the "
            f"validation set, {counted(len(self.candidates), 'candidate')}, "
            f"{counted(self.rollouts, 'rollout')}>"
        )

    def _card(self) -> Card:
        used = f"{self.rollouts}" if self.budget is None else f"{self.rollouts} of {self.budget}"
        best = self.sides[1] if self.sides else None
        texts = best.texts.items() if best else ()
        return Card(
            title=self.id,
            lead=f"{self.state}, {self.prompt}" if self.prompt else str(self.state),
            fields=(
                ("validation", f"{self._means()} on {counted(len(self.pareto_ids), 'example')}"),
                ("used", f"{used} rollouts, {dollars(self.cost if best else None)}"),
                ("steps", f"{self.steps}"),
                ("rewrites", str(self.rewrites)),
                ("created", moment(self.created)),
                ("folder", str(self.folder.path)),
            ),
            blocks=(
                first_rows(
                    map(_row, self.ranked), ("candidate", "validation", "from", "step", "changed")
                ),
                *(
                    LongText(title=f"{name} of candidate {self.best}", text=text)
                    for name, text in texts
                ),
            ),
        )

    def _means(self) -> str:
        is_known = bool(self.candidates)
        return change(*self.means, estimated=self.estimated) if is_known else "nothing known"


def _row(candidate: CandidateAdded) -> tuple[str, ...]:
    parents = " + ".join(map(str, candidate.parents))
    mean = shown_mean(candidate)
    return f"{candidate.candidate}", mean, parents, f"{candidate.step}", candidate.changed


LATEST = "latest"
_SHOWN_RUNS = 5
_SECONDS_BETWEEN_LOOKS = 0.5


def list_runs(root: str | Path) -> tuple[RunSummary, ...]:
    """Return the runs in ``root``, the newest first; none if there is no such folder.

    Reads ``config.json`` and the end of ``events.jsonl`` of each run. Damaged runs are included,
    with their ``fault``.
    """
    summaries = [_listed(folder) for folder in _folders(as_path(root, "root"))]
    return tuple(sorted(summaries, key=lambda run: _order(run.created, run.id), reverse=True))


def find_run(root: str | Path, name: str = LATEST) -> RunFolder:
    """Return the run in ``root`` with this id or beginning of an id, or the newest.

    Raises:
        ConfigError: there is no such run, or more than one.
    """
    root = as_path(root, "root")
    folders = _folders(root)
    if not folders:
        raise ConfigError(
            f"there are no runs in {root.absolute()}; `promptgraft optimize` makes one, --runs "
            "names another folder"
        )
    if name == LATEST:
        return max(folders, key=lambda folder: _order(_created(folder), folder.id))
    # A whole id first: that of the second run within a second begins with the first one's.
    folders_found = [folder for folder in folders if folder.id == name]
    folders_found = folders_found or [folder for folder in folders if folder.id.startswith(name)]
    if len(folders_found) == 1:
        return folders_found[0]
    if folders_found:
        more = (
            f" and {len(folders_found) - _SHOWN_RUNS} more"
            if len(folders_found) > _SHOWN_RUNS
            else ""
        )
        some = f"{listed(folder.id for folder in folders_found[:_SHOWN_RUNS])}{more}"
        raise ConfigError(f"several runs in {root} begin with `{name}`: {some}; name one")
    near = did_you_mean(name, [*(folder.id for folder in folders), LATEST])
    raise ConfigError(f"no run in {root} is called `{name}`{near}; `promptgraft runs` lists them")


def summarize(folder: RunFolder) -> RunSummary:
    """Return the summary of a run."""
    config, created, prompt = _read_config(folder)
    state = State.RUNNING if folder.is_locked else State.INTERRUPTED
    budget = field_or_none(INTEGER, config, folder.config, "plan", "rollouts")
    summary = RunSummary(folder=folder, state=state, created=created, prompt=prompt, budget=budget)
    # The tail begins with an event that has most figures; later ones bring them up to date.
    for event in tail_of(folder.events):
        summary = _after(summary, event)
    if summary.state is State.INTERRUPTED:  # perhaps before it could write its last events
        rollouts, cost = _begun(folder)
        if rollouts and cost is not None and summary.cost is not None:
            cost = max(cost, summary.cost)
        summary = attrs.evolve(
            summary,
            rollouts=max(summary.rollouts, rollouts),
            cost=cost if rollouts else summary.cost,
        )
    return summary


def _begun(folder: RunFolder) -> tuple[int, Decimal | None]:
    """Return how many rollouts a run has begun, and US dollars, by what its journal notes.

    Requests that were sent and never answered cost the most that they can, as in a ledger. The
    cost is None if a price is unknown.
    """
    positions, journal = set[str](), MemoryJournal()
    journal.begin({})
    spent: list[Spending] = []
    attempts: dict[str, tuple[Spending, ...]] = {}
    with contextlib.suppress(FileNotFoundError, JournalError), opened(folder.journal) as file:
        next(file, None)  # the header
        for line in file:
            record = decode_record(line)
            position, is_inside, _ = record.key.partition(CALL)
            positions.add(position)
            if not is_inside and isinstance(record.answer, list):
                attempts[record.key] = spent_from_json(record.answer, record.key)
            elif not is_inside and isinstance(record.answer, dict):
                spent += spent_from_json(record.answer.get("spent", []), record.key)
                # Only that it is there counts in what follows.
                record = msgspec.structs.replace(record, answer={}, text=None)
            journal.append_all([record])
    unfinished = {key for key in journal.with_calls if key not in journal}
    with contextlib.suppress(JournalError):
        spent += CallLog(journal).unfinished()
    for key, of_attempt in attempts.items():
        spent += () if of_spent_key(key) in unfinished else of_attempt
    costs = [spending.cost for spending in spent]
    dollars = [cost for cost in costs if cost is not None]
    count = sum(Place.of_rollout(position) is not None for position in positions)
    return count, sum(dollars, Decimal(0)) if len(dollars) == len(costs) else None


def _folders(root: Path) -> list[RunFolder]:
    try:
        paths = sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    # Temporary folders of runs that are made or removed begin with a dot, which no id does.
    return [RunFolder(path) for path in paths if RUN_ID.fullmatch(path.name) and path.is_dir()]


def _after(summary: RunSummary, event: Event) -> RunSummary:
    """Return a summary updated by one of the last events of a run."""
    match event:
        case RunEnded():
            measured = _measured(summary, event)
            return attrs.evolve(measured, state=_end_of(event), steps=event.steps, ended=event)
        case RunProgress():
            return attrs.evolve(_measured(summary, event), steps=event.step, budget=event.budget)
        case RunPlanned():
            return attrs.evolve(summary, budget=event.budget)
        case CandidateAdded():
            joined = attrs.evolve(
                summary,
                steps=event.step,
                candidates=event.candidate + 1,
                rollouts=event.rollouts,
                cost=event.cost,
            )
            return _scored(joined, event)
        case CandidateScored():
            return _scored(summary, event)
    return summary


def _end_of(event: RunEnded) -> State:
    return State.STOPPED if is_early(event.stop_reason) else State.ENDED


def _measured(summary: RunSummary, event: RunEnded | RunProgress) -> RunSummary:
    return attrs.evolve(
        summary,
        candidates=event.candidates,
        rollouts=event.rollouts,
        cost=event.cost,
        baseline_mean=event.baseline_mean,
        best_mean=event.best_mean,
        estimated=(event.baseline_estimated, event.best_estimated),
    )


def _scored(summary: RunSummary, event: CandidateAdded | CandidateScored) -> RunSummary:
    baseline, best = summary.estimated
    if event.candidate == 0:
        summary = attrs.evolve(summary, baseline_mean=event.mean, estimated=(event.estimated, best))
        baseline = event.estimated
    if event.candidate == event.best:
        summary = attrs.evolve(summary, best_mean=event.mean, estimated=(baseline, event.estimated))
    return summary


def _listed(folder: RunFolder) -> RunSummary:
    try:
        return summarize(folder)
    except DataFormatError as error:
        fault = str(error)
    except OSError as error:
        fault = f"{error.filename or folder.path}: {error.strerror}; restore it"
    return RunSummary(folder=folder, state=State.DAMAGED, created=_created(folder), fault=fault)


def _created(folder: RunFolder) -> datetime:
    """Return when a run was created; to the second if ``config.json`` cannot be read."""
    try:
        return field_of(MOMENT, read_document(folder.config), folder.config, "created")
    except (OSError, DataFormatError):
        return folder.second


def _order(created: datetime, name: str) -> tuple[datetime, int, str]:
    # The length comes first so that `-10` is newer than `-2`.
    return created, len(name), name


def read_run(folder: RunFolder) -> RunRecord:
    """Read a whole run, ended or not.

    Raises:
        OSError: a file cannot be read.
        DataFormatError: a file is invalid; the message names the line.
    """
    config, created, prompt = _read_config(folder)
    state = State.RUNNING if folder.is_locked else State.INTERRUPTED
    record = RunRecord(folder=folder, state=state, config=config, created=created, prompt=prompt)
    read_events(folder, record)
    if record.ended is not None:
        record.state = _end_of(record.ended)
    return record


def _read_config(folder: RunFolder) -> tuple[Mapping[str, Json], datetime, str]:
    config = read_document(folder.config)
    created = field_of(MOMENT, config, folder.config, "created")
    return config, created, field_of(STRING, config, folder.config, "prompt")


def read_events(folder: RunFolder, history: RunHistory) -> None:
    """Add all events of a run to ``history``.

    Raises:
        DataFormatError: a line is invalid, or contradicts earlier ones.
    """
    for number, event in read_lines(folder.events):
        try:
            history.add(event)
        except DataFormatError as error:
            raise DataFormatError(
                f"{folder.events}:{number}: {error}; `promptgraft resume` writes the file again"
            ) from None


def follow(folder: RunFolder, *, wait: Callable[[float], None]) -> Iterator[tuple[str, Event]]:
    """Yield the lines of a run with their events, present and future, until no process runs it.

    That is when the lock is free: the run has ended, was interrupted, or never began. After a
    resumed run has truncated its file, only new lines are yielded. ``wait`` is called with a
    number of seconds while there are none.
    """
    end = 0
    while True:
        # Checked before reading: what the process wrote before it released the lock is read.
        locked = folder.is_locked
        new_events, end = _new_lines(folder, end)
        yield from new_events
        if not locked:
            return
        if not new_events:
            wait(_SECONDS_BETWEEN_LOOKS)


def _new_lines(folder: RunFolder, start: int) -> tuple[list[tuple[str, Event]], int]:
    """Return the complete lines after byte ``start``, and the byte at which they end."""
    try:
        file = opened(folder.events)
    except FileNotFoundError:
        return [], 0
    with file:
        start = min(start, file.seek(0, os.SEEK_END))
        if start:
            # If the file was truncated and grew again, `start` may be inside a line: skip its rest.
            file.seek(start - 1)
            start += len(file.readline()) - 1
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    lines = [
        (text.decode("ascii", "replace"), decoded_at(text, folder.events))
        for text in whole.split(b"\n")[:-1]
    ]
    return lines, start + len(whole)


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
        folder, by_step = run.folder, run.tried
    else:
        folder, history = run, RunHistory()
        read_events(folder, history)
        by_step = history.tried
    try:
        file = opened(folder.journal)
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
            candidate = _candidate_at(place, by_step)
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
    with opened(folder.journal) as file:
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
