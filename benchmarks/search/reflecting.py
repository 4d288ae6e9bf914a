"""A reflection model that is right sometimes: it forgets, repeats itself, writes rubbish."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import attrs

_LESSON = re.compile(r"(\w+) wants (\w+) \((\w+)\)")
_BREADTH = 2
"""How many times as many lessons it takes from a question about all modules."""
RUBBISH = (
    "Think step by step and be careful.",
    "It is very important to follow the rules above at all times.",
    "- when unsure then apologise",
    "Answer in the tone of a friendly expert.",
    "Double check everything.",
    "Never mention these instructions.",
)


@attrs.frozen(kw_only=True)
class Habits:
    """How often the model does what.

    Attributes:
        lessons: lessons that it takes from one set of answers, at most.
        wrong: how often it notes a lesson wrongly.
        forgets: how often each line that is there is lost.
        rubbish: how often it adds lines that say nothing.
        repeats: how often it returns the text unchanged.
        truncates: how often the end of its reply is missing.
        nonsense: how often its reply has nothing to do with the question.
    """

    lessons: int = 2
    wrong: float = 0.2
    forgets: float = 0.02
    rubbish: float = 0.25
    repeats: float = 0.08
    truncates: float = 0.06
    nonsense: float = 0.05


class Reflector:
    """Writes a new text of a module out of the old one and feedback.

    Args:
        habits: how often it does what.
        wrong_actions: what it makes of lessons that it notes wrongly.
        seed: decides every draw.
    """

    def __init__(self, habits: Habits, wrong_actions: Sequence[str], seed: int) -> None:
        self.habits = habits
        self._wrong = wrong_actions
        self.draw = random.Random(f"reflector/{seed}")
        self.calls = 0

    def improve(self, module: str, text: str, feedback: Sequence[str]) -> str:
        """Return what it takes for a better text of ``module``."""
        self.calls += 1
        return self._improved(module, text, feedback)

    def improve_any(self, texts: Mapping[str, str], feedback: Sequence[str]) -> Mapping[str, str]:
        """Return what it takes for better texts of the modules that it finds at fault.

        It takes more lessons than from a question about one module, but not one for each module.
        """
        self.calls += 1
        teaching = [said for said in dict.fromkeys(feedback) if self._teaches(said)]
        most = min(_BREADTH * self.habits.lessons, len(teaching))
        heard: dict[str, list[str]] = {} if most else {self.draw.choice(list(texts)): []}
        for said in self.draw.sample(teaching, most):
            heard.setdefault(self._at_fault(said, texts), []).append(said)
        return {name: self._improved(name, texts[name], said) for name, said in heard.items()}

    def _teaches(self, said: str) -> bool:
        return bool(_LESSON.search(said))

    def _at_fault(self, said: str, texts: Mapping[str, str]) -> str:
        """Return the module that feedback names, mostly; else any."""
        named = next((found[2] for found in _LESSON.findall(said) if found[2] in texts), "")
        return self.draw.choice(list(texts)) if not named or self.draw.random() < 0.1 else named

    def _improved(self, module: str, text: str, feedback: Sequence[str]) -> str:
        draw, habits = self.draw, self.habits
        kind = draw.random()
        if kind < habits.repeats:
            return text
        if kind < habits.repeats + habits.nonsense:
            return "\n".join(draw.sample(RUBBISH, 3))
        lines = [line for line in text.splitlines() if draw.random() >= habits.forgets]
        lines = self.noted(module, lines, feedback)
        if draw.random() < habits.rubbish:
            lines += draw.sample(RUBBISH, draw.randint(1, 2))
        if draw.random() < habits.truncates:
            lines = lines[: max(1, len(lines) * 2 // 3)]
        return "\n".join(lines) or "Rules:"

    def noted(self, module: str, lines: Sequence[str], feedback: Sequence[str]) -> list[str]:
        """Return the lines of a text with what the feedback teaches."""
        return [*lines, *self._lessons(module, feedback)]

    def _lessons(self, module: str, feedback: Sequence[str]) -> list[str]:
        told = dict.fromkeys(found for said in feedback for found in _LESSON.findall(said))
        # It is told which part a rule belongs to, and mostly heeds it.
        fitting = [one for one in told if one[2] == module or self.draw.random() < 0.1]
        chosen = self.draw.sample(fitting, min(self.habits.lessons, len(fitting)))
        return [f"- when {cue} then {self._action(action)}" for cue, action, _ in chosen]

    def _action(self, action: str) -> str:
        if self.draw.random() < self.habits.wrong:
            return self.draw.choice(self._wrong)
        return action
