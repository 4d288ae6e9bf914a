"""Following a run of another process by reading its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from promptgraft.runs.folder import RunFolder
from promptgraft.runs.lines import decoded
from promptgraft.search.notices import Event

SECONDS_BETWEEN_LOOKS = 0.5


def follow(folder: RunFolder, *, wait: Callable[[float], None]) -> Iterator[tuple[str, Event]]:
    """Yield the lines of a run with their events, those there and those to come, until it is left.

    A run is left when nobody holds its lock: it has ended, was interrupted, or was never begun.
    When a resumed run cuts its file, what comes then is yielded, and the rest is not told again.

    Args:
        folder: the run.
        wait: called with seconds when there is nothing new.

    Raises:
        OSError: a file cannot be read.
        DataFormatError: a line is no event.
    """
    end = 0
    while True:
        locked = folder.is_locked
        found, end = _new_lines(folder, end)
        yield from found
        if not locked:
            return
        if not found:
            wait(SECONDS_BETWEEN_LOOKS)


def _new_lines(folder: RunFolder, start: int) -> tuple[list[tuple[str, Event]], int]:
    """Return the whole lines behind ``start``, and where they end."""
    try:
        file = folder.events.open("rb")
    except FileNotFoundError:
        return [], 0
    with file:
        size = file.seek(0, os.SEEK_END)
        start = _line_start(file, min(start, size))
        file.seek(start)
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    where, texts = str(folder.events), whole.split(b"\n")[:-1]
    lines = [(text.decode("ascii", "replace"), decoded(text, where)) for text in texts]
    return lines, start + len(whole)


def _line_start(file: BinaryIO, position: int) -> int:
    """Return where the first line begins that does not begin before ``position``.

    That is ``position`` itself, unless the file was cut and has grown again.
    """
    if position == 0:
        return 0
    file.seek(position - 1)
    return position - 1 + len(file.readline())
