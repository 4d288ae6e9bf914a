"""What of a case and its answer is shown to a judge."""

from __future__ import annotations

from promptgraft.evals.judges.prompts import Material
from promptgraft.evals.metrics.reasons import clipped
from promptgraft.evals.types import Answer, Case, Message, Speaker, ToolUse
from promptgraft.prompt.fences import fenced
from promptgraft.serde import Json, canonical_json

LONGEST_SHOWN = 50_000
"""Characters of a text that is shown whole; of a longer one the middle is left out, with a note."""


def material_of(case: Case, answer: Answer, *, tools: bool = False, rubrics: str = "") -> Material:
    """Return what a judge is shown.

    Args:
        case: what was asked.
        answer: what is judged.
        tools: whether the tools that were called are shown.
        rubrics: what has to hold, fenced.
    """
    return Material(
        question=_shown(case.input),
        earlier="\n\n".join(f"{said.speaker}:\n\n{_shown(said.text)}" for said in _earlier(case)),
        reference="" if case.expected is None else _shown(case.expected),
        answer=_shown(answer.text if answer.text or answer.output is None else answer.output),
        tools=_calls(answer.tools) if tools else "",
        rubrics=rubrics,
    )


def _earlier(case: Case) -> tuple[Message, ...]:
    turns = [
        message
        for turn in case.turns[:-1]
        for message in (
            Message(Speaker.USER, turn.user),
            *((Message(Speaker.ASSISTANT, turn.expected),) if turn.expected is not None else ()),
        )
    ]
    return (*case.context, *turns)


def _calls(tools: tuple[ToolUse, ...]) -> str:
    if not tools:
        return "No tool was called."
    return "\n\n".join(
        f"Call {number}:\n\n"
        + _shown({"tool": call.name, "arguments": dict(call.arguments), "result": call.result})
        for number, call in enumerate(tools, start=1)
    )


def _shown(value: Json) -> str:
    text = value if isinstance(value, str) else canonical_json(value)
    return fenced(clipped(text, LONGEST_SHOWN))
