"""Writes examples out of what would have been right, with names made up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline.agent_meta import Case, Question, fields_in, one_line
from promptgraft.adapters.offline.agent_names import (
    invented,
    names_in,
    plain_words,
    replaced,
)
from promptgraft.adapters.offline.agent_patterns import Call, nearness_over
from promptgraft.serde import Json

_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_LONGEST_OBJECTIVE = 400
_LONGEST_TEXT = 300
_MOST_ITEMS = 3
_KEY_WORDS = 3


@attrs.frozen
class _Renaming:
    """From real names to made-up ones."""

    pairs: Mapping[str, str]

    @classmethod
    def of(cls, case: Case) -> _Renaming:
        wanted = [value for value in case.wanted.values() if isinstance(value, str)]
        named = "\n".join((case.shown.input, *(f"`{value}`" for value in wanted if value)))
        pairs = invented(named)
        options = set(wanted) - {name.value for name in names_in(case.shown.input)}
        paths = {name.value for name in names_in(named) if name.kind == "path"}
        return cls({key: to for key, to in pairs.items() if key not in options or key in paths})

    def text(self, text: str, longest: int = _LONGEST_TEXT) -> str:
        return _UNUSABLE.sub("", replaced(text, self.pairs))[:longest]

    def value(self, value: Json) -> Json:
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(item) for item in value[:_MOST_ITEMS]]
            case dict():
                return {key: self.value(item) for key, item in value.items()}
        return value

    def objective(self, case: Case) -> str:
        """Return what was asked in general words: with made-up names, or as words only."""
        asked = " ".join(case.shown.input.split())
        general = self.text(asked, _LONGEST_OBJECTIVE)
        return general if general != asked else " ".join(plain_words(asked)) or "anything"


def tool_example(question: Question) -> str:
    """Return an example of a tool: the right call of a failed example, in general words."""
    tool = question.tools[0] if question.tools else ""
    for case in _in_turn(question):
        for call in case.right:
            if call.tool == tool and call.output is not None:
                names = _Renaming.of(case)
                return one_line(_call(call, names.objective(case), names))
    return question.task.current


def task_example(question: Question, *, keyed: bool) -> str:
    """Return a worked example: what would have been right for a failed one, in general words."""
    case = next(_in_turn(question), None)
    if case is None:
        return next(iter(question.others), question.task.current) if keyed else _current(question)
    names = _Renaming.of(case)
    calls = [call for call in case.right if call.output is not None]
    steps: list[Json] = [
        {"tool": call.tool, **_call(call, _reason(call, number), names)}
        for number, call in enumerate(calls)
    ]
    fields: dict[str, Json] = {"key": _key(case)} if keyed else {}
    return one_line(
        {
            **fields,
            "objective": names.objective(case),
            "steps": steps,
            "outcome": _outcome(question, case, names),
        }
    )


def _current(question: Question) -> str:
    return question.task.current


def _reason(call: Call, number: int) -> str:
    return f"use {call.tool} with what was {'found' if number else 'asked'}"


def _call(call: Call, description: str, names: _Renaming) -> dict[str, Json]:
    return {
        "description": description,
        "input": names.value(call.input),
        "output": names.value(call.output),
    }


def _outcome(question: Question, case: Case, names: _Renaming) -> Json:
    if not any(field.name for field in question.fields):
        return str(case.wanted.get("", case.shown.output))
    options = {field.name for field in question.fields if field.options}
    return {
        name: value if name in options else names.value(value)
        for name, value in case.wanted.items()
    }


def _key(case: Case) -> str:
    words = [word for word in plain_words(case.shown.input) if word.isascii()][:_KEY_WORDS]
    return "-".join(words) or "example"


def _in_turn(question: Question) -> Iterator[Case]:
    """Yield the cases worth an example: failed, with something right to show, and unlike others.

    After a refusal the first of them is left out.
    """
    cases = [case for case in question.cases if case.failed and case.right]
    others = [str(fields_in(other).get("objective", other)) for other in question.others]
    nearness = nearness_over([*others, *(case.shown.input for case in cases)])

    def rank(case: Case) -> tuple[float, float]:
        _, near = nearness.nearest(case.shown.input, others)
        return (round(near, 6), case.shown.score or 0.0)

    ranked: Sequence[Case] = sorted(cases, key=rank)
    yield from ranked[1:] if question.task.previous is not None else ranked
