"""The run that a flow is called with, and the steps that it records."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import attrs

from promptgraft.adapters.base import (
    PromptExecuted,
    PromptResponse,
    ProviderAdapter,
    ToolInvoked,
    evaluated,
)
from promptgraft.errors import CandidateError, FlowError, LimitReachedError, ProviderError
from promptgraft.evals.spending import Role, spent_on
from promptgraft.evals.types import Message, Step
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.functions import without_address
from promptgraft.ground.serde import HexDigest, did_you_mean
from promptgraft.ground.text import listed, on_one_line, raised
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import Branch, SessionProtocol
from promptgraft.targets.formatting import show_value, tool_line

_NO_PARTS: Mapping[str, HexDigest] = FrozenMap()


@attrs.frozen(kw_only=True)
class BoundNode:
    """A node with a prompt, for one candidate.

    Attributes:
        adapter: answers it.
        parts: SHA-256 of each part that may change, by name.
    """

    prompt: Prompt[object]
    adapter: ProviderAdapter
    parts: Mapping[str, HexDigest]


class GraphFlow(Protocol):
    """The flow of a graph that is a node of another one."""

    def answered(self, run: Run, params: Sequence[object]) -> PromptResponse[object]:
        """Return its answer; ``run`` takes its steps."""
        ...


@attrs.frozen(kw_only=True)
class RunSettings:
    """The settings shared by all branches of a run.

    Attributes:
        graph: name of the graph.
        nodes: the nodes with a prompt, by name.
        graphs: the graphs that are nodes, by name.
        edges: the edges that may be taken, by the prefix of their graph: empty for the outer one,
            ``desk/`` for the graph of node ``desk``. A graph without an entry may take any.
        max_steps: limit on the number of steps.
        case: id of the case; empty for none.
        deadline: the time limit; None for no limit.
    """

    graph: str
    nodes: Mapping[str, BoundNode]
    graphs: Mapping[str, GraphFlow]
    edges: Mapping[str, frozenset[tuple[str, str]]]
    max_steps: int
    case: str
    deadline: Deadline | None

    def kind_of(self, node: str) -> str:
        """Return ``prompt``, ``graph`` or ``function``."""
        return "prompt" if node in self.nodes else "graph" if node in self.graphs else "function"


@attrs.frozen(kw_only=True)
class BranchOutcome:
    """The result of a branch.

    Attributes:
        value: its return value.
        error: the exception that it raised; None if it succeeded.
    """

    value: Any = attrs.field(default=None, hash=False)
    error: BaseException | None = None


@attrs.define(eq=False)
class Opened:
    """A step in progress.

    Attributes:
        id: its place.
        after: ids of the steps that it follows.
        output: its result, set by the code of the step: a text, or any other value.
        parts: the parts that it was made with.
    """

    id: str
    node: str
    after: tuple[str, ...]
    input: str
    output: object = ""
    parts: Mapping[str, HexDigest] = _NO_PARTS


class Run:
    """One answer of a graph in progress, as passed to its flow.

    Every node that the flow asks and every function that it calls through the run is a step. A step
    follows the previous one in the same branch.

    Attributes:
        session: the session that records the answer.
        deadline: the time limit; None for no limit.
        history: in a conversation, the messages before the one that is answered now.
    """

    def __init__(
        self,
        settings: RunSettings,
        session: SessionProtocol,
        *,
        place: str = "",
        prefix: str = "",
        forked: Run | None = None,
    ) -> None:
        self.settings = settings
        self.session: SessionProtocol = session
        self.deadline: Deadline | None = settings.deadline
        self.history: tuple[Message, ...] = forked.history if forked else ()
        self.fault: Exception | None = None
        self.last: Opened | None = None
        self.ends: tuple[tuple[str, str], ...] = forked.ends if forked else ()
        self.taken: int = forked.taken if forked else 0
        self._place = place
        self._prefix = prefix
        self._places = 0
        self._latest: PromptResponse[object] | None = None
        self._open: Opened | None = None

    def begin_turn(self, history: tuple[Message, ...], session: SessionProtocol) -> None:
        """Begin a turn of a conversation, whose first steps follow no other."""
        self.history, self.session, self.ends = history, session, ()

    def ask(self, node: str, *params: object) -> Any:
        """Ask a node: its prompt bound to ``params``, or its graph.

        Returns the answer parsed into the prompt's output type, or its text if there is none.

        Raises:
            FlowError: there is no such node, or the edge to it is not declared.
            CandidateError, ProviderError, LimitReachedError: from the adapter. A flow may catch the
                first and continue; the others end the answer in any case.
        """
        graph = self.settings.graphs.get(self.full_name(node))
        if graph is None:
            response = self._ask_prompt(node, params)
        else:
            with self.step(node, params=params) as (step, _):
                response = self._ask_graph(node, graph, params)
                step.output = response.text
        self._latest = response
        return response.text if response.output is None else response.output

    def _ask_prompt(self, node: str, params: Sequence[object]) -> PromptResponse[object]:
        with self.step(node, params=params) as (step, branch):
            bound = self.find(node)
            step.parts = bound.parts
            try:
                prompt = bound.prompt.bind(*params)
                response = evaluated(bound.adapter, prompt, session=branch, deadline=self.deadline)
            finally:
                # An answer that does not parse raises, but its text belongs in the trace.
                executed = branch.latest(PromptExecuted)
                if executed is not None:
                    step.output = executed.response.text
            step.output = response.text
        return response

    def _ask_graph(
        self, node: str, graph: GraphFlow, params: Sequence[object]
    ) -> PromptResponse[object]:
        """Answer with a graph, whose steps are those of a branch, under the name of the node."""
        [run] = self.fork(1, prefix=f"{self.full_name(node)}/")
        token = under_way.set(run)
        try:
            outcome = BranchOutcome(value=graph.answered(run, params))
        except BaseException as error:  # noqa: BLE001 - raised again by join
            outcome = BranchOutcome(error=error)
        finally:
            under_way.reset(token)
        [response] = self.join([run], [outcome])
        assert isinstance(response, PromptResponse)  # noqa: S101 - see GraphFlow
        return response

    def do(self, node: str, function: Callable[..., Any], *args: object) -> Any:
        """Call a function, plain or ``async``, as a step without a prompt; return its result.

        Raises:
            FlowError: ``node`` has a prompt, or the edge to it is not declared.
            Exception: whatever the function raises.
        """
        with self.step(node, params=args) as (step, _):
            kind = self.settings.kind_of(step.node)
            if kind != "function":
                self.refuse(f"node `{node}` has a {kind}; ask it")
            value = awaited(function(*args), deadline=self.deadline)  # it may ask models, too
            step.output = value
        return value

    def together(self, *branches: Callable[[Run], Any]) -> tuple[Any, ...]:
        """Call functions concurrently, each with its own run; return their results.

        All of them run to completion, even if one raises. Later steps follow the ends of all
        branches.

        Raises:
            Exception: that of the first branch, in order of the arguments, that raised one.
        """
        runs = self.fork(len(branches))
        return self.join(runs, _side_by_side(list(zip(runs, branches, strict=True))))

    def full_name(self, node: str) -> str:
        """Return the name of a node of this graph in the outermost one, such as ``desk/facts``."""
        return f"{self._prefix}{node}"

    def fork(self, count: int, *, prefix: str | None = None) -> list[Run]:
        """Return the runs of so many branches; end them with :meth:`join`.

        ``prefix`` is that of a graph inside this one; None for the same graph.
        """
        # The fork is itself an action of the flow: its branches are "2.1.", "2.2.", and so on.
        self._places += 1
        place = f"{self._place}{self._places}"
        prefix = self._prefix if prefix is None else prefix
        return [
            Run(
                self.settings,
                Branch(self.session),
                place=f"{place}.{number}.",
                prefix=prefix,
                forked=self,
            )
            for number in range(1, count + 1)
        ]

    def join(self, runs: Sequence[Run], outcomes: Sequence[BranchOutcome]) -> tuple[Any, ...]:
        """Merge branches in order; return their values, or raise the first error."""
        # Each branch has gone on counting from the steps taken before the fork.
        before = self.taken
        ends: list[tuple[str, str]] = []
        for run in runs:
            assert isinstance(run.session, Branch)  # noqa: S101 - see fork
            run.session.join()
            self.taken += run.taken - before
            ends += run.ends if run.taken > before else ()
            self.fault = self.fault or run.fault
        # If no branch took a step, the next step follows what came before the fork.
        self.ends = tuple(dict.fromkeys(ends)) or self.ends
        if self.taken > self.settings.max_steps:
            self.fault = self.fault or self._too_many("")
        for run, outcome in zip(runs, outcomes, strict=True):
            if outcome.error is not None:
                # For the message of a FlowError: the failed branch decides which step it names.
                self.last = run.last or self.last
                raise outcome.error
        return tuple(outcome.value for outcome in outcomes)

    def text(self, node: str) -> str:
        """Return the candidate's text of a node's prompt, with nothing bound to it.

        Raises:
            FlowError: there is no such node.
        """
        bound = self.find(node)
        prompt = bound.prompt
        if self._open is not None:
            # The step in progress counts as made with this text.
            self._open.parts = FrozenMap({**self._open.parts, **bound.parts})
        rendered = prompt.render(self.session)
        return rendered.sections[0].text if isinstance(prompt, TextsPrompt) else rendered.text

    def find(self, node: str) -> BoundNode:
        """Return a node with a prompt.

        Raises:
            FlowError: there is none.
        """
        nodes, name = self.settings.nodes, self.full_name(node)
        if name not in nodes:
            self.refuse(
                f"there is no node {name!r} with a prompt{did_you_mean(name, list(nodes))}; nodes: "
                f"{listed(nodes)}"
            )
        return nodes[name]

    def response_of(self, value: object) -> PromptResponse[object] | None:
        """Return the last response if ``value`` is its result of :meth:`ask`; else None."""
        latest = self._latest
        if latest is None:
            return None
        answer = latest.text if latest.output is None else latest.output
        # By identity, because a flow may compute an equal value itself.
        return latest if value is answer else None

    def refuse(self, message: str) -> NoReturn:
        """End the run, even if the flow catches the error.

        Raises:
            FlowError: always.
        """
        self.fault = self.failed(message)
        raise self.fault

    def failed(self, message: str) -> FlowError:
        """Return the error of a flow that failed at the current step."""
        at, settings = self.last, self.settings
        step, node = ("", "") if at is None else (at.id, at.node)
        return FlowError(message, graph=settings.graph, case=settings.case, step=step, node=node)

    @contextmanager
    def step(self, node: str, *, params: Sequence[object]) -> Iterator[tuple[Opened, Branch]]:
        """Return a context for a step, which yields the step and a session for its events.

        Raises:
            FlowError, CandidateError: the step is not allowed.
        """
        if self.fault is not None:
            raise self.fault
        node = self.full_name(node)
        self._places += 1
        input_shown = shown_value(params[0] if len(params) == 1 else params) if params else ""
        after = tuple(id_ for id_, _ in self.ends)
        # Set before the checks, so that their errors name the step.
        step = self.last = Opened(f"{self._place}{self._places}", node, after, input_shown)
        self._check_edges(node)
        self._check_count(node)
        branch, around = Branch(self.session, place=step.id), self._open
        error = ""
        try:
            self._open = step
            yield step, branch
        except Exception as failure:
            if isinstance(failure, (ProviderError, LimitReachedError)):
                self.fault = failure
            error = fault_of(failure)
            raise
        finally:
            self._open = around
            self._close(step, branch, error=error)

    def _check_edges(self, node: str) -> None:
        edges = self.settings.edges.get(self._prefix)
        if edges is None:
            return
        for _, before in self.ends:
            # Steps before the graph are not its nodes; the edge to the graph itself was checked.
            if before.startswith(self._prefix) and (before, node) not in edges:
                leading = [end for start, end in sorted(edges) if start == before]
                self.refuse(
                    f"the edge `{before}` -> `{node}` is not declared; from `{before}`: "
                    f"{listed(leading) or 'none'}"
                )

    def _check_count(self, node: str) -> None:
        self.taken += 1
        if self.taken > self.settings.max_steps:
            self.fault = self._too_many(f"; the next one was `{node}`")
            raise self.fault

    def _too_many(self, which: str) -> CandidateError:
        return CandidateError(f"the flow did not end within {self.settings.max_steps} steps{which}")

    def _close(self, step: Opened, branch: Branch, *, error: str = "") -> None:
        """Record a finished step, after the events inside it."""
        events = branch.join()
        if step.id != f"{self._place}{self._places}":
            # Steps were taken inside: its result follows them, so it gets a later place.
            self._places += 1
            step.id = f"{self._place}{self._places}"
            step.after = tuple(id_ for id_, _ in self.ends)
        self.session.dispatch(
            Step(
                id=step.id,
                node=step.node,
                kind=self.settings.kind_of(step.node),
                after=step.after,
                input=step.input,
                output=shown_value(step.output),
                error=error,
                parts=step.parts,
                tools=tuple(tool_line(event) for event in events if isinstance(event, ToolInvoked)),
                spent=spent_on(Role.TASK, events, ""),
            )
        )
        self.ends = ((step.id, step.node),)


def fault_of(error: Exception) -> str:
    """Return the one-line reason why a step failed."""
    expected = isinstance(error, (CandidateError, ProviderError, LimitReachedError))
    return on_one_line(str(error) if expected else raised(error))


def shown_value(value: object) -> str:
    """Return an input or output of a step as text."""
    return value if type(value) is str else without_address(show_value(value))


under_way: contextvars.ContextVar[Run | None] = contextvars.ContextVar(
    "promptgraft_run", default=None
)
"""The run of the current branch in this thread or task."""


def _side_by_side(branches: Sequence[tuple[Run, Callable[[Run], Any]]]) -> list[BranchOutcome]:
    """Run branches in threads, each in its own context."""
    outcomes = [BranchOutcome() for _ in branches]

    def take(number: int) -> None:
        run, branch = branches[number]
        under_way.set(run)
        try:
            outcomes[number] = BranchOutcome(value=branch(run))
        except BaseException as error:  # noqa: BLE001 - raised again by join
            outcomes[number] = BranchOutcome(error=error)

    # Not a pool: its threads would keep an interrupted process alive until all branches have ended.
    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(take, number), daemon=True)
        for number in range(len(branches))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
