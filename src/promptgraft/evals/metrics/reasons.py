"""What is said of an answer: a reason within limits, and the feedback on all metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from promptgraft.evals.types import Case, Verdict
from promptgraft.serde import Json, canonical_json

LONGEST_QUOTE = 200
"""Characters of a text that is quoted whole; of a longer one the middle is left out."""
LONGEST_VALUE = 100
"""Characters of a value that is shown as JSON."""
LONGEST_REASON = 1000
"""Characters of a whole reason."""

_BEFORE, _AFTER = 40, 80
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")


def quoted(text: str, limit: int = LONGEST_QUOTE) -> str:
    """Return ``text`` between quotation marks, in one line, its middle left out if it is long."""
    return _one_line(clipped(text, limit))


def clipped(text: str, limit: int) -> str:
    """Return ``text``, or its head and its tail in ``limit`` characters and a note between them."""
    if len(text) <= limit:
        return text
    note = f" …[{len(text) - limit} characters left out]… "
    room = max(limit - len(note), 2)
    head = (room + 1) // 2
    return f"{text[:head]}{note}{text[len(text) - room + head :]}"


def brief(value: Json, limit: int = LONGEST_VALUE) -> str:
    """Return a value as JSON in one line, its middle left out if it is long."""
    if isinstance(value, str):
        return quoted(value, limit)
    return clipped(_BREAKS.sub(_escaped, canonical_json(value)), limit)


def reason(text: str) -> str:
    """Return ``text`` as one paragraph of at most ``LONGEST_REASON`` characters."""
    return clipped(" ".join(text.split()), LONGEST_REASON)


def difference(expected: str, found: str) -> str:
    """Return what was expected, what was found and where they differ first."""
    pairs = enumerate(zip(expected, found, strict=False))
    shorter = min(len(expected), len(found))
    at = next((index for index, (one, other) in pairs if one != other), shorter)
    if max(len(expected), len(found)) <= LONGEST_QUOTE:
        place = f"; the first difference is at character {at + 1}" if at else ""
        return (
            f"expected {quoted(expected)}, found {quoted(found)}{place}{_manner(expected, found)}"
        )
    return (
        f"the first difference is at character {at + 1}: expected {_around(expected, at)}, "
        f"found {_around(found, at)}{_manner(expected, found)}"
    )


def _manner(expected: str, found: str) -> str:
    if expected.casefold() == found.casefold():
        return "; they differ in upper and lower case only"
    if expected.split() == found.split():
        return "; they differ in white space only"
    return ""


def _around(text: str, at: int) -> str:
    start, end = max(0, at - _BEFORE), at + _AFTER
    if at >= len(text):
        return f"{_one_line(text[start:])} and then its end"
    head = "…" if start else ""
    tail = "…" if end < len(text) else ""
    return f"{head}{_one_line(text[start:end])}{tail}"


def _one_line(text: str) -> str:
    plain = text.encode("utf-8", "replace").decode("utf-8")
    spelled = json.dumps(plain, ensure_ascii=False)
    return _BREAKS.sub(_escaped, spelled)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


LONGEST_FEEDBACK = 50_000
"""Characters of feedback on one answer; of a longer one the middle is left out, with a note."""


def feedback_text(case: Case, verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts with their reasons and the user's hints, failed metrics first.

    Then come the metrics that could not judge, then those that passed. Reasons arrive whole.
    Nothing but the verdicts and the hints of this case is said.
    """
    ranked = sorted(verdicts, key=_rank)
    general = case.hints.get("")
    parts = [_said(verdict, case.hints) for verdict in ranked]
    return clipped(
        "\n".join([*parts, *([f"hint: {general}"] if general else [])]), LONGEST_FEEDBACK
    )


def _rank(verdict: Verdict) -> int:
    if verdict.score is None:
        return 1
    return 2 if verdict.passed else 0


def _said(verdict: Verdict, hints: Mapping[str, str]) -> str:
    if verdict.score is None:
        head = f"[unscored] {verdict.metric}"
    else:
        head = f"[{'passed' if verdict.passed else 'failed'}] {verdict.metric} {verdict.score:.4g}"
    hint = hints.get(verdict.metric)
    lines = [f"{head}: {verdict.reason}", *([f"hint: {hint}"] if hint else [])]
    return "\n  ".join(line for text in lines for line in text.splitlines())
