"""``events.jsonl``: events as lines, lines as events, and the file as a run writes it.

Reading works while another process writes. What a resumed run repeats is compared with the file;
the rest is appended.
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
from promptgraft.clock import Clock
from promptgraft.errors import DataFormatError
from promptgraft.files import write_all
from promptgraft.frozenmap import FrozenMap
from promptgraft.runs.history import RunHistory
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search.events import MutationRejected, RolloutCompleted, RunEnded, RunEvent
from promptgraft.search.notices import (
    CallWaits,
    Event,
    RunPlanned,
    RunProgress,
    StopFileRemoved,
    Unknown,
    Working,
)
from promptgraft.search.scores import Scores
from promptgraft.serde import Json, parse_json

_SECONDS_BETWEEN_PROGRESS = 1.0
_SECONDS_BETWEEN_BEGINNINGS = 0.1
_FREQUENT = (CallsInFlight, RolloutCompleted, Working)
_TRANSIENT = (RunPlanned, StopFileRemoved, CallWaits)


class EventLines:
    """Turns the events of one run into lines: numbered, with the time, progress now and then.

    Not to be shared between threads. Progress is told every ``every`` seconds; besides when new
    work begins, which may take long, but at most ten times a second. ``history`` is what the lines
    have told so far.
    """

    def __init__(self, clock: Clock, *, every: float = _SECONDS_BETWEEN_PROGRESS) -> None:
        self._clock = clock
        self._every = every
        self._numbered = 0
        self._told = self._begun = clock.monotonic()
        self.history = RunHistory()

    def of(self, event: object) -> tuple[Event, ...]:
        """Return the lines of an event; none for those that are not told."""
        if isinstance(event, _FREQUENT):
            if isinstance(event, CallsInFlight):
                self.history.in_flight += event.change
            else:
                self.history.add(event)
            return (self._timed(self.history.progress()),) if self._is_due(event) else ()
        if isinstance(event, CallWaiting):
            seconds, reason = event.seconds, event.reason
            return (self._kept(CallWaits(model=event.model, seconds=seconds, reason=reason)),)
        if isinstance(event, _TRANSIENT):
            return (self._kept(event),)
        if not isinstance(event, Event):
            return ()
        self._numbered += 1
        line = self._kept(replace(event, number=self._numbered))
        # Only the history knows which rejection of its step it is.
        return (self.history.rejections[-1] if isinstance(line, MutationRejected) else line,)

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
    """The file of one run, made when there is none; one object and one process at a time.

    What a resumed run tells again is compared with what the file holds, all but the times.
    The file is cut at the first difference, and grows from there. All methods raise ``OSError``
    when the system refuses.
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
            if is_same(line, self._plan_there):
                return True
        if self._old is None:
            return False
        if isinstance(line.number, UnsetType):
            return True
        if not is_same(line, self._expected):
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
        if plan is not None and not is_same(plan, there):
            self.append(plan)


def _line(text: bytes) -> Event | None:
    """Return a line; None when its writing was interrupted, or when it is damaged."""
    try:
        return decoded(text, "") if text.endswith(b"\n") else None
    except DataFormatError:
        return None


def is_same(line: Event, there: Event | None) -> bool:
    """Tell whether two lines say the same, all but when."""
    return there is not None and line == replace(there, time=line.time)


_MEND = "`promptgraft resume` writes the file again"
_TAIL_BYTES = (8_192, 262_144, 4_194_304)


def _plain(value: Scores | FrozenMap[str, Json]) -> object:
    return list(value) if isinstance(value, Scores) else dict(value)


_WRITER = msgspec.json.Encoder(enc_hook=_plain)
_READER = msgspec.json.Decoder(RunEvent)
_ASCII = json.JSONEncoder(separators=(",", ":"))
_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(RunEvent))
_FAULT = re.compile(r"(?s)(.*?)(?: - at `\$\.?(.*)`)?")


def encoded(event: Event) -> str:
    """Return an event as a line without its end; in ASCII, so that every locale can carry it."""
    try:
        text = _WRITER.encode(event)
    except UnicodeEncodeError:  # half characters, which ASCII can spell
        text = b"\xff"
    if text.isascii():
        return text.decode("ascii")
    return _ASCII.encode(msgspec.to_builtins(event, enc_hook=_plain))


def encoded_json(plain: Mapping[str, Json]) -> str:
    """Return an object as a line like those of events."""
    return _ASCII.encode(dict(plain))


def decoded(text: bytes, where: str) -> Event:
    """Return the event that a line is; :class:`Unknown` for one of a kind of a later version.

    Of a key that is there twice, which no run writes, the last one counts.

    Raises:
        DataFormatError: it is none; ``where`` and what was expected are named.
    """
    try:
        event: Event = _READER.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _looked_at(text, where)
    return event


def _looked_at(text: bytes, where: str) -> Event:
    """Return the event of a line that msgspec does not read, or say why it is none."""
    try:
        plain = parse_json(text, where=where)
    except DataFormatError as error:
        raise DataFormatError(f"{error}; {_MEND}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("event"), str):
        raise DataFormatError(f"{where}: expected an object with `event`; {_MEND}")
    try:
        if plain["event"] in _KINDS:
            event: Event = msgspec.convert(plain, RunEvent)
            return event
        shared: dict[str, Json] = {key: plain[key] for key in ("n", "time") if key in plain}
        return msgspec.convert({"event": "Unknown", **shared}, Unknown)
    except msgspec.ValidationError as error:
        raise DataFormatError(f"{where}: {_fault(error)}; {_MEND}") from None


def _fault(error: msgspec.ValidationError) -> str:
    """Return the message of an error with the path to the fault in front."""
    found = _FAULT.fullmatch(str(error))
    said, path = (found[1], found[2]) if found else (str(error), "")
    said = f"{said[:1].lower()}{said[1:]}".replace(", got ", ", found ")
    return f"{path}: {said}" if path else said


def read_lines(path: Path) -> Iterator[tuple[int, Event]]:
    """Yield the number in the file, from 1, and the event of each whole line.

    A last line without its end is being written, or never will be: it is left out. Nothing
    is yielded when there is no file.

    Raises:
        DataFormatError: a line is no event.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        name = str(path)
        for number, text in enumerate(file, 1):
            if text.endswith(b"\n"):
                yield number, decoded(text, f"{name}:{number}")


def tail_of(path: Path) -> list[Event]:
    """Return the last events of a file, the oldest first: back to one that says where a run stands.

    That is the end of the run, or its progress; but at most 4 MiB. Nothing when there is no file.

    Raises:
        DataFormatError: a line is no event.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return []
    with file:
        size = file.seek(0, os.SEEK_END)
        for length in _TAIL_BYTES:
            start = max(0, size - length)
            file.seek(start)
            texts = file.read(size - start).split(b"\n")[start > 0 : -1]
            events: list[Event] = []
            for text in reversed(texts):
                events.append(decoded(text, str(path)))
                if isinstance(events[-1], (RunEnded, RunProgress)):
                    return events[::-1]
            if start == 0:
                break
        return events[::-1]
