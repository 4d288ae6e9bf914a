"""One adapter for all agents: plays the turns of a case, and says what becomes of faults."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, TypeVar, cast

import attrs

from promptgraft.adapters.base import (
    ModelCalled,
    PromptExecuted,
    PromptResponse,
    ToolInvoked,
)
from promptgraft.agents.call import Agent, AgentAnswer, AgentCall, Delivery, PastTurn
from promptgraft.errors import (
    AgentFaultError,
    CallerError,
    ConfigError,
    RejectedRequestError,
)
from promptgraft.evals.types import Case, Turn
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import texts_in
from promptgraft.runtime.budget import NOTHING, Charge
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import canonical_json, shown

OutputT = TypeVar("OutputT")

OnAgentError = Literal["zero", "unscored", "stop"]
"""What becomes of a rollout whose agent failed: the score 0, no score, or the end of the run."""


@attrs.frozen(kw_only=True)
class AgentAdapter:
    """Answers cases by asking an agent; the one parameter of the prompt is the case.

    Attributes:
        agent: what is asked.
        names: the texts that it is asked with.
        delivery: hands the texts over; None where they travel with the call.
        on_agent_error: what becomes of a failure of the agent.
    """

    agent: Agent
    names: tuple[str, ...]
    delivery: Delivery | None = None
    on_agent_error: OnAgentError = "zero"

    @property
    def identity(self) -> str:
        """Name of the agent; its version is among the functions of a run."""
        return f"agent {self.agent.name}"

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Play the turns of the case.

        Raises:
            AgentFaultError: the agent failed, and the texts may be at fault for it.
            ProviderError, LimitReachedError: the agent could not be reached, or had no time.
            CallerError: the agent failed, where that ends the run.
            ConfigError: ``prompt`` is not that of the agent, or bound to something else.
        """
        if deadline is not None:
            deadline.check()
        texts = texts_in(prompt.render(session))
        case = self._case_of(prompt, texts)
        with self._delivered(texts, deadline) as folder:
            playing = _Playing(
                adapter=self, case=case, texts=texts, folder=folder, session=session, ends=deadline
            )
            answer = playing.play()
        response = PromptResponse(text=answer.text, output=answer.output, usage=answer.usage)
        session.dispatch(PromptExecuted(response=response))
        return cast("PromptResponse[OutputT]", response)

    def _case_of(self, prompt: Prompt[OutputT], texts: Mapping[str, str]) -> Case:
        if tuple(texts) != self.names:
            raise ConfigError(
                f"{self.identity}: expected the texts {', '.join(self.names)}, found the prompt "
                f"`{prompt.descriptor.ns}/{prompt.descriptor.key}`; give the context a "
                "reflection_adapter or another adapter"
            )
        match prompt.params:
            case (Case() as case,):
                return case
        raise ConfigError(
            f"{self.identity}: expected the case as the one parameter, found "
            f"{shown(prompt.params)}; leave `params` out"
        )

    def _delivered(
        self, texts: Mapping[str, str], deadline: Deadline | None
    ) -> AbstractContextManager[Path | None]:
        if self.delivery is None:
            return contextlib.nullcontext()
        return self.delivery.deliver(texts, deadline=deadline)


@attrs.frozen(kw_only=True)
class _Playing:
    """A case that is being played: one session of the agent."""

    adapter: AgentAdapter
    case: Case
    texts: Mapping[str, str]
    folder: Path | None
    session: SessionProtocol
    ends: Deadline | None
    id: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    def play(self) -> AgentAnswer:
        """Ask turn by turn and return the last answer."""
        turns = self.case.turns or (Turn(user=query_of(self.case)),)
        history: tuple[PastTurn, ...] = ()
        for turn in turns:
            answer = self.ask(turn.user, history)
            history = (*history, PastTurn(query=turn.user, answer=answer.text))
        return answer

    def ask(self, query: str, history: tuple[PastTurn, ...]) -> AgentAnswer:
        call = AgentCall(
            texts=self.texts,
            folder=self.folder,
            example=self.case.id,
            session_id=self.id,
            turn=len(history),
            history=history,
            context=self.case.context,
            state=self.case.state,
            deadline=self.ends,
        )
        budget = self.session.budget
        if budget is not None:
            budget.reserve(NOTHING)
        began = time.perf_counter()
        try:
            answer = self.adapter.agent.ask(query, call)
        except AgentFaultError as error:
            raise self._refused(error, call) from error
        self._note(answer, time.perf_counter() - began)
        if budget is not None:
            spent = answer.usage.input_tokens + answer.usage.output_tokens
            budget.pay(Charge(cost=answer.cost or NOTHING.cost, tokens=spent))
        return answer

    def _note(self, answer: AgentAnswer, seconds: float) -> None:
        """Say in the session what the agent did."""
        for use in answer.tools or ():
            self.session.dispatch(
                ToolInvoked(name=use.name, params=dict(use.arguments), result=use.result)
            )
        self.session.dispatch(
            ModelCalled(
                model=self.adapter.agent.name,
                requests=1,
                usage=answer.usage,
                cost=answer.cost,
                seconds=seconds,
            )
        )

    def _refused(
        self, error: AgentFaultError, call: AgentCall
    ) -> AgentFaultError | RejectedRequestError | CallerError:
        if self.adapter.on_agent_error == "zero":
            return error
        turn = f", turn {call.turn + 1}" if self.case.turns else ""
        place = f" ({error.place})" if error.place else ""
        said = f"agent `{self.adapter.agent.name}` on case `{self.case.id}`{turn}: {error}{place}"
        if self.adapter.on_agent_error == "unscored":
            return RejectedRequestError(said)
        where = f"{self.case.origin}: " if self.case.origin else ""
        return CallerError(f"{where}{said}")


def query_of(case: Case) -> str:
    """Return what a case of one turn asks, as text."""
    return case.input if isinstance(case.input, str) else canonical_json(case.input)
