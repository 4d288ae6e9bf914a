"""Reads the meta-prompts on parts of an agent's prompt, as any other model reads them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline.agent_calls import leaves
from promptgraft.adapters.offline.agent_names import plain_words
from promptgraft.adapters.offline.agent_patterns import Call, read_json
from promptgraft.adapters.offline.metaprompt import (
    ReflectionTask,
    ShownExample,
    blocks_of_examples,
    read_blocks,
    task_of,
    titled,
)
from promptgraft.adapters.offline.names import names_of
from promptgraft.serde import Json

PERFECT = 1.0

_SCHEMA = re.compile(r"schema:\s*(\{.*)", re.DOTALL)
_TOOL = re.compile(r"(?m)^Tool `([^`]{1,64})`")
_PART = re.compile(r"(?m)^The part is: (.*)$")
_CALLED = re.compile(r"\[([^\]]{1,64})\]")
_EXPECTED = re.compile(r"expected:?\s+(?:`([^`]{1,500})`|\"([^\"]{1,500})\"|([^\s,;]{1,500}))")


@attrs.frozen(kw_only=True)
class Field:
    """A field of the answer, as the meta-prompt shows it.

    Attributes:
        name: its name; empty for an answer that is a choice.
        options: the options of a choice; empty for other types.
    """

    name: str
    options: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Case:
    """One example with feedback.

    Attributes:
        shown: input, output, score and feedback.
        given: what was answered, by field.
        wanted: what should have been, by field, as far as the feedback tells.
        called: the calls that were made.
        right: the calls that would have been right: those of the evaluation log, else those
            that were made where the answer was perfect.
    """

    shown: ShownExample
    given: Mapping[str, Json]
    wanted: Mapping[str, Json]
    called: tuple[Call, ...]
    right: tuple[Call, ...]

    @property
    def failed(self) -> bool:
        """Whether there is anything to learn from it."""
        return self.shown.score is not None and self.shown.score < PERFECT

    @functools.cached_property
    def evidence(self) -> str:
        """The plain words of the input, and of what the right calls find."""
        found = (leaf for call in self.right for _, leaf in leaves(call.output))
        texts = (self.shown.input, *(leaf for leaf in found if isinstance(leaf, str)))
        return " ".join(plain_words("\n".join(texts)))


@attrs.frozen(kw_only=True)
class Question:
    """What a meta-prompt asks for.

    Attributes:
        part: name of the part.
        task: its present text, its limits, and the reply that was refused.
        fields: the fields of the answer.
        tools: names of the tools whose types are shown.
        others: other examples of the kind, as texts.
        cases: what happened.
    """

    part: str
    task: ReflectionTask
    fields: tuple[Field, ...]
    tools: tuple[str, ...]
    others: tuple[str, ...]
    cases: tuple[Case, ...]


def read_question(text: str) -> Question:
    """Read a meta-prompt.

    Raises:
        ConfigError: it does not show the current text.
    """
    blocks = tuple(read_blocks(text))
    task = task_of(blocks)
    fields = _fields(titled(blocks, "expected answers").prose, task.choices)
    part = _PART.search(titled(blocks, "current text").prose)
    logs = (dict(block.fenced) for block in blocks_of_examples(blocks))
    return Question(
        part=part[1] if part else "",
        task=task,
        fields=fields,
        tools=tuple(_TOOL.findall(titled(blocks, "types").prose)),
        others=tuple(other for _, other in titled(blocks, "other examples").fenced),
        cases=tuple(
            _case(shown, fields, found) for shown, found in zip(task.examples, logs, strict=True)
        ),
    )


def _fields(prose: str, choices: tuple[str, ...]) -> tuple[Field, ...]:
    schema = _SCHEMA.search(prose)
    if choices and not schema:
        return (Field(name="", options=choices),)
    read = read_json(schema[1].strip()) if schema else None
    properties = read.get("properties") if isinstance(read, dict) else None
    if not isinstance(properties, dict):
        return ()
    return tuple(Field(name=name, options=_options(kind)) for name, kind in properties.items())


def _options(kind: Json) -> tuple[str, ...]:
    options = kind.get("enum") if isinstance(kind, dict) else None
    if not isinstance(options, list):
        return ()
    return tuple(option for option in options if isinstance(option, str))


def _case(shown: ShownExample, fields: Sequence[Field], logs: Mapping[str, str]) -> Case:
    given = _given(shown.output, fields)
    called = tuple(read_log(logs.get("trace", "")))
    wanted = dict(given)
    if shown.score is not None and shown.score < PERFECT:
        wanted.update(_wanted(shown.feedback, fields, given))
    perfect = shown.score is not None and shown.score >= PERFECT
    right = tuple(read_log(logs.get("evaluation log", "")))
    return Case(
        shown=shown,
        given=given,
        wanted=wanted,
        called=called,
        right=right or (called if perfect else ()),
    )


def read_log(text: str) -> Iterator[Call]:
    """Yield the calls in a log, as traces show them; those without a result have None."""
    tool, given = "", ""
    for line in text.split("\n"):
        if found := _CALLED.fullmatch(line.strip()):
            tool, given = found[1], ""
        elif line.startswith("  params: "):
            given = line.removeprefix("  params: ")
        elif line.startswith(("  result: ", "  error: ")) and tool and given:
            result = line.removeprefix("  result: ") if line.startswith("  result: ") else "null"
            yield Call(tool=tool, description="", input=read_json(given), output=read_json(result))
            tool = ""


def _given(output: str, fields: Sequence[Field]) -> dict[str, Json]:
    """Return the answer by field; where a field was shown under another name, by position."""
    if len(fields) == 1 and not fields[0].name:
        named = names_of(fields[0].options).named_in(output)
        return {"": fields[0].options[named[0]]} if len(named) == 1 else {}
    read = read_json(output)
    if not isinstance(read, dict):
        return {}
    known = {field.name for field in fields}
    if len(read) == len(fields) and not known.issuperset(read):
        return {field.name: value for field, value in zip(fields, read.values(), strict=True)}
    return {name: value for name, value in read.items() if name in known}


def _wanted(
    feedback: str, fields: Sequence[Field], given: Mapping[str, Json]
) -> Iterator[tuple[str, Json]]:
    """Yield what a line such as ``severity: expected `high`, found `low``` says of a field."""
    for field in fields:
        names = re.compile(rf"(?<!\w){re.escape(field.name)}(?!\w)", re.IGNORECASE)
        for line in feedback.split("\n"):
            value = _said_of(field, line, given.get(field.name)) if names.search(line) else None
            if value is not None:
                yield field.name, value
                break


def _said_of(field: Field, line: str, given: Json) -> Json:
    expected = _EXPECTED.search(line)
    if field.options:
        said = line[expected.start() :] if expected else line
        named = (field.options[index] for index in names_of(field.options).named_in(said))
        return next((option for option in named if expected or option != given), None)
    if expected is None:
        return None
    value = next(filter(None, expected.groups()), "")
    return read_json(value) if isinstance(given, (int, float)) else value


def fields_in(text: str) -> dict[str, Json]:
    """Return the fields of a JSON object; none where the text is something else."""
    read = read_json(text)
    return read if isinstance(read, dict) else {}


def one_line(value: Json) -> str:
    """Return JSON in one line."""
    return json.dumps(value, ensure_ascii=False)
