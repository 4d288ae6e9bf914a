"""Writes what answers teach about a choice as lists of words, and parses such lists."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TypeAlias

import attrs

from promptgraft.adapters.offline import learner
from promptgraft.adapters.offline.words import content_words, term, terms

WORDS_PER_FAILURE = 15
"""Default limit on the words taken from a failed input."""

WORDS_PER_RULE = 32
"""Default limit on the words of evidence in a rule."""

_CHARS_PER_WORD = 75
"""A short text may have so many characters for each word that its rules may have."""
_UNDEFINED = "words such as these"
"""What a rule says of a choice that the text does not define."""

_STEP = 2
"""Places that a word rises in its list for each further input that has it."""
_FEW = 3
"""Occurrences in one input from which a word counts no more."""
_LONGEST_INPUT = 4_000
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_LIST = r"(?!perhaps ){0}(?:, {0}){{0,40}}".format(r"[^\s,;.:()<>\[\]{}$`\"']{1,60}")
_EVIDENCE = re.compile(
    rf"\s?\((?:(?P<sure>{_LIST})(?:; perhaps (?P<more>{_LIST}))?|perhaps (?P<only>{_LIST}))\)"
    r"(?P<end>[.!]?)$"
)


_Counts: TypeAlias = Mapping[str, Counter[str]]
"""How many inputs of each choice have a stem."""


@attrs.frozen
class Tried:
    """An answered input: its text, the right choice, and the one that was given."""

    text: str
    wanted: str
    given: str | None

    @property
    def failed(self) -> bool:
        """Whether the answer was wrong."""
        return self.wanted != self.given

    @functools.cached_property
    def words(self) -> list[str]:
        """The content words of the input."""
        return content_words(self.text[:_LONGEST_INPUT])

    @functools.cached_property
    def stems(self) -> Mapping[str, str]:
        """The shortest content word of each stem."""
        return _shortest(self.words)

    @functools.cached_property
    def counts(self) -> Counter[str]:
        """How often each stem occurs in the input."""
        return Counter(terms(self.text[:_LONGEST_INPUT]))


def _shortest(words: Sequence[str]) -> dict[str, str]:
    """Return the shortest of the words of each stem, in order of the stems."""
    shortest_words: dict[str, str] = {}
    for word in words:
        shortest_words[term(word)] = min(shortest_words.get(term(word), word), word, key=len)
    return shortest_words


def _in_turn(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the first stem of each list, then the second of each, and so on, each once."""
    turns = zip_longest(*lists, fillvalue="")
    return list(dict.fromkeys(stem for turn in turns for stem in turn if stem))


def rewrite(
    rules: str,
    tried: Sequence[Tried],
    choices: tuple[str, ...],
    *,
    neighbours: str = "",
    max_chars: int | None = None,
    refused: str | None = None,
    words_per_failure: int = WORDS_PER_FAILURE,
    words_per_rule: int = WORDS_PER_RULE,
    attention: int = learner.ATTENTION,
) -> str:
    """Return improved rules, or the same rules if there is no failure to learn from.

    Each rule ends in a few words of evidence, beginning with those that most inputs of the choice
    have and other inputs lack. Words that misled to a wrong choice lose their place in its rule. If
    the text equals the refused one, fewer words are taken from each input. Choices that another
    part of the prompt defines are left to that part.

    Args:
        rules: the current text.
        tried: the inputs that were answered, rightly or wrongly.
        choices: the allowed answers.
        neighbours: the other parts of the prompt.
        max_chars: limit on the new text.
        refused: the refused reply; None at the first attempt.
        words_per_failure: most words taken from a failed input; a right one gives half as many.
        words_per_rule: most words of evidence in a rule; an input adds at most three eighths.
        attention: how many rule words count per choice.
    """
    names = learner.names_of(choices)
    choice_cases = [case for case in tried if case.wanted in choices]
    has_failures = any(case.failed for case in choice_cases)
    if not has_failures or _defines(neighbours, names) > _defines(rules, names):
        return rules
    lesson = learner.learn(f"{rules}\n\n{neighbours}", choices, attention)
    # The reply is fenced on lines of its own, so that line breaks around it do not count.
    known_texts = {rules.strip("\n"), (refused or rules).strip("\n")}
    room = math.inf if max_chars is None else max_chars
    # So that the words of one input do not drive out all others.
    quota = min(words_per_failure, max(1, words_per_rule * 3 // 8))
    while quota:
        text = _Rules(rules, choices, lesson, words_per_rule).after(choice_cases, quota, room)
        if text.strip("\n") not in known_texts and len(text) <= room:
            return text
        quota //= 2
    return rules


def _defines(text: str, names: learner.Names) -> int:
    """Return how many lines of a text say something about a choice that they open with."""
    openings = map(names.opening, text.split("\n"))
    return sum(opening is not None and bool(opening.rest.strip()) for opening in openings)


@attrs.define
class _Evidence:
    """Words that point to a choice, by stem, the strongest first.

    Attributes:
        sure: words that several inputs of the choice have.
        more: words that one input has, or that have misled once.
    """

    sure: dict[str, str] = attrs.field(factory=dict[str, str])
    more: dict[str, str] = attrs.field(factory=dict[str, str])

    def read(self, sure: str | None, more: str | None) -> None:
        """Add the words of a rule; those that an earlier rule has as well are sure."""
        for word in filter(None, (sure or "").split(", ")):
            self.more.pop(term(word), None)
            self.sure.setdefault(term(word), word)
        for word in filter(None, (more or "").split(", ")):
            if stem := self.more.pop(term(word), ""):
                self.sure[term(word)] = stem
            elif term(word) not in self.sure:
                self.more[term(word)] = word

    def learn(
        self, telling: Mapping[str, int], new: Sequence[str], words: Mapping[str, str], most: int
    ) -> None:
        """Raise the words that inputs have again, and add new ones.

        Args:
            telling: how many more inputs of the choice have a stem than inputs of others.
            new: the stems to add, the most telling first.
            words: the words to write for the stems.
            most: how many words are kept.
        """
        all_words = {**words, **self.more, **self.sure}
        places = {stem: float(place) for place, stem in enumerate(self.sure)}
        for stem, inputs in telling.items():
            if inputs > 1 or stem in self.sure or stem in self.more:
                places[stem] = places.get(stem, len(self.sure)) - _STEP * inputs
        self.sure = {
            stem: all_words[stem] for stem in sorted(places, key=lambda stem: places[stem])
        }
        fresh = [stem for stem in new if stem not in self.sure]
        old = [stem for stem in self.more if stem not in self.sure and stem not in new]
        # In turn, because a word of an earlier input may yet prove itself.
        self.more = {stem: all_words[stem] for stem in _in_turn([fresh, old])}
        self.keep(most)

    def doubt(self, stem: str) -> None:
        """Make a sure word a possible one, and drop a possible one."""
        self.more.pop(stem, None)
        if stem in self.sure:
            self.more[stem] = self.sure.pop(stem)

    def keep(self, most: int) -> None:
        """Drop the last words until at most so many are left."""
        self.sure = dict([*self.sure.items()][:most])
        self.more = dict([*self.more.items()][: most - len(self.sure)])

    def __len__(self) -> int:
        return len(self.sure) + len(self.more)

    def __str__(self) -> str:
        more = f"perhaps {', '.join(self.more.values())}" if self.more else ""
        return "; ".join(filter(None, (", ".join(self.sure.values()), more)))


class _Rules:
    """A parsed text of rules: its lines, and the evidence for each choice.

    The evidence for a choice is in brackets at the end of the first line that opens with it, such
    as ``- refunds: money back``, or else of a line of its own below.
    """

    def __init__(
        self, text: str, choices: tuple[str, ...], lesson: learner.Lesson, words_per_rule: int
    ) -> None:
        self._lesson, self._words_per_rule = lesson, words_per_rule
        self._source, self._choices, self._names = text, choices, learner.names_of(choices)
        self._evidence: defaultdict[int, _Evidence] = defaultdict(_Evidence)
        self._meanings: dict[int, str] = {}
        self._home: dict[int, int] = {}
        self._style = learner.Opening(0, "- ", ": ", "")
        self._lines: list[str] = []
        for line in text.split("\n"):
            self._read(line)

    def _read(self, line: str) -> None:
        """Keep a line without its evidence, unless an earlier line says the same."""
        opening = self._names.opening(line)
        if opening is None or not opening.rest.strip():
            self._lines.append(line)
            return
        rest = opening.rest.rstrip()
        if listed := _EVIDENCE.search(rest):
            more = listed["more"] or listed["only"]
            self._evidence[opening.choice].read(listed["sure"], more)
            rest = rest[: listed.start()] + listed["end"]
        self._style = opening
        meaning = rest.casefold().rstrip(" .")
        if meaning not in {"", _UNDEFINED, self._meanings.get(opening.choice)}:
            if opening.choice not in self._home:
                self._home[opening.choice] = len(self._lines)
                self._meanings[opening.choice] = meaning
            self._lines.append(line[: len(line) - len(opening.rest)] + rest)

    def after(self, tried: Sequence[Tried], quota: int, room: float) -> str:
        """Return the text with the words that the inputs teach, and without those that misled.

        If the inputs teach nothing, the text is unchanged.
        """
        before = self._text()
        inputs: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for case in tried:
            for stem in case.stems:
                inputs[stem][case.wanted] += 1
        for choice in range(len(self._choices)):
            self._learn(choice, tried, inputs, quota)
        for case in tried:
            if case.failed and case.given in self._choices:
                misled = self._evidence[self._choices.index(case.given)]
                for stem in case.stems:
                    if not inputs[stem][case.given]:
                        misled.doubt(stem)
        self._shorten(room)
        after = self._text()
        # Reading alone may normalize a line, which is no lesson.
        return after if after != before else self._source

    def _learn(self, choice: int, tried: Sequence[Tried], inputs: _Counts, quota: int) -> None:
        """Add to the evidence for a choice what its inputs have and others lack."""
        name = self._choices[choice]
        # Failures alone say little of what right answers have in common with them.
        only_failures = all(case.failed for case in tried)
        mine = [case for case in tried if case.wanted == name]
        surplus = {stem: 2 * counts[name] - counts.total() for stem, counts in inputs.items()}
        telling: dict[str, int] = {}
        chosen: list[list[str]] = []
        for case in mine:
            stems = [
                stem
                for stem, word in case.stems.items()
                if surplus[stem] >= (inputs[stem].total() if only_failures else 1)
                and self._tells(stem, word, choice)
            ]
            stems.sort(key=lambda stem: (-surplus[stem], -min(case.counts[stem], _FEW)))
            telling.update((stem, surplus[stem]) for stem in stems)
            chosen.append(stems[: quota if case.failed else quota // 2])
        words = _shortest([word for case in mine for word in case.words])
        # In turn, so that each input gives some of its words.
        new = sorted(_in_turn(chosen), key=lambda stem: -surplus[stem])
        self._evidence[choice].learn(telling, new, words, self._words_per_rule)

    def _tells(self, stem: str, word: str, choice: int) -> bool:
        """Return whether a word can be evidence: no other choice has more weight on it."""
        claim = self._lesson.weight(stem, choice)
        return (
            all(weight <= claim for _, weight in self._lesson.weights.get(stem, ()))
            and learner.is_plain(word)
            # The name of another choice in the list would count as evidence for that choice.
            and {choice}.issuperset(self._names.named_in(word))
        )

    def _shorten(self, room: float) -> None:
        """Drop the last words of the longest lists until the text is short enough."""
        without = len("\n".join(self._lines))
        words_per_rule = self._words_per_rule
        most = max(_CHARS_PER_WORD * words_per_rule, (1 + words_per_rule / 4) * without)
        excess = len(self._text()) - min(room, most)
        lengths = {choice: len(str(words)) for choice, words in self._evidence.items()}
        while excess > 0 and any(lengths.values()):
            longest = max(lengths, key=lambda choice: lengths[choice])
            words = self._evidence[longest]
            words.keep(len(words) - 1)
            excess -= lengths[longest] - len(str(words))
            lengths[longest] = len(str(words))

    def _text(self) -> str:
        lines = [*self._lines]
        below: list[str] = []
        for choice, words in sorted(self._evidence.items()):
            if choice in self._home:
                place = self._home[choice]
                lines[place] = _with_evidence(lines[place], str(words))
            elif words:
                opening = f"{self._style.before}{self._choices[choice]}{self._style.after}"
                below.append(_with_evidence(f"{opening}{_UNDEFINED}", str(words)))
        if below and lines and lines[-1].strip() and not _BULLET.match(lines[-1]):
            lines.append("")
        return "\n".join((*lines, *below))


def _with_evidence(line: str, words: str) -> str:
    end = line[-1] if line.endswith((".", "!")) else ""
    return f"{line.removesuffix(end)} ({words}){end}" if words else line
