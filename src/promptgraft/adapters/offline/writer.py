"""Writes what failures teach about a choice as sentences, and parses such sentences."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from promptgraft.adapters.offline.learner import ATTENTION, Lesson, learn, names_of
from promptgraft.adapters.offline.words import content_words, term

WORDS_PER_FAILURE = 15
"""Default limit on the words taken from a failed input."""

_WORDS_PER_SENTENCE = 12
_MOST_WORDS = 3 * _WORDS_PER_SENTENCE
_LONGEST_INPUT = 4_000
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_LEARNED = re.compile(
    r" ?(?:(?P<head>Words such as|The word|Above all, the words?) (?P<words>[^.\n]{1,600}?)"
    r" points? to (?P<owner>[^.\n]{1,200})"
    r"|(?:Other such words|Still others) are (?P<others>[^.\n]{1,600}))\.(?=\s|$)"
)


@attrs.frozen
class Tried:
    """An answered input: its text, the right choice, and the one that was given."""

    text: str
    wanted: str
    given: str | None

    @functools.cached_property
    def words(self) -> list[str]:
        """The content words of the input."""
        return content_words(self.text[:_LONGEST_INPUT])


def rewrite(
    rules: str,
    tried: Sequence[Tried],
    choices: tuple[str, ...],
    *,
    neighbours: str = "",
    max_chars: int | None = None,
    refused: str | None = None,
    words_per_failure: int = WORDS_PER_FAILURE,
    attention: int = ATTENTION,
) -> str:
    """Return improved rules, or the same rules if there is no failure to learn from.

    From each failed input, words are added as evidence for the right choice if no input of another
    choice contains them and no other choice has more weight on them; words shared with other inputs
    of the choice come first. Rightly answered inputs contribute half as many words. Words that are
    learned a second time are stressed; words that misled are removed from the choice that was
    wrongly given. While the text is too long or equals the refused one, the number of words is
    halved.

    Args:
        rules: the current text.
        tried: the inputs that were answered, rightly or wrongly.
        choices: the allowed answers.
        neighbours: the other parts of the prompt.
        max_chars: limit on the new text.
        refused: the refused reply; None at the first attempt.
        words_per_failure: most words taken from a failed input.
        attention: how many rule words count per choice.
    """
    known = [one for one in tried if one.wanted in choices]
    lesson = learn(f"{rules}\n\n{neighbours}", choices, attention)
    # The reply is fenced on lines of its own, so that line breaks around it do not count.
    known_texts = {rules.strip("\n"), (refused or rules).strip("\n")}
    room = math.inf if max_chars is None else max_chars
    quota = words_per_failure if any(one.wanted != one.given for one in known) else 0
    while quota:
        text = _Rules(rules, choices).after(known, lesson, quota)
        if text.strip("\n") not in known_texts and len(text) <= room:
            return text
        quota //= 2
    return rules


@attrs.frozen
class _Signs:
    """Words that point to a choice, by stem: learned once, or more often."""

    once: dict[str, str] = attrs.field(factory=dict, hash=False)
    again: dict[str, str] = attrs.field(factory=dict, hash=False)

    def learn(self, word: str) -> None:
        stem = term(word)
        if stem in self.once:
            self.again[stem] = self.once.pop(stem)
        elif stem not in self.again:
            self.once[stem] = word

    def forget(self, stem: str) -> None:
        self.once.pop(stem, None)
        self.again.pop(stem, None)

    def sentences(self, owner: str) -> str:
        """Return the words as sentences; only the latest if there are too many."""
        said = []
        once = [*self.once.values()][-_MOST_WORDS:]
        again = [*self.again.values()][-_WORDS_PER_SENTENCE:]
        if first := once[:_WORDS_PER_SENTENCE]:
            one = len(first) == 1
            head = "The word" if one else "Words such as"
            said.append(f"{head} {_listed(first)} {'points' if one else 'point'} to {owner}.")
            owner = "it"
        for begin, head in enumerate(("Other such words", "Still others"), 1):
            if more := once[begin * _WORDS_PER_SENTENCE :][:_WORDS_PER_SENTENCE]:
                said.append(f"{head} are {_listed(more)}.")
        if again:
            head, verb = ("word", "points") if len(again) == 1 else ("words", "point")
            said.append(f"Above all, the {head} {_listed(again)} {verb} to {owner}.")
        return " ".join(said)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


class _Rules:
    """A parsed text of rules: its lines, and the learned words of each choice.

    The sentences about a choice go to the end of the first line that opens with it, such as
    ``- refunds: money back``, or else where they were before, or else on a line of their own below.
    """

    def __init__(self, text: str, choices: tuple[str, ...]) -> None:
        self._source, self._choices, self._names = text, choices, names_of(choices)
        self._signs: defaultdict[int, _Signs] = defaultdict(_Signs)
        self._home: dict[int, int] = {}
        self._lines = [self._read(number, line) for number, line in enumerate(text.split("\n"))]
        self._marker = next((m[0] for m in map(_BULLET.match, self._lines) if m), "- ")

    def _read(self, number: int, line: str) -> str:
        """Extract the learned words of a line; return the rest, with its rule as a sentence."""
        opening = self._names.opening(line)
        owner = None if opening is None else opening.choice

        def keep(found: re.Match[str]) -> str:
            nonlocal owner
            named = self._choices.index(found["owner"]) if found["owner"] in self._choices else None
            owner = owner if named is None else named
            if owner is None or (found["owner"] not in {None, "it"} and named is None):
                return found[0]
            signs = self._signs[owner]
            kept = signs.again if (found["head"] or "").startswith("Above") else signs.once
            words = re.split(", | and ", found["words"] or found["others"])
            kept.update((term(word), word) for word in words)
            self._home.setdefault(owner, number)
            return ""

        left = _LEARNED.sub(keep, line)
        if opening is None or not opening.rest.strip():
            return left
        self._home.setdefault(opening.choice, number)
        head = line[: len(line) - len(opening.rest)]
        return head + _as_sentence(left[len(head) :].rstrip())

    def after(self, tried: Sequence[Tried], lesson: Lesson, quota: int) -> str:
        """Return the text with the words that the inputs teach, and without those that misled.

        If the inputs teach nothing, the text is unchanged.
        """
        before = self._text()
        seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for one in tried:
            for stem in {term(word) for word in one.words}:
                seen[stem][one.wanted] += 1
        for one in tried:
            failed, wanted = one.wanted != one.given, self._choices.index(one.wanted)
            telling = self._typical(one, seen, lesson)
            for word in telling[: quota if failed else quota // 2]:
                self._signs[wanted].learn(word)
            if failed and one.given in self._choices:
                misled = {stem for stem in map(term, one.words) if not seen[stem][one.given]}
                for stem in misled:
                    self._signs[self._choices.index(one.given)].forget(stem)
        after = self._text()
        # Reading alone may normalize a sentence, which is no lesson.
        return after if after != before else self._source

    def _typical(self, one: Tried, seen: Mapping[str, Counter[str]], lesson: Lesson) -> list[str]:
        """Return the words that distinguish the right choice, the most frequent first."""
        wanted = self._choices.index(one.wanted)

        def tells(stem: str) -> bool:
            claim = lesson.weight(stem, wanted)
            rivals = (weight for _, weight in lesson.weights.get(stem, ()))
            return len(seen[stem]) == 1 and all(weight <= claim for weight in rivals)

        # The name of another choice in the list would count as evidence for that choice.
        telling = [
            word
            for word in one.words
            if tells(term(word)) and {wanted}.issuperset(self._names.named_in(word))
        ]
        return sorted(telling, key=lambda word: -seen[term(word)][one.wanted])

    def _text(self) -> str:
        lines = [*self._lines]
        below = []
        for choice, signs in sorted(self._signs.items()):
            number = self._home.get(choice)
            opens = number is not None and self._names.opening(lines[number]) is not None
            said = signs.sentences("it" if opens else self._choices[choice])
            if number is not None:
                lines[number] = " ".join(filter(None, (lines[number].rstrip(), said)))
            elif said:
                below.append(f"{self._marker}{said}")
        emptied = {self._home[choice] for choice in self._signs if choice in self._home}
        kept = [
            line
            for number, line in enumerate(lines)
            if number not in emptied or _BULLET.sub("", f"{line} ", count=1).strip()
        ]
        if below and kept and kept[-1].strip() and not _BULLET.match(kept[-1]):
            kept.append("")
        return "\n".join((*kept, *below))


def _as_sentence(text: str) -> str:
    """Return ``text`` with a capital letter and a full stop if it starts and ends with words."""
    first = text.partition(" ")[0]
    capital = text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
    return f"{capital}." if text[-1:].isalnum() else capital
