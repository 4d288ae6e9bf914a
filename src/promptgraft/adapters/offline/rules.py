"""What the instruction of a prompt says about each choice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

from promptgraft.adapters.offline.names import Names
from promptgraft.adapters.offline.words import terms

_LONGEST_LINE = 2000
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_MARKER = re.compile(r"[\s>*+•\-]*(?:\d{1,3}[.)]\s)?[\s*_`\"'“\[(]*")
_AFTER_HEAD = re.compile(r"[*_`\"'”\])\s]*(?:[:=–—→(]|-{1,2}>?(?:\s|$)|$)[\s*_`]*")
_CLAUSE = re.compile(r"[,;:.!?]+(?:\s|$)|[()–—→]|\bbut\b|(?=\b(?:rather than|instead of|even)\b)")
_AGAINST = re.compile(
    r"\s*(?:not|never|no|except|excluding|unless|without|rather than|instead of)\b", re.IGNORECASE
)
_NEUTRAL = re.compile(
    r"\s*(?:even|although|though|whatever|whichever|regardless)\b", re.IGNORECASE
)


@attrs.frozen
class Clause:
    """A piece of instruction that speaks for or against a choice.

    Attributes:
        choice: index of the choice.
        terms: the stems of its content words, in order.
        against: whether it says what the choice is not.
    """

    choice: int
    terms: tuple[str, ...]
    against: bool = False


def read_rules(text: str, names: Names, *, lines: int) -> Iterator[Clause]:
    """Yield the clauses of the first ``lines`` lines that are not blank, in reading order.

    A line that opens with a choice (``- refunds: money back``) belongs to it, and so does what
    follows under a heading that names it. A line that holds only a choice answers for the
    paragraph above it, as in an example. In any other line, each choice gets the clauses that
    name it and those just before.
    """
    reader = _Reader(names)
    kept = 0
    for line in text.split("\n"):
        if line.strip():
            kept += 1
        if kept > lines:
            break
        yield from reader.read(line[:_LONGEST_LINE])


def opening_choice(line: str, names: Names) -> tuple[int, str] | None:
    """Return the choice that ``line`` opens with, and the rest of the line; None without one."""
    marker = _MARKER.match(line)
    start = marker.end() if marker else 0
    for index, match in names.found(line):
        if match.start() != start:
            return None
        after = _AFTER_HEAD.match(line, match.end())
        return (index, line[after.end() :]) if after else None
    return None


class _Reader:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._heading: int | None = None
        self._opener: int | None = None
        self._pending: list[str] = []

    def read(self, line: str) -> Iterator[Clause]:
        if not line.strip():
            self._opener = None
            self._pending = []
        elif _HEADING.match(line):
            named = self._names.named_in(line)
            self._heading = named[0] if len(named) == 1 else None
            self._opener = None
            self._pending = []
        elif opening := opening_choice(line, self._names):
            yield from self._opened(*opening)
        elif named := self._names.named_in(line):
            yield from self._named(line, named)
        else:
            owner = self._heading if self._opener is None else self._opener
            if owner is None:
                self._pending.append(line)
            else:
                yield from _clauses(owner, line)

    def _opened(self, choice: int, rest: str) -> Iterator[Clause]:
        if rest.strip():
            yield from _clauses(choice, rest)
        elif self._pending:
            yield from self._answered(choice)
        else:
            self._opener = choice

    def _named(self, line: str, named: tuple[int, ...]) -> Iterator[Clause]:
        words = line.split()
        if len(named) == 1 and self._pending and len(words) <= 3:
            yield from self._answered(named[0])
        elif self._heading is not None and self._heading in named:
            yield from _clauses(self._heading, line)
        else:
            yield from _shared(line, self._names)

    def _answered(self, choice: int) -> Iterator[Clause]:
        for line in self._pending:
            yield from _clauses(choice, line)
        self._pending = []


def _clauses(choice: int, text: str) -> Iterator[Clause]:
    for clause in _CLAUSE.split(text):
        if not _NEUTRAL.match(clause) and (found := terms(clause)):
            yield Clause(choice, tuple(found), against=_AGAINST.match(clause) is not None)


def _shared(line: str, names: Names) -> Iterator[Clause]:
    waiting: list[str] = []
    owners: Sequence[int] = ()
    for clause in _CLAUSE.split(line):
        if _NEUTRAL.match(clause) or not clause.strip():
            continue
        if _AGAINST.match(clause):
            for owner in owners:
                yield Clause(owner, tuple(terms(clause)), against=True)
            continue
        named = names.named_in(clause)
        waiting.append(clause)
        if named:
            owners = named
        if owners:
            for owner in owners:
                for said in waiting:
                    yield Clause(owner, tuple(terms(said)))
            waiting = []
