"""A simulated agent with tools: it picks one by what their descriptions say.

An item has two cues, and one tool serves it. The agent is drawn to a tool by each cue that the
tool's description names, so a description that claims cues of other tools attracts their items.
With the right tool called, the rest of the score is for what was passed to it, which its
description tells, and for what the instruction says about answers. Two tools may share a cue.
"""

from __future__ import annotations

import functools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from search.worlds import TEST_ITEMS, Item, Rule, Texts, Trial, made_words

INSTRUCTION = "instruction"
ELSEWHERE = "elsewhere"
"""The action of a line that says when a tool is not to be called."""

_LINE = re.compile(r"- when (\w+) then (\w+)")


@attrs.frozen(kw_only=True)
class ToolShape:
    """What kind of tools they are.

    Attributes:
        tools: how many.
        own: cues that belong to one tool only, for each.
        shared: cues that belong to two tools.
        claimed: cues of other tools that each first description claims.
        rules: rules of the instruction.
        attention: lines of a text that are attended to for certain; of more lines each is
            attended to in proportion.
        eagerness: how much a named cue speaks for a tool; the odds are e to its power.
        called: share of the score for calling the right tool.
        clarity: share of the wrong answers whose feedback says what was wrong.
        noise: how far a score is off.
        train: items to learn from.
        validation: items to compare on.
    """

    tools: int = 4
    own: int = 4
    shared: int = 3
    claimed: int = 1
    rules: int = 6
    attention: int = 12
    eagerness: float = 3.0
    called: float = 0.4
    clarity: float = 0.85
    noise: float = 0.05
    train: int = 100
    validation: int = 60


class ToolWorld:
    """Tools, an instruction and items, made by a seed.

    Args:
        shape: the kind of tools.
        seed: decides rules, items and every draw.
    """

    def __init__(self, shape: ToolShape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        draw = random.Random(f"tools/{seed}")
        owned = shape.tools * shape.own
        count = owned + 2 * shape.shared + shape.rules
        words = iter(made_words(draw, 3 * count))
        self.tools = tuple(f"tool{number}" for number in range(shape.tools))
        self._of: dict[str, list[Rule]] = {name: [] for name in (*self.tools, INSTRUCTION)}
        for number in range(owned):
            self._add(next(words), next(words), self.tools[number % shape.tools])
        for _ in range(shape.shared):
            cue = next(words)
            for name in draw.sample(self.tools, 2):
                self._add(cue, next(words), name)
        for _ in range(shape.rules):
            self._add(next(words), next(words), INSTRUCTION)
        self.wrong_actions = tuple(words)
        self.first: dict[str, str] = {
            **{name: self._first_description(name, draw) for name in self.tools},
            INSTRUCTION: "Rules:",
        }
        self._tool_of: dict[str, str] = {}
        self.train = self._items("train", shape.train, draw)
        self.validation = self._items("validation", shape.validation, draw)
        self.test = self._items("test", TEST_ITEMS, draw)
        self.calls = 0
        self._asked: dict[tuple[str, int], int] = {}

    def _add(self, cue: str, action: str, module: str) -> None:
        self._of[module].append(Rule(cue, action, module))

    def _first_description(self, name: str, draw: random.Random) -> str:
        """Return a description that knows one cue of its tool, and claims some of others."""
        strange = [rule for other in self.tools if other != name for rule in self._of[other]]
        known = [self._of[name][0], *draw.sample(strange, self.shape.claimed)]
        return "\n".join(["Call it:", *(rule.line for rule in known)])

    def _items(self, name: str, count: int, draw: random.Random) -> tuple[Item, ...]:
        return tuple(self._item(f"{name}-{number}", draw) for number in range(count))

    def _item(self, id_: str, draw: random.Random) -> Item:
        tool = draw.choice(self.tools)
        self._tool_of[id_] = tool
        rules = (*draw.sample(self._of[tool], 2), draw.choice(self._of[INSTRUCTION]))
        return Item(id_, rules)

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Try the texts on an item; asked again, the draws are others."""
        self.calls += 1
        key = (item.id, hash(tuple(sorted(texts.items()))))
        again = self._asked[key] = self._asked.get(key, -1) + 1
        told = "\x00".join(texts[name] for name in sorted(texts))
        draw = random.Random(f"{self.seed}/{item.id}/{again}/{told}")
        odds = self._odds(texts, item)
        [called] = draw.choices(list(odds), list(odds.values()))
        missed = [rule for rule in item.rules if draw.random() >= self._chance(texts, rule)]
        right = called == self._tool_of[item.id]
        score = self._score(1 - len(missed) / len(item.rules)) if right else 0.0
        score = min(1.0, max(0.0, score + draw.uniform(-self.shape.noise, self.shape.noise)))
        if right and not missed:
            return Trial(item, score, "right", "")
        if draw.random() >= self.shape.clarity:
            return Trial(item, score, f"not what was wanted of {called}", called)
        if right:
            return Trial(item, score, _lesson(missed[0]), missed[0].module)
        lessons = "; ".join(self._misleading(texts, item, called))
        return Trial(item, score, f"{called} was called; {lessons}", self._tool_of[item.id])

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the mean score of the texts without noise: what a search is judged by."""
        total = 0.0
        for item in items:
            odds = self._odds(texts, item)
            right = odds[self._tool_of[item.id]] / sum(odds.values())
            chances = [self._chance(texts, rule) for rule in item.rules]
            total += right * self._score(sum(chances) / len(chances))
        return total / len(items)

    def _score(self, share: float) -> float:
        return self.shape.called + (1 - self.shape.called) * share

    def _misleading(self, texts: Texts, item: Item, called: str) -> Iterator[str]:
        """Yield what did not draw the agent to the right tool, and what drew it elsewhere."""
        right = self._tool_of[item.id]
        theirs = [rule for rule in item.rules if rule.module == right]
        unnamed = [rule for rule in theirs if not self._heard(texts[right]).get(rule.cue)]
        yield _lesson((unnamed or theirs)[0])
        owned = {rule.cue for rule in self._of[called]}
        for rule in theirs:
            if rule.cue not in owned and self._pull(texts[called], rule.cue) > 0:
                yield f"{rule.cue} wants {ELSEWHERE} ({called})"

    def _odds(self, texts: Texts, item: Item) -> dict[str, float]:
        cues = [rule.cue for rule in item.rules]
        return {
            name: math.exp(self.shape.eagerness * sum(self._pull(texts[name], cue) for cue in cues))
            for name in self.tools
        }

    def _pull(self, text: str, cue: str) -> float:
        said = self._heard(text).get(cue, {})
        return sum(-chance if action == ELSEWHERE else chance for action, chance in said.items())

    def _chance(self, texts: Texts, rule: Rule) -> float:
        return self._heard(texts[rule.module]).get(rule.cue, {}).get(rule.action, 0.0)

    def _heard(self, text: str) -> Mapping[str, Mapping[str, float]]:
        return heard(text, self.shape.attention)


@functools.lru_cache(maxsize=4096)
def heard(text: str, attention: int) -> Mapping[str, Mapping[str, float]]:
    """Return, for each cue of a text, how probably which of its actions is done.

    Later lines of a cue come before earlier ones, as far as they are attended to.
    """
    attended = min(1.0, attention / max(1, len(text.splitlines())))
    found: dict[str, dict[str, float]] = {}
    for cue, action in reversed(_LINE.findall(text)):
        said = found.setdefault(cue, {})
        said[action] = said.get(action, 0.0) + attended * (1 - sum(said.values()))
    return found


def _lesson(rule: Rule) -> str:
    return f"{rule.cue} wants {rule.action} ({rule.module})"
