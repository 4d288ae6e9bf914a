"""Mirrors of jobs as run directories, so that everything that reads runs can read jobs."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import attrs
from sqlalchemy import Connection

from promptgraft.errors import ConfigError, DataFormatError, RevisionNotFoundError
from promptgraft.ground.content import files_in
from promptgraft.ground.folders import remove_tree
from promptgraft.ground.serde import parse_json
from promptgraft.ground.strict import structure
from promptgraft.journal.file import keep_files
from promptgraft.overrides.parts.validation import check_key
from promptgraft.project import Project
from promptgraft.project.python_source import beside
from promptgraft.prompt import Prompt
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import read_document, write_document, write_text
from promptgraft.runs.recorder import write_missing
from promptgraft.service.database import Database
from promptgraft.service.jobs.datasets import Datasets
from promptgraft.service.jobs.lines import OF_THE_RUN, LineKind
from promptgraft.service.jobs.rows import JobRows
from promptgraft.service.jobs.types import Job
from promptgraft.targets.prompts import prompts_of

_MARK = "mirror.json"
_AT_ONCE = 256


def name_of(job: Job) -> str:
    """Return the name of a job as a run: of its run directory, and in trackers.

    Raises:
        InvalidIdentifierError: a row of the database gives names that no job has.
    """
    # A name becomes a part of a path, and the database may be written by others.
    for part in (job.prompt, job.id):
        check_key(part, "job: prompt and id")
    return f"{datetime.fromtimestamp(job.created, UTC):%Y%m%d-%H%M%S}-{job.prompt}-{job.id[:8]}"


def folder_of(job: Job, root: Path) -> RunFolder:
    """Return the run directory of a job in a folder of runs."""
    return RunFolder(root / name_of(job))


@attrs.frozen(kw_only=True)
class _Mark:
    """How much of a job is mirrored.

    Attributes:
        answers: number of lines of the journal.
        events: number of the latest event.
        sizes: bytes of journal and events; other sizes show that something else wrote to them.
        is_final: whether the job had ended by then.
        has_pages: whether all files were derived from them, also those for readers.
    """

    answers: int = 0
    events: int = 0
    sizes: tuple[int, ...] = (0, 0)
    is_final: bool = False
    has_pages: bool = True


def mirror(
    database: Database,
    job: Job,
    root: Path,
    *,
    project: Project | None = None,
    pages: bool = True,
) -> Path:
    """Write the run directory of a job, or bring it up to date, and return it.

    New lines of journal and events are appended byte for byte; ``mirror.json`` records how many
    there are. A folder that does not match it is written from scratch. All other files are derived
    from the events.

    Args:
        database: the database of the job.
        job: the job.
        root: the folder of run directories; created if it does not exist.
        project: gives the sources of the prompts, so that pages can show changes to them.
        pages: whether the pages of candidates and the like are written, which take most of the
            time and are not needed for a report.

    Raises:
        DataFormatError: the job has never started, so that there is nothing to write.
        JournalLockedError: another process is writing the folder.
        OSError: the folder cannot be written.
    """
    rows, folder = JobRows(database), folder_of(job, root)
    with database.reading() as connection:
        config = rows.document(connection, job.number, "config")
        now = (
            rows.answers(connection, job.number),
            rows.columns(connection, job.number, "events").events,
        )
    if config is None:
        raise DataFormatError(f"job {job.id} has not started; there is nothing to write yet")
    folder.path.mkdir(parents=True, exist_ok=True)
    # Two mirrors of one job would append the same lines twice.
    with folder.held():
        mark = _mark(folder, job)
        if (mark.answers, mark.events) == now and (mark.has_pages or not pages):
            return folder.path
        plain = parse_json(config, where=f"job {job.id}: config")
        document = plain if isinstance(plain, dict) else {}
        created = datetime.fromtimestamp(job.created, UTC).isoformat()
        entry = {"id": folder.id, "tracked_as": folder.id, "created": created}
        write_document(folder.config, {**entry, **document})
        if (dataset := job.changes.dataset) is not None:
            # Revisions may be removed; then the job can be shown, but not resumed in the folder.
            with contextlib.suppress(RevisionNotFoundError):
                write_text(folder.cases, Datasets(database).find(job.project, dataset).text)
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
                if mark.is_final:
                    _keep_files(folder, project)
        write_missing(folder, prompts, pages=pages)
        mark = attrs.evolve(mark, has_pages=pages)
        # Last: without it, a mirror that was killed halfway is written from scratch.
        write_document(folder.path / _MARK, attrs.asdict(mark))
    return folder.path


def _keep_files(folder: RunFolder, project: Project) -> None:
    """Keep the images and files of the cases: a journal in a database has their digests only."""
    # Data that cannot be read any more are no fault of the job; pages then show names.
    with contextlib.suppress(DataFormatError, ConfigError):
        cases = [case for part in project.splits.parts().values() for case in part]
        keep_files(folder.files, files_in([case.input for case in cases]))


class _RewoundError(Exception):
    """A replay has retracted events that are in the folder."""


def _mark(folder: RunFolder, job: Job) -> _Mark:
    """Return how much is mirrored; empty the folder if it cannot be continued."""
    path = folder.path / _MARK
    if path.exists():
        with contextlib.suppress(DataFormatError):
            plain = read_document(path)
            del plain["version"]
            mark = structure(plain, _Mark, where=str(path))
            # At the end of a job its progress lines are deleted, so that the folder is written
            # anew.
            if mark.sizes == _sizes(folder) and mark.is_final == job.has_ended:
                return mark
    _empty(folder)
    return _Mark()


def _empty(folder: RunFolder) -> None:
    for path in (folder.path / _MARK, folder.journal, folder.events):
        path.unlink(missing_ok=True)
    # Derived files: a replay may have retracted the candidates that they show.
    for inside in (folder.candidates, folder.rejected):
        with contextlib.suppress(OSError):
            remove_tree(inside)


def _sizes(folder: RunFolder) -> tuple[int, ...]:
    paths = (folder.journal, folder.events)
    return tuple(path.stat().st_size if path.exists() else 0 for path in paths)


def _extend(
    folder: RunFolder, mark: _Mark, *, rows: JobRows, connection: Connection, job: Job
) -> _Mark:
    """Append new lines; the journal last, so that it has the answer to every event."""
    events, answers = mark.events, mark.answers
    with folder.events.open("ab") as file:
        for number, line in rows.all_events(connection, job.number, after=mark.events):
            events = number
            # In a fresh folder nothing is wrong: retracted lines are of another kind by now.
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
