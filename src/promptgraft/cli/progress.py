"""How far a run is: lines on standard error, or its events on standard output as JSON."""

from __future__ import annotations

import abc
import os
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Self, TextIO

import click

from promptgraft.cli.output import echo, is_plain_terminal
from promptgraft.cli.sentences import ESTIMATED, best, sentence, used, warnings
from promptgraft.clock import Clock, SystemClock
from promptgraft.runs import RunHistory
from promptgraft.runs.event_file import EventLines
from promptgraft.runs.lines import encoded, encoded_json
from promptgraft.search.notices import Event, RunProgress
from promptgraft.serde import Json
from promptgraft.text import dollars, visible_line

_ROLLOUTS_PER_LINE = 250
_LONGEST_SILENCE = timedelta(seconds=60)


class Progress(abc.ABC):
    """Shows how far a run is; a context manager. Events may come from several threads."""

    def __init__(self, clock: Clock | None = None, *, every: float = 1.0) -> None:
        self._clock = clock or SystemClock()
        self._lines = EventLines(self._clock, every=every)
        self._lock = threading.RLock()
        self.run = RunHistory()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def on_event(self, event: object) -> None:
        """Take account of an event of a run of this process."""
        with self._lock:
            for line in self._lines.of(event):
                self.on_line(line)

    @abc.abstractmethod
    def on_line(self, line: Event) -> None:
        """Take account of a line of a run, of whichever process."""

    @abc.abstractmethod
    def say(self, what: str) -> None:
        """Show what happens outside the run itself."""


class SilentProgress(Progress):
    """Shows nothing."""

    def on_event(self, event: object) -> None:
        del event

    def on_line(self, line: Event) -> None:
        del line

    def say(self, what: str) -> None:
        del what


class PlainProgress(Progress):
    """Writes a line for each thing that matters; for pipes, logs and plain terminals."""

    def __init__(self, title: str, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._title = title
        self._shown = 0
        self._shown_at: datetime | None = None
        self._broken = False
        self._explained = False

    def __enter__(self) -> Self:
        self.say(self._title)
        return self

    def on_line(self, line: Event) -> None:
        with self._lock:
            self.run.add(line)
            said = sentence(line, self.run) or self._now_and_then(line)
            if said:
                self._shown, self._shown_at = self.run.rollouts, _moment(line)
            for text in (said, *warnings(line)):
                if text:
                    self.say(text)
            if any(self.run.estimated) and not self._explained:
                self._explained = True
                self.say(ESTIMATED)

    def say(self, what: str) -> None:
        if self._broken:
            return
        try:
            echo(visible_line(what), error=True)
        except OSError:
            # The reader of the progress has left; the run itself continues.
            self._broken = True

    def _now_and_then(self, line: Event) -> str:
        run, now = self.run, _moment(line)
        if not isinstance(line, RunProgress):
            return ""
        silent = bool(now and self._shown_at and now - self._shown_at >= _LONGEST_SILENCE)
        if not silent and run.rollouts - self._shown < _ROLLOUTS_PER_LINE:
            return ""
        return f"step {run.steps}: best {best(run)}, {used(run)}, {dollars(run.cost)}"


def _moment(line: Event) -> datetime | None:
    return line.time if isinstance(line.time, datetime) else None


def progress_for(
    title: str,
    *,
    quiet: bool,
    stream: TextIO | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Progress:
    """Return a panel on a terminal, plain lines elsewhere, nothing when ``quiet``.

    The lines of a run that go to ``stream`` as JSON are its progress where that is a terminal.
    """
    if quiet or (stream is not None and stream.isatty()):
        return SilentProgress()
    if sys.stderr is None or not sys.stderr.isatty() or is_plain_terminal(environment):
        return PlainProgress(title)
    from promptgraft.cli.panel import PanelProgress

    return PanelProgress(title)


class EventStream:
    """Writes the lines of events as they happen. Safe to share between threads."""

    def __init__(self, stream: TextIO) -> None:
        # Not looked up again: code of a job has standard output turned away.
        self._stream = stream
        self._lines = EventLines(SystemClock())
        self._lock = threading.Lock()
        self._broken = False

    def on_event(self, event: object) -> None:
        """Write what an event tells."""
        with self._lock:
            for line in self._lines.of(event):
                if not self._broken:
                    self._write(encoded(line))

    def end(self, result: dict[str, Json]) -> None:
        """Write the last line, what came of the run."""
        click.echo(encoded_json(result), file=self._stream)

    def _write(self, line: str) -> None:
        try:
            click.echo(line, file=self._stream)
        except OSError:
            # The reader of the lines has left; the run itself continues.
            self._broken = True
