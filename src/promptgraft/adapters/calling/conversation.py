"""Asking a model until it has answered, with the tools that it wants to be called between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from promptgraft.adapters.base import (
    NO_USAGE,
    PromptExecuted,
    PromptResponse,
    ToolInvoked,
    Usage,
    answered,
)
from promptgraft.adapters.calling.turns import Finish, ToolAnswer, ToolRequest, Turn, Wire
from promptgraft.errors import (
    DataFormatError,
    EmptyAnswerError,
    LimitReachedError,
    OutputError,
    ProviderError,
    RefusedAnswerError,
    ToolRoundsError,
    TruncatedAnswerError,
)
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject
from promptgraft.prompt.wording import own_names
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import (
    Json,
    canonical_json,
    did_you_mean,
    parse_json,
    shown,
    structure,
    unstructure,
)

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


@attrs.frozen(kw_only=True)
class Called:
    """What came of a call.

    Attributes:
        output: the result as plain data; None when the call failed.
        error: why it failed, in one line; empty when it did not.
    """

    output: Json = None
    error: str = ""


def call_tool(tool: RenderedTool, given: Json, session: SessionProtocol) -> Called:
    """Call a tool in this thread and dispatch ``ToolInvoked``.

    Parameters that do not fit, a handler that raises and a result that JSON cannot hold make
    a call that failed.

    Args:
        tool: the tool.
        given: the parameters, by their names or aliases.
        session: is told of the call.

    Raises:
        ProviderError, LimitReachedError: the handler ran into them.
    """
    params: object = given
    result: object = None
    called = Called()
    try:
        params = _fitting(tool, given)
        result, error = _handled(tool, params, session)
        called = Called(output=unstructure(result), error=error)
    except DataFormatError as unfit:
        result, called = None, Called(error=_one_line(str(unfit)))
    session.dispatch(ToolInvoked(name=tool.name, params=params, result=result, error=called.error))
    return called


def answer_request(
    request: ToolRequest, tools: Sequence[RenderedTool], session: SessionProtocol
) -> ToolAnswer:
    """Call the tool that a model asks for, and return what the model is told.

    Raises:
        ProviderError, LimitReachedError: the handler ran into them.
    """
    called = _called(request, {tool.name: tool for tool in tools}, session)
    if called.error:
        return ToolAnswer(request=request, content=called.error, failed=True)
    text = called.output if isinstance(called.output, str) else canonical_json(called.output)
    return ToolAnswer(request=request, content=text)


def _called(
    request: ToolRequest, tools: dict[str, RenderedTool], session: SessionProtocol
) -> Called:
    given: Json = request.arguments
    try:
        given = parse_json(request.arguments or "{}", where=f"{request.name}: input")
        if request.name in tools:
            return call_tool(tools[request.name], given, session)
        error = _unknown(request.name, list(tools))
    except DataFormatError as unreadable:
        error = _one_line(str(unreadable))
    session.dispatch(ToolInvoked(name=request.name, params=given, result=None, error=error))
    return Called(error=error)


def _unknown(name: str, known: list[str]) -> str:
    return f"there is no tool `{name}`{did_you_mean(name, known)}; tools: " + (
        ", ".join(known) or "none"
    )


def _fitting(tool: RenderedTool, given: Json) -> object:
    """Return parameters as an instance of their type.

    Raises:
        DataFormatError: they do not fit.
    """
    where = f"{tool.name}: input"
    kind = tool.tool.params_type
    return structure(own_names(given, kind, {}, where=where), kind, where=where)


def _handled(tool: RenderedTool, params: object, session: SessionProtocol) -> tuple[object, str]:
    """Return what the handler returned, or why it did not."""
    if tool.tool.handler is None:
        return None, "the tool has no handler"
    try:
        return awaited(tool.tool.handler(params), deadline=session.deadline), ""
    except (ProviderError, LimitReachedError):
        raise
    except Exception as error:  # noqa: BLE001 - a user's handler ends here; the model is told
        return None, _one_line(f"{type(error).__name__}: {error}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
