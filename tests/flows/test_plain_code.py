"""Code that is no flow reads texts and records steps wherever it runs."""

from __future__ import annotations

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from flows.tickets import Ticket, context, settings
from promptgraft import GepaOptimizer, RolloutFeedback, ScriptedAdapter
from promptgraft.errors import CallerError, ConfigError, FlowError
from promptgraft.graphs import Graph, Run, Step, step, text
from promptgraft.runtime import Session

TEXTS = {"planner": "Plan.", "writer": "Write {topic}."}


def agent(ticket: Ticket) -> str:
    with step("planner", input=ticket) as planning:
        planning.output = plan = f"{text('planner')} {ticket.text}"
    with step("writer", input=plan) as writing:
        with step("lookup", input="a fact") as looking:
            looking.output = {"found": 1}
        writing.output = said = text("writer").replace("{topic}", plan)
    return said


def steps_of(graph: Graph, *params: object) -> tuple[Step, ...]:
    session = Session()
    graph.answer(*params, session=session)
    return session.select_all(Step)


def test_what_plain_code_does_is_a_trace() -> None:
    graph = Graph.around(agent, texts=TEXTS, placeholders=["{topic}"])
    planner, lookup, writer = steps_of(graph, Ticket("a"))
    assert (planner.id, planner.after, planner.output) == ("1", (), "Plan. a")
    assert planner.input == '{\n  "text": "a"\n}'
    assert [*planner.parts] == ["agent/planner#instruction"]
    assert (lookup.id, lookup.after, lookup.kind, lookup.parts) == ("3", ("1",), "function", {})
    assert lookup.output == '{\n  "found": 1\n}'
    assert (writer.id, writer.after, writer.output) == ("4", ("3",), "Write Plan. a.")
    assert [*writer.parts] == ["agent/writer#instruction"]


def test_a_step_was_made_with_every_text_that_was_read_in_it() -> None:
    def both() -> str:
        with step("all") as whole:
            whole.output = text("planner") + text("writer")
        return "done"

    [whole] = steps_of(Graph.around(both, texts=TEXTS))
    assert [*whole.parts] == ["both/planner#instruction", "both/writer#instruction"]


async def waiting(ticket: Ticket) -> str:
    async def planned() -> str:
        with step("planner") as planning:
            await asyncio.sleep(0)
            planning.output = plan = text("planner")
        return plan

    return str(await asyncio.create_task(planned()))


def test_a_coroutine_sees_the_texts_of_its_own_answer() -> None:
    graph = Graph.around(waiting, texts=TEXTS)
    assert graph.answer(Ticket("a")).text == "Plan."
    [planner] = steps_of(graph, Ticket("a"))
    assert planner.output == "Plan."


def test_plain_code_inside_of_branches_has_places_of_its_own() -> None:
    def flow(run: Run) -> str:
        def branch(_: Run) -> None:
            with step("lookup") as looking:
                looking.output = text("planner")

        run.together(branch, branch)
        return "done"

    nodes = Graph.around(agent, texts=TEXTS).nodes
    steps = steps_of(Graph("agent", flow=flow, nodes=nodes))
    assert [one.id for one in steps] == ["1.1.1", "1.2.1"]


def test_outside_of_an_answer_there_is_no_text_and_nothing_is_recorded() -> None:
    with step("planner") as planning:
        planning.output = "x"
    with pytest.raises(CallerError) as caught:
        text("planner")
    assert str(caught.value) == (
        "text('planner'): no graph answers here; have the function called by a run or by "
        "`Graph.answer`"
    )


def test_texts_are_read_and_not_asked() -> None:
    def other(ticket: Ticket) -> str:
        return text("plannr")

    with pytest.raises(FlowError, match="there is no node 'plannr' with a prompt"):
        Graph.around(other, texts=TEXTS).answer(Ticket("a"))
    nodes = Graph.around(agent, texts=TEXTS).nodes
    with pytest.raises(FlowError, match="agent reads its texts itself; call `text`"):
        Graph("agent", flow=lambda run: run.ask("planner"), nodes=nodes).answer()
    with pytest.raises(ConfigError, match="no text holds"):
        Graph.around(agent, texts=TEXTS, placeholders=["{nothing}"])


def test_a_graph_of_plain_code_pickles_when_its_function_does() -> None:
    graph = pickle.loads(pickle.dumps(Graph.around(agent, texts=TEXTS)))
    assert graph.answer(Ticket("a")).text == "Write Plan. a."


def meeting(letter: str, barrier: threading.Barrier) -> Any:
    """Return a run whose rollouts only answer while those of another run are under way."""

    def talk(ticket: Ticket) -> str:
        before = text("planner")
        barrier.wait(timeout=60)
        with step("planner") as planning:
            planning.output = after = text("planner")
        assert before == after
        return after

    def judge(example: Any, response: Any, session: Any) -> RolloutFeedback:
        own = set(response.text.replace("Plan", "")) <= {letter}
        return RolloutFeedback(score=len(response.text) / 100 if own else -1, feedback=letter)

    def propose(rendered: Any) -> str:
        [current] = [
            segment.text
            for section in rendered.sections
            for segment in section.segments
            if segment.placeholder == "current"
        ]
        return str(current).replace("```", "```instruction", 1).replace("Plan", f"Plan{letter}")

    graph = Graph.around(talk, texts={"planner": "Plan"}, name="both/talk")
    surroundings = context(
        executor=ThreadPoolExecutor(1), reflection_adapter=ScriptedAdapter(propose)
    )
    return lambda: GepaOptimizer(
        surroundings, settings(feedback_fn=judge, rollout_budget=30)
    ).optimize(graph)


def test_two_runs_in_one_process_never_see_each_others_texts() -> None:
    barrier = threading.Barrier(2)
    runs = [meeting(letter, barrier) for letter in "ab"]
    with ThreadPoolExecutor(2) as executor:
        results = [one.result() for one in [executor.submit(run) for run in runs]]
    for letter, result in zip("ab", results, strict=True):
        assert len(result.candidates) > 1
        assert min(score for row in result.scores_matrix for score in row) >= 0
        assert letter in result.best.section_bodies[("planner",)]
