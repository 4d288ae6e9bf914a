"""What an exception of an agent means: its own fault, or that it could not be reached."""

from __future__ import annotations

from promptgraft.errors import (
    AgentFaultError,
    PermanentProviderError,
    PromptEvaluationError,
    RateLimitedError,
    TransientProviderError,
)
from promptgraft.functions import place_of
from promptgraft.text import clip

LONGEST_SHOWN = 400
"""Characters of what an agent says of its failure that the reflector is shown."""

_BAD, _LATE, _TOO_MANY, _SERVER_FAILED = 400, 408, 429, 500
# Where the address or the account is wrong, whatever is asked.
_FOR_GOOD = frozenset({401, 402, 403, 404, 405, 407, 410, 415})
# Base classes of what HTTP libraries and SDKs raise for a connection or a time limit; none of
# them is a ConnectionError or a TimeoutError.
_PASSING = frozenset(
    {"APIConnectionError", "ClientConnectionError", "PoolError", "TimeoutError", "TransportError"}
)


def fault_of(error: BaseException, name: str) -> PromptEvaluationError:
    """Return what becomes of an exception that an agent's code has raised.

    A refused connection, a time limit, and the statuses 429 and 5xx of an HTTP library are
    unscored; everything else is the agent's fault.
    """
    said = said_by(error)
    status = status_of(error)
    if status == _TOO_MANY:
        return RateLimitedError(f"agent `{name}` raised {said}")
    if status >= _SERVER_FAILED or _may_pass(error):
        return TransientProviderError(f"agent `{name}` raised {said}")
    # The reflector reads this, to whom names of modules and cases mean nothing.
    return AgentFaultError(f"the agent raised {said}", place=place_of(error))


def refusal_of(name: str, status: int, said: str) -> PromptEvaluationError:
    """Return what becomes of a status of HTTP that is no success.

    Args:
        name: the agent.
        status: what it answered with.
        said: what it said of that, in one line without secrets.
    """
    what = f"status {status}{f': {said}' if said else ''}"
    if status == _TOO_MANY:
        return RateLimitedError(f"agent `{name}` answered with {what}")
    if status >= _SERVER_FAILED or status == _LATE:
        return TransientProviderError(f"agent `{name}` answered with {what}")
    if status < _BAD:
        return PermanentProviderError(
            f"agent `{name}` answered with the redirect {status}, which is not followed; "
            "give the address that it leads to"
        )
    if status in _FOR_GOOD:
        return PermanentProviderError(f"agent `{name}` refuses with {what}")
    return AgentFaultError(f"the agent answered with {what}")


def said_by(error: BaseException) -> str:
    """Return the class of an exception and the beginning of what it says, in one line."""
    text = clip(" ".join(str(error).split()), LONGEST_SHOWN, around=" ")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def status_of(error: BaseException) -> int:
    """Return the HTTP status that an exception of a library tells; 0 for none."""
    response: object = getattr(error, "response", None)
    for holder in (error, response):
        for name in ("status_code", "status"):
            status: object = getattr(holder, name, None)
            if isinstance(status, int) and not isinstance(status, bool):
                return status
    return 0


def _may_pass(error: BaseException) -> bool:
    named = any(kind.__name__ in _PASSING for kind in type(error).__mro__)
    return named or isinstance(error, (ConnectionError, TimeoutError))
