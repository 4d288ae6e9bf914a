"""Reading run directories, also while another process writes to them.

The runs of a folder, one whole run, and the events of a run as they come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.runs.event_file import decoded, read_lines, tail_of
from promptgraft.runs.folder import RUN_ID, RunFolder, field_of, read_document
from promptgraft.runs.history import RunHistory
from promptgraft.runs.records import RunRecord, RunSummary, State
from promptgraft.search.events import CandidateAdded, CandidateScored, RunEnded
from promptgraft.search.notices import Event, RunPlanned, RunProgress
from promptgraft.search.stopping import is_early
from promptgraft.serde import Json, did_you_mean
from promptgraft.strict.checks import MOMENT, STRING
from promptgraft.text import listed

LATEST = "latest"
_SHOWN_RUNS = 5
_SECONDS_BETWEEN_LOOKS = 0.5


def list_runs(root: Path) -> tuple[RunSummary, ...]:
    """Return the runs in ``root``, the newest first; none when there is no such folder.

    Reads ``config.json`` and the end of ``events.jsonl`` of each. One that is damaged is among
    them, with what is wrong with it.
    """
    found = [_listed(folder) for folder in _folders(root)]
    return tuple(sorted(found, key=lambda run: _order(run.created, run.id), reverse=True))


def find_run(root: Path, name: str = LATEST) -> RunFolder:
    """Return the run in ``root`` with that id, or with an id that begins so; or the newest.

    Raises:
        ConfigError: there is none, or there are several.
    """
    folders = _folders(root)
    if not folders:
        raise ConfigError(
            f"there are no runs in {root}; `promptgraft optimize` makes one, --runs names another "
            "folder"
        )
    if name == LATEST:
        return max(folders, key=lambda folder: _order(_created(folder), folder.id))
    found = [folder for folder in folders if folder.id == name]
    found = found or [folder for folder in folders if folder.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - _SHOWN_RUNS} more" if len(found) > _SHOWN_RUNS else ""
        some = f"{listed(folder.id for folder in found[:_SHOWN_RUNS])}{more}"
        raise ConfigError(f"several runs in {root} begin with `{name}`: {some}; name one")
    near = did_you_mean(name, [*(folder.id for folder in folders), LATEST])
    raise ConfigError(f"no run in {root} is called `{name}`{near}; `promptgraft runs` lists them")


def summarize(folder: RunFolder) -> RunSummary:
    """Return what lists show of a run."""
    _, created, prompt = _read_config(folder)
    state = State.RUNNING if folder.is_locked else State.INTERRUPTED
    summary = RunSummary(folder=folder, state=state, created=created, prompt=prompt)
    for event in tail_of(folder.events):
        summary = _after(summary, event)
    return summary


def _folders(root: Path) -> list[RunFolder]:
    try:
        paths = sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [RunFolder(path) for path in paths if RUN_ID.fullmatch(path.name) and path.is_dir()]


def _after(known: RunSummary, event: Event) -> RunSummary:
    """Return what is known after an event near the end of a run."""
    match event:
        case RunEnded():
            return attrs.evolve(
                _measured(known, event),
                state=_end_of(event),
                steps=event.steps,
                held_out=event.held_out.gain if event.held_out else None,
                verdict=event.verdict,
                stop_reason=event.stop_reason,
            )
        case RunProgress():
            return attrs.evolve(_measured(known, event), steps=event.step, budget=event.budget)
        case RunPlanned():
            return attrs.evolve(known, budget=event.budget)
        case CandidateAdded():
            joined = attrs.evolve(
                known,
                steps=event.step,
                candidates=event.candidate + 1,
                rollouts=event.rollouts,
                cost=event.cost,
            )
            return _scored(joined, event)
        case CandidateScored():
            return _scored(known, event)
    return known


def _end_of(event: RunEnded) -> State:
    return State.STOPPED if is_early(event.stop_reason) else State.ENDED


def _measured(known: RunSummary, event: RunEnded | RunProgress) -> RunSummary:
    return attrs.evolve(
        known,
        candidates=event.candidates,
        rollouts=event.rollouts,
        cost=event.cost,
        baseline_mean=event.baseline_mean,
        best_mean=event.best_mean,
        estimated=(event.baseline_estimated, event.best_estimated),
    )


def _scored(known: RunSummary, event: CandidateAdded | CandidateScored) -> RunSummary:
    baseline, best = known.estimated
    if event.candidate == 0:
        known = attrs.evolve(known, baseline_mean=event.mean, estimated=(event.estimated, best))
        baseline = event.estimated
    if event.candidate == event.best:
        known = attrs.evolve(known, best_mean=event.mean, estimated=(baseline, event.estimated))
    return known


def _listed(folder: RunFolder) -> RunSummary:
    try:
        return summarize(folder)
    except (OSError, DataFormatError) as error:
        return RunSummary(
            folder=folder, state=State.DAMAGED, created=_created(folder), fault=str(error)
        )


def _created(folder: RunFolder) -> datetime:
    """Return when a run was made; to the second where ``config.json`` does not say."""
    try:
        return field_of(MOMENT, read_document(folder.config), folder.config, "created")
    except (OSError, DataFormatError):
        return folder.second


def _order(created: datetime, name: str) -> tuple[datetime, int, str]:
    # Of two runs of one moment, `-10` comes after `-2`.
    return created, len(name), name


def read_run(folder: RunFolder) -> RunRecord:
    """Return a run as its files tell it, ended or not.

    Raises:
        OSError: a file cannot be read.
        DataFormatError: a file is not what a run writes; names the line.
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
    """Add to ``history`` all that the events of a run tell.

    Raises:
        DataFormatError: a line is not what a run writes, or does not fit those before it.
    """
    for number, event in read_lines(folder.events):
        try:
            history.add(event)
        except DataFormatError as error:
            raise DataFormatError(
                f"{folder.events}:{number}: {error}; `promptgraft resume` writes the file again"
            ) from None


def follow(folder: RunFolder, *, wait: Callable[[float], None]) -> Iterator[tuple[str, Event]]:
    """Yield the lines of a run with their events, those there and those to come, until it is left.

    A run is left when its lock is free: it has ended, was interrupted, or was never begun. When a
    resumed run cuts its file, only what comes then is yielded. ``wait`` is called with seconds
    when there is nothing new.
    """
    end = 0
    while True:
        locked = folder.is_locked
        found, end = _new_lines(folder, end)
        yield from found
        if not locked:
            return
        if not found:
            wait(_SECONDS_BETWEEN_LOOKS)


def _new_lines(folder: RunFolder, start: int) -> tuple[list[tuple[str, Event]], int]:
    """Return the whole lines behind ``start``, and where they end."""
    try:
        file = folder.events.open("rb")
    except FileNotFoundError:
        return [], 0
    with file:
        start = min(start, file.seek(0, os.SEEK_END))
        if start:
            # The file may have been cut and have grown again: on to the next beginning of a line.
            file.seek(start - 1)
            start += len(file.readline()) - 1
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    where, texts = str(folder.events), whole.split(b"\n")[:-1]
    lines = [(text.decode("ascii", "replace"), decoded(text, where)) for text in texts]
    return lines, start + len(whole)
