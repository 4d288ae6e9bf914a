"""Jobs for graphs and for agents that are only called, from the project to the promoted winner."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from black_box.service import Reply, said, serving
from jobs.job_world import work_off
from promptgraft.service.jobs import JobManager
from server.serving import Client, served

PROMPTS = [f"examples/desk/{name}" for name in ("route", "wish", "mood", "haste", "check")]
DESK = Path(__file__).parents[2] / "examples" / "desk"
GRAPH = """
version: 1
graphs: {desk: desk.py:GRAPH}
dataset: {path: some.jsonl}
params: asked.py:ticket
metrics:
  - {name: desk, kind: exact, expected_path: desk, answer_path: desk}
  - {name: wish, kind: exact, expected_path: wish, answer_path: wish}
models: {task: {provider: offline}}
optimizer: {rollout_budget: 150, minibatch_size: 3, keep_anyway: true}
"""
TICKET = """
from desk import Ticket

def ticket(case):
    return (Ticket(str(case.input)),)
"""
AGENT = """
version: 1
prompts: {helper: {files: {skill: skill.md}}}
agent: %s
%s
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {reflection: {python: teacher.py:TEACHER}}
optimizer: {rollout_budget: 60, minibatch_size: 3, keep_anyway: true}
"""
COMMAND = '{command: [%s, agent.py, "{folder}", "{query}"]}'
HTTP = """{http: {
  url: "%s", json: {query: "{query}", skill: "{texts.skill}"}, answer: $.answer
}}"""
PROGRAM = """
import pathlib, sys
folder, query = sys.argv[1:]
knows = "letters" in pathlib.Path(folder, "skill.md").read_text()
print(len(query) if knows else query)
"""
TEACHER = """
from promptgraft import ScriptedAdapter

TEACHER = ScriptedAdapter(
    lambda asked: "```instruction\\nCount the letters.\\n```", identity="teacher/1"
)
"""


def graph(folder: Path) -> Path:
    folder.mkdir()
    for name, text in (
        ("desk.py", (DESK / "desk.py").read_text()),
        ("asked.py", TICKET),
        ("some.jsonl", "\n".join((DESK / "cases.jsonl").read_text().splitlines()[:40])),
        ("promptgraft.yaml", GRAPH),
    ):
        (folder / name).write_text(text)
    return folder / "promptgraft.yaml"


def agent(folder: Path, called: str, *, more: str) -> Path:
    folder.mkdir()
    rows = [{"id": f"c{n}", "input": "x" * n, "expected": f"{n}"} for n in range(1, 25)]
    for name, text in (
        ("agent.py", PROGRAM),
        ("skill.md", "Answer."),
        ("teacher.py", TEACHER),
        ("cases.jsonl", "\n".join(map(json.dumps, rows))),
        ("promptgraft.yaml", AGENT % (called, more)),
    ):
        (folder / name).write_text(text)
    return folder / "promptgraft.yaml"


def answered(body: Any, _: dict[str, str]) -> Reply:
    count = len(body["query"])
    return said({"answer": f"{count}" if "letters" in body["skill"] else "no"})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("subjects")
    with serving(answered) as service:
        files = {
            "graph": graph(root / "graph"),
            "command": agent(
                root / "command", COMMAND % json.dumps(sys.executable), more="delivery: {folder: .}"
            ),
            "service": agent(root / "service", HTTP % service.url, more=""),
        }
        manager = JobManager(f"sqlite:///{root}/jobs.db", projects=files)
        with closing(manager), served(manager, root / "mirrors") as found:
            yield found


def worked_off(client: Client, body: dict[str, object]) -> str:
    """Submit a job over HTTP, let a worker carry it out, and return its id."""
    made = client.post("/jobs", body)
    assert made.status == 201, made
    work_off(client.manager)
    job = str(made.document["id"])
    done = client.get(f"/jobs/{job}")
    assert done.at("state") == "completed", done.text
    return job


def part_names(row: dict[str, Any]) -> list[str]:
    return [part["part"] for part in row["parts"]]


def test_a_graph_is_shown_improved_and_promoted(client: Client) -> None:
    where = "/projects/graph/prompts/desk"
    structure = client.get(f"{where}/structure")
    assert [node["id"] for node in structure.rows("nodes")] == PROMPTS
    assert structure.at("declared") is False
    assert structure.text.count('"may_change": true') == len(PROMPTS)
    assert all(f"{one}#instruction" in structure.text for one in PROMPTS)
    changes = {"tag": "night", "budget": 150}
    job = worked_off(client, {"project": "graph", "prompt": "desk", "changes": changes})
    assert "<!doctype html>" in client.get(f"/jobs/{job}/report").text.lower()
    assert client.get(f"{where}/tags/night").status == 404
    revisions = client.get(f"/jobs/{job}").at("status", "revisions")
    assert isinstance(revisions, dict)
    client.post(f"/jobs/{job}/apply")
    holds = client.get(f"{where}/tags/night").rows("prompts")
    assert {one["prompt"] for one in holds} == revisions.keys()
    assert {str(one["prompt"]) for one in holds} <= set(PROMPTS)
    names = [str(one["prompt"]) for one in holds]
    client.ask("PUT", "/api/v1/projects/graph/protections/stable")
    asked = client.post(f"{where}/tags/night/promote", {"to": "stable"}).document["request"]
    moved_parts = {text["part"] for text in client.get(f"/requests/{asked}").rows("texts")}
    assert moved_parts
    assert moved_parts <= {f"{one}#instruction" for one in PROMPTS}
    client.ask("DELETE", "/api/v1/projects/graph/protections/stable")
    for last in ("abcd", ""):
        # Only one of several points at something else: none is moved.
        body = {"to": "prod", "expected": {**dict.fromkeys(names, ""), names[-1]: last}}
        moved = client.post(f"{where}/tags/night/promote", body)
        assert moved.status == (409 if last else 200), moved.text
        tags = client.get(f"{where}/tags").rows("tags")
        assert len(tags) == (2 if last else 3)
    assert [one["prompt"] for one in moved.rows("prompts")] == [one["prompt"] for one in holds]
    assert [one["tag"] for one in client.get(f"{where}/tags").rows("tags")][1:] == ["night", "prod"]
    told = client.get(f"/jobs/{job}/events").rows("events")[-1]
    assert (told["what"], told["by"], told["tag"]) == ("promote", "tests", "prod")
    assert client.post(f"{where}/tags/prod/rollback").rows("prompts") == []
    assert client.get(f"/jobs/{job}/events").rows("events")[-1]["what"] == "rollback"
    assert client.post(f"{where}/tags/night/promote", {"to": "prod"}).status == 200
    # What the winner leaves as it is in the source is so afterwards.
    store = client.manager.projects["graph"].store()
    ns, _, key = names[0].rpartition("/")
    store.delete(ns=ns, prompt_key=key, tag="night")
    assert client.post(f"{where}/tags/night/promote", {"to": "prod"}).status == 200
    left = store.current(ns=ns, prompt_key=key, tag="prod")
    assert left is not None
    assert not left.override.entries()
    with closing(client.browser()) as browser:
        page = browser.get("/tags").text
        assert "graph/desk" in page
        assert "section rules" not in page
        parts = {
            str(part)
            for row in client.get(f"{where}/tags/night").rows("prompts")
            for part in part_names(row)
        }
        assert parts <= {f"{one}#instruction" for one in PROMPTS}
        overview, texts = (browser.get(f"/jobs/{job}{tab}").text for tab in ("", "/texts"))
        for shown in (page, overview, texts):
            assert all(part in shown for part in parts), parts
            assert "section rules" not in shown
        form = {"project": "graph", "prompt": "desk", "tag": "prod", "what": "rollback"}
        asked = browser.post("/tags", data=form).text
        assert "Roll prod back?" in asked
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked))
        assert browser.post("/tags", data={**form, **fields}).status_code == 303
        assert store.current(ns=ns, prompt_key=key, tag="prod") != left


def test_only_the_named_parts_of_a_graph_change(client: Client) -> None:
    structure = json.loads(client.get("/projects/graph/prompts/desk/structure").text)
    parts = [part for node in structure["nodes"] for part in node["parts"]]
    ids = [str(part["id"]) for part in parts if part["may_change"]]
    body = {"project": "graph", "prompt": "desk"}
    changes = {"budget": 150, "tuning": {"targets": {"parts": ids[:1]}}}
    job = worked_off(client, {**body, "changes": changes})
    candidates = json.loads(client.get(f"/jobs/{job}/candidates").text)["candidates"]
    assert {name for row in candidates for name in row["texts"]} == set(ids[:1])
    near = ids[0].replace("instruction", "instructions")
    refused = client.post("/jobs", {**body, "changes": {"tuning": {"targets": {"parts": [near]}}}})
    assert refused.status == 422
    assert f"did you mean `{ids[0]}`" in refused.text


@pytest.mark.parametrize(
    "project", [pytest.param("command", marks=pytest.mark.thorough), "service"]
)
def test_an_agent_that_is_only_called_is_improved(client: Client, project: str) -> None:
    structure = client.get(f"/projects/{project}/prompts/helper/structure")
    (node,) = structure.rows("nodes")
    assert (node["kind"], node["prompt"]) == ("agent", structure.at("name"))
    plan = client.post("/plans", {"project": project, "prompt": "helper"})
    assert "60" in str(plan.at("line"))
    job = worked_off(client, {"project": project, "prompt": "helper"})
    assert client.get(f"/jobs/{job}").at("status", "best") == 1.0
    assert client.get(f"/jobs/{job}/candidates/1").at("texts", "section skill") == (
        "Count the letters."
    )
    assert client.post(f"/jobs/{job}/apply").at("tag") == "latest"
    tag = client.get(f"/projects/{project}/prompts/helper/tags/latest")
    assert "Count the letters." in tag.text
    assert "Count the letters." in client.get(f"/jobs/{job}/report").text
