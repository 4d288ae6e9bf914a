"""A world of words in plain data: questions, a task model, a judge and reflectors.

A question needs words, each in a certain part of the prompt. The task model answers with what
is lacking there, the judge scores the share that is not, and a reflector adds a word that it is
told of. Every answer is a function of its question alone, of the words that it holds and not of
how it is phrased, so that no order of calls and no wording of a meta-prompt changes a search.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WORD = re.compile(r"\bw\d+\b")
NOTHING = "nothing"
"""Instead of a part: the question is answered well while no part has learned a word."""

SECTIONS = ("rules", "notes", "style", "tone")
TOOL, TOOL_EXAMPLE, FIELD = "look_up", "0", "verdict"
TASK_EXAMPLE, GENERATED = "first", "examples"


@dataclass(frozen=True, kw_only=True)
class World:
    """What is asked, and how the models behave.

    ``parts`` and ``words`` decide what questions need: question n needs word n of part n, both
    counted round, and the next ones if ``needs`` is more than 1. Shares are percentages.
    Questions that share a word are in all three sets. ``stored`` is what the store holds for the
    rules before the search.
    """

    parts: Sequence[str] = ("rules", "notes")
    words: int = 6
    needs: int = 1
    validation: int = 6
    learning: int = 6
    held_out: int = 0
    critical: Sequence[str] = ()
    mood: str = "plain"
    noise: int = 0
    task_fault: str = ""
    task_fault_share: int = 100
    task_fault_word: str = ""
    reflection_fault: str = ""
    reflection_fault_share: int = 100
    ends: str = ""
    ends_at: int = 0
    task_cost: str | None = "0"
    reflection_cost: str | None = "0"
    reflection_seconds: float = 0.0
    deadline: float | None = None
    stored: str = ""


@dataclass(frozen=True)
class Question:
    """One example: the words that it needs, by part."""

    name: str
    needs: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return " ".join(f"{part}:{word}" for part, word in self.needs)

    @property
    def label(self) -> str:
        asked = " and ".join(f"{word} stands among the {part}" for part, word in self.needs)
        return f"It is right to say of this question that {asked} of the prompt"


@dataclass(frozen=True)
class Verdict:
    score: float
    feedback: str
    objectives: Mapping[str, float]


@dataclass(frozen=True)
class Reflection:
    """What a reflector is asked: the part, its text, the rollouts, the rest of the prompt."""

    kind: str
    part: str
    current: str
    rollouts: str
    rest: str
    again: bool


class ModelError(Exception):
    """What goes wrong: ``transient`` or ``permanent``, or what is answered instead."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def questions(world: World, prefix: str, count: int) -> list[Question]:
    return [
        Question(
            f"{prefix}{number}",
            tuple(
                (world.parts[n % len(world.parts)], f"w{n % world.words}")
                for n in range(number, number + world.needs)
            ),
        )
        for number in range(count)
    ]


def chance(*about: object) -> int:
    """Return a number from 0 to 99 that depends on ``about`` alone."""
    return int(hashlib.sha256(repr(about).encode()).hexdigest()[:8], 16) % 100


# The task model


def solve(world: World, parts: Mapping[str, str], question: str) -> str:
    """Answer a question: what is known of it, what is lacking, how many words the parts hold."""
    held = {name: WORD.findall(text) for name, text in parts.items()}
    size = sum(map(len, held.values()))
    told = sorted((name, words) for name, words in held.items() if words)
    is_faulty = chance("task", question, told) < world.task_fault_share
    if world.task_fault and world.task_fault_word in question and is_faulty:
        raise ModelError(world.task_fault)
    confused = chance("noise", question, told) < world.noise
    found: dict[bool, list[str]] = {True: [], False: []}
    for need in question.split():
        part, word = need.split(":")
        known = not size if part == NOTHING else word in held[part]
        found[known and not confused].append(need)
    return f"knows {' '.join(found[True])}; lacks {' '.join(found[False])}; holds {size}"


def judge(world: World, question: Question, answer: str) -> Verdict:
    """Score an answer; an answer that says nothing known scores 0."""
    known, lacks, holds = (re.findall(r"\S+", one)[1:] for one in answer.split(";"))
    score = len(known) / len(question.needs)
    brief = 1 / (1 + int(holds[0]))
    missing = [need.split(":") for need in lacks]
    said = "; ".join(
        "too much is said" if part == NOTHING else f"{part}: missing {word}"
        for part, word in missing
    )
    if world.mood == "copier" and missing:
        said = f"{said}\nanswer: {question.label}"
    return Verdict(score, said, {"known": score, "brief": brief})


# The reflectors


def reflect(world: World, asked: Reflection) -> str:
    """Reply to a reflection as the world's mood is."""
    held = WORD.findall(asked.current)
    blamed = re.findall(rf"(?<!\w){asked.part}: missing (w\d+)", asked.rollouts)
    lacking = blamed or re.findall(r"missing (w\d+)", asked.rollouts)
    new = list(dict.fromkeys(word for word in lacking if word not in held))
    drawn = chance("reflect", asked.part, held, new, asked.again)
    if world.reflection_fault and drawn < world.reflection_fault_share:
        raise ModelError(world.reflection_fault)
    return _REPLIES[world.mood](asked, held, new, drawn)


def _plain(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    return reply(asked, held, new[:1])


def _greedy(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    return reply(asked, held, new)


def _lines(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    return reply(asked, held, new[:1], before="\n")


def _moody(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Say nothing usable a quarter of the time, and nothing useful another quarter."""
    if drawn < 25:
        return "I would rather not."
    return reply(asked, held, [f"x{drawn}"] if drawn < 50 else new[:1], before="\n")


def _forgetful(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Keep two words at most, and add those that other answers were right about."""
    better = re.findall(rf"(?<!\w){asked.part}:(w\d+)", _known_elsewhere(asked.rollouts))
    kept = [*held[-2:], *(word for word in better if word not in held)]
    return reply(asked, [], list(dict.fromkeys([*kept, *new[:1]])), fresh=True)


def _narrow(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Forget all but the latest word."""
    return reply(asked, [], [*held[-1:], *new[:1]], fresh=True)


def _restless(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Learn all that is new, and forget all that is not."""
    return reply(asked, [], new, fresh=True)


def _known_elsewhere(rollouts: str) -> str:
    return " ".join(re.findall(r"knows ([^;]*);", rollouts))


def _specialist(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Learn all of one part, where no other part has learned anything."""
    if WORD.search(asked.rest):
        return "I have nothing to add."
    return reply(asked, held, new)


def _stubborn(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    return reply(asked, held, [])


def _useless(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    return reply(asked, held, ["x"])


def _silent(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    return "I would rather not."


def _copier(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    answers = re.findall(r"answer: (.*)", asked.rollouts)
    return reply(asked, held, new[:1] if asked.again else [*new[:1], *answers[:1]])


def _wordy(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Write at length, and briefly when asked again half of the time."""
    brief = asked.again and drawn < 50
    return reply(asked, held, new[:1] if brief else [*new[:1], *["really"] * 40])


def _careless(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Write a text of its own at first, which has none of the marks that it should keep."""
    if asked.again or drawn < 30:
        return reply(asked, held, new[:1])
    words = ["" if drawn < 50 else "Know", *held, *new[:1]]
    return reply(asked, [], [] if drawn < 50 else words, fresh=True)


def _strange(asked: Reflection, held: list[str], new: list[str], drawn: int) -> str:
    """Write, at first, what no part can hold: a null character, values of other types."""
    if asked.again or drawn < 30:
        return reply(asked, held, new[:1])
    if asked.kind in _FORMS:
        return reply(asked, held, new[:1]).replace('"word"', '"words"').replace("known", "maybe")
    return reply(asked, held, [*new[:1], "\0" if drawn < 80 else "$word"])


_REPLIES = {
    "plain": _plain,
    "greedy": _greedy,
    "lines": _lines,
    "moody": _moody,
    "forgetful": _forgetful,
    "narrow": _narrow,
    "restless": _restless,
    "specialist": _specialist,
    "stubborn": _stubborn,
    "useless": _useless,
    "silent": _silent,
    "copier": _copier,
    "wordy": _wordy,
    "careless": _careless,
    "strange": _strange,
}

_CALL = {"input": {"word": "x"}, "output": "y"}
_KNOWN = {"verdict": "known"}
_FORMS: Mapping[str, Mapping[str, object]] = {
    "tool": {"description": "Look up WORDS ."},
    "tool_example": {"description": "Words WORDS .", **_CALL},
    "task_example": {
        "objective": "Know WORDS .",
        "steps": [{"tool": "look_up", "description": "Look.", **_CALL}],
        "outcome": _KNOWN,
    },
    "new_task_example": {
        "key": "KEY",
        "objective": "Know WORDS .",
        "steps": [],
        "outcome": _KNOWN,
    },
    "output_field": {"description": "Known are WORDS ."},
}


def reply(
    asked: Reflection, held: list[str], new: list[str], *, before: str = " ", fresh: bool = False
) -> str:
    """Write a reply that adds words to the present text, or is a ``fresh`` one."""
    if asked.kind in _FORMS:
        form = json.dumps(_FORMS[asked.kind], indent=2)
        words = form.replace("WORDS", " ".join([*held, *new]))
        return f"```json\n{words.replace('KEY', '-'.join(['about', *new]))}\n```"
    added = before.join([asked.current, *new]) if new else asked.current
    text = " ".join(new) if fresh else added
    return f"```{asked.kind}\n{text}\n```"
