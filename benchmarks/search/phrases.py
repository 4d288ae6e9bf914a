"""Rules as lists of words, which the simulated reflection model writes for tickets.

They are what the figures in ``specs/search.md`` were measured with; the embedded offline model
writes sentences.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from promptgraft.adapters.offline.learner import ATTENTION, Lesson, Opening, learn, names_of
from promptgraft.adapters.offline.words import term
from promptgraft.adapters.offline.writer import Tried

WORDS_PER_FAILURE = 10
"""How many words of a failed input are taken up at most."""

_DROPPED_PER_FAILURE = 2
_PHRASE_WORDS = 4
_BULLET = re.compile(r"\s*[-*+•]\s")


def rewrite(rules: str, tried: Sequence[Tried], choices: tuple[str, ...]) -> str:
    """Return rules with words of the failures in the lists of the right choices.

    As long as that is the text as it was, it takes up half as many words.
    """
    known = [one for one in tried if one.wanted in choices]
    lesson = learn(f"{rules}\n\n", choices, ATTENTION)
    quota = WORDS_PER_FAILURE if any(one.wanted != one.given for one in known) else 0
    while quota:
        text = _edited(rules, choices, *_changes(known, choices, lesson, quota))
        if text.strip("\n") != rules.strip("\n"):
            return text
        quota //= 2
    return rules


def _changes(
    tried: Sequence[Tried], choices: tuple[str, ...], lesson: Lesson, quota: int
) -> tuple[Mapping[int, Sequence[str]], Mapping[int, Set[str]]]:
    """Return by choice the phrases that its rule gets, and the stems that go out of it."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in tried:
        for stem in {term(word) for word in one.words}:
            seen[stem][one.wanted] += 1
    added: defaultdict[int, list[str]] = defaultdict(list)
    dropped: defaultdict[int, set[str]] = defaultdict(set)
    for one in tried:
        failed, wanted = one.wanted != one.given, choices.index(one.wanted)
        telling = _distinguishing(one, seen, lesson, wanted)[: quota if failed else quota // 2]
        added[wanted].extend(_phrases([word for word in one.words if word in telling]))
        if failed and one.given in choices:
            given = choices.index(one.given)
            stems = dict.fromkeys(map(term, one.words))
            misled = [
                stem
                for stem in stems
                if lesson.weight(stem, given) > 0 and not seen[stem][one.given]
            ]
            dropped[given].update(misled[:_DROPPED_PER_FAILURE])
    return added, dropped


def _distinguishing(
    one: Tried, seen: Mapping[str, Counter[str]], lesson: Lesson, wanted: int
) -> list[str]:
    """Return the words that tell the right choice from the others, the surest first."""

    def tells(stem: str) -> bool:
        claim = lesson.weight(stem, wanted)
        rivals = (weight for _, weight in lesson.weights.get(stem, ()))
        return len(seen[stem]) == 1 and all(weight <= claim for weight in rivals)

    telling = [word for word in one.words if tells(term(word))]
    return sorted(telling, key=lambda word: -seen[term(word)][one.wanted])


def _phrases(words: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(words), _PHRASE_WORDS):
        yield " ".join(words[start : start + _PHRASE_WORDS])


def _edited(
    text: str,
    choices: tuple[str, ...],
    added: Mapping[int, Sequence[str]],
    dropped: Mapping[int, Set[str]],
) -> str:
    """Return ``text`` with phrases added to the rules of choices, and stems taken out of them.

    The first line that opens with a choice (``- refunds: money back``) gets its phrases;
    without such a line, one is written below, in the style of the others.
    """
    lines: list[str] = []
    left = {choice: phrases for choice, phrases in added.items() if phrases}
    style = Opening(0, "- ", ": ", "")
    for line in text.split("\n"):
        opening = names_of(choices).opening(line)
        if opening is not None and opening.rest.strip():
            style = opening
            rest = _edited_rule(
                opening.rest, left.pop(opening.choice, ()), dropped.get(opening.choice, frozenset())
            )
            lines.append(line[: len(line) - len(opening.rest)] + rest)
        else:
            lines.append(line)
    if left and lines[-1].strip() and not _BULLET.match(lines[-1]):
        lines.append("")
    for choice, phrases in sorted(left.items()):
        rule = ", ".join(dict.fromkeys(phrases))
        lines.append(f"{style.before}{choices[choice]}{style.after}{rule}")
    return "\n".join(lines)


def _edited_rule(rule: str, added: Sequence[str], dropped: Set[str]) -> str:
    if not added and not dropped:
        return rule
    first, *others = rule.rstrip().split(", ")
    kept = [first, *(shorter for phrase in others if (shorter := _without(phrase, dropped)))]
    known = {phrase.strip(" .") for phrase in kept}
    new = [phrase for phrase in dict.fromkeys(added) if phrase not in known]
    if new:
        kept[-1] = kept[-1].rstrip(" .")
    return ", ".join((*kept, *new))


def _without(phrase: str, dropped: Set[str]) -> str:
    """Return a phrase without some stems; one with other than content words stays whole."""
    words = phrase.split()
    if not dropped or not all(word.isalpha() and term(word.lower()) for word in words):
        return phrase
    return " ".join(word for word in words if term(word.lower()) not in dropped)
