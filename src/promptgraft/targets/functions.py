"""What functions of users return, as responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from promptgraft import errors
from promptgraft.adapters.base import PromptResponse
from promptgraft.evals.histories import answer_noting_tools
from promptgraft.ground.serde import canonical_json, shown
from promptgraft.ground.text import raised
from promptgraft.runtime.companions import result_of
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

_UNFINISHED = (Awaitable, Iterator, AsyncIterator, bytes)
"""Values that would still have to be awaited, iterated over or decoded."""


def answer_of(
    function: Callable[..., Any],
    *arguments: object,
    where: str,
    session: SessionProtocol,
    deadline: Deadline | None,
    faults: tuple[type[Exception], ...] = (),
) -> PromptResponse[Any]:
    """Call a function, plain or ``async``, and return its result as a response.

    Raises:
        CandidateError: the function raised it, or one of ``faults``.
        ProviderError, LimitReachedError: the function raised it.
        CallerError: it raised something else, or returned nothing usable; begins with ``where``.
    """
    try:
        value = result_of(lambda: function(*arguments), where, deadline)
    except (errors.CandidateError, errors.ProviderError, errors.LimitReachedError):
        raise
    except errors.user_errors() as error:
        message = f"raised {' '.join(raised(error).split())}"
        if isinstance(error, faults):
            # For the reflection model, to which names of modules and examples mean nothing.
            raise errors.CandidateError(f"the program {message}") from error
        raise errors.CallerError(f"{where} {message}") from error
    return response_with(value, where, session)


def _answer(reply: Any, where: str, session: SessionProtocol) -> Any:
    try:
        return answer_noting_tools(reply, session)
    except errors.PromptgraftError:
        raise
    except errors.user_errors() as error:  # properties and methods of the reply are called
        kind, why = type(reply).__name__, " ".join(raised(error).split())
        raise errors.CallerError(
            f"{where} returned a {kind} that cannot be read, which raised {why}; return its text"
        ) from error


def response_with(value: Any, where: str, session: SessionProtocol) -> PromptResponse[Any]:
    """Return the result of a function as a response; the session is told of calls of tools in it.

    Raises:
        CallerError: the result is unusable; begins with ``where``.
    """
    if isinstance(value, PromptResponse):
        return value
    if type(value) is not str:
        value = _answer(value, where, session)
    if isinstance(value, str):
        # A string of a class of its own, such as an option of an Enum, is an object too.
        output = None if type(value) is str else value
        # `str()` of an option of an Enum may be its name instead of its value.
        return PromptResponse(text=str.__str__(value), output=output)
    if value is None or callable(value) or isinstance(value, _UNFINISHED):
        raise errors.CallerError(
            f"{where} returned {shown(value)}; return a text, an object or a PromptResponse"
        )
    try:
        text = canonical_json(value)
    except errors.DataFormatError:
        text = str(value)
    return PromptResponse(text=text, output=value)
