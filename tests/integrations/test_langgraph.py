"""LangGraph graphs, with the real package; skipped if it is missing."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import pytest

from promptgraft import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    OptimizationContext,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.bridges.langgraph import graph_of
from promptgraft.errors import FlowError
from promptgraft.graphs import Graph, Step, text
from promptgraft.runtime import Session

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("langgraph") is None, reason="langgraph is not installed"
)

TEXTS = {"route": "Route.", "facts": "Facts.", "tone": "Tone.", "reply": "Reply."}


class State(TypedDict, total=False):
    question: str
    desk: str
    facts: str
    tone: str
    reply: str
    rounds: int


def route(state: State) -> State:
    return {"desk": f"{text('route')} {state['question']}"}


def facts(state: State) -> State:
    return {"facts": text("facts")}


def tone(state: State) -> State:
    return {"tone": text("tone")}


def reply(state: State) -> State:
    said = [state["desk"], state["facts"], state["tone"], text("reply")]
    return {"reply": " ".join(said), "rounds": state.get("rounds", 0) + 1}


def check(state: State) -> State:
    return {}


def compiled(*, most: int = 2) -> Any:
    graphs = importlib.import_module("langgraph.graph")
    builder = graphs.StateGraph(State)
    for node in (route, facts, tone, reply, check):
        builder.add_node(node.__name__, node)
    builder.add_edge(graphs.START, "route")
    builder.add_edge("route", "facts")
    builder.add_edge("route", "tone")
    builder.add_edge(["facts", "tone"], "reply")
    builder.add_edge("reply", "check")
    builder.add_conditional_edges(
        "check",
        lambda state: "reply" if state["rounds"] < most else graphs.END,
        ["reply", graphs.END],
    )
    return builder.compile()


def bridged(made: Any) -> Graph:
    return graph_of(
        made,
        texts=TEXTS,
        name="support/lang",
        state=lambda question: {"question": question},
        answer=lambda state: state["reply"],
    )


def test_edges_come_from_the_drawing_and_steps_from_the_tasks() -> None:
    graph, session = bridged(compiled()), Session()
    said = graph.answer("Why?", session=session).text
    assert said == "Route. Why? Facts. Tone. Reply."
    steps = session.select_all(Step)
    assert [(step.id, step.node, step.after) for step in steps] == [
        ("1", "route", ()),
        ("2.1.1", "facts", ("1",)),
        ("2.2.1", "tone", ("1",)),
        ("3", "reply", ("2.1.1", "2.2.1")),
        ("4", "check", ("3",)),
        ("5", "reply", ("4",)),
        ("6", "check", ("5",)),
    ]
    assert [*steps[1].parts] == ["support/lang/facts#instruction"]
    assert steps[1].output == '{\n  "facts": "Facts."\n}'
    assert (steps[4].kind, steps[4].parts) == ("function", {})
    assert {node.id for node in graph.describe().nodes} == {
        f"support/lang/{name}" for name in (*TEXTS, "check")
    }


def test_a_node_that_fails_is_named() -> None:
    def broken(state: State) -> State:
        raise KeyError("desk")

    graphs = importlib.import_module("langgraph.graph")
    builder = graphs.StateGraph(State)
    builder.add_node("route", route)
    builder.add_node("reply", broken)
    builder.add_edge(graphs.START, "route")
    builder.add_edge("route", "reply")
    with pytest.raises(FlowError) as caught:
        bridged(builder.compile()).answer("Why?")
    assert str(caught.value) == (
        "graph `support/lang`, step 2 (`reply`): the flow raised KeyError: 'desk'; if the "
        "texts are at fault, `candidate_errors=(KeyError,)` of the graph scores such cases 0"
    )


def test_the_texts_of_its_nodes_are_improved_whatever_the_workers() -> None:
    def judge(example: GepaExample, response: Any, session: Any) -> RolloutFeedback:
        lacking = [name for name in TEXTS if f"{name}!" not in response.text]
        return RolloutFeedback(score=1 - len(lacking) / 4, feedback=f"say {' '.join(lacking)}")

    def propose(rendered: Any) -> str:
        given = {
            one.placeholder: one.text for section in rendered.sections for one in section.segments
        }
        node = str(given["part"]).partition("#")[0].rpartition("/")[2]
        body = str(given["current"]).strip("`\n")
        return f"```instruction\n{body} {node}!\n```"

    def outcome(workers: int) -> Any:
        config = GepaConfig(
            training_examples=[GepaExample(id=f"q{n}", params=(f"q{n}",)) for n in range(8)],
            pareto_set_size=4,
            minibatch_size=2,
            rollout_budget=60,
            feedback_fn=judge,
            persist=False,
        )
        with ThreadPoolExecutor(workers) as executor:
            context = OptimizationContext(
                reflection_adapter=ScriptedAdapter(propose), executor=executor
            )
            return GepaOptimizer(context, config).optimize(bridged(compiled()))

    found = outcome(1)
    assert (found.baseline_pareto_mean, found.best_pareto_mean) == (0, 1)
    assert outcome(4) == found
    assert threading.active_count() < 100
