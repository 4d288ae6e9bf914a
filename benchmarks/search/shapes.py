"""Worlds whose shape is drawn by a seed: there is no one kind of world to tune a search to."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import attrs

from search import families
from search.readers import Reading
from search.worlds import LINE, Item, Rule, RuleWorld, Shape, Texts, Trial, made_words

Naming = Literal["key", "title", "nickname", "wrong", "decoy", "none"]
"""How feedback names the part at fault: by key, by title, by half of its title in the plural, by
another part's title as often as by its own, by title with one part's name in every feedback, or
not at all."""
Noise = Literal["fresh", "fixed", "drifting"]
"""Drawn anew for each answer, by prompt and input alone, or with a provider that grows worse and
better in the course of a search."""
Hardness = Literal["even", "mostly easy", "mostly hard"]
"""Whether inputs need few rules or many."""

_WRONG_SHARE = 0.5
_DRIFT_PERIOD = 700
"""Calls after which a drifting provider is as it was."""


@attrs.frozen(kw_only=True)
class Traits:
    """The shape of a world, and the habits of its reflection model.

    Attributes:
        seed: what drew it.
        shape: rules, texts, noise, attention, interference and sizes.
        reading: the habits of the reflection model.
        naming: how feedback names parts.
        numbered: whether keys are numbers rather than the title's words.
        topical: how often an input says what a cue is about in words of the part's text.
        noise: what the noise depends on.
        hardness: how many rules inputs need.
        line_cost: share of the score that each line of the prompt costs.
        room: lines of the whole prompt; a longer one dilutes all of its lines.
    """

    seed: int
    shape: Shape
    reading: Reading
    naming: Naming
    numbered: bool
    topical: float
    noise: Noise
    hardness: Hardness
    line_cost: float
    room: int

    def __str__(self) -> str:
        shape, reading = self.shape, self.reading
        return (
            f"{shape.modules} {self.naming:<8} {'binary' if shape.binary else 'graded'} "
            f"{self.noise:<8} {shape.noise:.2f}  {shape.rules} {self.hardness:<11} "
            f"{shape.train:>3}+{shape.validation}  {shape.attention:>2}/{self.room:<3} "
            f"{'prompt' if reading.sees_prompt else 'part':<6} {reading.lessons} "
            f"{reading.wrong:.2f}"
        )


HEADS = "texts, names, scores, noise, rules, needed, training+validation, room of a text/all, \
reflection model sees, takes lessons, is wrong"
"""What a shape's line says, in its order."""


def drawn(seed: int) -> Traits:
    """Return the shape that a seed draws."""
    draw = random.Random(f"shape/{seed}")
    mixed, modules = families.drawn(seed), draw.randint(1, 6)
    rules = mixed.shape.rules
    shape = attrs.evolve(
        mixed.shape,
        modules=modules,
        needed=(1, draw.randint(2, 3 if mixed.shape.binary else 5)),
        attention=math.ceil((rules / modules + 2) * draw.uniform(1.05, 2.5)),
        interference=draw.choice((0.0, 0.02, 0.05)),
        train=draw.choice((16, 40, 80, 150)),
        validation=draw.choice((12, 24, 48, 80)),
    )
    reading = Reading(
        **attrs.asdict(mixed.habits),
        duplicates=draw.uniform(0.0, 0.3),
        copies=draw.uniform(0.0, 0.25),
        rewrites=draw.uniform(0.0, 0.15),
        insight=draw.uniform(0.4, 0.95),
        credulity=draw.uniform(0.3, 1.0),
        breadth=draw.uniform(1.0, 3.0),
        sees_prompt=draw.random() < 0.5,
    )
    return Traits(
        seed=seed,
        shape=shape,
        reading=reading,
        naming=draw.choice(get_args(Naming)),
        numbered=draw.random() < 0.3,
        topical=draw.choice((0.0, 0.5, 1.0)),
        noise=draw.choice(get_args(Noise)),
        hardness=draw.choice(get_args(Hardness)),
        line_cost=draw.choice((0.0, 0.0005, 0.0015)),
        room=math.ceil((rules + 2 * modules) * draw.uniform(1.1, 3.0)),
    )


@attrs.frozen
class TopicalItem(Item):
    """An input that says what some of its cues are about.

    Attributes:
        topics: a word of the part's text for each rule, or an empty one.
    """

    topics: tuple[str, ...]

    @property
    def text(self) -> str:
        """The input as a model sees it."""
        told = (
            f"{rule.cue} in {topic}" if topic else rule.cue
            for rule, topic in zip(self.rules, self.topics, strict=True)
        )
        return f"[{self.id}] " + ", ".join(told)


class ShapedWorld(RuleWorld):
    """A world of a drawn shape, made by a seed.

    Args:
        traits: the shape.
        number: which of the worlds of this shape.
    """

    def __init__(self, traits: Traits, number: int) -> None:
        self.traits = traits
        # The same number is another world in every shape.
        seed = 1_000 * traits.seed + number
        draw = random.Random(f"parts/{seed}")
        words = iter(made_words(draw, 4 * traits.shape.modules))
        self.titles: dict[str, str] = {}
        self.topics: dict[str, tuple[str, str]] = {}
        for place in range(traits.shape.modules):
            title = f"{next(words)} {next(words)}"
            key = f"part-{place}" if traits.numbered else title.replace(" ", "-")
            self.titles[key], self.topics[key] = title.capitalize(), (next(words), next(words))
        self.decoy = draw.choice(list(self.titles))
        super().__init__(traits.shape, seed)
        self._owner = {rule.cue: rule.module for rule in self.rules}
        for name, text in self.first.items():
            about = f"{self.titles[name]}: rules on {' and '.join(self.topics[name])}"
            self.first[name] = "\n".join([about, *text.splitlines()[1:]])

    def _names(self) -> list[str]:
        return list(self.titles)

    def _items(self, name: str, count: int, draw: random.Random) -> tuple[Item, ...]:
        def topic(rule: Rule) -> str:
            said = draw.random() < self.traits.topical
            return draw.choice(self.topics[rule.module]) if said else ""

        plain = super()._items(name, count, draw)
        return tuple(TopicalItem(one.id, one.rules, tuple(map(topic, one.rules))) for one in plain)

    def _size(self, draw: random.Random) -> int:
        low, high = self.shape.needed
        sizes = draw.randint(low, high), draw.randint(low, high)
        chosen = {"even": sizes[0], "mostly easy": min(sizes), "mostly hard": max(sizes)}
        return chosen[self.traits.hardness]

    def _chances(self, texts: Texts, item: Item) -> random.Random:
        if self.traits.noise != "fixed":
            return super()._chances(texts, item)
        return random.Random(f"{self.seed}/{item.id}/{sorted(texts.items())}")

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Try the texts on an item."""
        trial = super().answer(texts, item)
        if self.traits.noise != "drifting":
            return trial
        phase = math.sin(2 * math.pi * self.calls / _DRIFT_PERIOD)
        if self.shape.binary:
            lost = random.Random(f"drift/{self.seed}/{self.calls}").random() < 0.15 * (1 - phase)
            return attrs.evolve(trial, score=0.0, feedback="no answer") if lost else trial
        return attrs.evolve(trial, score=min(1.0, max(0.0, trial.score + 0.12 * phase)))

    def _feedback(
        self, missed: Sequence[Rule], score: float, draw: random.Random
    ) -> tuple[str, str]:
        decoy = f" [{self.titles[self.decoy]}]" if self.traits.naming == "decoy" else ""
        if score >= 1.0:
            return f"right{decoy}", ""
        if not missed or draw.random() >= self.shape.clarity:
            return f"not what was wanted{decoy}", ""
        rule = missed[0]
        name = self._name(rule.module, draw)
        return f"{rule.cue} wants {rule.action}{name and f' ({name})'}{decoy}", rule.module

    def _name(self, module: str, draw: random.Random) -> str:
        """Return what feedback calls a part."""
        title = self.titles[module]
        match self.traits.naming:
            case "none":
                return ""
            case "key":
                return module
            case "nickname":
                return f"{title.split()[0].lower()}s"
            case "wrong" if draw.random() < _WRONG_SHARE:
                return draw.choice([one for one in self.titles.values() if one != title] or [title])
            case _:
                return title

    def _chance(self, texts: Texts, rule: Rule) -> float:
        lines, said = _read(texts[rule.module])
        total = sum(_read(text)[0] for text in texts.values())
        attended = min(1.0, self.shape.attention / max(1, lines))
        attended *= min(1.0, self.traits.room / max(1, total))
        chance, later = 0.0, 1.0
        for action in reversed(said.get(rule.cue, ())):
            chance += later * attended if action == rule.action else 0.0
            later *= 1 - attended
        return chance

    def _cost(self, texts: Texts) -> float:
        strange = lines = 0
        for name, text in texts.items():
            count, said = _read(text)
            lines += count
            strange += sum(
                len(actions) for cue, actions in said.items() if self._owner.get(cue, name) != name
            )
        return min(0.5, strange * self.shape.interference + lines * self.traits.line_cost)


@functools.lru_cache(maxsize=1_024)
def _read(text: str) -> tuple[int, Mapping[str, Sequence[str]]]:
    """Return how many lines a text has, and the actions that it says for each cue."""
    said: dict[str, list[str]] = {}
    for cue, action in LINE.findall(text):
        said.setdefault(cue, []).append(action)
    return len(text.splitlines()), said
