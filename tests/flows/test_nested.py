"""Graphs as nodes of graphs: their nodes are nodes of the outer one, under a prefix."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console
from flows.tickets import GRAPH, WANTED, Ticket, context, settings, template, work
from further import thorough
from promptgraft import GepaOptimizer, ScriptedAdapter
from promptgraft.errors import CandidateError, ConfigError, FlowError, JournalMismatchError
from promptgraft.graphs import AsyncRun, Graph, Node, Run, Step, step, text
from promptgraft.journal import MemoryJournal
from promptgraft.prompt.texts import texts_in
from promptgraft.runtime import Deadline, Session


def notes(run: Run, desk: str, ticket: Ticket) -> str:
    facts, tone = run.together(
        lambda branch: branch.ask("facts", Ticket(f"{desk} {ticket.text}")),
        lambda branch: branch.ask("tone", ticket),
    )
    return f"{facts} {tone}"


def answer(run: Run, ticket: Ticket) -> str:
    desk = run.ask("router", ticket)
    return str(run.ask("writer", Ticket(f"{desk} {run.ask('notes', desk, ticket)}")))


NOTES = Graph("support/notes", flow=notes, nodes=[Node(n, template(n)) for n in ("facts", "tone")])
OUTER = [Node("router", template("router")), Node("notes", graph=NOTES)]
NESTED = Graph("support/tickets", flow=answer, nodes=[*OUTER, Node("writer", template("writer"))])


def steps_of(graph: Graph, **more: Any) -> list[Step]:
    session = Session()
    graph.answer(Ticket("Help!"), adapter=ScriptedAdapter(work), session=session, **more)
    return list(session.select_all(Step))


def test_the_steps_of_an_inner_graph_come_before_its_answer() -> None:
    said = "Say facts. Say tone."
    assert [(one.id, one.node, one.kind, one.after, one.output) for one in steps_of(NESTED)] == [
        ("1", "router", "prompt", (), "Say router."),
        ("3.1.1.1.1", "notes/facts", "prompt", ("1",), "Say facts."),
        ("3.1.1.2.1", "notes/tone", "prompt", ("1",), "Say tone."),
        ("4", "notes", "graph", ("3.1.1.1.1", "3.1.1.2.1"), said),
        ("5", "writer", "prompt", ("4",), f"Say writer. Say router. {said}"),
    ]


def test_it_is_described_with_the_nodes_of_inner_graphs() -> None:
    described = NESTED.describe([steps_of(NESTED)])
    at = "support/tickets"
    assert [(node.id, node.kind, len(node.parts)) for node in described.nodes] == [
        (f"{at}/router", "prompt", 2),
        (f"{at}/notes", "graph", 0),
        (f"{at}/notes/facts", "prompt", 2),
        (f"{at}/notes/tone", "prompt", 2),
        (f"{at}/writer", "prompt", 2),
    ]
    assert described.edges == (
        (f"{at}/router", f"{at}/notes/facts"),
        (f"{at}/router", f"{at}/notes/tone"),
        (f"{at}/notes/facts", f"{at}/notes"),
        (f"{at}/notes/tone", f"{at}/notes"),
        (f"{at}/notes", f"{at}/writer"),
    )
    assert described.entry == (f"{at}/router",)
    assert {part.name for part in NESTED.parts} == {part.name for part in GRAPH.parts}
    other = attrs.evolve(NESTED, nodes=OUTER)
    assert other.describe().structure_id != NESTED.describe().structure_id


def chain(run: Run, *words: str) -> str:
    for word in words:
        run.do(word, str)
    return str(run.ask("last", Ticket("x")))


def chained(name: str, *names: str, nodes: list[Node] | None = None) -> Graph:
    """Return a graph whose nodes follow each other."""
    inner = [*map(Node, names), *(nodes or ()), Node("last", template("last"))]
    places = [node.name for node in inner]
    edges = list(itertools.pairwise(places))
    return Graph(name, flow=chain, nodes=inner, edges=edges)


def test_declared_edges_hold_on_each_level() -> None:
    def outer(run: Run, *words: str) -> str:
        run.do("first", str)
        return str(run.ask("inner", *words))

    inner = chained("in", "a", "b")
    edges = [("first", "inner")]
    graph = Graph("out", flow=outer, nodes=[Node("first"), Node("inner", graph=inner)], edges=edges)
    described = graph.describe()
    assert described.declared
    names = ("first", "inner/a", "inner/b", "inner/last", "inner")
    assert sorted(described.edges) == sorted(
        (f"out/{start}", f"out/{end}") for start, end in itertools.pairwise(names)
    )
    asked = ScriptedAdapter(lambda _: "ok")
    assert graph.answer("a", "b", adapter=asked).text == "ok"
    with pytest.raises(FlowError, match=r"`inner/b` -> `inner/a` is not declared") as raised:
        graph.answer("b", "a", adapter=asked)
    assert raised.value.node == "inner/a"
    loose = attrs.evolve(inner, edges=None)
    assert (
        not attrs.evolve(graph, nodes=[Node("first"), Node("inner", graph=loose)])
        .describe()
        .declared
    )


def test_graphs_nest_to_any_depth_and_may_be_plain_or_async() -> None:
    def plain(question: str) -> str:
        with step("planner", input=question) as planning:
            planning.output = f"{text('planner')} {question}"
        return str(planning.output)

    async def middle(run: AsyncRun, question: str) -> str:
        return str(await run.ask("plain", question))

    def outer(run: Run, question: str) -> str:
        return str(run.ask("middle", question))

    inner = Graph.around(plain, texts={"planner": "Plan."}, name="plans")
    between = Graph("between", flow=middle, nodes=[Node("plain", graph=inner)])
    graph = Graph("outer", flow=outer, nodes=[Node("middle", graph=between)])
    session = Session()
    assert graph.answer("Why?", session=session).text == "Plan. Why?"
    names = ["middle/plain/planner", "middle/plain", "middle"]
    assert [one.node for one in session.select_all(Step)] == names
    assert [part.name for part in graph.parts] == ["plans/planner#instruction"]


def test_async_graphs_in_async_graphs_do_not_wait_for_each_others_threads() -> None:
    async def inner(run: AsyncRun, ticket: Ticket) -> str:
        return str(await run.ask("facts", ticket))

    async def outer(run: AsyncRun, ticket: Ticket) -> str:
        async def asked(branch: AsyncRun) -> str:
            return str(await branch.ask("inner", ticket))

        # More than the executor of an event loop has threads on any machine.
        return " ".join(await run.together(*[asked] * 40))

    graph = Graph("inner", flow=inner, nodes=[Node("facts", template("facts"))])
    whole = Graph("outer", flow=outer, nodes=[Node("inner", graph=graph)], max_steps=80)
    ends = Deadline.after(60)
    answered = whole.answer(Ticket("t"), adapter=ScriptedAdapter(work), deadline=ends)
    assert answered.text == " ".join(["Say facts."] * 40)


def test_the_answer_of_an_inner_graph_keeps_its_type_and_its_tokens() -> None:
    def inner(run: Run, ticket: Ticket) -> Any:
        return run.ask("facts", ticket)

    def outer(run: Run, ticket: Ticket) -> Any:
        return run.ask("inner", ticket)

    graph = Graph("inner", flow=inner, nodes=[Node("facts", template("facts"))])
    whole = Graph("outer", flow=outer, nodes=[Node("inner", graph=graph)])
    asked = ScriptedAdapter(work)
    assert whole.answer(Ticket("t"), adapter=asked) == graph.answer(Ticket("t"), adapter=asked)
    objects = attrs.evolve(graph, flow=lambda run, ticket: {"queue": run.ask("facts", ticket)})
    answered = attrs.evolve(whole, nodes=[Node("inner", graph=objects)]).answer(
        Ticket("t"), adapter=asked
    )
    assert answered.output == {"queue": "Say facts."}


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (lambda run, *_: int("x"), CandidateError),
        (lambda run, *_: [].pop(), FlowError),
        (lambda run, *_: run.ask("router", Ticket("t")), FlowError),
        (lambda run, *_: None, FlowError),
        (lambda run, *_: [run.ask("facts", Ticket("t")) for _ in range(99)], CandidateError),
    ],
)
def test_faults_inside_are_those_of_the_outer_graph(
    flow: Callable[..., Any], expected: type[Exception]
) -> None:
    inner = attrs.evolve(NOTES, flow=flow, candidate_errors=(ValueError,))
    graph = attrs.evolve(NESTED, nodes=[OUTER[0], Node("notes", graph=inner), NESTED.nodes[2]])
    with pytest.raises(expected):
        steps_of(graph)


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ConfigError, match="node `notes`: has a graph, so leave out prompt"):
        Node("notes", template("facts"), graph=NOTES)
    with pytest.raises(ConfigError, match="node `notes`: expected a Graph, found 'x'"):
        Node("notes", graph="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="what answers node `notes/facts`"):
        attrs.evolve(NESTED, nodes=[OUTER[1]]).answer(Ticket("t"))
    with pytest.raises(FlowError, match="node `notes` has a graph; ask it"):
        attrs.evolve(NESTED, flow=lambda run, _: run.do("notes", str)).answer(
            Ticket("t"), adapter=ScriptedAdapter(work)
        )
    clash = attrs.evolve(NOTES, nodes=[Node("facts", template("facts"))])
    with pytest.raises(ConfigError, match=r"`facts` and `notes/facts` have different prompts"):
        Graph(
            "x", flow=answer, nodes=[Node("facts", template("facts")), Node("notes", graph=clash)]
        )


def test_targets_of_the_inner_and_of_the_outer_graph_open_parts() -> None:
    facts = "support/tickets/facts#instruction"
    inner = Node("notes", graph=attrs.evolve(NOTES, targets=[facts]))
    graph = attrs.evolve(NESTED, nodes=[OUTER[0], inner, NESTED.nodes[2]])
    names = [part.name for part in graph.parts]
    assert names == [
        f"support/tickets/{name}#instruction" for name in ("router", "facts", "writer")
    ]
    assert [part.name for part in attrs.evolve(NESTED, targets=[facts]).parts] == [facts]


def test_an_adapter_of_the_node_answers_the_inner_nodes_that_have_none() -> None:
    inner = attrs.evolve(
        NOTES,
        nodes=[
            NOTES.nodes[0],
            Node("tone", template("tone"), adapter=ScriptedAdapter(lambda _: "t")),
        ],
    )
    node = Node("notes", graph=inner, adapter=ScriptedAdapter(lambda _: "f"))
    graph = attrs.evolve(NESTED, nodes=[OUTER[0], node, NESTED.nodes[2]])
    outputs = {one.node: one.output for one in steps_of(graph)}
    assert (outputs["notes/facts"], outputs["notes/tone"], outputs["router"]) == (
        "f",
        "t",
        "Say router.",
    )
    other = ScriptedAdapter(lambda _: "o")
    outputs = {one.node: one.output for one in steps_of(graph.answered_by(other))}
    assert (outputs["notes/facts"], outputs["notes/tone"], outputs["router"]) == (
        "o",
        "o",
        "Say router.",
    )


def test_a_search_improves_the_texts_of_inner_graphs() -> None:
    nested = GepaOptimizer(context(), settings()).optimize(NESTED)
    flat = GepaOptimizer(context(), settings()).optimize(GRAPH)
    assert nested.best_pareto_mean == flat.best_pareto_mean == 1.0
    assert nested.best.changes == flat.best.changes
    assert {at.rpartition("/")[2] for at in nested.best.changes} == {*WANTED}


def test_the_flow_of_an_inner_graph_belongs_to_the_run() -> None:
    journal = MemoryJournal()
    GepaOptimizer(context(journal=journal), settings()).optimize(NESTED)
    inner = attrs.evolve(NOTES, flow=lambda run, desk, ticket: notes(run, f"{desk}!", ticket))
    changed = attrs.evolve(NESTED, nodes=[OUTER[0], Node("notes", graph=inner), NESTED.nodes[2]])
    with pytest.raises(JournalMismatchError, match="graphs"):
        GepaOptimizer(context(journal=journal), settings()).optimize(changed)


def test_the_texts_of_inner_graphs_are_rendered_in_sections_of_their_own() -> None:
    long = "n" * 60
    inner = Graph(
        "support/inner",
        flow=notes,
        nodes=[Node("tone", template("facts")), Node(long, template("tone"))],
    )
    graph = Graph(
        "support/all",
        flow=answer,
        nodes=[
            Node(long, graph=inner),
            Node("desk", graph=inner),
            Node("desk-tone", template("writer")),
            Node("count"),
        ],
    )
    texts = texts_in(graph.stand_in().render())
    assert {path: text for path, text in texts.items() if text} == {
        path: prompt.with_placeholders().text for path, prompt in graph.prompts.items()
    }


# Projects

INNER = '''
def team(run: Run, area: str, report: str) -> str:
    """Answer with the name of a team of an area."""
    return str(run.ask(area, Report(report)))


def team_of(run: Run, report: str) -> str:
    """Answer with the name of the team."""
    return str(run.ask("teams", run.ask("area", Report(report)), report))


TEAMS = Graph(
    "fernhill/teams",
    flow=team,
    nodes=[Node("streets", STREETS), Node("green", GREEN), Node("homes", HOMES)],
    edges=[],
)
GRAPH = Graph(
    "fernhill/reports",
    flow=team_of,
    nodes=[Node("area", AREA), Node("teams", graph=TEAMS)],
    edges=[("area", "teams")],
)
'''


@pytest.fixture
def project(tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of ``init --graph``, with the teams in a graph of their own."""
    folder = tmp_path / "reports"
    assert console("init", "--graph", str(folder)).code == 0
    monkeypatch.chdir(folder)
    data = folder / "data/reports.jsonl"
    data.write_text("".join(data.read_text("utf-8").splitlines(keepends=True)[:80]), "utf-8")
    return folder


def nest(folder: Path) -> None:
    code = folder / "agent.py"
    before, rest = code.read_text("utf-8").split("def team_of(")
    after = rest[rest.index("def right_area(") :]
    code.write_text(f"{before}{INNER}\n\n{after}", "utf-8")


@pytest.mark.parametrize("algorithm", ["gepa", *thorough(["gradient"])])
def test_a_project_with_a_nested_graph_ends_as_the_flat_one(
    project: Path, console: Console, algorithm: str
) -> None:
    file = project / "promptgraft.yaml"
    settings_text = file.read_text("utf-8").replace("rollout_budget: 1500", "rollout_budget: 120")
    if algorithm == "gradient":
        settings_text = settings_text.replace("minibatch_size: 6", "algorithm: gradient")
    file.write_text(settings_text, "utf-8")
    results = []
    for change in (lambda _: None, nest):
        change(project)
        assert console("check").code == 0
        assert console("plan").code == 0
        assert console("optimize", "-q").code in (0, 1)
        run = max((project / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        results.append(json.loads((run / "result.json").read_text("utf-8")))
    flat, nested = results
    assert nested["scores"] == flat["scores"]
    assert nested["winner"]["entries"] == flat["winner"]["entries"]
    assert console("replay", run.name).code == 0
    described = json.loads(console("describe", "--json").out)
    assert ["fernhill/reports/area", "fernhill/reports/teams/green"] in described["edges"]
    assert ["fernhill/reports/teams/green", "fernhill/reports/teams"] in described["edges"]
    assert described["declared"]
    assert console("report", run.name).code == 0
    assert "teams/streets" in (run / "report.html").read_text("utf-8")
