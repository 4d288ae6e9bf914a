"""Reading a run directory whole, also while another process writes to it."""

from __future__ import annotations

from promptgraft.errors import DataFormatError
from promptgraft.runs.fields import Fields
from promptgraft.runs.files import read_document
from promptgraft.runs.finding import state_of
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory
from promptgraft.runs.lines import read_lines
from promptgraft.runs.records import RunRecord, State


def read_run(folder: RunFolder) -> RunRecord:
    """Return a run as its files tell it, ended or not.

    Raises:
        OSError: a file cannot be read.
        DataFormatError: a file is not what a run writes; names the line.
    """
    config = read_document(folder.config)
    settings = Fields(config, str(folder.config))
    locked = folder.is_locked
    record = RunRecord(
        folder=folder,
        state=State.RUNNING,
        config=config,
        created=settings.moment("created"),
        prompt=settings.text("prompt"),
    )
    read_events(folder, record)
    record.state = state_of(locked=locked, ended=record.ended is not None)
    return record


def read_events(folder: RunFolder, history: RunHistory) -> None:
    """Add to ``history`` all that the events of a run tell.

    Raises:
        OSError: the file cannot be read.
        DataFormatError: a line is not what a run writes, or does not fit those before it.
    """
    events = str(folder.events)
    for number, event in read_lines(folder.events):
        try:
            history.add(event)
        except DataFormatError as error:
            raise DataFormatError(
                f"{events}:{number}: {error}; `promptgraft resume` writes the file again"
            ) from None
