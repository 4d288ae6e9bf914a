"""LangGraph graphs as graphs of promptgraft: edges from the drawing, steps from the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import attrs

from promptgraft.graphs.graph import Graph, Node, NotAsked
from promptgraft.graphs.run import BranchOutcome, Run
from promptgraft.prompt.texts import Placeholders, single_texts

_ENDS = ("__start__", "__end__")


class Compiled(Protocol):
    """The methods of a compiled LangGraph graph that are used here."""

    def get_graph(self) -> Any:
        """Return its drawing."""

    def stream(self, given: Any, *, stream_mode: list[str]) -> Iterable[Any]:
        """Yield the events of an answer."""


def graph_of(
    compiled: Compiled,
    *,
    texts: Mapping[str, str],
    name: str,
    state: Callable[..., Any],
    answer: Callable[[Any], Any],
    placeholders: Placeholders = (),
    **options: Any,
) -> Graph:
    """Return a compiled LangGraph graph as a graph whose nodes read their texts with ``text``.

    LangGraph runs the nodes, concurrently where it would. A node is assumed to use the text of
    its name, if there is one.

    Args:
        compiled: the graph that ``StateGraph.compile()`` returns; its nodes are plain functions.
        texts: the texts, by the names of the nodes that read them. Every character is literal.
        name: the name of the graph, in the form of a namespace.
        state: makes the initial state from the ``params`` of an example.
        answer: gets the answer from the final state: a text, an object or a ``PromptResponse``.
        placeholders: strings that must be kept in the texts that contain them.
        options: ``candidate_errors``, ``max_steps`` and ``max_step_chars`` of :class:`Graph`.

    Raises:
        InvalidIdentifierError: the name of a node is not an identifier.
    """
    drawing = compiled.get_graph()
    nodes = [node for node in drawing.nodes if node not in _ENDS]
    pairs = [(edge.source, edge.target) for edge in drawing.edges]
    edges = [pair for pair in pairs if not set(pair) & set(_ENDS)]
    flow = LangGraphFlow(compiled=compiled, state=state, answer=answer, edges=tuple(edges))
    prompts = single_texts(texts, ns=name, placeholders=placeholders)
    adapter = NotAsked(answer)
    return Graph(
        name,
        flow=flow,
        nodes=[
            Node(node, prompts.get(node), adapter=adapter if node in prompts else None)
            for node in dict.fromkeys((*nodes, *prompts))
        ],
        **options,
    )


@attrs.frozen(kw_only=True)
class LangGraphFlow:
    """A compiled LangGraph graph as a flow.

    Attributes:
        compiled: the graph.
        state: makes the initial state.
        answer: gets the answer from the final state.
        edges: the edges of its drawing, between nodes.
    """

    compiled: Compiled
    state: Callable[..., Any]
    answer: Callable[[Any], Any]
    edges: tuple[tuple[str, str], ...]

    def __call__(self, run: Run, *params: object) -> Any:
        state = self.state(*params)
        waiting: dict[tuple[str, str], str] = {}
        # `debug` tells tasks with their inputs, `values` the state after each step; neither has
        # both.
        events = self.compiled.stream(state, stream_mode=["debug", "values"])
        for mode, event in _together(events):
            if mode == "values":
                state = event
            else:
                self._record(run, event, waiting)
        return self.answer(state)

    def _record(self, run: Run, tasks: list[_Task], waiting: dict[tuple[str, str], str]) -> None:
        """Record tasks that ran concurrently.

        Each follows the latest steps of its predecessors in the drawing that its node has not
        followed yet, so that a loop follows its last round.
        """
        branches = [run] if len(tasks) == 1 else run.fork(len(tasks))
        ended = {}
        for task, branch in zip(tasks, branches, strict=True):
            before = [edge for edge in self.edges if edge[1] == task.node and edge in waiting]
            # Without such an edge, as for a task that was sent, it follows the last step.
            branch.ends = tuple((waiting.pop(edge), edge[0]) for edge in before) or branch.ends
            with branch.step(task.node, params=(task.input,)) as (step, _):
                bound = run.settings.nodes.get(step.node)
                step.parts = {} if bound is None else bound.parts
                step.output = task.output
            ended[task.node] = step.id
        if branches != [run]:
            run.join(branches, [BranchOutcome()] * len(branches))
        waiting |= {edge: ended[edge[0]] for edge in self.edges if edge[0] in ended}


@attrs.define
class _Task:
    node: str
    input: object
    output: object = ""


def _together(events: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield states, and the tasks of each LangGraph step once all of them have ended."""
    tasks: dict[str, _Task] = {}
    ended = 0
    try:
        for mode, event in events:
            if mode == "values":
                yield mode, event
                continue
            task = event["payload"]
            if event["type"] == "task":
                tasks[task["id"]] = _Task(task["name"], task["input"])
            elif event["type"] == "task_result" and task["id"] in tasks:
                tasks[task["id"]].output = task["result"]
                ended += 1
            if tasks and ended == len(tasks):
                yield "tasks", list(tasks.values())
                tasks, ended = {}, 0
    except Exception:
        if tasks:  # the steps before a failure are part of the trace
            yield "tasks", list(tasks.values())
        raise
