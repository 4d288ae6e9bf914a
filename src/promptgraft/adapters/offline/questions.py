"""Parsing reflection prompts: the embedded model sees nothing but their text."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from promptgraft.adapters.offline.learner import names_of
from promptgraft.adapters.offline.words import (
    Call,
    object_in,
    plain_words,
    read_calls,
    read_json,
    texts_in,
)
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json

_PERFECT = 1.0
_EXAMPLE_LEVEL = 3
_LABEL_WORDS = 3
_HEADING = re.compile(r"(#{1,6}) (.*)")
_FENCE = re.compile(r"(`{3,})[\w-]*\s*")
_LABEL = re.compile(r"\*\*([^*:]{1,40}):\*\*\s*(.*)")
_CHOICES = re.compile(r"one of:\s*(.+)", re.IGNORECASE)
_SCHEMA = re.compile(r"schema:\s*(\{.*)", re.DOTALL)
AT_MOST = re.compile(r"at most (\d{1,9}) characters")
_TOOL = re.compile(r"(?m)^Tool `([^`]{1,64})`")
PART = re.compile(r"(?m)^The part is: (.*)$")
MARK = re.compile(r"\*\*(P\d{1,6}):\*\* (.*)")
_MADE_WITH = re.compile(r"- step .* made with (P\d{1,6}(?:, P\d{1,6})*)")
_IN_SHORT = re.compile(r"- (.*) → (.*)")
_CUT = re.compile(r"\[… \d{1,9} of \d{1,9} characters left out …\]")
_KEY = re.compile(r'"\w{1,64}":')
EXPECTED = re.compile(r"expected:?\s+(?:`([^`]{1,500})`|\"([^\"]{1,500})\"|([^\s,;]{1,500}))")


@attrs.frozen(kw_only=True)
class Field:
    """A field of the answer, with its options where it is a choice.

    The name is empty for an answer that is itself a choice.
    """

    name: str
    options: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Case:
    """One example with feedback.

    Attributes:
        score: its score; None if it has none.
        given: the answer, by field.
        wanted: the expected answer, by field, as far as the feedback names it.
        right: the calls that would have been right: those of the evaluation log, or those of a
            perfect answer.
    """

    score: float | None
    input: str
    output: str
    given: Mapping[str, Json] = attrs.field(hash=False)
    wanted: Mapping[str, Json] = attrs.field(hash=False)
    called: Sequence[Call]
    right: Sequence[Call]

    @property
    def failed(self) -> bool:
        """Whether its score is below 1."""
        return self.score is not None and self.score < _PERFECT

    @functools.cached_property
    def evidence(self) -> str:
        """The plain words of the input and of the results of the right calls."""
        texts = (self.input, *(text for call in self.right for text in texts_in(call.output)))
        return " ".join(plain_words("\n".join(texts)))


@attrs.frozen(kw_only=True)
class Question:
    """The content of a reflection prompt.

    Attributes:
        part: name of the part whose ``current`` text is to be improved.
        neighbours: the other parts of the prompt, as one text.
        parts: the same by name.
        max_chars: limit on the new text; None if none is stated.
        refused: the refused reply; None at the first attempt.
        fields: the fields of the answer; empty for free text.
        tools: names of the tools whose types are shown.
        others: the other examples of the same kind, as texts.
    """

    part: str
    current: str
    neighbours: str
    parts: Mapping[str, str] = attrs.field(hash=False)
    max_chars: int | None
    refused: str | None
    fields: Sequence[Field]
    tools: Sequence[str]
    others: Sequence[str]
    cases: Sequence[Case]


@attrs.frozen
class Block:
    """A heading in lower case, the lines below it, and its fenced texts with their labels."""

    title: str
    level: int = 0
    lines: list[str] = attrs.field(factory=list, hash=False)
    fenced: list[tuple[str, str]] = attrs.field(factory=list, hash=False)

    @property
    def prose(self) -> str:
        return "\n".join(self.lines)

    @property
    def whole(self) -> str:
        return "\n".join((self.prose, *self.texts))

    @property
    def named(self) -> Mapping[str, str]:
        """The fenced texts by the line above each, without its colon."""
        names = [line.removesuffix(":") for line in self.lines if line.endswith(":")]
        # A line that introduces all of them may come first.
        return dict(zip(names[max(0, len(names) - len(self.texts)) :], self.texts, strict=False))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.fenced]


class Blocks:
    """The blocks of a question, by their headings."""

    def __init__(self, text: str) -> None:
        self.blocks = tuple(_read_blocks(text))

    def titled(self, title: str) -> Block:
        """Return the block below a heading; an empty one of level 0 if there is none."""
        return next((block for block in self.blocks if block.title == title), Block(title))


def prompts_in(text: str) -> list[str]:
    """Return ``namespace/key`` of the prompts of a graph that a reflection prompt asks about."""
    lines = Blocks(text).titled("current text").lines
    names = [match[2].partition("#") for match in map(MARK.match, lines) if match]
    return list(dict.fromkeys(prompt for prompt, sign, _ in names if sign))


def read_question(text: str, prompt: str = "") -> Question:
    """Parse a reflection prompt, in linear time.

    Args:
        text: the reflection prompt.
        prompt: of a question on several prompts the one to read, with the cases that asked it.

    Raises:
        ConfigError: it does not show the current text.
    """
    question = Blocks(text)
    titled = question.titled
    current_block = titled("current text")
    if not current_block.level:
        raise ConfigError(
            "the embedded offline model: the reflection prompt has no heading "
            "`## Current text`; keep that section where you override the prompt"
        )
    at_most = AT_MOST.search(titled("task").prose)
    part = PART.search(current_block.prose)
    marked = filter(None, map(MARK.match, current_block.lines))
    marks = {match[1] for match in marked if match[2].startswith(f"{prompt}#")}
    examples = [
        block
        for block in question.blocks
        if block.level == _EXAMPLE_LEVEL and (not prompt or _is_made_with(marks, block))
    ]
    expected = titled("expected answers")
    answers = expected.named.get(prompt, "") if prompt else expected.whole
    fields = fields_among(answers) if expected.level else _labels(examples)
    around = titled("rest of the prompt")
    rest = around.named
    if prompt:
        rest = {name: text for name, text in rest.items() if name.startswith(f"{prompt} ")}
    return Question(
        part=part[1] if part else "",
        current=next(iter(current_block.texts), ""),
        neighbours="\n\n".join(rest.values() if prompt else around.texts),
        parts=rest,
        max_chars=int(at_most[1]) if at_most else None,
        refused=next(iter(titled("refused attempt").texts), None),
        fields=fields,
        tools=_TOOL.findall(titled("types").whole),
        others=titled("other examples").texts,
        cases=[
            *(_case(block, fields) for block in examples),
            *_cases_in_short(titled("more failures"), 0.0, fields),
            *_cases_in_short(titled("right answers"), _PERFECT, fields),
        ],
    )


def _is_made_with(marks: Collection[str], example: Block) -> bool:
    """Return whether a step of an example was made with one of some parts."""
    steps = filter(None, map(_MADE_WITH.fullmatch, example.lines))
    return any(mark in marks for step in steps for mark in step[1].split(", "))


def _read_blocks(text: str) -> Iterator[Block]:
    """Yield the text before the first heading, then a block per heading."""
    block = Block("")
    fence, label = "", ""
    inside: list[str] = []
    for line in text.split("\n"):
        if fence:
            # Like in Markdown, a longer fence closes a shorter one; text inside may hold shorter
            # runs.
            if line.startswith(fence) and not line.strip("` \r"):
                block.fenced.append((label, "\n".join(inside)))
                fence = ""
            else:
                inside.append(line)
        elif opening := _FENCE.fullmatch(line):
            fence, inside = opening[1], []
        elif heading := _HEADING.fullmatch(line):
            yield block
            block, label = Block(heading[2].strip().lower(), len(heading[1])), ""
        else:
            block.lines.append(line)
            labelled = _LABEL.match(line)
            label = labelled[1].lower() if labelled else label
    yield block


def fields_among(prose: str) -> list[Field]:
    """Return the fields of an answer from the description of answers in a prompt."""
    if schema := _SCHEMA.search(prose):
        properties = object_in(schema[1].strip()).get("properties")
        kinds = properties.items() if isinstance(properties, dict) else ()
        return [Field(name=name, options=_options(kind)) for name, kind in kinds]
    match = _CHOICES.search(prose)
    options = [option.strip(" `'\".") for option in match[1].split(",")] if match else []
    choices = tuple(dict.fromkeys(filter(None, options)))
    return [Field(name="", options=choices)] if choices else []


def _labels(examples: Sequence[Block]) -> list[Field]:
    """Return the labels in examples as a choice, for a question that does not list answers.

    Labels are the outputs and the expected values in feedback, if all of them are a few words.
    """
    labels: dict[str, None] = {}
    for block in examples:
        fences = dict(reversed(block.fenced))
        expected = EXPECTED.search(fences.get("feedback", ""))
        outputs = (fences.get("output", "").strip(), *(expected.groups() if expected else ()))
        labels.update(dict.fromkeys(filter(None, outputs)))
    are_labels = all(
        len(label.split()) <= _LABEL_WORDS and label[0] not in "{[" for label in labels
    )
    return [Field(name="", options=tuple(sorted(labels)))] if labels and are_labels else []


def _options(kind: Json) -> tuple[str, ...]:
    options = kind.get("enum") if isinstance(kind, dict) else None
    options = options if isinstance(options, list) else []
    return tuple(option for option in options if isinstance(option, str))


def _case(block: Block, fields: Sequence[Field]) -> Case:
    labels = {match[1].lower(): match[2] for match in map(_LABEL.match, block.lines) if match}
    fences = dict(reversed(block.fenced))
    try:
        score = float(labels.get("score", ""))
    except ValueError:
        score = None
    called = tuple(read_calls(fences.get("trace", "")))
    perfect = score is not None and score >= _PERFECT
    # The log has words on its line where it is the same as the trace.
    is_right = perfect or bool(labels.get("evaluation log"))
    return _answered(
        score=score,
        question="\n".join(texts_in(read_json(fences.get("input", "")))),
        output=fences.get("output", ""),
        feedback=fences.get("feedback", ""),
        fields=fields,
        called=called,
        right=tuple(read_calls(fences.get("evaluation log", ""))) or (called if is_right else ()),
    )


def _cases_in_short(block: Block, score: float, fields: Sequence[Field]) -> Iterator[Case]:
    """Yield the rollouts that a question shows in a line each."""
    has_fields = any(field.name for field in fields)
    names = "|".join(re.escape(field.name) for field in fields if field.name)
    for match in map(_IN_SHORT.fullmatch, block.lines):
        if match:
            input_text, (output, _, feedback) = match[1].strip("` "), match[2].partition("; ")
            if has_fields and _CUT.search(f"{output}{feedback}"):
                continue  # what is left out may be the field that was wrong
            value = read_json(input_text)
            # A long input is cut, so it may be no JSON any more.
            text = "\n".join(texts_in(value)) if value != input_text else _KEY.sub(" ", input_text)
            text = _CUT.sub(" ", text)
            if has_fields:  # of several, each has a line of the feedback
                feedback = re.sub(rf"\s(?=(?:{names}):)", "\n", feedback)
            yield _answered(
                score=score,
                question=text,
                output=output.strip("` "),
                feedback=feedback,
                fields=fields,
            )


def _answered(
    *,
    score: float | None,
    question: str,
    output: str,
    feedback: str,
    fields: Sequence[Field],
    called: Sequence[Call] = (),
    right: Sequence[Call] = (),
) -> Case:
    values = _given(output, fields)
    perfect = score is not None and score >= _PERFECT
    # With several fields, those that the feedback does not mention were right.
    right_values = values if perfect or any(field.name for field in fields) else {}
    if not perfect:
        right_values = {**right_values, **dict(_wanted(feedback, fields, values))}
    return Case(
        score=score,
        input=question,
        output=output,
        given=values,
        wanted=right_values,
        called=called,
        right=right,
    )


def _given(output: str, fields: Sequence[Field]) -> dict[str, Json]:
    """Return the answer by field; by position if the fields have other names in it."""
    if len(fields) == 1 and not fields[0].name:
        named = names_of(fields[0].options).named_in(output)
        return {"": fields[0].options[named[0]]} if len(named) == 1 else {}
    read = object_in(output)
    names = {field.name for field in fields}
    # A candidate may have renamed the fields; their order is that of the class.
    if len(read) == len(fields) and not names.issuperset(read):
        return {field.name: value for field, value in zip(fields, read.values(), strict=True)}
    return {name: value for name, value in read.items() if name in names}


def _wanted(
    feedback: str, fields: Sequence[Field], answer: Mapping[str, Json]
) -> Iterator[tuple[str, Json]]:
    """Yield the expected values in lines such as ``severity: expected `high`, found `low```."""
    for field in fields:
        name = re.compile(rf"(?<!\w){re.escape(field.name)}(?!\w)", re.IGNORECASE)
        lines = feedback.split("\n") if field.name else [feedback]
        for line in lines:
            value = _said_of(field, line, answer.get(field.name))
            if value is not None and (not field.name or name.search(line)):
                yield field.name, value
                break


def _said_of(field: Field, line: str, given: Json) -> Json:
    expected = EXPECTED.search(line)
    if field.options:
        text = line[expected.start() :] if expected and field.name else line
        named = (field.options[index] for index in names_of(field.options).named_in(text))
        return next((label for label in named if (expected and field.name) or label != given), None)
    if expected is None:
        return None
    value = next(filter(None, expected.groups()), "")
    return read_json(value) if isinstance(given, (int, float)) else value
