"""Simulated sorting by definition lists: a prompt has one line for each label, `- label: words`.

An item belongs to a label, and has some words that tell it. The model answers with the label whose
line has most of the item's words. A line counts in its own section alone, and every word beyond
what the model attends to makes it slip more often. The same texts always get the same answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import attrs

from search.worlds import Item, Rule, Texts, Trial, made_words

SLOT = re.compile(r"^- (\w+): (.*)$", re.MULTILINE)
FORBIDS = "Decide by the names alone, and give what stands behind a name no weight."
"""A sentence of a source text that keeps every better definition from helping."""
_COMMON = 60
_TELLING = 12
_HEEDS_FORBIDDEN = 0.25
_SLIP = 0.001


@attrs.frozen(kw_only=True)
class SlotShape:
    """What kind of world it is.

    Attributes:
        labels: what items are sorted into.
        sections: texts over which their definitions are spread.
        known: telling words that a definition begins with, the rarest.
        attention: words of all texts that are read without slips.
        forbids: whether the first of its texts forbids to heed definitions.
        train: items to learn from.
        validation: items to compare on.
        test: items that no search sees.
    """

    labels: int = 12
    sections: int = 2
    known: int = 1
    attention: int = 160
    forbids: bool = False
    train: int = 120
    validation: int = 60
    test: int = 200


class SlotWorld:
    """A world of a shape, made by a seed.

    Args:
        shape: the kind of world.
        seed: decides words, items and every draw.
    """

    tools: tuple[str, ...] = ()

    def __init__(self, shape: SlotShape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        draw = random.Random(f"slots/{seed}")
        words = made_words(draw, 40 * shape.labels + _COMMON)
        self._common = words[:_COMMON]
        heads = {word[:2]: word for word in words[_COMMON:]}
        self.labels = tuple(list(heads.values())[: shape.labels])
        others = [word for word in words[_COMMON:] if word not in self.labels]
        self.telling = {label: _telling(label, others, draw) for label in self.labels}
        self.home = {
            label: f"part{number % shape.sections}" for number, label in enumerate(self.labels)
        }
        self.first: dict[str, str] = {
            f"part{number}": self._source(f"part{number}") for number in range(shape.sections)
        }
        self.train = self._items("train", shape.train, draw)
        self.validation = self._items("validation", shape.validation, draw)
        self.test = self._items("test", shape.test, draw)
        self.calls = 0

    def _source(self, part: str) -> str:
        lines = [f"Labels of {part}, and the words that tell them:"]
        if self.shape.forbids and part == "part0":
            lines.append(FORBIDS)
        for label, home in self.home.items():
            if home == part:
                lines.append(f"- {label}: {', '.join(self.telling[label][-self.shape.known :])}")
        return "\n".join(lines)

    def _items(self, name: str, count: int, draw: random.Random) -> tuple[Item, ...]:
        return tuple(self._item(f"{name}-{number}", draw) for number in range(count))

    def _item(self, name: str, draw: random.Random) -> Item:
        label = draw.choice(self.labels)
        weights = [1 / (rank + 1) for rank in range(_TELLING)]
        words = {*draw.choices(self.telling[label], weights, k=draw.randint(2, 4))}
        if draw.random() < 0.5:
            words.add(draw.choice(self.telling[draw.choice(self.labels)]))
        words |= {*draw.sample(self._common, 4)}
        mixed = sorted(words)
        draw.shuffle(mixed)
        return Item(name, tuple(Rule(word, label, self.home[label]) for word in mixed))

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Sort an item."""
        self.calls += 1
        given = self._sorted(texts, item)
        if given == label_of(item):
            return Trial(item, 1.0, f"expected {label_of(item)}, answered {given}: right", "")
        return Trial(item, 0.0, f"expected {label_of(item)}, answered {given}: wrong", "")

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the share of the items that the texts sort rightly."""
        return sum(self._sorted(texts, item) == label_of(item) for item in items) / len(items)

    def _sorted(self, texts: Texts, item: Item) -> str:
        told = "\x00".join(texts[name] for name in sorted(texts))
        draw = random.Random(f"{self.seed}/{item.id}/{told}")
        words = sum(len(text.split()) for text in texts.values())
        slips = draw.random() < _SLIP * max(0, words - self.shape.attention)
        is_forbidden = FORBIDS in told and draw.random() >= _HEEDS_FORBIDDEN
        if slips or is_forbidden:
            return draw.choice(self.labels)
        hits = dict.fromkeys(self.labels, 0)
        words_in = {rule.cue for rule in item.rules}
        for part, text in texts.items():
            for label, words_of in definitions(text):
                if self.home.get(label) == part:
                    hits[label] += len(words_of.intersection(words_in))
        most = max(hits.values())
        return draw.choice([label for label, count in hits.items() if count == most])

    def damage(self, texts: Texts) -> tuple[str, ...]:
        """Return the labels that a prompt defines twice, or not where they belong."""
        places = [(label, part) for part in texts for label, _ in definitions(texts[part])]
        labels = [label for label, _ in places]
        return tuple(
            label
            for label in self.labels
            if labels.count(label) > 1
            or (label in labels and (label, self.home[label]) not in places)
        )


def label_of(item: Item) -> str:
    """Return the label that an item belongs to: that of all its words."""
    return item.rules[0].action


def definitions(text: str) -> list[tuple[str, frozenset[str]]]:
    """Return the labels that a text defines, each with the words of its line."""
    return [(label, frozenset(re.findall(r"\w+", said))) for label, said in SLOT.findall(text)]


def _telling(label: str, others: list[str], draw: random.Random) -> tuple[str, ...]:
    """Return words that tell a label: most of them resemble it, as words of one subject do."""
    alike = [word for word in others if word[:1] == label[:1]]
    count = min(len(alike), 3 * _TELLING // 4)
    chosen = draw.sample(alike, count)
    chosen += draw.sample([word for word in others if word not in alike], _TELLING - count)
    for word in chosen:
        others.remove(word)
    draw.shuffle(chosen)
    return tuple(chosen)


SHAPES: Mapping[str, SlotShape] = {
    "slots": SlotShape(),
    "defective": SlotShape(sections=1, forbids=True),
}
"""The worlds of definition lists, by name."""
