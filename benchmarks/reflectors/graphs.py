"""A simulated graph: a router, two specialists and a formatter, each with hidden rules of its own.

A case has a subject, a detail, a style and words that tell nothing. The router sends it to a desk
by its subject, the desk answers by its detail, and the formatter chooses a form by its style. So a
case passes three of the four prompts, and one that was sent to the wrong desk never asks the right
one. Feedback compares the answer with the expected one, and names no prompt. A line counts if it
is attended to, and an unknown subject goes to either desk.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

import attrs

from reflectors.questions import Read, read
from search.reflecting import RUBBISH
from search.worlds import Item, Rule, Texts, Trial, made_words

LINE = re.compile(r"^- (\w+): (\w+)$", re.MULTILINE)
_FEEDBACK = re.compile(r"expected (\w+) (\w+) in (\w+), answered (\w+) (\w+) in (\w+)")
ROUTER, DESKS, FORMATTER = "router", ("billing", "repairs"), "formatter"
KINDS_OF_WORDS = {"a": "subject", "o": "detail", "u": "style"}
"""What a word is, by its last letter: what a language model knows of words."""
_UNSURE, _PLAIN = "unsure", "plain"


@attrs.frozen(kw_only=True)
class GraphShape:
    """What kind of world it is.

    Attributes:
        subjects: of each desk.
        details: of each desk.
        styles: forms of an answer.
        known: of each of these, how many a prompt begins with.
        attention: lines of a prompt that are attended to for certain; of more, each in proportion.
        slips: how often a node errs whatever it knows.
        train: items to learn from.
        validation: items to compare on.
        test: items that no search sees.
    """

    subjects: int = 6
    details: int = 14
    styles: int = 8
    known: int = 1
    attention: int = 20
    slips: float = 0.02
    train: int = 120
    validation: int = 60
    test: int = 200


class GraphOfRules:
    """A world of a shape, made by a seed.

    Args:
        shape: the kind of world.
        seed: decides words, items and every draw.
    """

    tools: tuple[str, ...] = ()

    def __init__(self, shape: GraphShape, seed: int) -> None:
        self.shape = shape
        self.seed = seed
        draw = random.Random(f"graph/{seed}")
        stems = iter(dict.fromkeys(word[:-1] for word in made_words(draw, 600)))
        subjects = {desk: [next(stems) + "a" for _ in range(shape.subjects)] for desk in DESKS}
        self.subjects = {word: desk for desk, words in subjects.items() for word in words}
        self.details = {
            desk: {next(stems) + "o": next(stems) + "ed" for _ in range(shape.details)}
            for desk in DESKS
        }
        self.styles = {next(stems) + "u": next(stems) + "al" for _ in range(shape.styles)}
        self._fillers = [next(stems) + draw.choice("ei") for _ in range(40)]
        rules = {
            ROUTER: {word: desk for desk in DESKS for word in subjects[desk][: shape.known]},
            **{desk: dict(list(self.details[desk].items())[: shape.known]) for desk in DESKS},
            FORMATTER: dict(list(self.styles.items())[: shape.known]),
        }
        self.first = {name: text_of(name, lines) for name, lines in rules.items()}
        self.train = self._items("train", shape.train, draw)
        self.validation = self._items("validation", shape.validation, draw)
        self.test = self._items("test", shape.test, draw)
        self.calls = 0

    def _items(self, name: str, count: int, draw: random.Random) -> tuple[Item, ...]:
        return tuple(self._item(f"{name}-{number}", draw) for number in range(count))

    def _item(self, name: str, draw: random.Random) -> Item:
        desk = draw.choice(DESKS)
        words = [
            _drawn([word for word, owner in self.subjects.items() if owner == desk], draw),
            _drawn(list(self.details[desk]), draw),
            _drawn(list(self.styles), draw),
            *draw.sample(self._fillers, 3),
        ]
        draw.shuffle(words)
        return Item(name, tuple(Rule(word, self._action(word), "") for word in words))

    def _action(self, word: str) -> str:
        every = {**self.subjects, **self.styles}
        for details in self.details.values():
            every |= details
        return every.get(word, "")

    def wanted(self, item: Item) -> tuple[str, str, str]:
        """Return the desk, the answer and the form that an item wants."""
        actions = {KINDS_OF_WORDS.get(rule.cue[-1], ""): rule.action for rule in item.rules}
        return actions["subject"], actions["detail"], actions["style"]

    def step(self, node: str, text: str, given: str) -> str:
        """Return what a node answers with its text; the same to the same, always."""
        case, _, answer = given.partition("\n")
        words = {KINDS_OF_WORDS.get(word[-1], ""): word for word in case.split()[1:]}
        draw = random.Random(f"{self.seed}/{node}/{case}/{text}")
        if node == ROUTER:
            guess = random.Random(f"{self.seed}/{case}").choice(DESKS)
            desk = self._looked_up(text, words["subject"], draw)
            return desk if desk in DESKS else guess
        if node == FORMATTER:
            return f"{answer} in {self._looked_up(text, words['style'], draw) or _PLAIN}"
        return f"{node} {self._looked_up(text, words['detail'], draw) or _UNSURE}"

    def _looked_up(self, text: str, word: str, draw: random.Random) -> str:
        attended = self.shape.attention / max(self.shape.attention, len(text.splitlines()) - 1)
        if draw.random() >= (1 - self.shape.slips) * attended:
            return ""
        rules: dict[str, str] = dict(LINE.findall(text))
        return rules.get(word, "")

    def flow(self, ask: Callable[[str, str], str], case: str) -> str:
        """Return the answer to a case by asking nodes."""
        desk = ask(ROUTER, case)
        return ask(FORMATTER, f"{case}\n{ask(desk, case)}")

    def judge(self, item: Item, answer: str) -> tuple[float, str]:
        """Return the score of an answer, and the feedback on it."""
        desk, action, form = self.wanted(item)
        is_right, is_in_form = (answer.startswith(f"{desk} {action} "), answer.endswith(f" {form}"))
        told = f"expected {desk} {action} in {form}, answered {answer}"
        return (is_right + is_in_form) / 2, f"{told}: {'right' * (is_right and is_in_form)}"

    def answer(self, texts: Texts, item: Item) -> Trial:
        """Answer a case with the texts: one call."""
        self.calls += 1
        steps: list[tuple[str, str, str]] = []

        def ask(node: str, given: str) -> str:
            steps.append((node, given, self.step(node, texts[node], given)))
            return steps[-1][2]

        score, feedback = self.judge(item, self.flow(ask, item.text))
        return Trial(item, score, feedback, "", tuple(steps))

    def expected(self, texts: Texts, items: Sequence[Item]) -> float:
        """Return the mean score of the texts; no call."""

        def ask(node: str, given: str) -> str:
            return self.step(node, texts[node], given)

        scores = [self.judge(item, self.flow(ask, item.text))[0] for item in items]
        return sum(scores) / len(scores)

    @property
    def perfect(self) -> Texts:
        """Texts with all rules."""
        return {
            ROUTER: text_of(ROUTER, self.subjects),
            **{desk: text_of(desk, self.details[desk]) for desk in DESKS},
            FORMATTER: text_of(FORMATTER, self.styles),
        }


def text_of(node: str, rules: Mapping[str, str]) -> str:
    """Return the text of a node, which says whose rules these are."""
    return "\n".join([f"Rules of {node}:", *(f"- {word}: {told}" for word, told in rules.items())])


def _drawn(words: Sequence[str], draw: random.Random) -> str:
    weights = [(1 + rank) ** -0.5 for rank in range(len(words))]
    return draw.choices(words, weights)[0]


@attrs.frozen(kw_only=True)
class GraphHabits:
    """How a writer of rules errs.

    Attributes:
        overlooks: how often it does not see what a failure teaches.
        wrong: how often it notes a rule wrongly.
        rubbish: how often it adds a line that says nothing.
    """

    overlooks: float = 0.1
    wrong: float = 0.02
    rubbish: float = 0.1


class GraphWriter:
    """Adds the rules that failures teach to those of the texts shown that they belong to.

    It reads the text of a question (``questions.py``), knows subjects, details and styles from
    each other, and takes the role of a text from its first line. It repairs all that it is shown.

    Args:
        habits: how it errs.
        seed: decides every draw.
    """

    def __init__(self, habits: GraphHabits, seed: int) -> None:
        self.habits = habits
        self.draw = random.Random(f"graph-writer/{seed}")
        self.calls = 0

    def reply(self, question: str) -> str:
        """Return the reply to a question."""
        self.calls += 1
        shown = read(question)
        texts: dict[str, str] = {}
        for name, word, told in self._lessons(shown):
            if name not in shown.parts:
                continue
            text = texts.get(name, shown.parts[name]) or text_of(name, {})
            rules = dict(LINE.findall(text))
            if rules.get(word) == told or self._happens(self.habits.overlooks):
                continue
            is_wrong = rules and self._happens(self.habits.wrong)
            noted = self.draw.choice(list(rules.values())) if is_wrong else told
            kept = [line for line in text.splitlines() if not line.startswith(f"- {word}: ")]
            texts[name] = "\n".join([*kept, f"- {word}: {noted}"])
        for name in texts:
            if self._happens(self.habits.rubbish):
                texts[name] += f"\n{self.draw.choice(RUBBISH)}"
        return shown.reply(texts)

    def _happens(self, chance: float) -> bool:
        return self.draw.random() < chance

    def _lessons(self, shown: Read) -> list[tuple[str, str, str]]:
        """Return text, word and what it should say, for all that the failures shown teach."""
        lessons: dict[tuple[str, str, str], None] = {}
        for answer in shown.answers:
            told = _FEEDBACK.match(answer.feedback)
            if told is None:
                continue
            words = {KINDS_OF_WORDS.get(word[-1], ""): word for word in answer.words}
            desk, action, form, desk_answered, action_answered, form_answered = told.groups()
            if desk != desk_answered:
                lessons[ROUTER, words["subject"], desk] = None
            if action != action_answered:
                lessons[desk, words["detail"], action] = None
            if form != form_answered:
                lessons[FORMATTER, words["style"], form] = None
        return list(lessons)
