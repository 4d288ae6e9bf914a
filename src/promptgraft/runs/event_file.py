"""``events.jsonl`` as a run writes it: appended to, and compared while a replay tells it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from promptgraft.errors import DataFormatError
from promptgraft.files import write_all
from promptgraft.runs.event_lines import Line, encoded
from promptgraft.runs.lines import parse_line


class EventFile:
    """The file of one run; one object and one process at a time.

    What a resumed run tells again is compared with what the file holds, all but the times.
    The file is cut at the first difference, and grows from there.

    Args:
        path: the file; made when there is none.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._old: BinaryIO | None = path.open("rb")
        self._plan_there: Line | None = None
        self._plan: Line | None = None
        self._expected: Line | None = None
        self._start = self._end = 0
        self._advance()

    def holds(self, line: Line) -> bool:
        """Tell whether the next line that a replay tells is there already; cut what differs.

        Raises:
            OSError: the file cannot be read or cut.
        """
        if line["event"] == "plan":
            self._plan = line
            if self._plan_there is not None and _content(line) == _content(self._plan_there):
                return True
        if self._old is None:
            return False
        if "n" not in line:
            return True
        if self._expected is None or _content(self._expected) != _content(line):
            self._settle(self._start)
            return False
        self._advance()
        return True

    def append(self, line: Line) -> None:
        """Add a line that is not there.

        Raises:
            OSError: the system refuses.
        """
        write_all(self._descriptor, f"{encoded(line)}\n".encode("ascii"))
        if line["event"] == "plan":
            self._plan_there = line

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
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
            if line["event"] == "plan":
                self._plan_there = line
            if "n" in line:
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
        if plan is not None and (there is None or _content(plan) != _content(there)):
            self.append(plan)


def _line(text: bytes) -> Line | None:
    """Return a line; None when its writing was interrupted, or when it is damaged."""
    try:
        return parse_line(text, "") if text.endswith(b"\n") else None
    except DataFormatError:
        return None


def _content(line: Line) -> Line:
    return {key: value for key, value in line.items() if key != "time"}
