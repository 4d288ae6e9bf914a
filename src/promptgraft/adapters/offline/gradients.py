"""Replies to the questions of a gradient search, read from their text alone.

It knows one kind of problem: a value was expected and another one found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline import questions
from promptgraft.adapters.offline.learner import names_of
from promptgraft.adapters.offline.reflector import REPLIES as REFLECTIONS
from promptgraft.adapters.offline.reflector import Better, Habits, block_of
from promptgraft.adapters.offline.words import content_words, read_json, texts_in
from promptgraft.ground.serde import Json

_FOUND = re.compile(r"found:?\s+(?:`([^`]{1,500})`|\"([^\"]{1,500})\"|([^\s,;.]{1,500}))")
_WORDS = re.compile(r"in answer to: (.*)")
_SEVERITY = re.compile(r"P[0-3]", re.IGNORECASE)
_HANDLE = re.compile(r"\b[TS]\d{1,3}\b", re.IGNORECASE)
_TWIN = re.compile(r"as of (step \S+)")
_MOST_WORDS, _MOST_PROBLEMS, _LONGEST_PROBLEM = 40, 20, 2_000
_MEANT = {
    "output field": "reflect-output-field",
    "tool example": "reflect-tool-example",
    "task example": "reflect-task-example",
    "tool": "reflect-tool",
    "what is shown": "reflect-visibility",
}


@attrs.frozen
class _Wrong:
    """A value that was found in place of an expected one, according to a line of a reason."""

    severity: str
    expected: str
    found: str
    line: str


class _Shown(questions.Blocks):
    """The blocks of a question, with the wrong values that reasons name."""

    def wrong(self, title: str) -> Iterator[_Wrong]:
        """Yield the wrong values named by the reasons below a heading."""
        for label, text in self.titled(title).fenced:
            severity = label.upper() if _SEVERITY.fullmatch(label) else "P1"
            for line in text.split("\n"):
                expected, wrong_value = _value(questions.EXPECTED, line), _value(_FOUND, line)
                if expected:
                    yield _Wrong(severity, expected, wrong_value, line)


def _value(pattern: re.Pattern[str], line: str) -> str:
    match = pattern.search(line)
    return next(filter(None, match.groups()), "") if match else ""


def blame_step(text: str) -> Json:
    """Blame the texts of the step that produced a wrong value, or pass it to an earlier step."""
    shown_text = _Shown(text)
    # Reversed, so that of several fences with one title the first counts: values come later.
    step = dict(reversed(shown_text.titled("step").fenced))
    handles = _handles(shown_text.titled("texts that may change"))
    before = shown_text.titled("steps before").fenced
    blame: list[Json] = []
    hand_on: list[Json] = []
    for wrong in shown_text.wrong("what went wrong"):
        earlier = [handle for handle, output in before if _names(output, wrong.found)]
        # A value that an earlier step shows as well was only passed on here.
        is_own = bool(handles) and _names(step.get("output", ""), wrong.found)
        if is_own and not earlier:
            blame.append(_blame(handles[0], wrong, step.get("input", "")))
            continue
        # No earlier step shows the value, but one of them may still have caused it.
        blame_json = {"severity": wrong.severity, "problem": wrong.line[:_LONGEST_PROBLEM]}
        sources = earlier or [handle for handle, _ in before[:1]]
        hand_on += [{"step": handle.upper(), **blame_json} for handle in sources]
    return {"blame": blame[:_MOST_PROBLEMS], "hand_on": hand_on[:_MOST_PROBLEMS]}


def blame_trace(text: str) -> Json:
    """Blame the texts of the first step that shows a wrong value."""
    shown_text = _Shown(text)
    # In order: the first step that shows a wrong value has produced it.
    steps = [block for block in shown_text.blocks if block.title.startswith("step ")]
    inputs: dict[str, str] = {}
    blame: list[Json] = []
    for wrong in shown_text.wrong("what went wrong"):
        for step in steps:
            handles, fences = _HANDLE.findall(step.prose), dict(reversed(step.fenced))
            twin = _TWIN.search(step.prose)
            inputs[step.title] = inputs.get(twin[1], "") if twin else fences.get("input", "")
            if handles and _names(fences.get("output", ""), wrong.found):
                blame.append(_blame(handles[0], wrong, inputs[step.title]))
                break
    return {"blame": blame[:_MOST_PROBLEMS]}


def _handles(block: questions.Block) -> list[str]:
    return [label.upper() for label, _ in block.fenced]


def _names(output: str, value: str) -> bool:
    """Return whether an output names a value; true if the value is unknown."""
    return not value or bool(names_of((value,)).named_in(output))


def _blame(handle: str, wrong: _Wrong, output: str) -> Json:
    words = content_words("\n".join(texts_in(read_json(output))))[:_MOST_WORDS]
    problem = f"expected `{wrong.expected}`, found `{wrong.found}` in answer to: {' '.join(words)}"
    severity = wrong.severity
    return {"text": handle, "severity": severity, "problem": problem[:_LONGEST_PROBLEM]}


def merge(text: str) -> Json:
    """Merge the problems with the same expected and found value."""
    signals: dict[tuple[str, str], list[str]] = {}
    severities: dict[tuple[str, str], str] = {}
    for wrong in _Shown(text).wrong("what was said"):
        key = wrong.expected, wrong.found
        signals.setdefault(key, []).append(wrong.line)
        severities[key] = min(severities.get(key, "P3"), wrong.severity)
    problems: list[Json] = [
        {"severity": severities[key], "problem": "\n".join(dict.fromkeys(lines))[:_LONGEST_PROBLEM]}
        for key, lines in signals.items()
    ]
    nothing: Json = {
        "severity": "P3",
        "problem": "nothing that the embedded offline model understands",
    }
    return {"problems": problems[:_MOST_PROBLEMS] or [nothing]}


def patch(text: str, habits: Habits) -> str:
    """Return the reply that adds words of failed inputs; half as many for each refused text."""
    shown_text = _Shown(text)
    current, part = (
        shown_text.titled("current text"),
        questions.PART.search(shown_text.titled("current text").prose),
    )
    name = part[1].strip("`").rpartition("#")[2] if part else ""
    refused = len(shown_text.titled("refused texts").fenced)
    wrong = list(shown_text.wrong("what is wrong"))
    fields = questions.fields_among(shown_text.titled("expected answers").whole) or _choice(wrong)
    at_most = questions.AT_MOST.search(shown_text.titled("task").prose)
    question = questions.Question(
        part=name,
        current=next(iter(current.texts), ""),
        neighbours="\n\n".join(shown_text.titled("rest of the texts").texts),
        parts=shown_text.titled("rest of the texts").named,
        max_chars=int(at_most[1]) if at_most else None,
        refused=None,
        fields=fields,
        tools=(),
        others=(),
        cases=[_case(wrong_line, fields) for wrong_line in wrong],
    )
    kind = next((key for kind, key in _MEANT.items() if name.startswith(kind)), "reflect-section")
    better = REFLECTIONS[kind](Better(question, habits.refused(refused)))
    values = sorted({wrong_line.expected for wrong_line in wrong})
    why = f"what points to {', '.join(values)[:200]} was not said"
    return f"{why}\n{block_of(kind, better)}"


def _choice(wrong: Sequence[_Wrong]) -> list[questions.Field]:
    """Return the values as one choice, if the question does not say what answers look like."""
    values = sorted(
        {
            value
            for wrong_line in wrong
            for value in (wrong_line.expected, wrong_line.found)
            if value
        }
    )
    return [questions.Field(name="", options=tuple(values))] if values else []


def _case(wrong: _Wrong, fields: Sequence[questions.Field]) -> questions.Case:
    words = _WORDS.search(wrong.line)
    name = next((field.name for field in fields if wrong.expected in field.options), "")
    return questions.Case(
        score=0.0,
        input=words[1] if words else "",
        output=wrong.found,
        given={name: wrong.found},
        wanted={name: wrong.expected},
        called=(),
        right=(),
    )


REPLIES: Mapping[str, Callable[[str], Json]] = {
    "blame-step": blame_step,
    "blame-trace": blame_trace,
    "merge-problems": merge,
}
"""Functions that reply to a question, by its key; ``write-patch`` is :func:`patch`."""


def answer(key: str, text: str, habits: Habits) -> str:
    """Return the reply to a question of a gradient search."""
    if key not in REPLIES:
        return patch(text, habits)
    return f"```json\n{json.dumps(REPLIES[key](text), ensure_ascii=False)}\n```"
