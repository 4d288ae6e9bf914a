"""The contract between a black-box agent, what hands the texts of a candidate to it, and a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import attrs

from promptgraft.adapters.base import NO_USAGE, Usage
from promptgraft.evals.types import ToolUse
from promptgraft.frozenmap import FrozenMap
from promptgraft.runtime.deadline import Deadline
from promptgraft.serde import Json

_NO_STATE: Mapping[str, Json] = FrozenMap()


@attrs.frozen(kw_only=True)
class AgentAnswer:
    """What an agent answered to one query.

    Attributes:
        text: the final answer.
        output: the same as data; None when it is text only.
        tools: the tools that it called, in order; None when it does not say.
        usage: tokens, if it counts them.
        cost: US dollars; None when that is not known.
    """

    text: str
    output: object = None
    tools: tuple[ToolUse, ...] | None = None
    usage: Usage = NO_USAGE
    cost: Decimal | None = None


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
        state: what the session begins with.
        deadline: until when; None without a limit.
    """

    texts: Mapping[str, str]
    folder: Path | None = None
    example: str = ""
    session_id: str = ""
    turn: int = 0
    history: tuple[PastTurn, ...] = ()
    state: Mapping[str, Json] = _NO_STATE
    deadline: Deadline | None = None


class Agent(Protocol):
    """Something that answers queries; ``ask`` is called from several threads at the same time."""

    @property
    def identity(self) -> str:
        """Name and version, without secrets; equal as long as its answers may be."""
        ...

    @property
    def reports_tools(self) -> bool:
        """Whether its answers say which tools were called."""
        ...

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        """Answer one query.

        Raises:
            CandidateError: the agent failed in a way that the texts may be at fault for.
            TransientProviderError: it could not be reached, or had no time: unscored.
            PermanentProviderError: it refuses for good.
            LimitReachedError: the deadline has passed or the run was cancelled.
        """
        ...


class Delivery(Protocol):
    """Hands the texts of a candidate to an agent; used from several threads at the same time."""

    def deliver(self, texts: Mapping[str, str]) -> AbstractContextManager[Path | None]:
        """Return a context in which the agent finds ``texts``, for one rollout.

        Yields the folder that holds them, or None where they travel with the call.
        """
        ...
