"""Answering with a graph: running its flow, plain or ``async``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from promptgraft import errors
from promptgraft.adapters.abilities import check_serves
from promptgraft.adapters.base import PromptResponse, ProviderAdapter
from promptgraft.evals.attempt import answer_of
from promptgraft.evals.types import Conversation, Message, Speaker, TurnAnswered
from promptgraft.graphs.run import BoundNode, BranchOutcome, Run, RunSettings, under_way
from promptgraft.ground.content import in_words
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import call_fault
from promptgraft.ground.serde import HexDigest, digest_text
from promptgraft.ground.text import on_one_line, raised
from promptgraft.prompt.rendering import Resolved
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited, in_thread
from promptgraft.runtime.session import Branch, Session, SessionProtocol
from promptgraft.targets.functions import response_with
from promptgraft.targets.part import PartOf, View
from promptgraft.targets.prompts import address_of
from promptgraft.targets.types import GepaExample


class _PartDigests:
    """A cache of the digests of each prompt's parts, for its latest overrides."""

    def __init__(self) -> None:
        self._recent: dict[str, tuple[Resolved, Mapping[str, HexDigest]]] = {}

    def __reduce__(self) -> tuple[type[_PartDigests], tuple[()]]:
        return type(self), ()

    def of(self, prompt: Prompt[object], parts: Iterable[PartOf]) -> Mapping[str, HexDigest]:
        store = prompt.overrides_store
        override = None if store is None else store.resolve(prompt.descriptor, prompt.overrides_tag)
        resolved = prompt.template.resolved(override)
        address = address_of(prompt)
        recent_flow = self._recent.get(address)
        # No lock: the pair is immutable, and threads replace it as a whole.
        if recent_flow is None or recent_flow[0] is not resolved:
            view = attrs.evolve(View.of_source(prompt.template), parts=resolved.parts)
            own_parts = [part for part in parts if part.address == address and not part.is_new]
            texts = ((part.name, digest_text(part.part.text(view))) for part in own_parts)
            recent_flow = self._recent[address] = resolved, FrozenMap(texts)
        return recent_flow[1]


@attrs.frozen
class InnerFlow:
    """The flow of a graph that is a node of another one; picklable if its function is.

    Attributes:
        function: the flow.
        candidate_errors: its exceptions that count as the fault of the texts.
    """

    function: Callable[..., Any]
    candidate_errors: tuple[type[Exception], ...]

    def answered(self, run: Run, params: Sequence[object]) -> PromptResponse[object]:
        """Return the answer of the flow; ``run`` takes its steps.

        Raises:
            CandidateError: the flow raised one of ``candidate_errors``.
            FlowError: its answer is unusable.
            Exception: whatever else the flow raises.
        """
        try:
            return _answered(self.function, run, params)
        except self.candidate_errors as error:
            if run.fault is not None or isinstance(error, errors.PromptgraftError):
                raise
            raise _program_raised(error) from error


@attrs.frozen(kw_only=True)
class GraphRunner:
    """The flow of a graph; picklable if its functions and adapters are.

    Attributes:
        graph: name of the graph.
        function: the flow.
        nodes: ``namespace/key`` and adapter of each node with a prompt, by node name.
        parts: the parts that may change.
        graphs: the graphs that are nodes, by name.
        edges: the edges that may be taken, as in :class:`RunSettings`.
        candidate_errors: exceptions of the flow that count as the fault of the texts.
        max_steps: limit on the steps of an answer.
    """

    graph: str
    function: Callable[..., Any]
    nodes: Mapping[str, tuple[str, ProviderAdapter]]
    parts: tuple[PartOf, ...]
    graphs: Mapping[str, InnerFlow]
    edges: Mapping[str, frozenset[tuple[str, str]]]
    candidate_errors: tuple[type[Exception], ...]
    max_steps: int
    _digests: _PartDigests = attrs.field(factory=_PartDigests, init=False, repr=False, eq=False)

    def __call__(
        self,
        prompts: Mapping[str, Prompt[object]],
        example: GepaExample,
        *,
        session: Session,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        """Answer an example with the prompts of one candidate; see ``Flow``."""
        return self.answer(
            prompts, example.params, case=example.id, session=session, deadline=deadline
        )

    def check(self, prompts: Mapping[str, Prompt[object]], params: Sequence[object]) -> None:
        """Raise a ``ConfigError`` as :meth:`check_nodes`, or if the flow takes no ``params``."""
        match params:
            case (Conversation() as conversation,):
                params = conversation.messages[:1]
        function, param_types = self.function, tuple(type(param).__name__ for param in params)
        # A plain function behind the flow is called without the run.
        plain = getattr(function, "plain", None)
        if (
            fault := call_fault(plain, *param_types)
            if plain
            else call_fault(function, "run", *param_types)
        ):
            raise errors.ConfigError(f"graph `{self.graph}`: flow: {fault}")
        self.check_nodes(prompts)

    def check_nodes(self, prompts: Mapping[str, Prompt[object]]) -> None:
        """Raise a ``ConfigError`` that names the first node whose adapter cannot answer it."""
        for node, (address, adapter) in self.nodes.items():
            try:
                check_serves(adapter, prompts[address].with_placeholders())
            except errors.ConfigError as error:
                raise errors.ConfigError(f"graph `{self.graph}`: node `{node}`: {error}") from None

    def answer(
        self,
        prompts: Mapping[str, Prompt[object]],
        params: Sequence[object],
        *,
        case: str,
        session: SessionProtocol,
        deadline: Deadline | None,
    ) -> PromptResponse[object]:
        """Return the answer of the flow, and dispatch its steps to ``session``.

        If the only parameter is a :class:`Conversation`, the flow is called with each message in
        turn, and the last answer is returned.

        Raises:
            FlowError: the flow raised an exception, or left the graph.
            CandidateError: the answer is invalid, or the flow raised one of ``candidate_errors``.
            ProviderError, LimitReachedError: a step raised it, even if the flow caught it.
        """
        settings = RunSettings(
            graph=self.graph,
            nodes={
                name: BoundNode(
                    prompt=prompts[address],
                    adapter=adapter,
                    parts=self._digests.of(prompts[address], self.parts),
                )
                for name, (address, adapter) in self.nodes.items()
            },
            graphs=self.graphs,
            edges=self.edges,
            max_steps=self.max_steps,
            case=case,
            deadline=deadline,
        )
        run = Run(settings, session)
        token = under_way.set(run)
        try:
            match params:
                case (Conversation() as conversation,):
                    return _played(self.function, run, conversation)
            return _answered(self.function, run, params)
        except errors.user_errors() as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None  # `Thread.start` raises another error for it
            # The first fault ends the answer, even if the flow caught it and raised another error.
            if run.fault not in (None, error):
                raise run.fault from error
            if isinstance(error, errors.CallerError) and not isinstance(error, errors.FlowError):
                # Raised anew, to name case and step.
                raise run.failed(str(error)) from error
            if isinstance(error, self.candidate_errors):
                raise _program_raised(error) from error
            if isinstance(error, errors.PromptgraftError):
                raise
            message = on_one_line(raised(error))
            mend = f"candidate_errors=({type(error).__name__},)"
            raise run.failed(
                f"the flow raised {message}; if the texts are at fault, `{mend}` of the graph "
                "scores such cases 0"
            ) from error
        finally:
            under_way.reset(token)


def _answered(
    function: Callable[..., Any], run: Run, params: Sequence[object]
) -> PromptResponse[object]:
    flow_run = AsyncRun(run) if is_async(function) else run
    # Waited for until it ends, as its calls of models do when the time is over: each is accounted
    # for.
    value = awaited(function(flow_run, *params), deadline=run.deadline)
    # The flow may have caught it.
    if run.fault is not None:
        raise run.fault
    response = run.response_of(value)
    try:
        return response_with(value, "the flow", run.session) if response is None else response
    except errors.CallerError as error:
        raise run.failed(str(error)) from None


def _played(
    function: Callable[..., Any], run: Run, conversation: Conversation
) -> PromptResponse[object]:
    """Answer a conversation, message by message; return the last answer."""
    session, history = run.session, conversation.context
    for message in conversation.messages:
        turn = Branch(session)
        run.begin_turn(history, turn)
        try:
            response = _answered(function, run, (message,))
        finally:
            turn.join()
        answer = answer_of(response, turn)
        session.dispatch(TurnAnswered(query=in_words(message), answer=answer))
        exchange = Message(Speaker.USER, message), Message(Speaker.ASSISTANT, answer.text)
        history = (*history, *exchange)
    return response


def _program_raised(error: BaseException) -> errors.CandidateError:
    # Shown to the reflector.
    return errors.CandidateError(f"the program raised {' '.join(raised(error).split())}")


class AsyncRun:
    """One answer of a graph in progress, as passed to an ``async`` flow.

    Steps run in threads, so that they do not block other coroutines. They follow each other in the
    order of the calls: use :meth:`together` to ask nodes concurrently, not ``asyncio.gather``.

    Args:
        run: the run that takes the steps.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def session(self) -> SessionProtocol:
        """The session that records the answer."""
        return self._run.session

    @property
    def deadline(self) -> Deadline | None:
        """The time limit; None for no limit."""
        return self._run.deadline

    @property
    def history(self) -> tuple[Message, ...]:
        """In a conversation, the messages before the one that is answered now."""
        return self._run.history

    async def ask(self, node: str, *params: object) -> Any:
        """Ask a node, with its prompt bound to ``params``; see :meth:`Run.ask`."""
        return await in_thread(partial(self._run.ask, node, *params))

    async def do(self, node: str, function: Callable[..., Any], *args: object) -> Any:
        """Call a function as a step without a prompt; see :meth:`Run.do`."""
        return await in_thread(partial(self._run.do, node, function, *args))

    async def together(self, *branches: Callable[[AsyncRun], Awaitable[Any]]) -> tuple[Any, ...]:
        """Await coroutines concurrently, each with its own run; see :meth:`Run.together`."""
        import asyncio

        runs = self._run.fork(len(branches))

        async def take(run: Run, branch: Callable[[AsyncRun], Awaitable[Any]]) -> BranchOutcome:
            under_way.set(run)
            try:
                return BranchOutcome(value=await branch(AsyncRun(run)))
            except BaseException as error:  # noqa: BLE001 - raised again by join
                return BranchOutcome(error=error)

        answers_taken = (take(run, branch) for run, branch in zip(runs, branches, strict=True))
        return self._run.join(runs, await asyncio.gather(*answers_taken))

    def text(self, node: str) -> str:
        """Return the text of a node's prompt; see :meth:`Run.text`."""
        return self._run.text(node)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling a function returns a coroutine."""
    # An object with an `async` `__call__` is not a coroutine function itself.
    method = getattr(type(function), "__call__", None)  # noqa: B004 - of an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)
