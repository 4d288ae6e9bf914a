"""How rollouts are shown to the reflection model, and clipped."""

from __future__ import annotations

import json
from typing import cast

import attrs
import msgspec

from promptgraft.adapters.base import PromptResponse, ToolInvoked
from promptgraft.errors import DataFormatError
from promptgraft.evals.dataset import asked_by
from promptgraft.evals.types import Case, Conversation, TurnAnswered
from promptgraft.ground.content import Input, in_words, named
from promptgraft.ground.serde import unstructure
from promptgraft.ground.text import clip, clip_line, clip_lines, code_span, fenced
from promptgraft.prompt.rendered import PromptRendered
from promptgraft.runtime.session import SessionProtocol
from promptgraft.targets.types import GepaExample, RolloutRecord

_MAX_CALL_CHARS = 1_000
_MAX_NAME_CHARS = 200
_MAX_PART_CHARS = 60_000


def in_one_line(text: str, limit: int = _MAX_NAME_CHARS) -> str:
    """Return a text as one line that cannot be mistaken for a heading, list or fence."""
    line = clip_line(text, limit)
    return line if line[:1].isalnum() or not line else code_span(line)


def fenced_part(text: str) -> str:
    """Return a text between fences, clipped; empty for an empty text."""
    return fenced(clip(text, _MAX_PART_CHARS)) if text else ""


def clip_record(record: RolloutRecord, *, texts: int, traces: int) -> RolloutRecord:
    """Return a record with its texts clipped, and its trace and evaluation log."""
    feedback = record.feedback
    if feedback is not None:
        log = feedback.eval_trace and clip_lines(feedback.eval_trace, traces)
        feedback = attrs.evolve(feedback, feedback=clip(feedback.feedback, texts), eval_trace=log)
    return attrs.evolve(
        record,
        steps=tuple(step.clipped(texts) for step in record.steps),
        inputs_repr=clip(record.inputs_repr, texts),
        output_repr=clip(record.output_repr, texts),
        expected_repr=clip(record.expected_repr, texts),
        tool_trace_repr=record.tool_trace_repr and clip_lines(record.tool_trace_repr, traces),
        fault=clip(record.fault, texts, around=" "),
        feedback=feedback,
    )


def expected_text(example: GepaExample) -> str:
    """Return the expected answer as text; empty if there is none, or if it has no JSON form."""
    label = example.label
    expected = [label.expected, label.tools] if isinstance(label, Case) else [label]
    # Not its `repr`, which may hold an address that no two runs share.
    return "\n\n".join(
        value if isinstance(value, str) else show_value(value, otherwise="")
        for value in expected
        if value is not None
    )


def default_example_formatter(
    example: GepaExample, response: PromptResponse[object] | None
) -> tuple[str, str]:
    """Show parameters as JSON, or the input of a case, and the text of the answer."""
    params = example.params[0] if len(example.params) == 1 else example.params or {}
    case = example.label if isinstance(params, Conversation) else params
    question = _asked(case) if isinstance(case, Case) else show_value(params)
    if response is None:
        return question, "<no response>"
    if response.output is not None and not response.text:
        return question, show_value(response.output)
    return question, response.text or "<empty>"


def _asked(case: Case) -> str:
    """Return the input of a case, with the context and state of the session."""
    question: dict[str, object] = {"input": asked_by(case)}
    if case.context:
        question["context"] = [
            {message.speaker.value: in_words(message.text)} for message in case.context
        ]
    if case.state:
        question["state"] = dict(case.state)
    alone = question["input"] if len(question) == 1 else None
    return alone if isinstance(alone, str) else show_value(question)


def default_trace_formatter(session: SessionProtocol) -> str:
    """Show each tool call with its parameters and its result, each on a line of its own.

    In a conversation, each turn is shown after its tool calls. A line shows at most 1,000
    characters of a value. If the model had tools and called none, that is the first line.
    """
    lines: list[str] = []
    turn = 0
    for event in session.select_all(object):
        if isinstance(event, ToolInvoked):
            lines += [f"[{event.name}]", *(f"  {line}" for line in _lines_of(event))]
        elif isinstance(event, TurnAnswered):
            turn += 1
            user, answer = _line(event.query), _line(event.answer.text)
            lines += [f"[turn {turn}]", f"  user: {user}", f"  answer: {answer}"]
    had_tools = any(event.prompt.tools for event in session.select_all(PromptRendered))
    if had_tools and not session.select_all(ToolInvoked):
        lines.insert(0, "[no tool was called]")
    return "\n".join(lines)


def tool_line(call: ToolInvoked) -> str:
    """Return a tool call with its parameters and its result in one line."""
    return f"{call.name}: {'; '.join(_lines_of(call)).removeprefix('params: ')}"


def _lines_of(call: ToolInvoked) -> list[str]:
    lines = [f"params: {_line(show_value(call.params, indent=None))}"]
    if call.error:
        lines.append(f"error: {_line(call.error)}")
    elif call.result is not None:  # agents that are only called often report none
        lines.append(f"result: {_line(show_value(call.result, indent=None))}")
    return lines


def _line(text: str) -> str:
    return clip(" ".join(text.splitlines()), _MAX_CALL_CHARS, around=" ")


def show_value(value: object, *, indent: int | None = 2, otherwise: str | None = None) -> str:
    """Return a value as JSON, with the names of files.

    If it has no JSON form, that is ``otherwise``, by default its ``repr``.
    """
    try:
        text = json.dumps(unstructure(named(cast("Input", value))), ensure_ascii=False)
    except (DataFormatError, RecursionError):
        return repr(value) if otherwise is None else otherwise
    if indent is None:
        return text
    try:
        # Much faster than `indent` of json, which is pure Python; refuses lone surrogates.
        return msgspec.json.format(text, indent=indent)
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=indent, ensure_ascii=False)
