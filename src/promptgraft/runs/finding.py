"""Which runs there are, and which one is meant."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.runs.fields import Fields
from promptgraft.runs.files import read_document
from promptgraft.runs.folder import RUN_ID, RunFolder
from promptgraft.runs.lines import tail_of
from promptgraft.runs.records import RunSummary, State
from promptgraft.search.events import CandidateAdded, CandidateScored, RunEnded
from promptgraft.search.notices import Event, RunPlanned, RunProgress
from promptgraft.serde import did_you_mean

LATEST = "latest"
_SHOWN_RUNS = 5


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
        last = max(folder.second for folder in folders)
        of_that_second = [folder for folder in folders if folder.second == last]
        return max(of_that_second, key=lambda folder: _order(_created(folder), folder.id))
    found = [folder for folder in folders if folder.id == name]
    found = found or [folder for folder in folders if folder.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    ids = [folder.id for folder in folders]
    if found:
        raise ConfigError(f"several runs in {root} begin with `{name}`: {_named(found)}; name one")
    raise ConfigError(
        f"no run in {root} is called `{name}`{did_you_mean(name, [*ids, LATEST])}; "
        "`promptgraft runs` lists them"
    )


def summarize(folder: RunFolder) -> RunSummary:
    """Return what lists show of a run.

    Raises:
        DataFormatError: a file of the run is not what a run writes.
    """
    config = Fields(read_document(folder.config), str(folder.config))
    summary = RunSummary(
        folder=folder,
        state=state_of(locked=folder.is_locked, ended=False),
        created=config.moment("created"),
        prompt=config.text("prompt"),
    )
    for event in tail_of(folder.events):
        summary = _after(summary, event)
    return summary


def state_of(*, locked: bool, ended: bool) -> State:
    """Return the state of a run."""
    if ended:
        return State.ENDED
    return State.RUNNING if locked else State.INTERRUPTED


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
            return _ended(known, event)
        case RunProgress():
            return attrs.evolve(
                known,
                steps=event.step,
                candidates=event.candidates,
                rollouts=event.rollouts,
                budget=event.budget,
                cost=event.cost,
                baseline_mean=event.baseline_mean,
                best_mean=event.best_mean,
                estimated=(event.baseline_estimated, event.best_estimated),
            )
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


def _ended(known: RunSummary, event: RunEnded) -> RunSummary:
    found = event.held_out
    return attrs.evolve(
        known,
        state=State.ENDED,
        steps=event.steps,
        candidates=event.candidates,
        rollouts=event.rollouts,
        cost=event.cost,
        baseline_mean=event.baseline_mean,
        best_mean=event.best_mean,
        estimated=(event.baseline_estimated, event.best_estimated),
        held_out=(found.baseline_mean, found.winner_mean) if found is not None else None,
        improved=event.improved,
        stop_reason=event.stop_reason,
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
        return Fields(read_document(folder.config), str(folder.config)).moment("created")
    except (OSError, DataFormatError):
        return folder.second


def _order(created: datetime, name: str) -> tuple[datetime, int, str]:
    # Of two runs of one moment, `-10` comes after `-2`.
    return created, len(name), name


def _named(folders: list[RunFolder]) -> str:
    more = f" and {len(folders) - _SHOWN_RUNS} more" if len(folders) > _SHOWN_RUNS else ""
    return ", ".join(f"`{folder.id}`" for folder in folders[:_SHOWN_RUNS]) + more
