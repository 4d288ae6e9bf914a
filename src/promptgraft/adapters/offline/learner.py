"""An in-context learner: it chooses by the words of the prompt's own rules."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from promptgraft.adapters.offline.names import Names, names_of
from promptgraft.adapters.offline.rules import read_rules
from promptgraft.adapters.offline.words import terms

Instruction = tuple[tuple[str, tuple[str, ...]], ...]
"""The prompt's own words: title and literal pieces of each section."""

ATTENTION = 100
"""How many rule words of each choice count by default."""

_LONGEST_INPUT = 20_000
_AGAINST = 0.5
_DILUTION = 0.3
_DILUTED_FROM = 10


@attrs.frozen
class Lesson:
    """What a prompt teaches about a choice.

    Attributes:
        size: number of choices.
        weights: for each stem, the choices that it speaks for or against, and how much.
    """

    size: int
    weights: Mapping[str, Sequence[tuple[int, float]]]

    def scores(self, text: str) -> list[float]:
        """Return how much the words of ``text`` speak for each choice; each counts once."""
        totals = [0.0] * self.size
        found = self.weights.keys() & terms(text[:_LONGEST_INPUT])
        # Sums of floats depend on their order, and that of a set on the process.
        for stem in sorted(found):
            for choice, weight in self.weights[stem]:
                totals[choice] += weight
        return totals

    def choose(self, text: str) -> int:
        """Return the choice with the highest score; the first of equals."""
        totals = self.scores(text)
        return totals.index(max(totals))

    def weight(self, stem: str, choice: int) -> float:
        """Return how much a stem speaks for a choice."""
        return sum(weight for found, weight in self.weights.get(stem, ()) if found == choice)


@functools.lru_cache(maxsize=256)
def lesson_of(instruction: Instruction, choices: tuple[str, ...], attention: int) -> Lesson:
    """Return what a prompt's own words teach; worked out once for each wording."""
    text = "\n\n".join(f"# {title}\n{''.join(pieces)}" for title, pieces in instruction)
    return learn(text, choices, attention)


def learn(text: str, choices: tuple[str, ...], attention: int = ATTENTION) -> Lesson:
    """Weigh the words that ``text`` says about each choice.

    A word counts ``1 + ln(n)`` for a choice whose rules say it ``n`` times, half of one
    against it in a clause such as "not refunds". It counts less the more choices share it
    (inverse document frequency, Spärck Jones 1972, over choices), and less the more
    different words its choice has: noise dilutes.

    Args:
        text: the instruction, as Markdown.
        choices: the answers.
        attention: how many rule words of each choice count; later ones are not heard.
    """
    names = names_of(choices)
    said = _hear(text, names, attention)
    shared = Counter(stem for words in said for stem, value in words.items() if value > 0)
    weights: dict[str, list[tuple[int, float]]] = {}
    for choice, words in enumerate(said):
        diluted = (len(words) + _DILUTED_FROM) ** -_DILUTION
        for stem, value in words.items():
            rarity = math.log(1 + len(choices) / max(1, shared[stem]))
            weights.setdefault(stem, []).append((choice, value * rarity * diluted))
    return Lesson(len(choices), weights)


def _hear(text: str, names: Names, attention: int) -> list[dict[str, float]]:
    """Return, for each choice, its stems and how strongly its rules say them."""
    spoken_for = [Counter(names.terms_of(choice)) for choice in range(len(names.choices))]
    spoken_against: list[set[str]] = [set() for _ in names.choices]
    left = [attention] * len(names.choices)
    for clause in read_rules(text, names):
        heard = clause.terms[: left[clause.choice]]
        left[clause.choice] -= len(heard)
        if clause.against:
            spoken_against[clause.choice].update(heard)
        else:
            spoken_for[clause.choice].update(heard)
    said: list[dict[str, float]] = []
    for counts, negated in zip(spoken_for, spoken_against, strict=True):
        words = {stem: 1 + math.log(count) for stem, count in counts.items()}
        for stem in sorted(negated):
            words[stem] = words.get(stem, 0.0) - _AGAINST
        said.append(words)
    return said
