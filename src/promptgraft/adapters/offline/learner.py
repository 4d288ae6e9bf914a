"""The in-context learner: it chooses by the words of each choice in the prompt's own rules."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline.words import LONGEST_TEXT, terms

ATTENTION = 100
"""Default number of rule words that count per choice."""

_LINES = 200
_LONGEST_LINE = 2_000
_ANSWER_WORDS = 3
_AGAINST = 0.5
_PERHAPS = 0.75
_DILUTION = 0.3
_DILUTED_FROM = 10

_MARKER = re.compile(r"[\s>*+•\-]*(?:\d{1,3}[.)]\s)?[\s*_`\"'“\[(]*")
_SEPARATOR = re.compile(r"[*_`\"'”\])\s]*(?:[:=–—→(]|-{1,2}>?(?:\s|$)|$)[\s*_`]*")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s")
_CLAUSE = re.compile(
    r"(?<![,;:.!?])[,;:.!?]++(?:\s|$)|[()–—→]|\bbut\b|(?=\b(?:rather than|instead of|even)\b)"
)
_NOT = re.compile(
    r"\s*(?:not|never|no|except|excluding|unless|without|rather than|instead of)\b", re.IGNORECASE
)
_NEUTRAL = re.compile(r"\s*(?:even|although|though|whatever|whichever|regardless)\b", re.IGNORECASE)

_MAYBE = re.compile(r"\s*(?:perhaps|maybe|possibly)\b", re.IGNORECASE)
_BRACKETS = re.compile(r"[()]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_STRESS = re.compile(r"\s*(?:above all|especially|in particular|most of all)\b", re.IGNORECASE)


@attrs.frozen
class Opening:
    """A line that opens with a choice, such as ``- refunds: money back``.

    ``choice`` is its index; ``after`` is the text between its name and the rest of the line.
    """

    choice: int
    before: str
    after: str
    rest: str


class Names:
    """Finds the names of choices in text; ignores case, and treats ``_`` and ``-`` as spaces."""

    def __init__(self, choices: tuple[str, ...]) -> None:
        self._positions: dict[str, int] = {}
        for index, choice in enumerate(choices):
            self._positions.setdefault(_spaced(choice), index)
        # The longest first, because one choice may contain another, such as `urgent`.
        spellings = sorted(filter(None, self._positions), key=len, reverse=True)
        any_of = "|".join(re.escape(name).replace(r"\ ", "[ _-]") for name in spellings)
        self._pattern = re.compile(rf"(?<!\w)(?:{any_of or '(?!)'})(?!\w)", re.IGNORECASE)

    def named_in(self, text: str) -> tuple[int, ...]:
        """Return the indices of the choices named in ``text``, in order, without duplicates."""
        return tuple(dict.fromkeys(index for index, _ in self._found(text)))

    def opening(self, line: str) -> Opening | None:
        """Return the :class:`Opening` of ``line``; None if it does not open with a choice."""
        index, name = next(self._found(line), (0, None))
        marker = _MARKER.match(line)
        if name is None or marker is None or name.start() != marker.end():
            return None
        separator = _SEPARATOR.match(line, name.end())
        if separator is None:
            return None
        return Opening(index, line[: name.start()], separator[0], line[separator.end() :])

    def _found(self, text: str) -> Iterator[tuple[int, re.Match[str]]]:
        for match in self._pattern.finditer(text):
            # Ignoring case also matches letters such as the long s, whose lower case differs.
            index = self._positions.get(_spaced(match[0]))
            if index is not None:
                yield index, match


@functools.lru_cache(maxsize=64)
def names_of(choices: tuple[str, ...]) -> Names:
    """Return the cached finder for ``choices``."""
    return Names(choices)


def _spaced(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()


@attrs.frozen
class Lesson:
    """What a prompt teaches about a set of choices.

    Attributes:
        size: number of choices.
        weights: for each stem, the choices that it is evidence for or against, with weights.
    """

    size: int
    weights: Mapping[str, Sequence[tuple[int, float]]]

    def scores(self, text: str) -> list[float]:
        """Return the evidence in ``text`` for each choice; every word counts once."""
        totals = [0.0] * self.size
        # Sort: float sums depend on the order, and the order of a set on the process.
        for stem in sorted(self.weights.keys() & terms(text[:LONGEST_TEXT])):
            for choice, weight in self.weights[stem]:
                totals[choice] += weight
        return totals

    def weight(self, stem: str, choice: int) -> float:
        """Return the weight of a stem for a choice."""
        return sum(weight for labelled, weight in self.weights.get(stem, ()) if labelled == choice)


def is_plain(word: str) -> bool:
    """Return whether a word in a list is evidence, unlike "except" or "regardless"."""
    return not (_NOT.match(word) or _NEUTRAL.match(word))


@functools.lru_cache(maxsize=256)
def learn(text: str, choices: tuple[str, ...], attention: int = ATTENTION) -> Lesson:
    """Weigh the words about each choice in ``text``; cached per wording.

    A word counts ``1 + ln(n)`` for a choice whose rules contain it ``n`` times, or three quarters
    if all of them say "perhaps", minus one half if it occurs in a clause such as "not refunds". It
    counts less the more choices share it (inverse document frequency, Spärck Jones 1972, over
    choices), and less the more different words its
    choice has: noise dilutes. The first ``attention`` rule words of each choice count.
    """
    spoken_for = [Counter(terms(_spaced(choice))) for choice in choices]
    spoken_against: list[set[str]] = [set() for _ in choices]
    spoken_perhaps: list[set[str]] = [set() for _ in choices]
    attention_left = [attention] * len(choices)
    for choice, clause in _read_rules(text, names_of(choices)):
        heard = terms(clause)[: attention_left[choice]]
        attention_left[choice] -= len(heard)
        if _NOT.match(clause):
            spoken_against[choice].update(heard)
        elif _MAYBE.match(clause):
            spoken_perhaps[choice].update(heard)
        else:
            spoken_for[choice].update(heard)
    pairs = zip(spoken_for, spoken_perhaps, strict=True)
    shared = Counter(stem for counts, hedged in pairs for stem in counts.keys() | hedged)
    weights: dict[str, list[tuple[int, float]]] = {}
    spoken = zip(spoken_for, spoken_perhaps, spoken_against, strict=True)
    for choice, (counts, hedged, negated) in enumerate(spoken):
        stems = sorted(counts.keys() | hedged | negated)
        # Otherwise rules that list every word would win, and a longer prompt could not be worse.
        diluted = (len(stems) + _DILUTED_FROM) ** -_DILUTION
        for stem in stems:
            value = 1 + math.log(counts[stem]) if counts[stem] else _PERHAPS * (stem in hedged)
            value -= _AGAINST if stem in negated else 0.0
            rarity = math.log(1 + len(choices) / max(1, shared[stem]))
            weights.setdefault(stem, []).append((choice, value * rarity * diluted))
    return Lesson(len(choices), weights)


def _read_rules(text: str, names: Names) -> Iterator[tuple[int, str]]:
    """Yield pairs of a choice and a clause for or against it, in reading order.

    A line that opens with a choice (``- refunds: money back``) belongs to it, and so does what
    follows under a heading that names it. A line that holds only a choice answers for the
    paragraph above it, as in an example. In any other line, each choice gets the clauses that
    name it and those just before.
    """
    heading: int | None = None
    opener: int | None = None
    paragraph: list[str] = []
    for line in _first_lines(text):
        named = names.named_in(line)
        opening = names.opening(line)
        # A blank line ends a paragraph, but not the part under a heading.
        if not line or _HEADING.match(line):
            if line:
                heading = named[0] if len(named) == 1 else None
            opener, paragraph = None, []
        elif opening and opening.rest.strip():
            yield from _said_of(opening.choice, opening.rest)
        elif paragraph and (opening or (len(named) == 1 and len(line.split()) <= _ANSWER_WORDS)):
            yield from _said_of(named[0], *paragraph)
            paragraph = []
        elif opening:
            opener = opening.choice
        elif named:
            yield from _said_of(heading, line) if heading in named else _shared(line, names)
        elif (owner := heading if opener is None else opener) is not None:
            yield from _said_of(owner, line)
        else:
            paragraph.append(line)


def _first_lines(text: str) -> Iterator[str]:
    """Yield the first lines; blank ones are emptied and do not count."""
    lines_left = _LINES
    for line in text.split("\n"):
        # Bounds the time that a long prompt takes.
        lines_left -= bool(line.strip())
        if lines_left < 0:
            return
        yield line[:_LONGEST_LINE] if line.strip() else ""


def _said_of(choice: int | None, *lines: str) -> Iterator[tuple[int, str]]:
    if choice is not None:
        yield from ((choice, clause) for line in lines for clause in _clauses(line))


def _shared(line: str, names: Names) -> Iterator[tuple[int, str]]:
    waiting: list[str] = []
    owners: tuple[int, ...] = ()
    for clause in _clauses(line):
        if _NOT.match(clause):
            yield from ((owner, clause) for owner in owners)
            continue
        waiting.append(clause)
        owners = names.named_in(clause) or owners
        if owners:
            yield from itertools.product(owners, waiting)
            waiting = []


def _clauses(text: str) -> Iterator[str]:
    """Yield the meaningful clauses; those of a stressed sentence twice."""
    for sentence in _SENTENCE_END.split(text):
        clauses = [clause for clause in _hedged(sentence) if not _NEUTRAL.match(clause)]
        yield from clauses * (2 if _STRESS.match(sentence) else 1)


def _hedged(sentence: str) -> Iterator[str]:
    """Yield the clauses; "perhaps" goes before each that follows it within the same brackets."""
    for span in _BRACKETS.split(sentence):
        hedge = ""
        for clause in filter(str.strip, _CLAUSE.split(span)):
            if opening := _MAYBE.match(clause):
                hedge = f"{opening[0]} "
                yield clause
            else:
                yield f"{hedge}{clause}"
