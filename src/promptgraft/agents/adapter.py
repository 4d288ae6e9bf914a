"""Black-box agents as prompts: the adapter that plays the turns of a case, and the rehearsal."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import attrs

from promptgraft.adapters.abilities import check_opening
from promptgraft.adapters.base import (
    ModelCalled,
    PromptExecuted,
    PromptResponse,
    ProviderAdapter,
    ToolInvoked,
    adapter_identity,
    check_adapter,
    evaluated,
)
from promptgraft.agents.call import Agent, AgentAnswer, AgentCall, Delivery, PastTurn
from promptgraft.agents.defaults import AGENTS_NS, DEFAULT_TURNS, OnAgentError
from promptgraft.agents.delivery import InCall
from promptgraft.agents.python import as_agent
from promptgraft.agents.templates import Templated
from promptgraft.agents.user import UserReply, asked_of_user, next_message
from promptgraft.errors import (
    AgentFaultError,
    CallerError,
    ConfigError,
    LimitReachedError,
    PermanentProviderError,
    ProviderError,
    RejectedRequestError,
)
from promptgraft.evals.attempt import plain_output
from promptgraft.evals.spending import Role, Spending, spent_on
from promptgraft.evals.types import Answer, Case, TurnAnswered
from promptgraft.ground.content import Content, Input, cut_at, files_in, is_content, named
from promptgraft.ground.folders import temporary_folder
from promptgraft.ground.serde import canonical_json, digest_text, shown
from promptgraft.ground.strict.checks import COUNT, money, one_of
from promptgraft.prompt.answers import answer_text
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import Placeholders, TextsPrompt, texts_in
from promptgraft.runtime.calls import AGENT, Bound, Places
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import NOTHING, Charge, Session, SessionProtocol, Watch, places_of
from promptgraft.targets.texts import as_texts

OutputT = TypeVar("OutputT")

_MOST_CALLS = 3
"""Most cases that a rehearsal tries."""


@attrs.frozen(kw_only=True)
class AgentAdapter:
    """Answers cases by calling an agent; the only parameter of the prompt is the case.

    Attributes:
        agent: the agent.
        names: the names of its texts.
        delivery: delivers the texts.
        on_agent_error: the effect of a failure of the agent.
        user: the model that plays the user of a ``conversation_scenario``.
        max_turns: limit on the turns of such a conversation.
        question: the prompt for that model.
        max_call_cost: the most US dollars that one call can cost, for answers that report no cost
            and for those that are lost; None if that is not known.
    """

    kept_whole: ClassVar[bool] = False

    agent: Agent
    names: tuple[str, ...]
    delivery: Delivery = attrs.field(factory=InCall)
    on_agent_error: OnAgentError = "zero"
    user: ProviderAdapter | None = None
    max_turns: int = DEFAULT_TURNS
    question: Prompt[UserReply] = attrs.field(factory=asked_of_user)
    max_call_cost: Decimal | None = None

    @property
    def agent_name(self) -> str:
        """The name under which the agent's calls are counted."""
        return self.agent.name

    @property
    def own_functions(self) -> Mapping[str, object]:
        """The agent, which a fingerprint identifies by its code."""
        return {"agent": self.agent}

    @property
    def missing_cost(self) -> str:
        """What to add so that the cost of a call is known; only functions report it."""
        if self.max_call_cost is not None or not isinstance(self.agent, Templated):
            return ""
        return "give the agent its `max_call_cost`, in US dollars, or leave max_cost out"

    @property
    def unknown_cost(self) -> str:
        """Which calls of the agent have no known cost; empty if each has a bound."""
        if self.max_call_cost is not None:
            return ""
        return (
            f"max_cost: a call in which the agent `{self.agent.name}` fails has no known cost, and "
            "ends the run; give the agent its `max_call_cost`"
        )

    @property
    def missing_tokens(self) -> str:
        """Which tokens of the agent ``max_tokens`` does not see."""
        if isinstance(self.agent, Templated):
            return (
                f"max_tokens does not see the tokens of the agent `{self.agent.name}`: services "
                "and commands report none; limit them by `max_cost` and the agent's `max_call_cost`"
            )
        return (
            f"max_tokens sees tokens of the agent `{self.agent.name}` only if it returns "
            "`AgentAnswer(usage=...)`, or passes `call.session` to its adapters"
        )

    @property
    def reports_tools(self) -> bool:
        """Whether the agent reports the tools that it called."""
        return self.agent.reports_tools

    def most_turns(self, case: Case) -> int:
        """Return the largest number of turns that a case may take."""
        return self.max_turns if case.scenario is not None else max(1, len(case.turns))

    def check_case(self, case: Case) -> None:
        """Raise ``ConfigError`` for a case that cannot be played."""
        file = next(files_in([case.input, case.turns]), None)
        if file is not None and not getattr(self.agent, "takes_files", True):
            raise ConfigError(
                f"the agent `{self.agent.name}` is told only the name of {file.name}; give it "
                "`{content}` or `{files}` in its request, or let the function take `(query, call)` "
                "and read `call.files`"
            )
        if isinstance(self.agent, Templated):
            # A simulated user writes texts.
            messages = ("",) if case.scenario is not None else _messages_of(case)
            for message in messages:
                self.agent.check_message(named(message))
        if case.scenario is not None and self.user is None:
            raise ConfigError(
                "a `conversation_scenario` is played by a simulated user; name its model: `user` "
                "under `models` of a project, `user=` of BlackBox"
            )

    @property
    def identity(self) -> str:
        """The name of the agent; a run records its version among its functions."""
        if self.user is None:
            return f"agent {self.agent.name}"
        is_stored = self.question.overrides_store is not None
        question_digest = (
            f" {digest_text(self.question.with_placeholders().text)[:12]}" if is_stored else ""
        )
        return f"agent {self.agent.name}, user {adapter_identity(self.user)}{question_digest}"

    @property
    def first_call(self) -> str:
        """What :meth:`rehearse` asks, for the plan of a run."""
        return (
            f"agent `{self.agent.name}` is asked the first turn of one case before the run, of "
            f"{_MOST_CALLS} if it fails"
        )

    def rehearse(
        self,
        prompt: Prompt[object],
        cases: Iterable[Case],
        *,
        watch: Watch,
        deadline: Deadline | None,
    ) -> tuple[Spending, ...]:
        # With "zero", faults arrive here as AgentFaultError.
        lenient = attrs.evolve(self, on_agent_error="zero", user=None)
        spent: list[Spending] = []
        error: AgentFaultError | ProviderError | None = None
        for case in list(cases)[:_MOST_CALLS]:
            turn = _first_turn(prompt, case)
            tags = {"scope": "rehearsal", "example": case.id}
            session = watch.session(tags=tags, deadline=deadline)
            try:
                watch.call(evaluated, lenient, turn, session=session, deadline=deadline)
            # Another case would be refused as well.
            except PermanentProviderError:
                raise
            except (AgentFaultError, ProviderError) as fault:
                error, failed = fault, case
            else:
                error = None
            spent += spent_on(Role.TASK, session.select_all(object), self.identity)
            if error is None:
                return tuple(spent)
        if isinstance(error, AgentFaultError):
            when = "on every case tried before the run, last on"
            raise _failed(self, failed, error, when) from error
        if error is not None:
            raise error
        return tuple(spent)

    def opened(self, folder: Path) -> AbstractContextManager[None]:
        """Return a context for one run: see :meth:`Delivery.opened`."""
        return self.delivery.opened(folder)

    def check_opening(self) -> None:
        """Raise a ``ConfigError`` if the texts could not be delivered now."""
        check_opening(self.delivery)

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        """Play the turns of the case.

        Raises:
            AgentFaultError: the agent failed, and the texts may be the cause.
            ProviderError, LimitReachedError: the agent was unreachable, or time ran out.
            CallerError: the agent failed, and ``on_agent_error`` is ``stop``.
            ConfigError: ``prompt`` is not the agent's, or is not bound to a case.
        """
        if deadline is not None:
            deadline.check()
        texts = texts_in(prompt.render(session))
        case = self._case_of(prompt, texts)
        with self.delivery.deliver(texts, deadline=deadline) as folder:
            call = AgentCall(
                texts=texts,
                folder=folder,
                example=case.id,
                # New for each rollout, also on resume: an agent that keeps sessions must not
                # continue an old one.
                session_id=uuid.uuid4().hex,
                context=case.context,
                state=case.state,
                deadline=deadline,
                session=session,
            )
            places = places_of(session)
            turns = None if places is None else places.within(AGENT)
            answer = _Playing(self, case, call, turns).play()
        response = PromptResponse(text=answer.text, output=answer.output, usage=answer.usage)
        session.dispatch(PromptExecuted(response=response))
        return cast("PromptResponse[OutputT]", response)

    def _case_of(self, prompt: Prompt[OutputT], texts: Mapping[str, str]) -> Case:
        # A reflection prompt ends up here if the context has no other adapter for it.
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
            f"{self.identity}: expected the case as the only parameter, found "
            f"{shown(prompt.params)}; leave `params` out"
        )


@attrs.frozen
class _Playing:
    """One session of the agent: the turns of a case in one rollout."""

    adapter: AgentAdapter
    case: Case
    call: AgentCall
    turns: Places | None

    def play(self) -> AgentAnswer:
        """Ask turn by turn and return the last answer."""
        case, history = self.case, list[PastTurn]()
        is_alone = not case.turns and case.scenario is None
        message: Input = _messages_of(case)[0]
        while True:
            query = text_of_query(message)
            answer = self.ask(query, tuple(history), message)
            if is_alone:
                return answer
            judged = Answer(
                text=answer.text,
                output=plain_output(answer.output),
                tools=answer.tools or (),
                usage=answer.usage,
                cost=answer.cost,
            )
            self.call.session.dispatch(TurnAnswered(query=query, answer=judged))
            history.append(PastTurn(query=query, answer=answer.text))
            message = self.next_query(history)
            if not message:
                return answer

    def next_query(self, history: Sequence[PastTurn]) -> str | Content:
        """Return the user's next message; empty if the conversation is over."""
        turns, scenario, user = self.case.turns, self.case.scenario, self.adapter.user
        if turns:
            return turns[len(history)].user if len(history) < len(turns) else ""
        if scenario is None or user is None or len(history) >= self.adapter.max_turns:
            return ""
        return next_message(user, self.adapter.question, (scenario, history), self.call.session)

    def ask(self, query: str, history: tuple[PastTurn, ...], message: Input) -> AgentAnswer:
        call = attrs.evolve(
            self.call,
            turn=len(history),
            history=history,
            content=_content_of(message, query),
            input=named(message),
        )
        budget = call.session.budget
        if budget is not None:
            budget.reserve(NOTHING)  # raises if the budget is exhausted
        if call.deadline is not None:
            call.deadline.check()
        began = time.perf_counter()
        calls_before = len(call.session.select_all(ModelCalled))
        try:
            with self._noted(query):
                answer = self.adapter.agent.ask(query, call)
        except (AgentFaultError, ProviderError, LimitReachedError) as error:
            # No call counts twice whose own calls have charged the session. A request that may not
            # have arrived counts only if its most is known; a function has run in any case, and
            # goes on when its time is over.
            was_charged = len(call.session.select_all(ModelCalled)) > calls_before
            is_request = isinstance(self.adapter.agent, Templated)
            has_run = isinstance(error, AgentFaultError) or not is_request
            is_known = isinstance(error, ProviderError) and self.adapter.max_call_cost is not None
            if not was_charged and (has_run or is_known):
                self._pay(AgentAnswer(text=""), time.perf_counter() - began)
            if isinstance(error, AgentFaultError):
                raise self._refused(error, call) from error
            raise
        # Agents may hand on the text of their model as it is.
        answer = attrs.evolve(answer, text=answer_text(answer.text))
        # Its adapters have charged the session already; charging again would double the cost.
        if not answer.counted:
            self._pay(answer, time.perf_counter() - began)
        return answer

    @contextlib.contextmanager
    def _noted(self, query: str) -> Iterator[None]:
        """Note a call before it is made: if the process dies before its end, it is lost.

        Calls that the agent makes in the session meanwhile are within its place.
        """
        session, turns = self.call.session, self.turns
        if turns is None or not isinstance(session, Session):
            yield
            return
        adapter, place, outer = self.adapter, turns.next(), session.calls
        bound = Bound(
            model=adapter.agent.name, input_tokens=0, output_tokens=0, cost=adapter.max_call_cost
        )
        turns.kept.sent(place, digest_text(f"{adapter.agent.name}:{query}"), bound)
        session.calls = turns.within(place.rpartition(".")[2])
        try:
            yield
        except (AgentFaultError, ProviderError):
            turns.kept.settle(place)
            raise
        finally:
            session.calls = outer

    def _pay(self, answer: AgentAnswer, seconds: float) -> None:
        """Dispatch the tool calls and the call itself to the session, and charge its budget."""
        cost = self.adapter.max_call_cost if answer.cost is None else answer.cost
        for use in answer.tools or ():
            self.call.session.dispatch(
                ToolInvoked(name=use.name, params=dict(use.arguments), result=use.result)
            )
        self.call.session.dispatch(
            ModelCalled(
                model=self.adapter.agent.name,
                requests=1,
                usage=answer.usage,
                cost=cost,
                seconds=seconds,
            )
        )
        if (budget := self.call.session.budget) is not None:
            spent = answer.usage.input_tokens + answer.usage.output_tokens
            budget.pay(Charge(cost=cost or NOTHING.cost, tokens=spent))

    def _refused(
        self, error: AgentFaultError, call: AgentCall
    ) -> AgentFaultError | RejectedRequestError | CallerError:
        if self.adapter.on_agent_error == "zero":
            return error
        turn = f", turn {call.turn + 1}" if self.case.turns else ""
        name = self.adapter.agent.name
        message = f"agent `{name}` on case `{self.case.id}`{turn}: {error.located}"
        if self.adapter.on_agent_error == "unscored":
            # The error that leaves a rollout unscored and does not end the run.
            return RejectedRequestError(message)
        where = f"{self.case.origin}: " if self.case.origin else ""
        return CallerError(f"{where}{message}")


MAX_CALL_COST = money(texts=True)
"""What one call of an agent can cost."""


def _as_dollars(amount: Decimal | float | str | None) -> Decimal | None:
    MAX_CALL_COST.or_none.hold("max_call_cost", amount)
    return MAX_CALL_COST.or_none.fits(amount)


@attrs.frozen
class BlackBox:
    """Named texts of an agent that can only be called.

    Combines a prompt of plain sections, which is bound to a case, with an adapter that calls the
    agent; a run accepts it in place of a prompt. Cases need no ``params``.

    Attributes:
        texts: the texts by name. Every character is literal.
        agent: a function, or an agent such as ``HttpAgent``.
        delivery: delivers the texts; by default they are passed in the call.
        ns: namespace of the prompt.
        key: key of the prompt.
        placeholders: strings that texts must keep; see ``Texts``.
        frozen: names of texts that are delivered but never changed.
        on_agent_error: the effect of an agent's failure on its rollout: ``zero`` scores 0,
            ``unscored`` leaves it without a score, ``stop`` ends the run.
        user: the model that plays the user of cases with a ``conversation_scenario``.
        max_turns: limit on the turns of such a conversation.
        max_call_cost: the most US dollars that one call can cost, for answers that report no cost,
            for calls that fail, and for those that are lost when a process is killed; None if that
            is not known.
        prompt: the prompt, with one section per text.
        adapter: calls the agent.

    Raises:
        ConfigError: an argument is invalid, or the texts do not reach the agent.
        InvalidIdentifierError: a name, ``ns`` or ``key`` is not an identifier.
        PromptDefinitionError: a text does not contain its placeholder.
    """

    texts: Mapping[str, str] = attrs.field(converter=as_texts)
    agent: Agent | Callable[..., Any] = attrs.field(kw_only=True)
    delivery: Delivery = attrs.field(factory=InCall, kw_only=True)
    ns: str = attrs.field(default=AGENTS_NS, kw_only=True)
    key: str = attrs.field(default="agent", kw_only=True)
    placeholders: Placeholders = attrs.field(default=(), kw_only=True)
    frozen: tuple[str, ...] = attrs.field(default=(), converter=tuple, kw_only=True)
    on_agent_error: OnAgentError = attrs.field(
        default="zero", validator=one_of("zero", "unscored", "stop"), kw_only=True
    )
    user: ProviderAdapter | None = attrs.field(default=None, kw_only=True)
    max_turns: int = attrs.field(default=DEFAULT_TURNS, validator=COUNT, kw_only=True)
    max_call_cost: Decimal | None = attrs.field(default=None, converter=_as_dollars, kw_only=True)
    prompt: Prompt[object] = attrs.field(init=False, repr=False)
    adapter: ProviderAdapter = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        agent = as_agent(self.agent)
        if self.user is not None:
            check_adapter(self.user, "user")
        agent.check(self.delivery.kind, tuple(self.texts))
        prompt = TextsPrompt.of(
            self.texts,
            ns=self.ns,
            key=self.key,
            placeholders=self.placeholders,
            frozen=self.frozen,
            takes_cases=True,
        )
        adapter = AgentAdapter(
            agent=agent,
            names=tuple(self.texts),
            delivery=self.delivery,
            on_agent_error=self.on_agent_error,
            user=self.user,
            max_turns=self.max_turns,
            max_call_cost=self.max_call_cost,
        )
        object.__setattr__(self, "prompt", prompt)
        object.__setattr__(self, "adapter", adapter)


def text_of_query(input_value: Input) -> str:
    """Return what is asked as text, with the names of images and files."""
    query = named(input_value)
    return query if isinstance(query, str) else canonical_json(query)


def _messages_of(case: Case) -> tuple[Input, ...]:
    """Return what the user says in each turn of a case without a scenario."""
    return tuple(turn.user for turn in case.turns) or (case.input,)


def _content_of(source: Input, query: str) -> Content:
    """Return a query with its images and files, in the place of their names if it is data."""
    return tuple(source) if is_content(source) else cut_at(query, files_in(source))


def _first_turn(prompt: Prompt[object], case: Case) -> Prompt[object]:
    """Return the prompt bound to the first turn of a case alone, which needs no simulated user."""
    return prompt.bind(attrs.evolve(case, input=_messages_of(case)[0], turns=(), fields={}))


def probe(
    adapter: AgentAdapter, prompt: Prompt[object], case: Case, session: Session
) -> PromptResponse[object]:
    """Ask an agent the first turn of a case once, with the texts of the source.

    Raises:
        CallerError: it failed; with file and line of the user's code.
        ProviderError: it was unreachable.
    """
    lenient = attrs.evolve(adapter, on_agent_error="zero", user=None)
    with temporary_folder() as folder, adapter.opened(folder):
        try:
            return evaluated(lenient, _first_turn(prompt, case), session=session)
        except AgentFaultError as error:
            raise _failed(adapter, case, error, "on") from error


def _failed(adapter: AgentAdapter, case: Case, error: AgentFaultError, when: str) -> CallerError:
    where = f"{case.origin}: " if case.origin else ""
    return CallerError(
        f"{where}agent `{adapter.agent.name}` failed {when} `{case.id}`: {error.located}; "
        "fix it first"
    )
