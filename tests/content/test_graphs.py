"""Images in graphs: bound by nodes, named in traces."""

from __future__ import annotations

from image_files import picture
from promptgraft import MarkdownSection, PromptTemplate, ScriptedAdapter, Session
from promptgraft.graphs import Graph, Node, Run, Step
from promptgraft.ground.content import Image


def look(run: Run, photo: Image) -> str:
    said = run.ask("look", {"photo": photo})
    return str(run.ask("reply", {"photo": photo, "said": said}))


def template(key: str, text: str) -> PromptTemplate[object]:
    section = MarkdownSection(title="Rules", key="rules", template=text)
    return PromptTemplate(ns="tests", key=key, sections=[section])


def test_a_node_is_shown_the_image_that_its_trace_names() -> None:
    photo, adapter, session = picture(), ScriptedAdapter(lambda _: "a cat"), Session()
    graph = Graph(
        "tests",
        flow=look,
        nodes=[
            Node("look", template("look", "$photo")),
            Node("reply", template("reply", "$said $photo")),
        ],
    )
    assert graph.answer(photo, adapter=adapter, session=session).text == "a cat"
    assert all(photo in rendered.content for rendered in adapter.requests)
    assert all(str(photo) in step.input for step in session.select_all(Step))
    assert "PNG" not in repr(session.select_all(Step))
