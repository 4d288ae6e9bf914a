"""What the instruction of a prompt says about each choice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import attrs

from promptgraft.adapters.offline.names import Names, Opening
from promptgraft.adapters.offline.words import terms

LINES = 200
"""How many lines that are not blank are read."""

_LONGEST_LINE = 2_000
_ANSWER_WORDS = 3
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_CLAUSE = re.compile(
    r"(?<![,;:.!?])[,;:.!?]++(?:\s|$)|[()–—→]|\bbut\b|(?=\b(?:rather than|instead of|even)\b)"
)
_AGAINST = re.compile(
    r"\s*(?:not|never|no|except|excluding|unless|without|rather than|instead of)\b", re.IGNORECASE
)
_NEUTRAL = re.compile(r"\s*(?:even|although|though|whatever|whichever|regardless)\b", re.IGNORECASE)


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


def read_rules(text: str, names: Names) -> Iterator[Clause]:
    """Yield the clauses of the first lines, in reading order.

    A line that opens with a choice (``- refunds: money back``) belongs to it, and so does what
    follows under a heading that names it. A line that holds only a choice answers for the
    paragraph above it, as in an example. In any other line, each choice gets the clauses that
    name it and those just before.
    """
    reader = _Reader(names)
    kept = 0
    for line in text.split("\n"):
        kept += bool(line.strip())
        if kept > LINES:
            return
        yield from reader.read(line[:_LONGEST_LINE])


class _Reader:
    """Remembers, from line to line, whom a line without a name belongs to."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._heading: int | None = None
        self._opener: int | None = None
        self._paragraph: list[str] = []

    def read(self, line: str) -> Iterator[Clause]:
        if not line.strip():
            self._end_paragraph()
        elif _HEADING.match(line):
            named = self._names.named_in(line)
            self._heading = named[0] if len(named) == 1 else None
            self._end_paragraph()
        elif opening := self._names.opening(line):
            yield from self._opened(opening)
        elif named := self._names.named_in(line):
            yield from self._named(line, named)
        elif (owner := self._heading if self._opener is None else self._opener) is not None:
            yield from _said_of(owner, line)
        else:
            self._paragraph.append(line)

    def _end_paragraph(self) -> None:
        self._opener = None
        self._paragraph = []

    def _opened(self, opening: Opening) -> Iterator[Clause]:
        if opening.rest.strip():
            yield from _said_of(opening.choice, opening.rest)
        elif self._paragraph:
            yield from self._answered(opening.choice)
        else:
            self._opener = opening.choice

    def _named(self, line: str, named: tuple[int, ...]) -> Iterator[Clause]:
        if len(named) == 1 and self._paragraph and len(line.split()) <= _ANSWER_WORDS:
            yield from self._answered(named[0])
        elif self._heading in named:
            yield from _said_of(self._heading, line)
        else:
            yield from _shared(line, self._names)

    def _answered(self, choice: int) -> Iterator[Clause]:
        for line in self._paragraph:
            yield from _said_of(choice, line)
        self._paragraph = []


def _said_of(choice: int | None, text: str) -> Iterator[Clause]:
    if choice is None:
        return
    for clause in _clauses(text):
        yield Clause(choice, tuple(terms(clause)), against=_is_against(clause))


def _shared(line: str, names: Names) -> Iterator[Clause]:
    waiting: list[str] = []
    owners: tuple[int, ...] = ()
    for clause in _clauses(line):
        if _is_against(clause):
            for owner in owners:
                yield Clause(owner, tuple(terms(clause)), against=True)
            continue
        waiting.append(clause)
        owners = names.named_in(clause) or owners
        if owners:
            for owner, said in itertools.product(owners, waiting):
                yield Clause(owner, tuple(terms(said)))
            waiting = []


def _clauses(text: str) -> Iterator[str]:
    for clause in _CLAUSE.split(text):
        if clause.strip() and not _NEUTRAL.match(clause):
            yield clause


def _is_against(clause: str) -> bool:
    return _AGAINST.match(clause) is not None
