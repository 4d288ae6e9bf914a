"""The parameters of the prompts of judges, and the replies that they ask for.

Text from cases and models is bound as a fenced value and never formatted into a template.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import attrs

from promptgraft.evals.metrics.base import LONGEST_SHOWN
from promptgraft.evals.types import Answer, Case, Message, Speaker, ToolUse
from promptgraft.ground.content import in_words, named
from promptgraft.ground.serde import Json, canonical_json
from promptgraft.ground.text import clip, fenced
from promptgraft.prompt.fields import Described


class VoidReplyError(ValueError):
    """A reply does not hold a judgement."""


class Category(StrEnum):
    """How an answer compares with its reference."""

    CORRECT = "correct"
    PARTLY = "partly"
    WRONG = "wrong"


class Met(StrEnum):
    """Whether a rubric is met."""

    YES = "yes"
    NO = "no"


@attrs.frozen(kw_only=True)
class CategoryReply:
    """A category for an answer, after the reason for it."""

    reason: Annotated[
        str, Described("What agrees with the reference, what differs, what is missing.")
    ]
    category: Annotated[
        Category,
        Described(
            "The category.",
            values={
                "correct": "Says the same as the reference, in whatever words.",
                "partly": "Right as far as it goes, but something of the reference is missing.",
                "wrong": "Contradicts the reference or does not answer the question.",
            },
        ),
    ]


@attrs.frozen(kw_only=True)
class RubricReply:
    """The answer to one rubric, after the reason for it."""

    id: Annotated[str, Described("The id of the rubric, as it is given.")]
    reason: Annotated[str, Described("What of the material meets the rubric, or fails to.")]
    met: Annotated[Met, Described("Whether the rubric is met.")]


@attrs.frozen(kw_only=True)
class RubricsReply:
    """One answer for each rubric."""

    rubrics: Annotated[
        tuple[RubricReply, ...], Described("One item for each rubric, none left out, none twice.")
    ]


def checked_reason(reason: str, what: str) -> str:
    """Return the stripped reason of a judge; an empty one makes its reply void."""
    if reason.strip():
        return reason.strip()
    raise VoidReplyError(f"{what} has no reason; say what you found")


@attrs.frozen(kw_only=True)
class Material:
    """What a judge is shown, each text fenced; a text that is not shown is empty.

    Attributes:
        earlier: the conversation before the question.
        tools: tool calls with their results.
    """

    question: str
    earlier: str
    reference: str
    answer: str
    tools: str = ""
    rubrics: str = ""


@attrs.frozen(kw_only=True)
class Refused:
    """The previous reply, fenced, and why it could not be used; empty at the first attempt."""

    problem: str = ""
    previous: str = ""


def material_of(case: Case, answer: Answer, *, tools: bool = False, rubrics: str = "") -> Material:
    """Return what a judge is shown; ``rubrics`` are already fenced."""
    return Material(
        question=_shown(named(case.input)),
        earlier="\n\n".join(
            f"{message.speaker}:\n\n{_shown(in_words(message.text))}" for message in _earlier(case)
        ),
        reference="" if case.expected is None else _shown(case.expected),
        answer=_shown(answer.text if answer.text or answer.output is None else answer.output),
        tools=_calls(answer.tools) if tools else "",
        rubrics=rubrics,
    )


def _earlier(case: Case) -> list[Message]:
    messages = list(case.context)
    for turn in case.turns[:-1]:
        messages.append(Message(Speaker.USER, turn.user))
        # The expected answers stand for those of the assistant, which the case does not hold.
        if turn.expected is not None:
            messages.append(Message(Speaker.ASSISTANT, turn.expected))
    return messages


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
    return fenced(clip(text, LONGEST_SHOWN))
