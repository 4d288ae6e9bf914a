"""A reflection model that knows of a task only what the question shows it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

from search.reflecting import RUBBISH, Habits

_LESSON = re.compile(r"(\w+) wants (\w+)(.*)")
_WORD = re.compile(r"[a-z0-9]+")
_MOSTLY_HEEDED = 0.1
"""How often it notes a lesson in a part that feedback or input puts elsewhere."""
_STEM = 5


@attrs.frozen(kw_only=True)
class Reading(Habits):
    """The habits of a reflection model that reads.

    Attributes:
        duplicates: how often it says again what a text says already.
        copies: how often it copies an input into the text.
        rewrites: how often it writes the whole text anew: another order, and a third is lost.
        insight: how often it understands a nickname, or what an input is about.
        credulity: how often it notes a lesson of which nothing says where it belongs, in the
            only part that it is asked about.
        breadth: how many times as many lessons it takes when it may change all parts.
        sees_prompt: whether a question about one part shows it the others.
    """

    duplicates: float = 0.0
    copies: float = 0.0
    rewrites: float = 0.0
    insight: float = 0.8
    credulity: float = 0.7
    breadth: float = 2.0
    sees_prompt: bool = False


@attrs.frozen(kw_only=True)
class Shown:
    """What a question to a reflection model shows.

    Attributes:
        asked: names of the parts that it may rewrite.
        parts: the texts of these parts, and of others that are shown beside them, by name.
        answers: an input and what was said of its answer, for each rollout.
    """

    asked: tuple[str, ...]
    parts: Mapping[str, str]
    answers: tuple[tuple[str, str], ...]


class Lesson(NamedTuple):
    """What an answer teaches: also what feedback names, and what the input is about, if told."""

    cue: str
    action: str
    named: str
    about: str


class ReadingModel:
    """Writes new texts out of what a question shows.

    Args:
        habits: how often it does what.
        words: what it makes of actions that it notes wrongly.
        seed: decides every draw.
    """

    def __init__(self, habits: Reading, words: Sequence[str], seed: int) -> None:
        self.habits = habits
        self._words = words
        self.draw = random.Random(f"reader/{seed}")
        self.calls = 0

    def revise(self, shown: Shown) -> Mapping[str, str]:
        """Return new texts of the parts that it blames, or of the only one that it may change."""
        self.calls += 1
        draw, habits = self.draw, self.habits
        whole = len(shown.asked) > 1
        most = round(habits.lessons * (habits.breadth if whole else 1))
        learned: dict[str, list[Lesson]] = {} if whole else {shown.asked[0]: []}
        lessons = _lessons(shown.answers)
        draw.shuffle(lessons)
        for lesson in lessons:
            part = self._where(lesson, shown)
            if part in shown.asked and sum(map(len, learned.values())) < most:
                learned.setdefault(part, []).append(lesson)
        inputs = [text for text, _ in shown.answers]
        return {
            name: self._written(shown.parts[name], noted, inputs) for name, noted in learned.items()
        }

    def _where(self, lesson: Lesson, shown: Shown) -> str:
        """Return the part that a lesson belongs to, as far as it can tell; empty for none."""
        parts = shown.parts if self.habits.sees_prompt or len(shown.asked) > 1 else shown.asked
        fits = {name: self._fit(lesson, f"{name}\n{shown.parts[name]}") for name in parts}
        best = max(fits.values())
        # With one part there is no other that a lesson could belong to.
        if best or len(shown.asked) > 1 or len(shown.parts) == 1:
            return self.draw.choice([name for name, fit in fits.items() if fit == best])
        unknown = not lesson.named and not lesson.about
        often = self.habits.credulity if unknown else _MOSTLY_HEEDED
        return shown.asked[0] if self.draw.random() < often else ""

    def _fit(self, lesson: Lesson, text: str) -> float:
        """Return how well a lesson fits a part, by names in the feedback and words in the text."""
        words = _WORD.findall(text.lower())
        told = f" {' '.join(words)} "
        names = [
            " ".join(_WORD.findall(one.lower())) for one in re.split(r"[()\[\]]", lesson.named)
        ]
        fit = float(sum(f" {name} " in told for name in names if name))
        if self.draw.random() < self.habits.insight:
            stems = {word[:_STEM] for word in words}
            fit += 0.5 * (lesson.about in words)
            fit += 0.5 * any(name[:_STEM] in stems for name in names if name and " " not in name)
        return fit

    def _written(self, text: str, lessons: Sequence[Lesson], inputs: Sequence[str]) -> str:
        draw, habits = self.draw, self.habits
        kind = draw.random()
        if kind < habits.repeats:
            return text
        if kind < habits.repeats + habits.nonsense:
            return "\n".join(draw.sample(RUBBISH, 3))
        lines = [line for line in text.splitlines() if draw.random() >= habits.forgets]
        if draw.random() < habits.rewrites:
            lines = draw.sample(lines, len(lines) - len(lines) // 3)
        lines += [f"- when {one.cue} then {self._action(one.action)}" for one in lessons]
        if lines and draw.random() < habits.duplicates:
            lines.append(draw.choice(lines))
        if inputs and draw.random() < habits.copies:
            lines.append(f"For instance: {draw.choice(inputs)}")
        if draw.random() < habits.rubbish:
            lines += draw.sample(RUBBISH, draw.randint(1, 2))
        if draw.random() < habits.truncates:
            lines = lines[: max(1, len(lines) * 2 // 3)]
        return "\n".join(lines) or "Rules:"

    def _action(self, action: str) -> str:
        return self.draw.choice(self._words) if self.draw.random() < self.habits.wrong else action


def _lessons(answers: Sequence[tuple[str, str]]) -> list[Lesson]:
    """Return what answers teach, each thing once."""
    found: dict[Lesson, None] = {}
    for text, feedback in answers:
        if told := _LESSON.search(feedback):
            cue, action, named = told.groups()
            about = re.search(rf"\b{cue} in (\w+)", text)
            found[Lesson(cue, action, named.strip(), about[1] if about else "")] = None
    return list(found)
