"""A run directory as the mirror of a job: what reads runs reads jobs."""

from __future__ import annotations

import contextlib
import shutil
from datetime import UTC, datetime
from pathlib import Path

import attrs
from sqlalchemy import Connection

from promptgraft.database import Database
from promptgraft.errors import DataFormatError
from promptgraft.jobs.lines import OF_THE_RUN, LineKind
from promptgraft.jobs.rows import JobRows
from promptgraft.jobs.types import Job
from promptgraft.project import Project
from promptgraft.project.python_source import beside
from promptgraft.prompt import Prompt
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import read_document, write_document
from promptgraft.runs.recorder import retell
from promptgraft.serde import parse_json
from promptgraft.strict import structure
from promptgraft.targets.prompts import prompts_of

_MARK = "mirror.json"
_AT_ONCE = 256


def name_of(job: Job) -> str:
    """Return what a job is called where runs are: as a run directory, and in trackers."""
    return f"{datetime.fromtimestamp(job.created, UTC):%Y%m%d-%H%M%S}-{job.prompt}-{job.id[:8]}"


def folder_of(job: Job, root: Path) -> RunFolder:
    """Return where a job is mirrored below a folder of runs."""
    return RunFolder(root / name_of(job))


@attrs.frozen(kw_only=True)
class _Mark:
    """How far a folder is: what is behind it is new.

    Attributes:
        answers: lines of the journal.
        events: number of the latest event.
        sizes: bytes of the files that grow.
        is_final: whether the job had ended by then.
    """

    answers: int = 0
    events: int = 0
    sizes: tuple[int, ...] = (0, 0)
    is_final: bool = False


def mirror(database: Database, job: Job, root: Path, *, project: Project | None = None) -> Path:
    """Write what a job has by now as a run directory, and return that.

    What is new of journal and events is appended, byte for byte; ``mirror.json`` says how far the
    folder is. A folder that says something else is written anew. The other files are made of the
    events.

    Args:
        database: where the job is.
        job: the job.
        root: the folder of run directories; made if it does not exist.
        project: has the sources of the prompts, which the pages show changes against.

    Raises:
        DataFormatError: the job was never begun, so that there is nothing to write.
        JournalLockedError: another process writes the folder.
        OSError: the system refuses.
    """
    rows, folder = JobRows(database), folder_of(job, root)
    with database.reading() as connection:
        config = rows.document(connection, job.number, "config")
        now = (rows.answers(connection, job.number), rows.look(connection, job.number)[0])
    if config is None:
        raise DataFormatError(f"job {job.id} was never begun; there is nothing to write yet")
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.held():
        mark = _mark(folder, job)
        if (mark.answers, mark.events) == now:
            return folder.path
        plain = parse_json(config, where=f"job {job.id}: config")
        document = plain if isinstance(plain, dict) else {}
        created = datetime.fromtimestamp(job.created, UTC).isoformat()
        own = {"id": folder.id, "tracked_as": folder.id, "created": created}
        write_document(folder.config, {**own, **document})
        with database.reading() as connection:
            try:
                mark = _extend(folder, mark, rows=rows, connection=connection, job=job)
            except _RewoundError:
                _empty(folder)
                mark = _extend(folder, _Mark(), rows=rows, connection=connection, job=job)
        prompts: dict[str, Prompt[object]] = {}
        if project is not None:
            with beside(project.folder):
                prompts = dict(prompts_of(project.prompt(job.prompt).subject))
        retell(folder, prompts)
        write_document(folder.path / _MARK, attrs.asdict(mark))
    return folder.path


class _RewoundError(Exception):
    """A replay has taken back what a folder has."""


def _mark(folder: RunFolder, job: Job) -> _Mark:
    """Return how far a folder is, which is emptied when it cannot be continued."""
    path = folder.path / _MARK
    if path.exists():
        with contextlib.suppress(DataFormatError):
            plain = read_document(path)
            del plain["version"]
            mark = structure(plain, _Mark, where=str(path))
            if mark.sizes == _sizes(folder) and mark.is_final == job.has_ended:
                return mark
    _empty(folder)
    return _Mark()


def _empty(folder: RunFolder) -> None:
    for path in (folder.path / _MARK, folder.journal, folder.events):
        path.unlink(missing_ok=True)
    # Pages of what a replay has taken back are not left.
    for inside in (folder.candidates, folder.rejected):
        shutil.rmtree(inside, ignore_errors=True)


def _sizes(folder: RunFolder) -> tuple[int, ...]:
    paths = (folder.journal, folder.events)
    return tuple(path.stat().st_size if path.exists() else 0 for path in paths)


def _extend(
    folder: RunFolder, mark: _Mark, *, rows: JobRows, connection: Connection, job: Job
) -> _Mark:
    """Append what is new to the files; the journal last, so that it has all that events tell of."""
    events, answers = mark.events, mark.answers
    with folder.events.open("ab") as file:
        for number, line in rows.all_events(connection, job.number, after=mark.events):
            events = number
            if line.kind is LineKind.REWOUND and mark.events:
                raise _RewoundError
            if line.kind in OF_THE_RUN:
                file.write(line.text + b"\n")
    with folder.journal.open("ab") as file:
        while page := rows.lines(connection, job.number, answers, limit=_AT_ONCE):
            file.writelines(page)
            answers += len(page)
    sizes = _sizes(folder)
    return _Mark(answers=answers, events=events, sizes=sizes, is_final=job.has_ended)
