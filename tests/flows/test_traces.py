"""What a graph records of each answer: equal answers give equal traces."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from flows.recap import AGENTS, ARTICLE, RECAP, Draft, Writer, template
from promptgraft import Deadline, Prompt, PromptResponse
from promptgraft.adapters.base import answered
from promptgraft.errors import CandidateError, FlowError, TransientProviderError
from promptgraft.evals.types import Step
from promptgraft.graphs import AsyncRun, Graph, Node, Run
from promptgraft.runtime import Session, SessionProtocol


def trace_of(graph: Graph, *params: object, adapter: Any = None) -> tuple[Step, ...]:
    session = Session(tags={"case": "c1"})
    graph.answer(*params, adapter=adapter or Writer(), session=session)
    return session.select_all(Step)


def outline(steps: tuple[Step, ...]) -> list[str]:
    return [f"{step.id} {step.node} <- {', '.join(step.after)}".rstrip(" <-") for step in steps]


OPENING = [
    "1 prepare",
    "2.1.1 title <- 1",
    "2.2.1 introduction <- 1",
    "2.3.1 highlight <- 1",
    "3 merge <- 2.1.1, 2.2.1, 2.3.1",
    "4 polish <- 3",
    "5 review <- 4",
]


@pytest.mark.parametrize("revisions", [0, 1, 3])
def test_a_loop_is_in_the_trace_as_often_as_it_was_taken(revisions: int) -> None:
    steps = trace_of(ARTICLE, Draft(f"game revisions={revisions} "))
    rest = []
    for number in range(6, 6 + 2 * revisions, 2):
        rest += [f"{number} polish <- {number - 1}", f"{number + 1} review <- {number}"]
    last = 6 + 2 * revisions
    assert outline(steps) == [*OPENING, *rest, f"{last} publish <- {last - 1}"]
    assert [step.output for step in steps if step.node == "review"] == [
        *["revise"] * revisions,
        "pass",
    ]


def test_a_step_says_what_it_was_given_what_came_of_it_and_of_which_texts() -> None:
    prepare, title, *_ = trace_of(ARTICLE, Draft("game"))
    assert (prepare.kind, prepare.parts, prepare.spent) == ("function", {}, ())
    assert (prepare.input, prepare.output) == ("game", '{\n  "text": "game"\n}')
    assert (title.kind, title.input) == ("prompt", '{\n  "text": "game"\n}')
    assert (title.output, title.error) == ("title(game)", "")
    assert [*title.parts] == ["candidate/title#instruction"]
    [paid] = title.spent
    assert (paid.model, paid.calls) == ("writer", 1)


def test_branches_that_nothing_follows_are_two_ends() -> None:
    def flow(run: Run, game: Draft) -> str:
        plan = Draft(run.ask("headline", game))
        text, _ = run.together(
            lambda branch: branch.ask("recap_writer", plan),
            lambda branch: branch.ask("sports_editor", plan),
        )
        return str(text)

    steps = trace_of(Graph("sports/recap", flow=flow, nodes=RECAP.nodes), Draft("game"))
    followed = {id_ for step in steps for id_ in step.after}
    assert [step.id for step in steps if step.id not in followed] == ["2.1.1", "2.2.1"]


def test_drafts_written_side_by_side_are_joined() -> None:
    assert outline(trace_of(RECAP, Draft("game"))) == [
        "1 prepare_game_input",
        "2.1.1 headline <- 1",
        "2.2.1 highlights <- 1",
        "2.3.1 stats_angle <- 1",
        "3 join_recap_parts <- 2.1.1, 2.2.1, 2.3.1",
        "4 recap_writer <- 3",
        "5 sports_editor <- 4",
    ]


def nested(run: Run, game: Draft) -> str:
    def inner(branch: Run) -> str:
        first = branch.ask("headline", game)
        branch.together(
            lambda twig: twig.ask("highlights", Draft(first)),
            lambda twig: twig.do("nothing", str),
        )
        return str(branch.ask("stats_angle", game))

    run.together(inner, lambda branch: None, inner)
    return str(run.ask("sports_editor", game))


def test_branches_of_branches_have_places_of_their_own() -> None:
    steps = trace_of(Graph("sports/recap", flow=nested, nodes=RECAP.nodes), Draft("game"))
    assert outline(steps) == [
        "1.1.1 headline",
        "1.1.2.1.1 highlights <- 1.1.1",
        "1.1.2.2.1 nothing <- 1.1.1",
        "1.1.3 stats_angle <- 1.1.2.1.1, 1.1.2.2.1",
        "1.3.1 headline",
        "1.3.2.1.1 highlights <- 1.3.1",
        "1.3.2.2.1 nothing <- 1.3.1",
        "1.3.3 stats_angle <- 1.3.2.1.1, 1.3.2.2.1",
        "2 sports_editor <- 1.1.3, 1.3.3",
    ]


class Jumbled(Writer):
    """Has the calls that run side by side end in any order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turn = threading.Barrier(2)

    def evaluate(
        self, prompt: Prompt[Any], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[Any]:
        for _ in range(self._random.randrange(40)):
            threading.Event().wait(0.0001)
        return super().evaluate(prompt, session=session, deadline=deadline)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_branches_end_changes_nothing(seed: int) -> None:
    graph = Graph("sports/recap", flow=nested, nodes=RECAP.nodes)
    assert trace_of(graph, Draft("g"), adapter=Jumbled(seed)) == trace_of(graph, Draft("g"))


async def awaiting(run: AsyncRun, game: Draft) -> str:
    facts: Draft = await run.do("prepare_game_input", Draft, game.text)

    async def asked(branch: AsyncRun, name: str) -> str:
        await asyncio.sleep(0)
        return str(await branch.ask(name, facts))

    parts = await run.together(
        lambda branch: asked(branch, AGENTS[0]),
        lambda branch: asked(branch, AGENTS[1]),
        lambda branch: asked(branch, AGENTS[2]),
    )
    joined: Draft = await run.do("join_recap_parts", lambda *given: Draft(" ".join(given)), *parts)
    body = Draft(await run.ask("recap_writer", joined))
    return str(await run.ask("sports_editor", body))


def test_an_async_flow_leaves_the_trace_of_a_plain_one() -> None:
    graph = Graph("sports/recap", flow=awaiting, nodes=RECAP.nodes)
    assert trace_of(graph, Draft("game")) == trace_of(RECAP, Draft("game"))


def test_an_error_that_a_branch_returns_is_a_value() -> None:
    def flow(run: Run, game: Draft) -> str:
        kept, _ = run.together(lambda branch: ValueError("kept"), lambda branch: None)
        return f"{kept!r} of {game.text}"

    async def waiting(run: AsyncRun, game: Draft) -> str:
        async def given(branch: AsyncRun) -> ValueError:
            await asyncio.sleep(0)
            return ValueError("kept")

        kept, _ = await run.together(given, given)
        return f"{kept!r} of {game.text}"

    for each in (flow, waiting):
        graph = Graph("sports/recap", flow=each, nodes=RECAP.nodes)
        assert graph.answer(Draft("game"), adapter=Writer()).text == "ValueError('kept') of game"


def test_an_error_in_place_of_an_interrupt_is_the_interrupt() -> None:
    def flow(run: Run, game: Draft) -> str:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    graph = Graph("sports/recap", flow=flow, nodes=RECAP.nodes)
    with pytest.raises(KeyboardInterrupt):
        graph.answer(Draft("game"), adapter=Writer())


HANGING = """
import threading
from flows.recap import RECAP, Draft, Writer
from promptgraft.graphs import Graph

def flow(run, game):
    def hang(branch):
        print("hanging", flush=True)
        threading.Event().wait()
    run.together(hang, lambda branch: None)

Graph("sports/recap", flow=flow, nodes=RECAP.nodes).answer(Draft("game"), adapter=Writer())
"""


def test_a_process_that_is_interrupted_does_not_wait_for_a_branch_that_hangs() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", HANGING],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "hanging\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == -signal.SIGINT
        finally:
            process.kill()


class Refusing(Writer):
    """Fails one prompt."""

    def __init__(self, key: str, error: Exception) -> None:
        self._key, self._error = key, error

    def evaluate(
        self, prompt: Prompt[Any], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[Any]:
        if prompt.descriptor.key == self._key:
            answered(prompt.render(session), "half an ans", session=session)
            raise self._error
        return super().evaluate(prompt, session=session, deadline=deadline)


def test_a_step_that_fails_is_in_the_trace_with_what_was_said() -> None:
    session = Session()
    adapter = Refusing("highlights", CandidateError("the answer\nis cut off"))
    with pytest.raises(CandidateError, match="is cut off"):
        RECAP.answer(Draft("game"), adapter=adapter, session=session)
    steps = session.select_all(Step)
    assert [step.node for step in steps] == ["prepare_game_input", *AGENTS[:3]]
    assert (steps[2].output, steps[2].error) == ("half an ans", "the answer is cut off")


def test_a_flow_may_do_without_an_answer_but_not_without_a_provider() -> None:
    def flow(run: Run, game: Draft) -> str:
        try:
            return str(run.ask("headline", game))
        except (CandidateError, TransientProviderError):
            return "no headline"

    graph = Graph("sports/recap", flow=flow, nodes=RECAP.nodes)
    unusable = Refusing("headline", CandidateError("cut off"))
    assert graph.answer(Draft("g"), adapter=unusable).text == "no headline"
    failing = Refusing("headline", TransientProviderError("overloaded"))
    with pytest.raises(TransientProviderError, match="overloaded"):
        graph.answer(Draft("g"), adapter=failing)


def test_the_answer_of_a_graph_of_one_node_is_that_of_its_prompt() -> None:
    def flow(run: Run, game: Draft) -> str:
        return str(run.ask("headline", game))

    graph = Graph("sports", flow=flow, nodes=[Node("headline", template("headline", "Go."))])
    response = graph.answer(Draft("g"), adapter=Writer())
    prompt = Prompt(template("headline", "Go.")).bind(Draft("g"))
    assert response == Writer().evaluate(prompt, session=Session())


SCORED = "; if the texts are at fault, `candidate_errors=({},)` of the graph scores such cases 0"
LINES = [
    (
        lambda run, game: run.ask("titel", game),
        (
            "graph `candidate`, case `c1`, step 1 (`titel`): there is no node 'titel' with "
            "a prompt (did you mean `title`?); nodes: `title`, `introduction`, `highlight`, "
            "`polish`, `review`"
        ),
    ),
    (
        lambda run, game: run.ask("merge", game),
        (
            "graph `candidate`, case `c1`, step 1 (`merge`): there is no node 'merge' with "
            "a prompt; nodes: `title`, `introduction`, `highlight`, `polish`, `review`"
        ),
    ),
    (
        lambda run, game: run.do("title", str),
        "graph `candidate`, case `c1`, step 1 (`title`): node `title` has a prompt; ask it",
    ),
    (
        lambda run, game: (run.ask("title", game), run.ask("review", game)),
        (
            "graph `candidate`, case `c1`, step 2 (`review`): the edge `title` -> `review` is not "
            "declared; from `title`: `merge`"
        ),
    ),
    (
        lambda run, game: run.ask("title", game)[99],
        (
            "graph `candidate`, case `c1`, step 1 (`title`): the flow raised IndexError: string "
            "index out of range" + SCORED.format("IndexError")
        ),
    ),
    (
        lambda run, game: game["text"],
        (
            "graph `candidate`, case `c1`: the flow raised TypeError: 'Draft' object is not "
            "subscriptable" + SCORED.format("TypeError")
        ),
    ),
    (
        lambda run, game: run.do("merge", int, "x"),
        (
            "graph `candidate`, case `c1`, step 1 (`merge`): the flow raised ValueError: invalid "
            "literal for int() with base 10: 'x'" + SCORED.format("ValueError")
        ),
    ),
    (
        lambda run, game: run.together(
            lambda branch: branch.ask("title", game),
            lambda branch: branch.ask("highlight", game).nothing,
        ),
        (
            "graph `candidate`, case `c1`, step 1.2.1 (`highlight`): the flow raised "
            "AttributeError: 'str' object has no attribute 'nothing'"
            + SCORED.format("AttributeError")
        ),
    ),
    (
        lambda run, game: None,
        (
            "graph `candidate`, case `c1`: the flow returned None; return a text, an object or a "
            "PromptResponse"
        ),
    ),
]


@pytest.mark.parametrize(("flow", "line"), LINES)
def test_a_flow_that_fails_is_named_with_case_step_and_node(flow: Any, line: str) -> None:
    graph = Graph("candidate", flow=flow, nodes=ARTICLE.nodes, edges=ARTICLE.edges)
    with pytest.raises(FlowError) as caught:
        trace_of(graph, Draft("g"))
    assert str(caught.value) == line


def test_too_many_steps_are_the_fault_of_the_texts() -> None:
    def forever(run: Run, game: Draft) -> str:
        while True:
            run.ask("title", game)

    session = Session()
    graph = Graph("candidate", flow=forever, nodes=ARTICLE.nodes, max_steps=3)
    with pytest.raises(CandidateError) as caught:
        graph.answer(Draft("g"), adapter=Writer(), session=session)
    said = "the flow did not end within 3 steps; the next one was `title`"
    assert str(caught.value) == said
    assert len(session.select_all(Step)) == 3


def test_branches_share_the_limit_whatever_their_order() -> None:
    def wide(run: Run, game: Draft) -> str:
        run.together(*[lambda branch: branch.ask("title", game)] * 4)
        return "done"

    graph = Graph("candidate", flow=wide, nodes=ARTICLE.nodes, max_steps=3)
    with pytest.raises(CandidateError, match="did not end within 3 steps"):
        graph.answer(Draft("g"), adapter=Writer())
    assert attrs_evolved(graph, 4).answer(Draft("g"), adapter=Writer()).text == "done"


def attrs_evolved(graph: Graph, most: int) -> Graph:
    return Graph(graph.name, flow=graph.flow, nodes=graph.nodes, max_steps=most)
