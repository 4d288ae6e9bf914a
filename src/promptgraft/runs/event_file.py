"""``events.jsonl`` as a run writes it.

Events become lines; what a replay tells again is compared with the file, the rest is appended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import UnsetType
from msgspec.structs import replace

from promptgraft.adapters.base import CallWaiting
from promptgraft.clock import Clock
from promptgraft.errors import DataFormatError
from promptgraft.files import write_all
from promptgraft.runs.history import RunHistory
from promptgraft.runs.lines import decoded, encoded
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search.events import MutationRejected, RolloutCompleted
from promptgraft.search.notices import CallWaits, Event, RunPlanned, StopFileRemoved, Working

_SECONDS_BETWEEN_PROGRESS = 1.0
_SECONDS_BETWEEN_BEGINNINGS = 0.1
_TRANSIENT = (RunPlanned, StopFileRemoved, CallWaits)


class EventLines:
    """Turns the events of one run into lines: numbered, with the time, progress now and then.

    Not to be shared between threads.

    Args:
        clock: says when; and when the next progress may be told.
        every: seconds between two lines of progress. When new work begins, which may take long,
            one is told besides, at most ten times a second.

    Attributes:
        history: what the lines have told so far.
    """

    def __init__(self, clock: Clock, *, every: float = _SECONDS_BETWEEN_PROGRESS) -> None:
        self._clock = clock
        self._every = every
        self._numbered = 0
        self._told = self._begun = clock.monotonic()
        self.history = RunHistory()

    def of(self, event: object) -> Iterator[Event]:
        """Yield the lines of an event; none for those that are not told."""
        if isinstance(event, RolloutCompleted | Working | CallsInFlight):
            if isinstance(event, CallsInFlight):
                self.history.in_flight += event.change
            else:
                self.history.add(event)
            if self._is_due(event):
                yield self._timed(self.history.progress())
        elif isinstance(event, CallWaiting):
            seconds, reason = event.seconds, event.reason
            yield self._kept(CallWaits(model=event.model, seconds=seconds, reason=reason))
        elif isinstance(event, _TRANSIENT):
            yield self._kept(event)
        elif isinstance(event, Event):
            self._numbered += 1
            line = self._kept(replace(event, number=self._numbered))
            # Only the history knows which rejection of its step it is.
            yield self.history.rejections[-1] if isinstance(line, MutationRejected) else line

    def _is_due(self, event: object) -> bool:
        now = self._clock.monotonic()
        if isinstance(event, Working) and not event.done:
            # It may take minutes until there is more to tell.
            due = now - self._begun >= min(self._every, _SECONDS_BETWEEN_BEGINNINGS)
            self._begun = now if due else self._begun
        else:
            due = now - self._told >= self._every
        self._told = now if due else self._told
        return due

    def _kept(self, event: Event) -> Event:
        line = self._timed(event)
        self.history.add(line)
        return line

    def _timed(self, event: Event) -> Event:
        now = self._clock.now()
        return replace(event, time=now.replace(microsecond=now.microsecond // 1000 * 1000))


class EventFile:
    """The file of one run; one object and one process at a time.

    What a resumed run tells again is compared with what the file holds, all but the times.
    The file is cut at the first difference, and grows from there.

    Args:
        path: the file; made when there is none.

    Raises:
        OSError: here and in all methods: the system refuses.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._old: BinaryIO | None = path.open("rb")
        self._plan_there: Event | None = None
        self._plan: Event | None = None
        self._expected: Event | None = None
        self._start = self._end = 0
        self._advance()

    def holds(self, line: Event) -> bool:
        """Tell whether the next line that a replay tells is there already; cut what differs."""
        if isinstance(line, RunPlanned):
            self._plan = line
            if _same(line, self._plan_there):
                return True
        if self._old is None:
            return False
        if isinstance(line.number, UnsetType):
            return True
        if not _same(line, self._expected):
            self._settle(self._start)
            return False
        self._advance()
        return True

    def append(self, line: Event) -> None:
        """Add a line that is not there."""
        write_all(self._descriptor, f"{encoded(line)}\n".encode("ascii"))
        if isinstance(line, RunPlanned):
            self._plan_there = line

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._old is not None:
            self._old.close()
            self._old = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _advance(self) -> None:
        """Find the next numbered line; when there is none, the file is complete so far."""
        assert self._old is not None  # noqa: S101 - only called while it is compared
        for text in self._old:
            self._start, end = self._end, self._end + len(text)
            line = _line(text)
            if line is None:
                break
            self._end = end
            if isinstance(line, RunPlanned):
                self._plan_there = line
            if not isinstance(line.number, UnsetType):
                self._expected = line
                return
        self._settle(self._end)

    def _settle(self, end: int) -> None:
        """Keep the first ``end`` bytes, and append from now on."""
        if self._old is not None:
            self._old.close()
            self._old = None
        if os.fstat(self._descriptor).st_size != end:
            os.ftruncate(self._descriptor, end)
        plan, there = self._plan, self._plan_there
        if plan is not None and not _same(plan, there):
            self.append(plan)


def _line(text: bytes) -> Event | None:
    """Return a line; None when its writing was interrupted, or when it is damaged."""
    try:
        return decoded(text, "") if text.endswith(b"\n") else None
    except DataFormatError:
        return None


def _same(line: Event, there: Event | None) -> bool:
    """Tell whether two lines say the same, all but when."""
    return there is not None and line == replace(there, time=line.time)
