"""Calls of tools on behalf of a model, and what the session and the model are told of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.adapters.base import ToolInvoked
from promptgraft.adapters.calling.turns import ToolAnswer, ToolRequest
from promptgraft.errors import DataFormatError, LimitReachedError, ProviderError
from promptgraft.prompt.rendered import RenderedTool
from promptgraft.prompt.wording import own_names
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import Json, canonical_json, did_you_mean, parse_json, structure, unstructure


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
