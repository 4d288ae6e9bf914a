"""The embedded model as an agent: it follows the nearest example in the prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import filterfalse
from typing import Any, get_args, get_origin

import attrs

from promptgraft.adapters.calling.tool_calls import call_tool
from promptgraft.adapters.offline.learner import learn
from promptgraft.adapters.offline.words import (
    Call,
    Nearness,
    Pattern,
    Place,
    counterparts,
    leaves,
    names_in,
    plain_words,
    read_json,
    read_pattern,
    replaced,
    terms,
    texts_in,
)
from promptgraft.ground.serde import Json
from promptgraft.prompt.fields import FieldInfo, fields_of, options_of
from promptgraft.prompt.rendered import RenderedPrompt, RenderedSection, RenderedTool, Segment
from promptgraft.prompt.schema import NOTHING_SAID, describe, shown_name, type_name
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

_NEAR = 0.65
"""Nearness from which a worked example is followed."""

_MOST_CALLS = 8
_LONGEST_LINE = 2_000
_DEEPEST = 8
_EMPTY: dict[Any, Json] = {str: "", int: 0, float: 0.0, bool: False, list: [], tuple: [], dict: {}}


def act(
    rendered: RenderedPrompt[object],
    *,
    session: SessionProtocol,
    deadline: Deadline | None,
    attention: int,
) -> str:
    """Answer a prompt: call its tools, and return the answer as text.

    The worked example whose objective is nearest to the input is followed step by step if it is
    near enough. Otherwise the tool with the nearest descriptions is called once, like the nearest
    of its example calls. ``specs/adapters.md`` has the details.

    Raises:
        DeadlineExceededError: ``deadline`` has passed.
    """
    sections = rendered.sections
    text = "\n".join(
        part.text
        for segment_owner in sections
        for part in segment_owner.segments
        if _is_value(part)
    )
    worked = [read_pattern(section.text) for section in sections if _is_worked(section)]
    work = _Work(rendered, attention, worked, _pattern(rendered.tools, worked, text), text)
    for call in work.pattern.calls[:_MOST_CALLS]:
        if deadline is not None:
            deadline.check()
        work.make(call, session)
    return work.answer()


def _is_value(segment: Segment) -> bool:
    return segment.placeholder is not None


def _is_worked(section: RenderedSection) -> bool:
    return section.title.startswith("Example: ") and section.text.startswith("Objective: ")


def _pattern(tools: Sequence[RenderedTool], worked: Sequence[Pattern], text: str) -> Pattern:
    """Return the pattern to follow for an input: a worked example, or one call of a tool."""
    descriptions = [
        "\n".join((t.name.replace("_", " "), t.description, *t.param_descriptions.values()))
        for t in tools
    ]
    examples = [[call.description for call in tool.examples] for tool in tools]
    objectives = [pattern.objective for pattern in worked]
    nearness = Nearness(
        [*objectives, *descriptions, *(call for calls in examples for call in calls)]
    )
    position, near = nearness.nearest(text, objectives)
    # Without tools there is nothing else to do than what the nearest example does.
    if near >= _NEAR or (near and not tools):
        return worked[position]
    if not tools:
        return Pattern(objective="")
    scores = [
        nearness.between(text, call) + nearness.nearest(text, calls)[1]
        for call, calls in zip(descriptions, examples, strict=True)
    ]
    best = scores.index(max(scores))
    tool = tools[best]
    if not tool.examples:
        return Pattern(
            objective="", calls=[Call(tool=tool.name, input=_guess(tool, text), output=None)]
        )
    example = tool.examples[nearness.nearest(text, examples[best])[0]]
    output = read_json(example.output_json)
    call = Call(tool=tool.name, input=read_json(example.input_json), output=output)
    return Pattern(objective=example.description, calls=[call])


def _guess(tool: RenderedTool, text: str) -> Json:
    """Return parameters for a tool without example calls: the names in the input, in order."""
    names = iter([name.value for name in names_in(text) if name.kind != "number"])
    needed = [field for field in fields_of(tool.tool.params_type) if field.required]
    return {
        field.name: next(names, text) if field.kind is str else _empty(field.kind)
        for field in needed
    }


@attrs.frozen
class _Work:
    """Following a pattern for an input, from its calls to the answer in the output type.

    Attributes:
        worked: the worked examples in the prompt.
        pattern: the pattern to follow.
        text: the input.
        made: the calls made so far, in order of the pattern; None for a call that was skipped.
    """

    rendered: RenderedPrompt[object]
    attention: int
    worked: Sequence[Pattern]
    pattern: Pattern
    text: str
    made: list[Call | None] = attrs.field(factory=list, hash=False)

    def make(self, call: Call, session: SessionProtocol) -> None:
        """Make a call like one of the pattern, if its tool and its values exist here."""
        tool = next((tool for tool in self.rendered.tools if tool.name == call.tool), None)
        try:
            call_like = self.like(call.input)
        except LookupError:
            tool = None
        if tool is None:
            self.made.append(None)
            return
        output = call_tool(tool, call_like, session).output
        self.made.append(Call(tool=tool.name, input=call_like, output=output))

    def like(self, value: Json) -> Json:
        """Return the counterpart of a value of the pattern.

        Names in its objective become the corresponding names of the input. A text that occurs in a
        shown result becomes the value at the same place of the real result. Everything else is
        copied.

        Raises:
            LookupError: the real result has no value at that place.
        """
        match value:
            case str():
                named = replaced(value, counterparts(self.pattern.objective, self.text))
                if named != value or not value:
                    return named
                place = self._place(value)
                return self._at(place) if place else value
            case list():
                return [self.like(item) for item in value]
            case dict():
                return {key: self.like(item) for key, item in value.items()}
            case bool() | None:
                return value
        number = counterparts(self.pattern.objective, self.text).get(str(value), "")
        return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else value

    def outcome(self, value: Json) -> Json:
        """Return the counterpart of a value of the pattern's outcome; None if there is none."""
        try:
            if isinstance(value, str):
                return self.like(value)
            place = self._place(value)
            return self._at(place) if place else value
        except LookupError:
            return None if isinstance(value, str) else value

    def texts(self) -> Iterator[str]:
        """Yield the texts in the results, in order."""
        return (text for call in self.made if call for text in texts_in(call.output))

    def _place(self, value: Json) -> tuple[int, Place] | None:
        """Return which of the shown results contains a value, and at which place."""
        for index, (call, _) in enumerate(zip(self.pattern.calls, self.made, strict=False)):
            for path, leaf in leaves(call.output):
                if leaf == value and type(leaf) is type(value):
                    return index, path
        return None

    def _at(self, place: tuple[int, Place]) -> Json:
        call = self.made[place[0]]
        value = _at(call.output if call else None, place[1])
        if value is None:
            raise LookupError
        return value

    def answer(self) -> str:
        """Return JSON for a class, an option for a choice, otherwise plain text."""
        kind: Any = self.rendered.output_type
        outcome = self.pattern.outcome
        if options := options_of(kind):
            description = self.rendered.described.get(type_name(kind), NOTHING_SAID)
            return self._choice(describe(description, options), options, ())
        if fields_of(kind):
            return json.dumps(self._fields(kind, ()), ensure_ascii=False)
        if isinstance(outcome, str) and outcome:
            return str(self.outcome(outcome) or "")
        return next(self.texts(), self.text)

    def _fields(self, kind: Any, path: Place) -> dict[str, Json]:
        """Return the fields of a class under their displayed names."""
        values: dict[str, Json] = {}
        for field in fields_of(kind):
            description = self.rendered.described.get(field.key, field.described)
            name = shown_name(field.name, description)
            value = self._value(field, name, (*path, field.name))
            if value is not None or field.required:
                values[name] = value
        return values

    def _value(self, field: FieldInfo, name: str, path: Place) -> Json:
        description = self.rendered.described.get(field.key, field.described)
        kind = _plain(field.kind)
        if options := options_of(kind):
            return self._choice(describe(description, options), options, path)
        if fields_of(kind) and len(path) <= _DEEPEST:
            return dict(self._fields(kind, path))
        pattern_value = _at(self.pattern.outcome, path)
        if pattern_value is not None and pattern_value != "":
            outcome = self.outcome(pattern_value)
        else:
            outcome = self._leaf(f"{name} {description.description}", kind)
        return _empty(kind) if outcome is None and field.required else outcome

    def _choice(self, reply_text: str, options: tuple[str, ...], path: Place) -> str:
        """Return the option with the most evidence in rules, meanings and worked examples."""
        text = "\n\n".join(filter(None, (self._rules(), reply_text, *self._answered(path))))
        evidence = self.text
        if self.rendered.tools:  # names say which object was looked up, not of what kind it is
            evidence = " ".join(plain_words("\n".join((evidence, *self.texts()))))
        scores = learn(text, options, self.attention).scores(evidence)
        pattern_value = _at(self.pattern.outcome, path)
        # No evidence at all.
        if (
            max(scores) == min(scores)
            and isinstance(pattern_value, str)
            and pattern_value in options
        ):
            return pattern_value
        return options[scores.index(max(scores))]

    def _rules(self) -> str:
        """Return the prompt without values, worked examples and example calls."""
        rules = []
        for section in filterfalse(_is_worked, self.rendered.sections):
            text = "".join(" " if _is_value(part) else part.text for part in section.segments)
            rules.append(f"# {section.title}\n{text}".partition("\nExample calls of `")[0])
        return "\n\n".join(rules)

    def _answered(self, path: Place) -> Iterator[str]:
        """Yield each worked example as a text with its option on the next line."""
        for pattern in self.worked:
            option = _at(pattern.outcome, path)
            if isinstance(option, str):
                texts = (text for call in pattern.calls for text in texts_in(call.output))
                words = " ".join(plain_words("\n".join((pattern.objective, *texts))))
                yield f"{words[:_LONGEST_LINE]}\n{option}"

    def _leaf(self, text: str, kind: Any) -> Json:
        """Return the value whose keys share most words with ``text``; the first on a tie."""
        words = set(terms(text))
        best: Json = None
        most = 0
        for call in filter(None, self.made):
            for path, leaf in (*leaves(call.output), *leaves(call.input)):
                keys = {stem for key in path if isinstance(key, str) for stem in terms(key)}
                if type(leaf) is kind and len(keys & words) > most:
                    best, most = leaf, len(keys & words)
        return best


def _empty(kind: Any) -> Json:
    return next(iter(options_of(kind)), _EMPTY.get(get_origin(kind) or kind))


def _plain(kind: Any) -> Any:
    """Return the type inside an optional one, otherwise the type itself."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    optional = len(parts) == 1 and type(None) in get_args(kind)
    return parts[0] if optional else kind


def _at(value: Json, path: Place) -> Json:
    """Return the value at a place in a JSON value; None if there is none."""
    for key in path:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value
