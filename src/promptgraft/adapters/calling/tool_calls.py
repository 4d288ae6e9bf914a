"""Calls of a tool, and what a model is told of them."""

from __future__ import annotations

import attrs

from promptgraft import errors
from promptgraft.adapters.base import ToolInvoked
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict import structure
from promptgraft.ground.text import on_one_line, raised
from promptgraft.prompt.rendered import RenderedTool
from promptgraft.prompt.schema import own_names
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import SessionProtocol


@attrs.frozen(kw_only=True)
class Called:
    """The result of a tool call as plain data, or a one-line error."""

    output: Json = attrs.field(default=None, hash=False)
    error: str = ""


def call_tool(tool: RenderedTool, arguments: Json, session: SessionProtocol) -> Called:
    """Call a tool in this thread and dispatch ``ToolInvoked``.

    Parameters are ``arguments`` by name or alias. Invalid parameters, a handler that raises, and a
    result that JSON cannot represent become an error in the result; only a ``ProviderError`` or
    ``LimitReachedError`` of the handler is raised.
    """
    where = f"{tool.name}: input"
    kind = tool.tool.params_type
    params: object = arguments
    result: object = None
    output: Json = None
    try:
        params = structure(own_names(arguments, kind, {}, where=where), kind, where=where)
        result, error = _handled(tool, params, session)
        output = unstructure(result)
    except errors.DataFormatError as unfit:
        # The model is told, as with an exception of the handler, and may call the tool again.
        result, error = None, on_one_line(str(unfit))
    session.dispatch(ToolInvoked(name=tool.name, params=params, result=result, error=error))
    return Called(output=output, error=error)


def _handled(tool: RenderedTool, params: object, session: SessionProtocol) -> tuple[object, str]:
    """Return the handler's result, or None and why it failed."""
    if tool.tool.handler is None:
        return None, "the tool has no handler"
    try:
        return awaited(tool.tool.handler(params), deadline=session.deadline), ""
    # A tool may call a model itself; its failure says nothing about this prompt.
    except (errors.ProviderError, errors.LimitReachedError):
        raise
    except errors.user_errors() as error:  # the model is told
        return None, on_one_line(raised(error))
