"""Asking a model until it has answered, with the tools that it wants to be called between."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

import attrs

from promptgraft.adapters.base import NO_USAGE, PromptExecuted, PromptResponse, Usage, answered
from promptgraft.adapters.calling.tools import answer_request
from promptgraft.adapters.calling.turns import Finish, ToolAnswer, Turn, Wire
from promptgraft.errors import (
    EmptyAnswerError,
    OutputError,
    RefusedAnswerError,
    ToolRoundsError,
    TruncatedAnswerError,
)
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import shown

OutputT = TypeVar("OutputT")

Ask = Callable[[JsonObject], Turn]
"""Sends the body of a request and returns the model's answer."""


@attrs.frozen(kw_only=True)
class Conversation:
    """How a conversation ended.

    Attributes:
        text: what the model has said at the end, paused turns included.
        last: its last turn.
        usage: tokens of all turns.
        rounds: how often it was answered.
    """

    text: str
    last: Turn
    usage: Usage
    rounds: int


def converse(
    rendered: RenderedPrompt[object],
    *,
    wire: Wire,
    ask: Ask,
    session: SessionProtocol,
    deadline: Deadline | None,
    max_tool_rounds: int,
) -> Conversation:
    """Ask a model, answer the tools that it asks for, and ask again until it is done.

    Tools are called in this thread, in the order that the model asks for them. A turn that was
    cut or refused ends the conversation, and none of its tools are called.

    Raises:
        ProviderError, LimitReachedError: ``ask``, a handler or ``deadline`` ran into them.
    """
    request = wire.open(rendered)
    usage, said = NO_USAGE, ""
    for rounds in itertools.count():
        turn = ask(request)
        usage = _sum(usage, turn.usage)
        said = said + turn.text if turn.finish is not Finish.TOOLS else ""
        goes_on = turn.finish in {Finish.TOOLS, Finish.PAUSED}
        if not goes_on or rounds == max_tool_rounds:
            break
        answers = _answers(rendered, turn, session, deadline)
        request = wire.extend(request, turn, answers)
    return Conversation(text=said or turn.text, last=turn, usage=usage, rounds=rounds)


def concluded(
    rendered: RenderedPrompt[OutputT],
    conversation: Conversation,
    *,
    read: Callable[[str], str],
    session: SessionProtocol,
) -> PromptResponse[OutputT]:
    """Return the response at the end of a conversation, and dispatch ``PromptExecuted``.

    Args:
        rendered: the prompt.
        conversation: how it ended.
        read: takes the answer out of what the provider has put around it.
        session: is told of the answer, also of one that is none.

    Raises:
        TruncatedAnswerError, RefusedAnswerError, EmptyAnswerError, ToolRoundsError: there is no
            whole answer.
        OutputError: the answer does not fit the output type.
    """
    reason = conversation.last.finish_reason
    if fault := _fault(conversation):
        response = PromptResponse[object](
            text=conversation.text, usage=conversation.usage, finish_reason=reason
        )
        session.dispatch(PromptExecuted(response=response))
        raise fault
    text = read(conversation.text)
    return answered(rendered, text, session=session, usage=conversation.usage, finish_reason=reason)


def _answers(
    rendered: RenderedPrompt[object],
    turn: Turn,
    session: SessionProtocol,
    deadline: Deadline | None,
) -> list[ToolAnswer]:
    answers = []
    for request in turn.requests:
        if deadline is not None:
            deadline.check()
        answers.append(answer_request(request, rendered.tools, session))
    return answers


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
    )


def _fault(conversation: Conversation) -> OutputError | None:
    """Return why there is no whole answer; None when there is one."""
    turn = conversation.last
    who = f"`{turn.model}`"
    match turn.finish:
        case Finish.LENGTH:
            return TruncatedAnswerError(
                f"{who} stopped after {turn.usage.output_tokens} tokens ({turn.finish_reason}) "
                "before its answer was complete; raise max_output_tokens or ask for less"
            )
        case Finish.REFUSED:
            said = f", saying {shown(conversation.text)}" if conversation.text else ""
            return RefusedAnswerError(
                f"{who} refused to answer ({turn.finish_reason}){said}; change what is asked, or "
                "the model"
            )
        case Finish.TOOLS | Finish.PAUSED:
            wanted = ", ".join(sorted({request.name for request in turn.requests}))
            return ToolRoundsError(
                f"{who} was not done after {conversation.rounds} rounds of tool calls"
                + (f" and asks for {wanted}" if wanted else "")
                + "; raise max_tool_rounds, or say in the prompt when to stop"
            )
    if not conversation.text.strip():
        return EmptyAnswerError(
            f"{who} answered without a text ({turn.finish_reason}); ask for an answer in words"
        )
    return None
