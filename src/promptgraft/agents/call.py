"""The contract between a black-box agent, what hands the texts of a candidate to it, and a run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    PermanentProviderError,
    PromptEvaluationError,
    RateLimitedError,
    TransientProviderError,
)
from promptgraft.evals.types import Message, ToolUse
from promptgraft.frozenmap import FrozenMap
from promptgraft.functions import place_of
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol
from promptgraft.serde import Json, shown
from promptgraft.strict.checks import STRING, instance, money
from promptgraft.text import clip

_COST = money(0).or_none
_NO_STATE: Mapping[str, Json] = FrozenMap()


def _as_tools(tools: Iterable[ToolUse] | None) -> tuple[ToolUse, ...] | None:
    found: object = tools
    if found is None:
        return None
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, ToolUse) for one in found):
        raise ConfigError(f"tools: expected a list of ToolUse, found {shown(found)}")
    return tuple(found)


def _as_cost(cost: Decimal | float | None) -> Decimal | None:
    _COST.hold("cost", cost)
    return _COST.fits(cost)


@attrs.frozen(kw_only=True)
class AgentAnswer:
    """What an agent answered to one query.

    Attributes:
        text: the final answer.
        output: the same as data; None when it is text only.
        tools: the tools that it called, in order; None when it does not say.
        usage: tokens, if it counts them.
        cost: US dollars; None when that is not known.
        counted: whether the session of the call has its calls of models already.

    Raises:
        ConfigError: a field is something else.
    """

    text: str = attrs.field(validator=STRING)
    output: object = None
    tools: tuple[ToolUse, ...] | None = attrs.field(default=None, converter=_as_tools)
    usage: Usage = attrs.field(default=NO_USAGE, validator=instance(Usage))
    cost: Decimal | None = attrs.field(default=None, converter=_as_cost)
    counted: bool = False


@attrs.frozen(kw_only=True)
class PastTurn:
    """One turn of a conversation that is over: what the user said, and what was answered."""

    query: str
    answer: str


@attrs.frozen(kw_only=True)
class AgentCall:
    """What an agent is told besides its query.

    Attributes:
        texts: the texts of the candidate, by name.
        folder: where the candidate's files are, for deliveries that have any; None otherwise.
        example: id of the case.
        session_id: one for all turns of a case in one rollout; unique among rollouts.
        turn: number of the turn, from 0.
        history: the turns before this one.
        context: what the case says was said before the first turn.
        state: what the session begins with.
        deadline: until when; None without a limit.
        session: where an agent that asks models with adapters of promptgraft has them counted.
    """

    texts: Mapping[str, str]
    folder: Path | None = None
    example: str = ""
    session_id: str = ""
    turn: int = 0
    history: tuple[PastTurn, ...] = ()
    context: tuple[Message, ...] = ()
    state: Mapping[str, Json] = _NO_STATE
    deadline: Deadline | None = None
    session: SessionProtocol = attrs.field(factory=Session, repr=False, eq=False)


@runtime_checkable
class Agent(Protocol):
    """Something that answers queries; ``ask`` is called from several threads at the same time."""

    @property
    def name(self) -> str:
        """How messages and reports call it, without secrets: ``agent.call``, an address."""
        ...

    @property
    def identity(self) -> str:
        """Name and version, without secrets; equal as long as its answers may be."""
        ...

    @property
    def reports_tools(self) -> bool:
        """Whether its answers say which tools were called."""
        ...

    def check(self, delivery: str, names: Collection[str]) -> None:
        """Find out, without a call, whether the texts reach it.

        Args:
            delivery: ``Delivery.kind`` of what hands them over; ``argument`` without one.
            names: the names of the texts.

        Raises:
            ConfigError: they do not.
        """
        ...

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        """Answer one query.

        Raises:
            AgentFaultError: it failed in a way that the texts may be at fault for.
            TransientProviderError: it could not be reached, or had no time: unscored.
            PermanentProviderError: it refuses for good.
            LimitReachedError: the deadline has passed or the run was cancelled.
        """
        ...


class Delivery(Protocol):
    """Hands the texts of a candidate to an agent; used from several threads at the same time."""

    @property
    def kind(self) -> str:
        """``argument`` and ``request`` travel with the call, ``folder`` and ``live`` are files."""
        ...

    def opened(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context for one run, entered before its first rollout; may be nested.

        Leaving it puts back, or removes, what the delivery has made. Outside of it, texts are
        delivered only where nothing has to be put back.

        Args:
            folder: the folder of the run; what the delivery keeps is below it.

        Raises:
            ConfigError: texts cannot be delivered now.
        """
        ...

    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> AbstractContextManager[Path | None]:
        """Return a context in which the agent finds ``texts``, for one rollout with all its turns.

        Yields the folder that holds them, or None where they travel with the call.

        Entering it may block until rollouts of other candidates have ended: enter it in a
        worker's thread and never in an event loop, hold no lock that other rollouts need, and
        never enter a second one inside, which would wait for the first one.

        Args:
            texts: the text of every source, by name.
            deadline: ends the waiting.

        Raises:
            ConfigError: the texts cannot be delivered.
            LimitReachedError: the deadline has passed, or the run was cancelled.
        """
        ...


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


def sooner(deadline: Deadline | None, seconds: float) -> Deadline:
    """Return a deadline that passes after ``seconds`` at the latest."""
    if deadline is None:
        return Deadline.after(seconds)
    ends = deadline.clock.monotonic() + seconds
    return attrs.evolve(deadline, expires_at=ends) if ends < deadline.expires_at else deadline


def too_late(name: str, seconds: float | None) -> TransientProviderError:
    """Return what becomes of a query whose time limit has passed."""
    return TransientProviderError(
        f"agent `{name}` had no answer after {seconds or math.inf:g} s, its `timeout`"
    )
