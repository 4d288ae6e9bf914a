"""Logs of the processes of the service: lines for people, or JSON for collectors of logs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal, get_args

from promptgraft.ground.serde import Json, map_texts
from promptgraft.ground.text import visible, visible_line

Form = Literal["text", "json"]
FORMS: tuple[Form, ...] = get_args(Form)
_ROOT = logging.getLogger("promptgraft")


def told(
    logger: logging.Logger, level: int, event: str, message: str, **details: str | int
) -> None:
    """Log an event with its details, which are fields of the line in JSON."""
    logger.log(level, "%s", message, extra={"event": event, "details": details})


@contextmanager
def writing_logs(form: Form) -> Iterator[None]:
    """Write the logs of promptgraft to standard error while the context is open."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    before = _ROOT.handlers, _ROOT.level, _ROOT.propagate
    _ROOT.handlers, _ROOT.propagate = [handler], False
    _ROOT.setLevel(logging.INFO)
    try:
        yield
    finally:
        _ROOT.handlers, _ROOT.propagate = before[0], before[2]
        _ROOT.setLevel(before[1])


def form_of_logs() -> Form:
    """Return the form in which this process writes logs, for its children."""
    is_json = any(isinstance(handler.formatter, _JsonLines) for handler in _ROOT.handlers)
    return "json" if is_json else "text"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _details(record: logging.LogRecord) -> dict[str, Json]:
    details: object = getattr(record, "details", None)
    return dict(details) if isinstance(details, dict) else {}


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        job = _details(record).get("job")
        event: str = getattr(record, "event", record.levelname.lower())
        place = f" {str(job)[:8]}" if job else ""
        # Reasons hold texts of others, which must not move the cursor of a terminal.
        line = visible_line(f"{_time(record)} {event}{place}: {record.getMessage()}")
        return (
            f"{line}\n{visible(self.formatException(record.exc_info))}" if record.exc_info else line
        )


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Json] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            **_details(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Collectors refuse half characters, and readers print texts as they are.
        return json.dumps(map_texts(line, visible, keys=True))
