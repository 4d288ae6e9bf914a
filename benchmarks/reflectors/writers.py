"""Writers of replies: weak and strong ones, of lines and of definition lists.

Each reads the text of a question and nothing else (``questions.py``).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from reflectors.questions import Answer, Read, read
from reflectors.slots import FORBIDS, SLOT
from search.reflecting import Habits, Reflector

_TRIED = 100
_FILLER = (
    "also when the wording is only similar",
    "mind that this is easily confused with others",
    "think of what the sender really wants",
)


class LineWriter:
    """Writes one rule a line, with the habits of a weak model or of a strong one.

    Args:
        habits: how often it does what.
        wrong_actions: what it makes of lessons that it notes wrongly.
        seed: decides every draw.
    """

    def __init__(self, habits: Habits, wrong_actions: Sequence[str], seed: int) -> None:
        self._model = Reflector(habits, wrong_actions, seed)

    @property
    def calls(self) -> int:
        return self._model.calls

    def reply(self, question: str) -> str:
        """Return the reply to a question."""
        shown = read(question)
        feedback = [answer.feedback for answer in shown.answers if answer.feedback]
        if shown.marks:
            return shown.reply(self._model.improve_any(shown.parts, feedback))
        [(name, text)] = shown.parts.items()
        return shown.reply({name: self._model.improve(name, text, feedback)})


@attrs.frozen(kw_only=True)
class SlotHabits:
    """How a writer of definition lists errs.

    Attributes:
        insight: how often it sees that a word belongs to the subject of a label.
        misplaces: how often it writes a lesson into the definition of another label.
        drops: how often a definition is missing from its reply.
        pads: how often it adds words that tell nothing to a definition that it changes.
        doubts: how often it leaves out a sentence that forbids what would help.
        defines: whether it writes definitions of labels that have none.
    """

    insight: float = 0.9
    misplaces: float = 0.0
    drops: float = 0.0
    pads: float = 0.5
    doubts: float = 0.005
    defines: bool = False


class SlotWriter:
    """Rewrites definition lists until they are right on every failure that it is shown.

    Args:
        habits: how it errs.
        seed: decides every draw.
        subjects: words that it knows to tell a label, before it is shown any answer.
    """

    def __init__(
        self, habits: SlotHabits, seed: int, subjects: Mapping[str, Sequence[str]] = {}
    ) -> None:
        self.habits = habits
        self.subjects = subjects
        self.draw = random.Random(f"slot-writer/{seed}")
        self.calls = 0

    def reply(self, question: str) -> str:
        """Return the reply to a question."""
        self.calls += 1
        shown = read(question)
        slots = {name: dict(SLOT.findall(text)) for name, text in shown.parts.items()}
        others = dict(SLOT.findall(shown.rest))
        common = _common_words(shown.answers)
        # What did not help before is worse than any other word.
        for line in shown.failed:
            common.update(dict.fromkeys(re.findall(r"\w+", line), _TRIED))
        changed: dict[str, None] = {}
        for answer in shown.answers:
            if answer.is_wrong:
                label = self._label_for(answer)
                is_defined = any(label in defined for defined in (others, *slots.values()))
                if self.habits.defines and not is_defined:
                    next(iter(slots.values()))[label] = ""
                for name, defined in slots.items():
                    if label in defined:
                        defined[label] = self._better(
                            label, answer, defined, common, is_brief=shown.is_brief
                        )
                        if shown.is_brief:
                            defined[label] = _merged(label, defined[label], shown.answers)
                        changed[name] = None
        for name in changed:
            slots[name] = {label: self._known(label, said) for label, said in slots[name].items()}
        texts = {name: self._written(shown.parts[name], slots[name]) for name in changed}
        return shown.reply(texts) if texts else self._unchanged(shown)

    def _known(self, label: str, said: str) -> str:
        """Return a definition with what the model knows of its subject beforehand."""
        more = [word for word in self.subjects.get(label, ()) if not _has(said, word)]
        return ", ".join([said, *more])

    def _unchanged(self, shown: Read) -> str:
        name = next(iter(shown.parts))
        return shown.reply({name: shown.parts[name]})

    def _label_for(self, answer: Answer) -> str:
        is_wrong = self.draw.random() < self.habits.misplaces
        return answer.answered if is_wrong else answer.expected

    def _better(
        self,
        label: str,
        answer: Answer,
        defined: Mapping[str, str],
        common: Counter[str],
        *,
        is_brief: bool,
    ) -> str:
        """Return the definition of a label with words of an answer that was wrong."""
        said = defined[label]
        words = [word for word in answer.words if not _has(said, word)]
        alike = [word for word in words if word[:1] == label[:1]]
        added = [word for word in alike if self.draw.random() < self.habits.insight]
        others = [word for word in words if word not in added]
        # Words of other answers tell less; else it cannot know which one is to the point.
        self.draw.shuffle(others)
        others.sort(key=lambda word: common[word])
        rival = defined.get(answer.answered, "")
        against = sum(_has(rival, word) for word in answer.words)
        for_it = sum(_has(said, word) for word in answer.words) + len(added)
        needed = max(0, against + 1 - for_it) or (not added)
        added += others[:needed]
        if self.draw.random() < self.habits.pads and not is_brief:
            added.append(self.draw.choice(_FILLER))
        return ", ".join(filter(None, [said, *added]))

    def _written(self, text: str, defined: Mapping[str, str]) -> str:
        lines: list[str] = []
        for line in text.splitlines():
            slot = SLOT.match(line)
            if slot and self.draw.random() < self.habits.drops:
                continue
            if line == FORBIDS and self.draw.random() < self.habits.doubts:
                continue
            lines.append(f"- {slot[1]}: {defined[slot[1]]}" if slot else line)
        old = dict(SLOT.findall(text))
        lines += [f"- {label}: {said}" for label, said in defined.items() if label not in old]
        return "\n".join(lines)


def _merged(label: str, said: str, answers: Sequence[Answer]) -> str:
    """Return a definition without fillers, and without words that tell other labels too."""
    elsewhere = {word for answer in answers if answer.expected != label for word in answer.words}
    kept = [
        word
        for word in dict.fromkeys(said.split(", "))
        if word not in _FILLER and (word[:1] == label[:1] or word not in elsewhere)
    ]
    return ", ".join(kept) or said


def _has(said: str, word: str) -> bool:
    return bool(re.search(rf"\b{word}\b", said))


def _common_words(answers: Sequence[Answer]) -> Counter[str]:
    """Return in how many labels' answers each word is shown."""
    pairs = {(word, answer.expected) for answer in answers for word in answer.words}
    return Counter(word for word, _ in pairs)
