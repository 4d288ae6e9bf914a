"""Writes rules out of what went wrong, as a reflection model would."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline.learner import ATTENTION, Lesson, learn
from promptgraft.adapters.offline.metaprompt import ReflectionTask, ShownExample
from promptgraft.adapters.offline.names import Names, names_of
from promptgraft.adapters.offline.rule_text import Changes, cut, edited
from promptgraft.adapters.offline.words import content_words, term

WORDS_PER_FAILURE = 10
"""How many words of a failed input are taken up at most by default."""

_DROPPED_PER_FAILURE = 2
_PHRASE_WORDS = 4
_LONGEST_INPUT = 4_000
_PERFECT = 1.0


def rewrite(
    task: ReflectionTask,
    *,
    words_per_failure: int = WORDS_PER_FAILURE,
    attention: int = ATTENTION,
) -> str:
    """Return a better text for the part, or the same where no failure can be read.

    Of each failed input, words that no example of another answer has and that no other choice
    has a stronger claim on go into the rules of the expected choice; those that other
    examples of that choice have too go first. Inputs that were answered rightly confirm their
    choice with half as many words. Words that misled go out of the rules of the choice that
    was wrongly given.

    Placeholders are kept. As long as the text is too long, or the one that was refused, it
    takes up half as many words.
    """
    names = names_of(task.choices)
    cases = [case for example in task.examples if (case := _case(example, names)) is not None]
    refused = {_bare(task.current)}
    if task.previous is not None:
        refused.add(_bare(task.previous))
    if any(case.failed for case in cases) and _fits(task.current, task.max_chars):
        lesson = learn(f"{task.current}\n\n{task.neighbours}", task.choices, attention)
        for quota in _quotas(words_per_failure):
            text = edited(task.current, names, _changes(cases, lesson, quota))
            if _bare(text) not in refused and _fits(text, task.max_chars):
                return text
    return cut(task.current, task.max_chars, task.placeholders)


@attrs.frozen(kw_only=True)
class _Case:
    """An example that something can be learned from.

    Attributes:
        words: the content words of its input.
        wanted: the choice that would have been right.
        given: the choice that was answered; None when the answer was none.
    """

    words: Sequence[str]
    wanted: int
    given: int | None

    @property
    def failed(self) -> bool:
        return self.wanted != self.given


def _case(example: ShownExample, names: Names) -> _Case | None:
    answers = names.named_in(example.output)
    given = answers[0] if len(answers) == 1 else None
    if example.score is None:
        return None
    wanted = given
    if example.score < _PERFECT:
        others = (choice for choice in names.named_in(example.feedback) if choice != given)
        wanted = next(others, None)
    if wanted is None:
        return None
    return _Case(words=content_words(example.input[:_LONGEST_INPUT]), wanted=wanted, given=given)


def _quotas(words_per_failure: int) -> Iterator[int]:
    quota = words_per_failure
    while quota:
        yield quota
        quota //= 2


def _changes(cases: Sequence[_Case], lesson: Lesson, quota: int) -> Changes:
    seen: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for case in cases:
        for stem in {term(word) for word in case.words}:
            seen[stem][case.wanted] += 1
    added: defaultdict[int, list[str]] = defaultdict(list)
    dropped: defaultdict[int, set[str]] = defaultdict(set)
    for case in cases:
        words = _telling(case, seen, lesson)[: quota if case.failed else quota // 2]
        added[case.wanted].extend(_phrases(case.words, frozenset(words)))
        if case.failed and case.given is not None:
            dropped[case.given].update(_misleading(case, case.given, seen, lesson))
    return Changes(added=added, dropped=dropped)


def _telling(case: _Case, seen: Mapping[str, Counter[int]], lesson: Lesson) -> list[str]:
    """Return the words that tell the wanted choice from the others, the surest first."""

    @functools.cache
    def tells(stem: str) -> bool:
        claim = lesson.weight(stem, case.wanted)
        rivals = (weight for _, weight in lesson.weights.get(stem, ()))
        return len(seen[stem]) == 1 and all(weight <= claim for weight in rivals)

    telling = [word for word in case.words if tells(term(word))]
    return sorted(telling, key=lambda word: -seen[term(word)][case.wanted])


def _phrases(words: Sequence[str], chosen: frozenset[str]) -> Iterator[str]:
    kept = [word for word in words if word in chosen]
    for start in range(0, len(kept), _PHRASE_WORDS):
        yield " ".join(kept[start : start + _PHRASE_WORDS])


def _misleading(
    case: _Case, given: int, seen: Mapping[str, Counter[int]], lesson: Lesson
) -> list[str]:
    stems = dict.fromkeys(term(word) for word in case.words)
    misled = (stem for stem in stems if lesson.weight(stem, given) > 0 and not seen[stem][given])
    return list(misled)[:_DROPPED_PER_FAILURE]


def _fits(text: str, max_chars: int | None) -> bool:
    return max_chars is None or len(text) <= max_chars


def _bare(text: str) -> str:
    return text.strip("\n")
