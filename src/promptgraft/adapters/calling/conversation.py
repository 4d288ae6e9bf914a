"""The conversation with a model: requests and tool calls until it has answered."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from promptgraft import errors
from promptgraft.adapters.base import (
    NO_USAGE,
    PromptExecuted,
    PromptResponse,
    ToolInvoked,
    answered,
)
from promptgraft.adapters.calling.tool_calls import Called, call_tool
from promptgraft.adapters.calling.turns import Finish, ToolAnswer, ToolRequest, Turn, Wire
from promptgraft.ground.serde import (
    Json,
    canonical_json,
    did_you_mean,
    is_unicode,
    parse_json,
    shown,
)
from promptgraft.ground.text import clip, on_one_line
from promptgraft.prompt.answers import ONLY_THOUGHTS, answer_text
from promptgraft.prompt.rendered import RenderedPrompt, RenderedTool
from promptgraft.prompt.schema import JsonObject
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")

_SHOWN_NAMES = 200

Ask = Callable[[JsonObject], Turn]
"""Sends the body of a request and returns the model's turn."""


def converse(
    rendered: RenderedPrompt[OutputT],
    *,
    wire: Wire,
    ask: Ask,
    read: Callable[[str], str],
    session: SessionProtocol,
    deadline: Deadline | None,
    max_tool_rounds: int,
) -> PromptResponse[OutputT]:
    """Ask a model, call the tools that it requests, and repeat until it has answered.

    Tools are called in this thread, in the order requested. A truncated or refused turn ends the
    conversation, and none of its tools are called. ``PromptExecuted`` is dispatched even if the
    answer is incomplete. ``read`` unwraps the text of a structured answer.

    Raises a subclass of ``OutputError`` if the answer is incomplete or does not parse, and whatever
    ``ask``, a handler or ``deadline`` raises.
    """
    request = wire.open(rendered)
    usage, answer_before = NO_USAGE, ""
    for rounds in itertools.count():
        turn = ask(request)
        usage += turn.usage
        # A paused turn is a part of the answer; remarks next to tool requests are not.
        answer_before = answer_before + turn.text if turn.finish is not Finish.TOOLS else ""
        is_done = turn.finish not in {Finish.TOOLS, Finish.PAUSED}
        # Checked before the tools are called: their results could not be sent any more.
        if is_done or rounds == max_tool_rounds or (turn.requests and not rendered.tools):
            break
        answers = []
        for tool_request in turn.requests:
            if deadline is not None:
                deadline.check()
            answers.append(answer_request(tool_request, rendered.tools, session))
        request = wire.extend(request, turn, answers)
    reply, reason = answer_before or turn.text, turn.finish_reason
    text = answer_text(reply)
    if fault := _fault(turn, text, rounds, has_tools=bool(rendered.tools)):
        unread = PromptResponse[object](text=text or reply, usage=usage, finish_reason=reason)
        # Metrics and the reflector are shown what there is of an incomplete answer.
        session.dispatch(PromptExecuted(response=unread))
        raise fault
    return answered(rendered, read(text), session=session, usage=usage, finish_reason=reason)


# Calls in the templates of Hermes and Qwen, Llama, Mistral, DeepSeek, Kimi and gpt-oss.
_CALL_AS_TEXT = re.compile(
    r"\s*(?:<tool_call>|<\|python_tag\|>|\[TOOL_CALLS\]|<function[=_]|<｜tool▁call|<\|tool_call"
    r"|<\|channel\|>commentary to=)"
)


def _fault(turn: Turn, text: str, rounds: int, *, has_tools: bool) -> errors.OutputError | None:
    """Return why the answer is incomplete; None if it is complete."""
    who = f"`{turn.model}`"
    match turn.finish:
        case Finish.LENGTH:
            return errors.TruncatedAnswerError(
                f"{who} stopped after {turn.usage.output_tokens} tokens ({turn.finish_reason}) "
                "before its answer was complete; raise max_output_tokens or ask for less"
            )
        case Finish.REFUSED:
            saying = f", saying {shown(text)}" if text else ""
            return errors.RefusedAnswerError(
                f"{who} refused to answer ({turn.finish_reason}){saying}; change what is asked, or "
                "the model"
            )
        case Finish.TOOLS | Finish.PAUSED:
            names = ", ".join(sorted({request.name for request in turn.requests}))
            if names and not has_tools:
                # Not asked again: no result of a tool could be sent.
                return errors.OutputError(
                    f"{who} calls {clip(names, _SHOWN_NAMES, around=' ')}, but the prompt has no "
                    "tools; ask for an answer in words"
                )
            return errors.ToolRoundsError(
                f"{who} was not done after {rounds} rounds of tool calls"
                + (f" and asks for {names}" if names else "")
                + "; raise max_tool_rounds, or say in the prompt when to stop"
            )
    if has_tools and _CALL_AS_TEXT.match(text):
        return errors.OutputError(
            f"{who} calls a tool in its text; turn on tool calls in the server (its tool parser)"
        )
    if not text.strip() and turn.text.strip():
        return errors.EmptyAnswerError(f"{who}: {ONLY_THOUGHTS}; ask for an answer after them")
    if not text.strip():
        return errors.EmptyAnswerError(
            f"{who} answered without a text ({turn.finish_reason}); ask for an answer in words"
        )
    return None


def answer_request(
    request: ToolRequest, tools: Sequence[RenderedTool], session: SessionProtocol
) -> ToolAnswer:
    """Call the tool that a model requests, as :func:`call_tool` does, and return the reply."""
    by_name = {tool.name: tool for tool in tools}
    called = _called(request, by_name, session)
    if called.error:
        return ToolAnswer(request=request, content=called.error, failed=True)
    text = called.output if isinstance(called.output, str) else canonical_json(called.output)
    return ToolAnswer(request=request, content=text)


def _called(
    request: ToolRequest, tools: dict[str, RenderedTool], session: SessionProtocol
) -> Called:
    name = request.name
    arguments: Json = request.arguments
    try:
        arguments = parse_json(request.arguments or "{}", where=f"{name}: input")
        # Some servers send null for a tool without parameters.
        arguments = {} if arguments is None else arguments
        if name in tools and is_unicode(arguments):
            return call_tool(tools[name], arguments, session)
        names = ", ".join(tools) or "none"
        error = f"there is no tool `{name}`{did_you_mean(name, list(tools))}; tools: {names}"
        if not is_unicode(arguments):
            arguments = request.arguments
            error = f"{name}: input: a text holds half of a character (a surrogate)"
    except errors.DataFormatError as unreadable:
        error = on_one_line(str(unreadable))
    session.dispatch(ToolInvoked(name=name, params=arguments, result=None, error=error))
    return Called(error=error)
