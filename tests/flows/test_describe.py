"""What a graph is made of is said by the names that runs use."""

from __future__ import annotations

import json

import attrs
import pytest

from flows.recap import AGENTS, ARTICLE, RECAP, Draft, Writer, template
from promptgraft import MarkdownSection, PromptTemplate, ScriptedAdapter
from promptgraft.errors import ConfigError, InvalidIdentifierError
from promptgraft.graphs import Graph, Node, Step
from promptgraft.runtime import Session
from promptgraft.targets import SectionModule


def changing(graph: Graph) -> list[str]:
    return [part.id for node in graph.describe().nodes for part in node.parts if part.may_change]


def test_the_nodes_edges_and_parts_of_a_graph_that_declares_them() -> None:
    described = ARTICLE.describe()
    assert [(node.id, node.kind) for node in described.nodes] == [
        ("candidate/prepare", "function"),
        ("candidate/title", "prompt"),
        ("candidate/introduction", "prompt"),
        ("candidate/highlight", "prompt"),
        ("candidate/merge", "function"),
        ("candidate/polish", "prompt"),
        ("candidate/review", "prompt"),
        ("candidate/publish", "function"),
    ]
    assert described.declared
    assert described.edges == (
        ("candidate/prepare", "candidate/title"),
        ("candidate/prepare", "candidate/introduction"),
        ("candidate/prepare", "candidate/highlight"),
        ("candidate/title", "candidate/merge"),
        ("candidate/introduction", "candidate/merge"),
        ("candidate/highlight", "candidate/merge"),
        ("candidate/merge", "candidate/polish"),
        ("candidate/polish", "candidate/review"),
        ("candidate/review", "candidate/polish"),
        ("candidate/review", "candidate/publish"),
    )
    assert changing(ARTICLE) == [
        "candidate/title#instruction",
        "candidate/introduction#instruction",
        "candidate/highlight#instruction",
        "candidate/polish#instruction",
        "candidate/review#instruction",
    ]
    title = described.nodes[1]
    assert [(part.id, part.chars, part.may_change) for part in title.parts] == [
        ("candidate/title#instruction", len("Generate a Chinese recap title"), True),
        ("candidate/title#section draft", len("$text"), False),
    ]
    plain = json.loads(json.dumps(described.as_json()))
    assert (plain["name"], plain["entry"]) == ("candidate", ["candidate/prepare"])
    assert plain["nodes"][1]["parts"][0]["text"] == "Generate a Chinese recap title"
    assert plain["structure_id"] == ARTICLE.describe().structure_id
    reduced = attrs.evolve(ARTICLE, targets=["candidate/title#instruction"])
    assert reduced.describe().structure_id != plain["structure_id"]


def test_targets_open_parts_by_their_ids() -> None:
    graph = attrs.evolve(ARTICLE, targets=["candidate/polish#instruction"])
    assert changing(graph) == ["candidate/polish#instruction"]
    for targets, why in (
        (["candidate/polish#instructions"], r"did you mean `candidate/polish#instruction`"),
        (["candidate/title#section draft"], "no part `candidate/title#section draft` may change"),
        ([], "expected at least one part, found none"),
    ):
        with pytest.raises(ConfigError, match=why):
            attrs.evolve(ARTICLE, targets=targets)


def test_edges_that_are_not_declared_are_those_of_the_traces() -> None:
    assert RECAP.describe().edges == ()
    assert changing(RECAP) == [f"sports/recap/{name}#instruction" for name in AGENTS]
    session = Session()
    RECAP.answer(Draft("game"), adapter=Writer(), session=session)
    described = RECAP.describe([session.select_all(Step)])
    assert not described.declared
    assert [node.id.rpartition("/")[2] for node in described.nodes] == [
        *AGENTS,
        "prepare_game_input",
        "join_recap_parts",
    ]
    assert {
        (start.rpartition("/")[2], end.rpartition("/")[2]) for start, end in described.edges
    } == {
        ("prepare_game_input", "headline"),
        ("prepare_game_input", "highlights"),
        ("prepare_game_input", "stats_angle"),
        ("headline", "join_recap_parts"),
        ("highlights", "join_recap_parts"),
        ("stats_angle", "join_recap_parts"),
        ("join_recap_parts", "recap_writer"),
        ("recap_writer", "sports_editor"),
    }


def test_a_prompt_with_several_texts_has_them_by_name_and_may_be_shared_or_kept() -> None:
    sections = [MarkdownSection(title=name, key=name, template=name) for name in ("rules", "tone")]
    both = PromptTemplate[object](ns="support", key="both", sections=sections)
    strong = ScriptedAdapter(str, identity="strong")
    graph = Graph(
        "support",
        flow=str,
        nodes=[
            Node("one", both),
            Node("two", both, adapter=strong),
            Node("kept", template("kept", "As it is."), parts=()),
            Node("some", template("some", "x"), parts=[SectionModule(("task",))]),
        ],
    )
    assert changing(graph) == [
        "support/both#section rules",
        "support/both#section tone",
        "support/both#section rules",
        "support/both#section tone",
        "candidate/some#instruction",
    ]
    assert [node.model for node in graph.describe().nodes] == ["", "strong", "", ""]
    assert [part.name for part in graph.parts] == [
        "support/both#section rules",
        "support/both#section tone",
        "candidate/some#instruction",
    ]


ONE = Node("one", template("one", "Say one."))
LINES = [
    ({"nodes": [ONE, ONE]}, "nodes: two nodes have the name `one`"),
    ({"nodes": []}, "nodes: expected at least one with a prompt, found none"),
    ({"nodes": [Node("merge")]}, "nodes: expected at least one with a prompt, found none"),
    ({"nodes": ["one"]}, "nodes: expected a list of Node, found 'one'"),
    (
        {"nodes": [ONE, Node("two", template("one", "Say two."))]},
        (
            "nodes: `one` and `two` have different prompts with the namespace and key "
            "`candidate/one`; give one of them another key"
        ),
    ),
    (
        {"edges": [("one", "tow")], "nodes": [ONE, Node("two")]},
        ("edges: one -> tow: there is no node 'tow' (did you mean `two`?); nodes: `one`, `two`"),
    ),
    ({"edges": ["one"]}, "edges: expected pairs of names of nodes, found 'one'"),
    ({"flow": "answer"}, "flow: expected a function, found 'answer'"),
    ({"max_steps": 0}, "Graph: max_steps: expected an integer of at least 1, found 0"),
    ({"max_step_chars": 9}, "Graph: max_step_chars: expected an integer of at least 100, found 9"),
    (
        {"candidate_errors": "ValueError"},
        ("candidate_errors: expected exception classes such as (ValueError,), found 'V'"),
    ),
]


@pytest.mark.parametrize(("changes", "line"), LINES)
def test_a_broken_graph_is_refused_before_anything_is_asked(
    changes: dict[str, object], line: str
) -> None:
    given: dict[str, object] = {"flow": str, "nodes": [ONE], **changes}
    with pytest.raises(ConfigError) as caught:
        Graph("candidate", **given)  # type: ignore[arg-type]
    assert str(caught.value) == line


def test_a_broken_node_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError) as caught:
        Node("one", "Say one.")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "node `one`: expected a PromptTemplate or a Prompt, found 'Say one.'"
    )
    with pytest.raises(ConfigError, match="node `one`: adapter: expected an adapter"):
        Node("one", template("one", "x"), adapter="strong")  # type: ignore[arg-type]
    with pytest.raises(InvalidIdentifierError, match="node: expected 1 to 64 lower-case"):
        Node("Node one")
    with pytest.raises(InvalidIdentifierError, match="ns: expected lower-case identifiers"):
        Graph("Support tickets", flow=str, nodes=[ONE])


def test_a_graph_without_an_adapter_says_which_node_lacks_it() -> None:
    graph = Graph("candidate", flow=str, nodes=[ONE])
    with pytest.raises(ConfigError) as caught:
        graph.answer("x")
    assert str(caught.value) == (
        "adapter: expected what answers node `one`, found None; give the OptimizationContext an "
        "adapter"
    )
    whole = attrs.evolve(graph, nodes=[attrs.evolve(ONE, parts=())])
    with pytest.raises(ConfigError, match="no part of `candidate` may change"):
        _ = whole.parts
