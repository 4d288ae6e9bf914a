"""The contract between a run, a black-box agent and the delivery of its texts; faults of agents."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import Protocol, runtime_checkable

import attrs

from promptgraft import errors
from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.evals.types import Message, ToolUse
from promptgraft.ground.content import Content, File, files_in
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import place_of
from promptgraft.ground.serde import Json, canonical_json, shown
from promptgraft.ground.strict.checks import STRING, instance, money
from promptgraft.ground.text import clip_line, message_of
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import Session, SessionProtocol

_COST = money(0).or_none
_NO_STATE: Mapping[str, Json] = FrozenMap()


def _as_tools(tools: Iterable[ToolUse] | None) -> tuple[ToolUse, ...] | None:
    tools_object: object = tools
    if tools_object is None:
        return None
    if not isinstance(tools_object, (list, tuple)) or not all(
        isinstance(tool, ToolUse) for tool in tools_object
    ):
        raise errors.ConfigError(f"tools: expected a list of ToolUse, found {shown(tools_object)}")
    return tuple(tools_object)


def _as_cost(cost: Decimal | float | None) -> Decimal | None:
    _COST.hold("cost", cost)
    return _COST.fits(cost)


@attrs.frozen(kw_only=True)
class AgentAnswer:
    """The answer of an agent to one query.

    Attributes:
        text: the final answer.
        output: the answer as data; None if it is text only.
        tools: the tools that it called, in order; None if it does not report them.
        usage: tokens, if it counts them.
        cost: US dollars; None if unknown.
        counted: whether its calls of models are already in the session of the call.

    Raises:
        ConfigError: a field has the wrong type.
    """

    text: str = attrs.field(validator=STRING)
    output: object = attrs.field(default=None, hash=False)
    tools: tuple[ToolUse, ...] | None = attrs.field(default=None, converter=_as_tools)
    usage: Usage = attrs.field(default=NO_USAGE, validator=instance(Usage))
    cost: Decimal | None = attrs.field(default=None, converter=_as_cost)
    counted: bool = False


def answer_of_data(data: Json, tools: tuple[ToolUse, ...] | None = None) -> AgentAnswer:
    """Return plain data as an answer: a text as it is, everything else also as JSON."""
    if isinstance(data, str):
        return AgentAnswer(text=data, tools=tools)
    return AgentAnswer(text=canonical_json(data), output=data, tools=tools)


@attrs.frozen(kw_only=True)
class PastTurn:
    """A completed turn of a conversation: the user's message and the agent's answer."""

    query: str
    answer: str


@attrs.frozen(kw_only=True)
class AgentCall:
    """What an agent is given besides its query.

    Attributes:
        texts: the texts of the candidate, by name.
        folder: folder with the candidate's files; None if the delivery uses no files.
        example: id of the case.
        session_id: the same for all turns of one rollout; unique among rollouts.
        turn: number of the turn, from 0.
        history: the previous turns.
        context: messages before the first turn, as given by the case.
        state: initial state of the session.
        deadline: the time limit; None for no limit.
        session: pass it to promptgraft adapters that the agent calls, so that they are counted.
        content: the query with its images and files, whose names the text of the query has.
        input: the query as data: a text, or an object with its fields; images and files by name.
    """

    texts: Mapping[str, str]
    folder: Path | None = None
    example: str = ""
    session_id: str = ""
    turn: int = 0
    history: tuple[PastTurn, ...] = ()
    context: tuple[Message, ...] = ()
    state: Mapping[str, Json] = attrs.field(default=_NO_STATE, hash=False)
    deadline: Deadline | None = None
    session: SessionProtocol = attrs.field(factory=Session, repr=False, eq=False)
    content: Content = ()
    input: Json = attrs.field(default="", hash=False)

    @property
    def files(self) -> tuple[File, ...]:
        """The images and files of the query."""
        return tuple(files_in(self.content))


@runtime_checkable
class Agent(Protocol):
    """Something that answers queries; ``ask`` must be thread-safe."""

    @property
    def name(self) -> str:
        """Its name in messages and reports, without secrets: ``agent.call``, an address."""
        ...

    @property
    def identity(self) -> str:
        """Name and version, without secrets; must change when its answers may change."""
        ...

    @property
    def reports_tools(self) -> bool:
        """Whether its answers list the tools that were called."""
        ...

    def check(self, delivery: str, names: Collection[str]) -> None:
        """Check, without calling it, that the texts reach it.

        Args:
            delivery: ``Delivery.kind`` of the delivery; ``argument`` without one.
            names: the names of the texts.

        Raises:
            ConfigError: they do not.
        """
        ...

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        """Answer one query.

        Raises:
            AgentFaultError: it failed, and the texts may be the cause.
            TransientProviderError: it was unreachable or ran out of time; leaves the rollout
                unscored.
            PermanentProviderError: it will refuse every query.
            LimitReachedError: the deadline has passed or the run was cancelled.
        """
        ...


class Delivery(Protocol):
    """Delivers the texts of a candidate to an agent; thread-safe."""

    @property
    def kind(self) -> str:
        """``argument`` and ``request`` for texts in the call, ``folder`` and ``live`` for files."""
        ...

    def opened(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context for one run, entered before its first rollout; may be nested.

        Leaving it restores or removes whatever the delivery changed. Outside of it, only deliveries
        that have nothing to restore accept texts.

        Args:
            folder: the folder of the run; the delivery keeps its files below it.

        Raises:
            ConfigError: texts cannot be delivered now.
        """
        ...

    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> AbstractContextManager[Path | None]:
        """Return a context in which the agent finds ``texts``, for all turns of one rollout.

        Yields the folder that holds the texts, or None if they are passed in the call.

        Entering it may block until rollouts of other candidates have ended. So enter it in a worker
        thread, never in an event loop; hold no lock that other rollouts need; and do not nest it,
        because the inner context would wait for the outer one.

        Args:
            texts: the text of every source, by name.
            deadline: limits the wait.

        Raises:
            ConfigError: the texts cannot be delivered.
            LimitReachedError: the deadline has passed, or the run was cancelled.
        """
        ...


LONGEST_SHOWN = 400
"""Characters of an agent's error message that the reflector is shown."""

_BAD, _TOO_MANY = 400, 429
_OTHER_LOOP = re.compile(r"different (?:event )?loop\b|^Event loop is closed")


def fault_of(error: BaseException, name: str) -> errors.PromptEvaluationError:
    """Return the error for an exception raised by an agent's code.

    Connection errors, timeouts, and the HTTP statuses 429 and 5xx leave the rollout unscored; use
    of a client from several event loops ends the run; everything else is the agent's fault.
    """
    text = error_text(error)
    if _crosses_event_loops(error):
        return errors.PermanentProviderError(
            f"agent `{name}` raised {text}: its calls share a client, but not an event loop; write "
            "the agent as `async def` and await the client, or make the client in each call"
        )
    if errors.status_of(error) == _TOO_MANY:
        return errors.RateLimitedError(f"agent `{name}` raised {text}")
    if errors.lasting_of(error) is errors.Lasting.TRANSIENT:
        return errors.TransientProviderError(f"agent `{name}` raised {text}")
    # The reflector reads this message; names of modules and cases would mean nothing to it.
    return errors.AgentFaultError(f"the agent raised {text}", place=place_of(error))


def refusal_of(name: str, status: int, message: str) -> errors.PromptEvaluationError:
    """Return the error for an HTTP status other than success.

    Args:
        name: the agent.
        status: the status.
        message: the body of the reply, in one line without secrets.
    """
    what = f"status {status}{f': {message}' if message else ''}"
    if status == _TOO_MANY:
        return errors.RateLimitedError(f"agent `{name}` answered with {what}")
    lasting = errors.lasting_of_status(status)
    if lasting is errors.Lasting.TRANSIENT:
        return errors.TransientProviderError(f"agent `{name}` answered with {what}")
    if status < _BAD:
        return errors.PermanentProviderError(
            f"agent `{name}` answered with the redirect {status}, which is not followed; "
            "give the address that it leads to"
        )
    if lasting is errors.Lasting.PERMANENT:
        return errors.PermanentProviderError(
            f"agent `{name}` refuses with {what}; check its `url` and `headers`"
        )
    return errors.AgentFaultError(f"the agent answered with {what}")


def error_text(error: BaseException) -> str:
    """Return the class of an exception and its shortened message, in one line without secrets."""
    text = clip_line(message_of(error), LONGEST_SHOWN)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _crosses_event_loops(error: BaseException | None) -> bool:
    """Return whether asyncio refused an object of another loop, under what SDKs make of that."""
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return any(
        isinstance(cause, RuntimeError) and _OTHER_LOOP.search(str(cause)) for cause in causes
    )


def too_late(name: str, seconds: float | None) -> errors.TransientProviderError:
    """Return the error for a query that exceeded its ``timeout``."""
    return errors.TransientProviderError(
        f"agent `{name}` did not answer within {seconds or math.inf:g} s, its `timeout`"
    )
