"""Cases of several turns: a flow is called with each message, and its answers are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console
from further import thorough
from promptgraft import MarkdownSection, PromptTemplate, ScriptedAdapter
from promptgraft.errors import ConfigError
from promptgraft.evals.binding import params_of_cases
from promptgraft.evals.types import Case, Message, Speaker, Turn, TurnAnswered
from promptgraft.graphs import AsyncRun, Graph, Node, Run, Step, history, step, text
from promptgraft.ground.serde import Json
from promptgraft.project import load_project
from promptgraft.runtime import Session


def template(key: str) -> PromptTemplate[Any]:
    sections = [
        MarkdownSection(title="Rules", key="rules", template=f"Say {key}."),
        MarkdownSection(title="Mail", key="mail", template="$mail", overridable=False),
    ]
    return PromptTemplate[Any](ns="shop/mails", key=key, sections=sections)


def heard(messages: tuple[Message, ...]) -> str:
    return " | ".join(f"{message.speaker}: {message.text}" for message in messages)


def reply(run: Run, mail: str) -> str:
    queue, _ = run.together(
        lambda branch: branch.ask("route", {"mail": f"{heard(branch.history)} > {mail}"}),
        lambda branch: branch.do("look", str),
    )
    return str(run.ask("write", {"mail": f"{queue} {mail}"}))


NODES = [Node(name, template(name)) for name in ("route", "write")]
GRAPH = Graph(
    "shop/mails",
    flow=reply,
    nodes=[*NODES, Node("look")],
    edges=[("route", "write"), ("look", "write")],
)
TALK = Case(
    id="talk",
    input="And in red?",
    context=(Message(Speaker.SYSTEM, "Be kind."),),
    turns=(Turn(user="Have you hats?", expected="yes"), Turn(user="And in red?", expected="no")),
)


def answered(graph: Graph, case: Case = TALK) -> tuple[list[Step], list[TurnAnswered], str]:
    session = Session()
    answers = iter(["hats", "Yes, we have.", "colours", "No, in blue."])
    response = graph.answer(
        *params_of_cases(graph.stand_in(), [case])[case.id],
        adapter=ScriptedAdapter(lambda _: next(answers)),
        session=session,
    )
    turns = session.select_all(TurnAnswered)
    return list(session.select_all(Step)), list(turns), response.text


def test_a_flow_is_called_with_each_message_and_knows_those_before() -> None:
    steps, turns, last = answered(GRAPH)
    assert [(step.id, step.node, step.after) for step in steps] == [
        ("1.1.1", "route", ()),
        ("1.2.1", "look", ()),
        ("2", "write", ("1.1.1", "1.2.1")),
        ("3.1.1", "route", ()),
        ("3.2.1", "look", ()),
        ("4", "write", ("3.1.1", "3.2.1")),
    ]
    before = "system: Be kind. | user: Have you hats? | assistant: Yes, we have."
    assert json.loads(steps[0].input) == {"mail": "system: Be kind. > Have you hats?"}
    assert json.loads(steps[3].input) == {"mail": f"{before} > And in red?"}
    assert [(turn.query, turn.answer.text) for turn in turns] == [
        ("Have you hats?", "Yes, we have."),
        ("And in red?", "No, in blue."),
    ]
    # Each answer has the steps of its turn, for the metrics of nodes.
    queues = [turn.answer.of_node("route") for turn in turns]
    assert [queue.text for queue in queues if queue is not None] == ["hats", "colours"]
    assert last == "No, in blue."


def test_inner_graphs_async_flows_and_plain_code_know_the_conversation() -> None:
    async def desk(run: AsyncRun, mail: str) -> str:
        return str(await run.ask("write", {"mail": f"{heard(run.history)} > {mail}"}))

    def plain(mail: str) -> str:
        with step("plan", input=heard(history())) as planning:
            planning.output = text("plan")
        return f"{len(history())} before {mail}"

    inner = Graph("shop/desk", flow=desk, nodes=[NODES[1]])
    outer = Graph(
        "shop/all", flow=lambda run, mail: run.ask("desk", mail), nodes=[Node("desk", graph=inner)]
    )
    steps, _, _ = answered(outer)
    assert [step.node for step in steps] == ["desk/write", "desk"] * 2
    assert json.loads(steps[2].input)["mail"].endswith("assistant: hats > And in red?")

    around = Graph.around(plain, texts={"plan": "Plan."})
    steps, turns, last = answered(around)
    assert last == "3 before And in red?"
    assert [turn.answer.text for turn in turns] == ["1 before Have you hats?", last]
    assert history() == ()


def test_what_cannot_be_played_is_refused() -> None:
    scenario: Json = {"starting_prompt": "Hello", "conversation_plan": "Buy a hat."}
    played = Case(id="a", input="Hello", fields={"conversation_scenario": scenario})
    with pytest.raises(ConfigError, match="`conversation_scenario` is played with an agent"):
        params_of_cases(GRAPH.stand_in(), [played])
    plain = attrs.evolve(GRAPH.stand_in(), plays_turns=False)
    with pytest.raises(ConfigError, match="several turns needs `params`"):
        params_of_cases(plain, [TALK])


FLOW = '''
def team_of(run: Run, report: str) -> str:
    """Answer with the name of the team; a report may go on an earlier one."""
    SEEN.append(len(run.history))
    before = " ".join(str(message.text) for message in run.history)
    area = run.ask("area", Report(f"{report} {before}"))
    return str(run.ask(area, Report(report)))


SEEN: list[int] = []
'''


@pytest.fixture
def talks(tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of ``init --graph``, whose cases have two turns."""
    folder = tmp_path / "reports"
    assert console("init", "--graph", str(folder)).code == 0
    monkeypatch.chdir(folder)
    code, data, file = folder / "agent.py", folder / "data/reports.jsonl", Path("promptgraft.yaml")
    source = code.read_text("utf-8")
    before, after = source.split("def team_of(")[0], source[source.index("GRAPH = Graph(") :]
    code.write_text(f"{before}{FLOW}\n\n{after}", "utf-8")
    cases = [json.loads(line) for line in data.read_text("utf-8").splitlines()[:80]]
    turns = [{"user": case["input"], "expected": case["expected"]} for case in cases]
    lines = [
        {"id": case["id"], "turns": [turns[number - 1], turns[number]]}
        for number, case in enumerate(cases)
    ]
    data.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    settings = file.read_text("utf-8").replace("rollout_budget: 1500", "rollout_budget: 120")
    file.write_text(settings.replace("workers: 1", "workers: 4"), "utf-8")
    return folder


@pytest.mark.parametrize("algorithm", ["gepa", *thorough(["gradient"])])
def test_a_project_is_improved_on_conversations(
    talks: Path, console: Console, algorithm: str
) -> None:
    file = talks / "promptgraft.yaml"
    if algorithm == "gradient":
        changed = file.read_text("utf-8").replace("minibatch_size: 6", "algorithm: gradient")
        file.write_text(changed, "utf-8")
    assert console("check").code == 0
    plan = json.loads(console("plan", "--json").out)
    [row] = [row for row in plan["roles"] if row["role"] == "task"]
    # Each node is expected to be asked once in each turn.
    assert row["expected"]["calls"] == 2 * 4 * plan["rollouts"]
    evaluated = json.loads(console("eval", "--split", "test", "--json").out)
    assert 0 < evaluated["mean_score"] < 1
    assert console("optimize", "-q").code in (0, 1)
    [run] = [path for path in (talks / "runs").iterdir() if path.is_dir()]
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert result["scores"]["pareto"]["gain"] >= 0
    assert console("replay", run.name).code == 0
    questions = "".join(path.read_text("utf-8") for path in (run / "questions").iterdir())
    assert "turn 2" in questions
    case = load_project(file).splits.parts()["validation"].cases[0].id
    shown = json.loads(console("show", run.name, "--case", case, "--candidate", "0", "--json").out)
    assert [step["id"] for step in shown["rollouts"][0]["steps"]] == ["1", "2", "3", "4"]
