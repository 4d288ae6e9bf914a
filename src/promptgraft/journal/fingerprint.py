"""Tells what makes two runs different."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from promptgraft.serde import Json, canonical_json, digest, shown

_DIGEST = re.compile("[0-9a-f]{64}")
_ABSENT = "absent"

FUNCTIONS = "functions"
"""Where a fingerprint has the identities of the functions that decide answers, by name."""


def differences(recorded: Mapping[str, Json], asked: Mapping[str, Json]) -> tuple[str, ...]:
    """Return one phrase for each key whose values differ; empty for the same run."""
    if canonical_json(recorded) == canonical_json(asked):
        return ()
    ours, theirs = dict(_leaves(asked)), dict(_leaves(recorded))
    return tuple(
        _phrase(name, theirs.get(name), ours.get(name))
        for name in sorted(ours.keys() | theirs.keys())
        if _text(theirs.get(name)) != _text(ours.get(name))
    )


def short_digest(value: str) -> str:
    """Return the first 12 digits of a digest."""
    return f"{value[:12]}…"


def _leaves(fingerprint: Mapping[str, Json]) -> Iterator[tuple[str, tuple[Json]]]:
    for name, value in fingerprint.items():
        if isinstance(value, Mapping) and value:
            yield from ((f"{name}.{inner}", (item,)) for inner, item in value.items())
        else:
            yield name, (value,)


def _text(leaf: tuple[Json] | None) -> str:
    return _ABSENT if leaf is None else canonical_json(leaf[0])


def _phrase(name: str, there: tuple[Json] | None, here: tuple[Json] | None) -> str:
    shown_there, shown_here = _short(there), _short(here)
    if shown_there == shown_here:
        # Both were cut to the same text: what differs lies beyond it.
        shown_there, shown_here = (short_digest(digest(leaf)) for leaf in (there, here))
    return f"`{name}` is {shown_there} in the journal, {shown_here} here"


def _short(leaf: tuple[Json] | None) -> str:
    if leaf is None:
        return _ABSENT
    value = leaf[0]
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return short_digest(value)
    return shown(value)
