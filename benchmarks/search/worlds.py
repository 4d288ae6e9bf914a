"""Simulated tasks with hidden rules: what a prompt knows decides how well it answers.

A world has modules, the texts that an optimizer may change, one rule a line. An item needs a few
rules. A rule is applied when its line stands in the module that it belongs to, is attended to,
and no later line of the same cue says something else. Nothing of a world is in the texts that it
begins with: an optimizer can only learn from scores and feedback.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

Texts = Mapping[str, str]
"""The text of each module by name."""

LINE = re.compile(r"- when (\w+) then (\w+)")


@attrs.frozen
class Rule:
    """What the task wants done, and where the prompt must say so.

    Attributes:
        cue: when.
        action: what.
        module: the module that must hold its line.
    """

    cue: str
    action: str
    module: str

    @property
    def line(self) -> str:
        """The rule as a line of a prompt."""
        return f"- when {self.cue} then {self.action}"


@attrs.frozen
class Item:
    """One input: the rules that it needs."""

    id: str
    rules: tuple[Rule, ...]

    @property
    def text(self) -> str:
        """The input as a model sees it."""
        return f"[{self.id}] " + " ".join(rule.cue for rule in self.rules)


@attrs.frozen(kw_only=True)
class Shape:
    """What kind of world it is.

    Attributes:
        rules: hidden rules.
        modules: texts that they are spread over.
        needed: fewest and most rules that an item needs.
        tail: how unevenly rules are needed; 0 for evenly, 1 for a long tail.
        known: share of the rules, the most needed first, that the first texts hold.
        binary: whether an answer is right or wrong as a whole; else the share of its rules.
        noise: how far a graded score is off, or how often a binary one is turned round.
        attention: lines of a module that are attended to for certain; of more lines each is
            attended to in proportion.
        clarity: share of the wrong answers whose feedback names a rule that was missed.
        interference: what each line costs that stands in a module to which its cue does not
            belong.
        train: items to learn from.
        validation: items to compare on.
    """

    rules: int = 24
    modules: int = 1
    needed: tuple[int, int] = (1, 3)
    tail: float = 0.0
    known: float = 0.0
    binary: bool = False
    noise: float = 0.0
    attention: int = 40
    clarity: float = 0.9
    interference: float = 0.0
    train: int = 100
    validation: int = 60


TEST_ITEMS = 200


@attrs.frozen
class Trial:
    """One answer: its score, and what is said of it."""

    item: Item
    score: float
    feedback: str
    module: str
    steps: tuple[tuple[str, str, str], ...] = ()
    """In a graph the node of each step, what it was given and what it answered."""


class RuleWorld:
    """A world of a shape, made by a seed.

    Args:
        shape: the kind of world.
        seed: decides rules, items and every draw.
    """

    tools: tuple[str, ...] = ()

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        draw = random.Random(f"world/{seed}")
        words = made_words(draw, 3 * shape.rules)
        names = self._names()
        self.rules = tuple(
            Rule(words[number], words[shape.rules + number], names[number % shape.modules])
            for number in range(shape.rules)
        )
        self.wrong_actions = tuple(words[2 * shape.rules :])
        known = self.rules[: round(shape.known * shape.rules)]
        self.first: dict[str, str] = {
            name: "\n".join(["Rules:", *(rule.line for rule in known if rule.module == name)])
            for name in names
        }
        self.train = self._items("train", shape.train, draw)
        self.validation = self._items("validation", shape.validation, draw)
        self.test = self._items("test", TEST_ITEMS, draw)
        self.calls = 0
        self._asked: dict[tuple[str, int], int] = {}

    def _names(self) -> list[str]:
        return [f"part{number}" for number in range(self.shape.modules)]

    def _items(self, name: str, count: int, draw: random.Random) -> tuple[Item, ...]:
        weights = [(number + 1) ** -(2 * self.shape.tail) for number in range(len(self.rules))]
        return tuple(
            Item(f"{name}-{number}", tuple(_sample(self.rules, weights, self._size(draw), draw)))
            for number in range(count)
        )

    def _size(self, draw: random.Random) -> int:
        return draw.randint(*self.shape.needed)

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Try the texts on an item; asked again, the noise is another."""
        self.calls += 1
        draw = self._chances(texts, item)
        missed = [rule for rule in item.rules if draw.random() >= self._chance(texts, rule)]
        score = self._score(texts, item, missed, draw)
        return Trial(item, score, *self._feedback(missed, score, draw))

    def _chances(self, texts: Texts, item: Item) -> random.Random:
        key = (item.id, hash(tuple(sorted(texts.items()))))
        again = self._asked[key] = self._asked.get(key, -1) + 1
        told = "\x00".join(texts[name] for name in sorted(texts))
        return random.Random(f"{self.seed}/{item.id}/{again}/{told}")

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the mean score of the texts without noise: what an optimizer is judged by."""
        cost = 1 - self._cost(texts)
        total = 0.0
        for item in items:
            chances = [self._chance(texts, rule) for rule in item.rules]
            if self.shape.binary:
                whole = cost
                for chance in chances:
                    whole *= chance
                total += whole
            else:
                total += cost * sum(chances) / len(chances)
        return total / len(items)

    def _score(
        self, texts: Texts, item: Item, missed: Sequence[Rule], draw: random.Random
    ) -> float:
        shape = self.shape
        if shape.binary:
            right = not missed and draw.random() >= self._cost(texts)
            return float(right is not (draw.random() < shape.noise))
        share = (1 - len(missed) / len(item.rules)) * (1 - self._cost(texts))
        return min(1.0, max(0.0, share + draw.uniform(-shape.noise, shape.noise)))

    def _feedback(
        self, missed: Sequence[Rule], score: float, draw: random.Random
    ) -> tuple[str, str]:
        if score >= 1.0:
            return "right", ""
        if not missed or draw.random() >= self.shape.clarity:
            return "not what was wanted", ""
        rule = missed[0]
        return f"{rule.cue} wants {rule.action} ({rule.module})", rule.module

    def _chance(self, texts: Texts, rule: Rule) -> float:
        """Return how probably the texts lead to a rule being applied."""
        text = texts[rule.module]
        lines = text.splitlines()
        attended = min(1.0, self.shape.attention / max(1, len(lines)))
        chance, later = 0.0, 1.0
        for cue, action in reversed(LINE.findall(text)):
            if cue == rule.cue:
                chance += later * attended if action == rule.action else 0.0
                later *= 1 - attended
        return chance

    def _cost(self, texts: Texts) -> float:
        if not self.shape.interference:
            return 0.0
        owner = {rule.cue: rule.module for rule in self.rules}
        strange = sum(
            owner.get(cue, name) != name
            for name, text in texts.items()
            for cue, _ in LINE.findall(text)
        )
        return min(0.5, strange * self.shape.interference)


def made_words(draw: random.Random, count: int) -> list[str]:
    """Return so many different words without a meaning."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(3))] = (
            None
        )
    return list(found)


def _sample(
    rules: Sequence[Rule], weights: Sequence[float], count: int, draw: random.Random
) -> Iterator[Rule]:
    left = dict(zip(rules, weights, strict=True))
    for _ in range(count):
        [one] = draw.choices(list(left), list(left.values()))
        del left[one]
        yield one
