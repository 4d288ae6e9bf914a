"""YAML of other tools: with aliases and merge keys, bounded by a budget.

Scalars are resolved as the YAML readers of JavaScript do.
"""

from __future__ import annotations

import json
import math
import re

from promptgraft.ground.serde import Json, MismatchError, shown
from promptgraft.ground.work import WorkBudget
from promptgraft.ground.yaml_text import (
    TEXT_TAGS,
    Builder,
    Note,
    Open,
    YamlDocument,
    build,
    plain_scalar,
)

_MERGE = "<<"
_RADIX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+|0b[01]+")


def read_foreign_yaml(text: str, note: Note, budget: WorkBudget) -> YamlDocument | None:
    """Parse a YAML text of another tool and note every fault; None if it cannot be parsed.

    Unlike :func:`read_yaml` it reads aliases, merge keys and keys that are numbers, and resolves
    scalars as JavaScript does. A value that aliases repeat has the line of the alias; the values
    that aliases stand for are spent from the ``iterations`` of the budget.
    """
    return build(text, note, _ForeignBuilder(note, budget))


class _ForeignBuilder(Builder):
    """Builds a document with aliases and merge keys."""

    def __init__(self, note: Note, budget: WorkBudget) -> None:
        super().__init__(note)
        self._budget = budget
        # Value and size by anchor; values are shared, because nobody changes them.
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._last: Json = None

    def _add(self, value: Json, line: int) -> None:
        self._last = value
        super()._add(value, line)

    def _named(self, anchor: str | None, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = self._last, size
        if self._open:
            self._open[-1].size += size

    def _alias(self, anchor: str) -> None:
        if anchor not in self._anchors:
            raise MismatchError(f"there is no anchor `&{anchor}` before `*{anchor}`")
        value, size = self._anchors[anchor]
        self._budget.spend("iterations", size, f"`*{anchor}`", "write fewer aliases")
        self._add(value, self.line)
        self._named(None, size)

    def _whole(self, members: dict[str, Json]) -> dict[str, Json]:
        if _MERGE not in members:
            return members
        merged = members[_MERGE]
        whole: dict[str, Json] = {}
        # The first of several objects wins, and the keys beside `<<` win over all of them.
        for source in reversed(merged if isinstance(merged, list) else [merged]):
            if not isinstance(source, dict):
                raise MismatchError(f"expected an object after `<<`, found {shown(source)}")
            whole |= source
        return whole | {key: value for key, value in members.items() if key != _MERGE}

    def _key(self, value: Json, parent: Open) -> str:
        is_text = isinstance(value, str)
        return super()._key(value if is_text else json.dumps(value), parent)

    def _scalar(self, text: str, tag: str | None, *, plain: bool) -> Json:
        if tag is not None and tag not in TEXT_TAGS:
            raise MismatchError(f"expected plain data, found the tag {shown(tag)}")
        return _loose_scalar(text) if plain and tag is None else text


def _loose_scalar(text: str) -> Json:
    """Return the value of an unquoted scalar as JavaScript reads it; texts where none fits."""
    try:
        return plain_scalar(text)
    except MismatchError:
        if _RADIX.fullmatch(text):
            return int(text, 0)
        try:
            number = float(text.replace("_", ""))
        except ValueError:
            return text
        if not math.isfinite(number):
            return text
        return int(number) if number.is_integer() and "." not in text else number
