"""What is told of a run as the lines of ``events.jsonl`` and of ``--json``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from promptgraft.adapters.base import CallWaiting
from promptgraft.clock import Clock
from promptgraft.runs.history import RunHistory
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
        if isinstance(event, RolloutCompleted | Working):
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

    def _is_due(self, event: RolloutCompleted | Working) -> bool:
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
