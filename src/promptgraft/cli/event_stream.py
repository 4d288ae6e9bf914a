"""The events of a run on standard output, one JSON object a line."""

from __future__ import annotations

import threading
from typing import TextIO

import click

from promptgraft.clock import SystemClock
from promptgraft.runs.event_lines import EventLines
from promptgraft.runs.lines import encoded, encoded_json
from promptgraft.serde import Json


class EventStream:
    """Writes the lines of events as they are told. Safe to share between threads.

    Args:
        stream: where to. Not looked up again: code of a job has standard output turned away.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines = EventLines(SystemClock())
        self._lock = threading.Lock()
        self._broken = False

    def on_event(self, event: object) -> None:
        """Write what an event tells."""
        with self._lock:
            for line in self._lines.of(event):
                self._write(encoded(line))

    def end(self, result: dict[str, Json]) -> None:
        """Write the last line, what came of the run.

        Raises:
            OSError: it cannot be written.
        """
        click.echo(encoded_json(result), file=self._stream)

    def _write(self, line: str) -> None:
        if self._broken:
            return
        try:
            click.echo(line, file=self._stream)
        except OSError:
            # Whoever read the lines has left; the run itself goes on.
            self._broken = True
