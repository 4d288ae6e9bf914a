"""Reads what models reply to the questions of a gradient search: strictly, in linear time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from promptgraft.search.asks import Reply
from promptgraft.search.round_events import Blame, Problem, Severity
from promptgraft.serde import Json
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.replies import JSON_TAG, fields_in, parse_reply, read_value, text_in
from promptgraft.text import clip, listed

MOST_PROBLEMS = 20
"""Entries that a list of a reply may have."""
MAX_PROBLEM_CHARS = 2_000
"""Characters of a problem, and of the reason for a new text."""

_SHOWN_CHARS = 80


Blames = tuple[tuple[Blame, ...], tuple[Blame, ...]]
"""Whom a reply blames: parts by name, and earlier steps by id, which problems are handed on to."""


def read_blame(
    reply: Reply, *, parts: Mapping[str, str], before: Mapping[str, str] | None
) -> Blames:
    """Return whom a reply blames.

    Args:
        reply: the reply.
        parts: names of the parts that may be blamed, by handle.
        before: ids of the steps that problems may be handed on to, by handle; None where that was
            not asked.

    Raises:
        InvalidProposalError: naming the entry, what was expected and what was found.
    """
    asked = ("blame",) if before is None else ("blame", "hand_on")
    found = fields_in(_object(reply), asked)
    blamed = tuple(_blames(found["blame"], "blame", "text", parts))
    if before is None:
        return blamed, ()
    return blamed, tuple(_blames(found["hand_on"], "hand_on", "step", before))


def read_problems(reply: Reply) -> tuple[Problem, ...]:
    """Return the problems that a reply lists, the worst first; there is at least one.

    Raises:
        InvalidProposalError: naming the entry, what was expected and what was found.
    """
    entries = _entries(fields_in(_object(reply), ("problems",))["problems"], "problems")
    if not entries:
        raise _unreadable("problems: expected at least one, found none")
    problems = []
    for where, entry in entries:
        found = fields_in(entry, ("severity", "problem"), where=f"{where}: ")
        severity, text = _severity(found, where), _problem(found, where)
        problems.append(Problem(severity=severity, text=text))
    return tuple(sorted(problems, key=lambda one: one.severity))


def read_patch(reply: Reply, *, as_json: bool) -> tuple[str, str]:
    """Return the new text of a reply, and why.

    Args:
        reply: the reply.
        as_json: whether the text is itself JSON, which may stand there as such.

    Raises:
        InvalidProposalError: naming the field, what was expected and what was found.
    """
    found = fields_in(_object(reply), ("text", "why"))
    text, why = found["text"], text_in(found["why"], "why")
    if as_json and isinstance(text, dict):
        text = json.dumps(text, ensure_ascii=False)
    written = text_in(text, "text").strip("\n")
    if not written.strip():
        raise InvalidProposalError(RejectionReason.EMPTY, "text: expected a text, found none")
    _check_length(why, "why")
    return written, why.strip()


def _object(reply: Reply) -> Json:
    reply.check()
    return read_value(parse_reply(reply.text, tag=JSON_TAG, finish_reason=reply.finish_reason))


def _blames(value: Json, name: str, handle: str, known: Mapping[str, str]) -> Iterator[Blame]:
    for where, entry in _entries(value, name):
        found = fields_in(entry, (handle, "severity", "problem"), where=f"{where}: ")
        said = text_in(found[handle], f"{where}: {handle}")
        if said not in known:
            there = f"there are {listed(known)}" if known else "there is none"
            raise _unreadable(f"{where}: {handle}: no handle {_shown(said)}; {there}")
        severity, text = _severity(found, where), _problem(found, where)
        yield Blame(to=known[said], severity=severity, text=text)


def _entries(value: Json, name: str) -> Sequence[tuple[str, Json]]:
    """Return the entries of a list, each with what messages call it."""
    if not isinstance(value, list):
        raise _unreadable(f"{name}: expected a list of objects, found {_shown(value)}")
    if len(value) > MOST_PROBLEMS:
        raise _unreadable(f"{name}: expected at most {MOST_PROBLEMS} entries, found {len(value)}")
    return [(f"{name} {number}", entry) for number, entry in enumerate(value, start=1)]


def _severity(found: Mapping[str, Json], where: str) -> Severity:
    said = found["severity"]
    try:
        return Severity(text_in(said, f"{where}: severity"))
    except ValueError:
        raise _unreadable(
            f"{where}: severity: expected one of {listed(Severity)}, found {_shown(said)}"
        ) from None


def _problem(found: Mapping[str, Json], where: str) -> str:
    text = text_in(found["problem"], f"{where}: problem").strip()
    if not text:
        raise _unreadable(f"{where}: problem: expected a text, found none")
    _check_length(text, f"{where}: problem")
    return text


def _check_length(text: str, where: str) -> None:
    if len(text) > MAX_PROBLEM_CHARS:
        raise InvalidProposalError(
            RejectionReason.TOO_LONG,
            f"{where}: {len(text)} characters; at most {MAX_PROBLEM_CHARS} are allowed",
        )


def _shown(value: Json) -> str:
    return clip(json.dumps(value), _SHOWN_CHARS, around=" ")


def _unreadable(detail: str) -> InvalidProposalError:
    return InvalidProposalError(RejectionReason.UNPARSABLE, detail)
