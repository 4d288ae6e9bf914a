"""``events.jsonl``: encoding, decoding, reading and writing events as lines of JSON.

The file can be read while another process writes it. The events that a resumed run repeats are
compared with the file; new ones are appended.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, get_args

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from promptgraft.adapters.base import CallWaiting
from promptgraft.errors import DataFormatError
from promptgraft.ground.clock import Clock
from promptgraft.ground.files import NEW_FILE, opened, write_all
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, parse_json
from promptgraft.runs.history import RunHistory
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search.events import (
    CallWaits,
    CandidateAdded,
    CandidateScored,
    CaseTaught,
    Event,
    ExampleGenerated,
    MergeAccepted,
    MergeAttempted,
    MergeRejected,
    MutationAccepted,
    MutationProposed,
    MutationRejected,
    NewBest,
    RolloutCompleted,
    RoundStarted,
    RunEnded,
    RunPlanned,
    RunProgress,
    RunStarted,
    StopFileRemoved,
    Unknown,
    Working,
)
from promptgraft.search.round_events import RoundEvent
from promptgraft.search.scores import Scores

RunEvent = (
    RunStarted
    | CaseTaught
    | RunPlanned
    | StopFileRemoved
    | Working
    | RolloutCompleted
    | CandidateAdded
    | CandidateScored
    | MutationProposed
    | MutationAccepted
    | MutationRejected
    | ExampleGenerated
    | MergeAttempted
    | MergeAccepted
    | MergeRejected
    | RoundStarted
    | RoundEvent
    | NewBest
    | CallWaits
    | RunProgress
    | RunEnded
)
"""Every kind of event."""

_SECONDS_BETWEEN_PROGRESS = 1.0
_SECONDS_BETWEEN_BEGINNINGS = 0.1
_MOST_LINES_BETWEEN_PROGRESS = 32  # so that lists of runs find one near the end of a file
_FREQUENT = (CallsInFlight, RolloutCompleted, Working)
# Without a number: the runs of earlier versions, which lack some of them, can be resumed.
_TRANSIENT = (RunPlanned, StopFileRemoved, CallWaits, RoundStarted, NewBest)
_REPLAYED = (RoundStarted, NewBest)


class EventLines:
    """Turns the events of one run into numbered lines with times, and into progress lines.

    Not safe to share between threads. There is a progress line every ``every`` seconds, and after
    32 other lines; also when new work begins, but then at most ten times a second. ``history`` is
    the run as told by the lines so far.
    """

    def __init__(self, clock: Clock, *, every: float = _SECONDS_BETWEEN_PROGRESS) -> None:
        self._clock = clock
        self._every = every
        self._numbered = self._numbered_at_progress = 0
        self._written = self._begun = clock.monotonic()
        self._is_behind = False
        self.history: RunHistory = RunHistory()

    def rest(self) -> tuple[Event, ...]:
        """Return the progress since the last line that told of it, if the run has not ended."""
        is_left = self._is_behind and self.history.ended is None
        return (self._timed(self.history.progress()),) if is_left else ()

    def of(self, event: object) -> tuple[Event, ...]:
        """Return the lines for an event; none for events that are not written."""
        if isinstance(event, _FREQUENT):
            if isinstance(event, CallsInFlight):
                self.history.in_flight += event.change
            else:
                self.history.add(event)
            self._is_behind = not self._is_due(event)
            return () if self._is_behind else (self._timed(self.history.progress()),)
        if isinstance(event, CallWaiting):
            seconds, reason = event.seconds, event.reason
            return (self._kept(CallWaits(model=event.model, seconds=seconds, reason=reason)),)
        if isinstance(event, _TRANSIENT):
            return (self._kept(event),)
        if not isinstance(event, Event):
            return ()
        self._numbered += 1
        line = self._kept(replace(event, number=self._numbered))
        # Only the history knows the number of the attempt within its step.
        return (self.history.rejections[-1] if isinstance(line, MutationRejected) else line,)

    def _is_due(self, event: object) -> bool:
        now = self._clock.monotonic()
        if isinstance(event, Working) and not event.done:
            # New work is shown soon, because its first answer may take minutes.
            due = now - self._begun >= min(self._every, _SECONDS_BETWEEN_BEGINNINGS)
            self._begun = now if due else self._begun
        else:
            lines = self._numbered - self._numbered_at_progress
            due = now - self._written >= self._every or lines >= _MOST_LINES_BETWEEN_PROGRESS
        if due:
            self._written, self._numbered_at_progress = now, self._numbered
        return due

    def _kept(self, event: Event) -> Event:
        line = self._timed(event)
        self.history.add(line)
        return line

    def _timed(self, event: Event) -> Event:
        now = self._clock.now()
        return replace(event, time=now.replace(microsecond=now.microsecond // 1000 * 1000))


class EventFile:
    """The event file of one run, created if missing; for one writer at a time.

    The lines that a resumed run repeats are compared with the file, except for their times. At
    the first difference the file is truncated, and new lines are appended from there. All methods
    raise ``OSError`` if the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        # Two descriptors: reading old lines must not move the place where new ones are appended.
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, NEW_FILE)
        self._old: BinaryIO | None = path.open("rb")
        self._plan_there: Event | None = None
        self._plan: Event | None = None
        self._expected: Event | None = None
        self._unnumbered: list[Event] = []
        self._start = self._end = 0
        self._advance()

    def holds(self, line: Event) -> bool:
        """Return whether the file already has the next line of a replay; truncate it if not."""
        if isinstance(line, RunPlanned):
            self._plan = line
            if is_same(line, self._plan_there):
                return True
        if self._old is None:
            # A killed run may have written them after the last numbered line.
            return isinstance(line, _REPLAYED) and any(
                is_same(line, there) for there in self._unnumbered
            )
        # Other lines without a number, such as waits, belong to one moment; no replay repeats them.
        if isinstance(line.number, UnsetType):
            return True
        if not is_same(line, self._expected):
            # Lines after the first difference belong to a future that did not happen.
            self._settle(self._start)
            return False
        self._advance()
        return True

    def append(self, line: Event) -> None:
        """Append a new line."""
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
        """Read on to the next numbered line; without one, start to append."""
        assert self._old is not None  # noqa: S101 - only called while it is compared
        self._unnumbered = []
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
            self._unnumbered.append(line)
        self._settle(self._end)

    def _settle(self, end: int) -> None:
        """Truncate the file to ``end`` bytes, and append from now on."""
        if self._old is not None:
            self._old.close()
            self._old = None
        # Also drops a line that a killed process left incomplete.
        if os.fstat(self._descriptor).st_size != end:
            os.ftruncate(self._descriptor, end)
        plan, there = self._plan, self._plan_there
        if plan is not None and not is_same(plan, there):
            self.append(plan)


def _line(text: bytes) -> Event | None:
    """Decode a line; None if it is incomplete or damaged."""
    try:
        return decoded(text, "") if text.endswith(b"\n") else None
    except DataFormatError:
        return None


def is_same(line: Event, there: Event | None) -> bool:
    """Return whether two lines are equal except for their times."""
    return there is not None and line == replace(there, time=line.time)


DAMAGED = "damaged"
"""Name of the event that stands for a damaged line; no line of a run has it."""
_MEND = "; `promptgraft resume` writes the file again"
_TAIL_BYTES = (8_192, 262_144, 4_194_304)  # the first suffices unless texts are very long


def _plain(value: Scores | FrozenMap[str, Json]) -> object:
    return list(value) if isinstance(value, Scores) else dict(value)


_WRITER = msgspec.json.Encoder(enc_hook=_plain)
_READER = msgspec.json.Decoder(RunEvent)
_ASCII = json.JSONEncoder(separators=(",", ":"))
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(RunEvent))
_FAULT = re.compile(r"(?s)(.*?)(?: - at `\$\.?(.*)`)?")


def encoded(event: Event) -> str:
    """Encode an event as a line without its line break, in ASCII, which every locale accepts."""
    try:
        text = _WRITER.encode(event)
    except UnicodeEncodeError:  # lone surrogates: not UTF-8, but JSON escapes can spell them
        # Not ASCII, so that the slow encoder below takes over.
        text = b"\xff"
    if text.isascii():
        return text.decode("ascii")
    return _ASCII.encode(msgspec.to_builtins(event, enc_hook=_plain))


def encoded_json(plain: Mapping[str, Json]) -> str:
    """Encode an object as a line in the format of events."""
    return _ASCII.encode(dict(plain))


def decoded(text: bytes, where: str, *, mend: str = _MEND) -> Event:
    """Decode a line into an event; :class:`Unknown` for kinds of events of a later version.

    The last value of a repeated key counts; no run writes such keys.

    Raises:
        DataFormatError: the line is no event; the message begins with ``where`` and ends with
            ``mend``.
    """
    try:
        event: Event = _READER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _decoded_slowly(text, where, mend)
    return event


def decoded_or_damaged(line: bytes, where: str) -> tuple[Event, bytes]:
    """Decode a line, or replace one that is damaged.

    Returns:
        The event and its line. For a damaged line these are :class:`Unknown` and a line of the
        event ``damaged``, whose ``fault`` begins with ``where``.
    """
    try:
        return decoded(line, where, mend=""), line
    except DataFormatError as error:
        return Unknown(), encoded_json({"event": DAMAGED, "fault": str(error)}).encode("ascii")


def _decoded_slowly(text: bytes, where: str, mend: str) -> Event:
    """Decode a line that the fast decoder refuses, or raise an error that says why."""
    try:
        plain = parse_json(text, where=where)
    except DataFormatError as error:
        raise DataFormatError(f"{error}{mend}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("event"), str):
        raise DataFormatError(f"{where}: expected an object with `event`{mend}")
    try:
        if plain["event"] in _KINDS:
            event: Event = msgspec.convert(plain, RunEvent)
            return event
        shared: dict[str, Json] = {key: plain[key] for key in ("n", "time") if key in plain}
        return msgspec.convert({"event": "Unknown", **shared}, Unknown)
    except msgspec.ValidationError as error:
        raise DataFormatError(f"{where}: {_fault(error)}{mend}") from None


def _fault(error: msgspec.ValidationError) -> str:
    """Return the message of an error, preceded by the path to the fault."""
    match = _FAULT.fullmatch(str(error))
    message, path = (match[1], match[2]) if match else (str(error), "")
    message = f"{message[:1].lower()}{message[1:]}".replace(", got ", ", found ")
    return f"{path}: {message}" if path else message


def read_lines(path: Path) -> Iterator[tuple[int, Event]]:
    """Yield the line number, from 1, and the event of each complete line.

    A last line without a line break is skipped: it is still being written, or its writer was
    killed. Without a file nothing is yielded.

    Raises:
        DataFormatError: a line is no event.
    """
    try:
        file = opened(path)
    except FileNotFoundError:
        return
    with file:
        name = str(path)
        for number, text in enumerate(file, 1):
            if text.endswith(b"\n"):
                yield number, decoded(text, f"{name}:{number}")


def decoded_at(text: bytes, path: Path) -> Event:
    """Decode a line of a file of which only a piece was read; raises as :func:`read_lines`."""
    try:
        return decoded(text, str(path))
    except DataFormatError:
        for _ in read_lines(path):  # for the number of the line
            pass
        raise


def tail_of(path: Path) -> list[Event]:
    """Return the last events of a file, oldest first, from the last end or progress of the run on.

    Reads at most 4 MiB, in growing pieces. Returns nothing without a file.

    Raises:
        DataFormatError: a line is no event.
    """
    try:
        file = opened(path)
    except FileNotFoundError:
        return []
    with file:
        size = file.seek(0, os.SEEK_END)
        for length in _TAIL_BYTES:
            start = max(0, size - length)
            file.seek(start)
            # The first piece may begin inside a line; the last one is empty, or incomplete.
            texts = file.read(size - start).split(b"\n")[start > 0 : -1]
            events: list[Event] = []
            for text in reversed(texts):
                events.append(decoded_at(text, path))
                if isinstance(events[-1], (RunEnded, RunProgress)):
                    return events[::-1]
            if start == 0:
                break
        return events[::-1]
