"""A run directory as the mirror of a job: what reads runs reads jobs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from promptgraft.database import Database
from promptgraft.errors import DataFormatError
from promptgraft.files import write_atomically
from promptgraft.jobs.events import told
from promptgraft.jobs.rows import JobRows
from promptgraft.jobs.types import Job
from promptgraft.project import Project
from promptgraft.project.python_source import beside
from promptgraft.runs import RunFolder
from promptgraft.runs.folder import write_document
from promptgraft.runs.recorder import retell
from promptgraft.serde import parse_json


def folder_of(job: Job, root: Path) -> RunFolder:
    """Return where a job is mirrored below a folder of runs."""
    moment = datetime.fromtimestamp(job.created, UTC)
    return RunFolder(root / f"{moment:%Y%m%d-%H%M%S}-{job.prompt}-{job.id[:8]}")


def mirror(database: Database, job: Job, root: Path, *, project: Project | None = None) -> Path:
    """Write what a job has by now as a run directory, and return that.

    Journal and events are appended byte for byte to what is there; files that say something else
    are written anew. The other files are made of the events.

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
        journal = rows.lines(connection, job.number, 0)
    if config is None:
        raise DataFormatError(f"job {job.id} was never begun; there is nothing to write yet")
    plain = parse_json(config, where=f"job {job.id}: config")
    lines = [line + b"\n" for _, _, line in told(database, job.number)]
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.held():
        created = datetime.fromtimestamp(job.created, UTC).isoformat()
        document = plain if isinstance(plain, dict) else {}
        write_document(folder.config, {"id": folder.id, "created": created, **document})
        _extend(folder.journal, journal)
        if not _extend(folder.events, lines):
            # Pages of what a replay has taken back are not left.
            for inside in (folder.candidates, folder.rejected):
                shutil.rmtree(inside, ignore_errors=True)
        prompts = {}
        if project is not None:
            with beside(project.folder):
                prompt = project.prompt(job.prompt).prompt
                prompts[f"{prompt.descriptor.ns}/{prompt.descriptor.key}"] = prompt
        retell(folder, prompts)
    return folder.path


def _extend(path: Path, lines: Sequence[bytes]) -> bool:
    """Let a file hold these lines; return whether they continue what it held."""
    whole = b"".join(lines)
    there = path.read_bytes() if path.exists() else b""
    if not whole.startswith(there):
        write_atomically(path, whole)
        return False
    with path.open("ab") as file:
        file.write(whole[len(there) :])
    return True
