"""Which runs there are, and which one is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.runs.fields import Fields
from promptgraft.runs.files import read_document
from promptgraft.runs.folder import RUN_ID, RunFolder
from promptgraft.runs.lines import has_ended, tail_of
from promptgraft.runs.records import RunSummary, State
from promptgraft.serde import Json, did_you_mean

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
    locked = folder.is_locked
    lines = tail_of(folder.events)
    known: dict[str, Json] = {}
    for line in lines:
        known.update(_facts(line))
    facts = Fields(known, str(folder.events))
    ended = has_ended(lines)
    return RunSummary(
        folder=folder,
        state=state_of(locked=locked, ended=ended),
        created=config.moment("created"),
        prompt=config.text("prompt"),
        steps=facts.integer("steps") if "steps" in known else 0,
        candidates=facts.integer("candidates") if "candidates" in known else 0,
        rollouts=facts.integer("rollouts") if "rollouts" in known else 0,
        budget=facts.integer("budget") if "budget" in known else None,
        baseline_mean=facts.number("baseline_mean"),
        best_mean=facts.number("best_mean"),
        estimated=(
            known.get("baseline_estimated") is True,
            known.get("best_estimated") is True,
        ),
        held_out=_held_out(facts) if ended and known.get("held_out") else None,
        improved=facts.flag("improved") if ended else None,
        stop_reason=facts.inside("stop").text("reason") if ended else "",
        cost=facts.money("cost"),
    )


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


def _facts(line: Mapping[str, Json]) -> Iterable[tuple[str, Json]]:
    """Return what a line says of where the run stands, under the names of ``ended``."""
    match line["event"]:
        case "ended":
            yield from line.items()
        case "progress":
            yield from line.items()
            yield "steps", line.get("step")
        case "plan":
            yield "budget", line.get("budget")
        case "candidate":
            yield from (("rollouts", line.get("rollouts")), ("cost", line.get("cost")))
            yield "steps", line.get("step")
            number = line.get("candidate")
            if isinstance(number, int):
                yield "candidates", number + 1
            yield from _means(line)
        case "scored":
            yield from _means(line)
        case _:
            pass


def _means(line: Mapping[str, Json]) -> Iterable[tuple[str, Json]]:
    number = line.get("candidate")
    for name, position in (("baseline", 0), ("best", line.get("best"))):
        if number == position:
            yield f"{name}_mean", line.get("mean")
            yield f"{name}_estimated", line.get("estimated")


def _held_out(facts: Fields) -> tuple[float | None, float | None]:
    unseen = facts.inside("held_out")
    return unseen.number("baseline_mean"), unseen.number("winner_mean")


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
