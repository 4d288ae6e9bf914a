"""``check --probe`` calls an agent once; without it nothing is called."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.console import Console

CODE = """
import pathlib

def call(query, call):
    with pathlib.Path(__file__).with_name("calls.txt").open("a") as file:
        file.write(f"{query} {call.texts['role']}\\n")
    return ANSWER
"""
PROJECT = """\
version: 1
prompts: {desk: {files: {role: role.md}}}
agent: AGENT
dataset: {path: cases.jsonl}
metrics: [{name: json_match}]
models: {reflection: offline}
"""
PYTHON = "{python: 'agent.py:call'}"
COMMAND = "{command: [sh, -c, SCRIPT, agent, '{query}', '{folder}']}\ndelivery: folder"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.chdir(tmp_path)

    def write(agent: str = PYTHON, answer: str = "5") -> Path:
        rows = ({"id": f"c{n}", "input": f"q{n}", "expected": {"n": n}} for n in range(40))
        Path("cases.jsonl").write_text("\n".join(map(json.dumps, rows)))
        Path("role.md").write_text("Be brief.")
        Path("agent.py").write_text(CODE.replace("ANSWER", answer))
        Path("promptgraft.yaml").write_text(PROJECT.replace("AGENT", agent))
        return tmp_path / "calls.txt"

    return write


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("'four\\x1b[31m'", 'a text: "four\\u001b[31m"'),
        ("5", "a number: 5"),
        ("False", "a truth value: false"),
        ("[1, 'b']", 'a list: [1,"b"]'),
        ("{'a': None}", 'an object: {"a":null}'),
    ],
)
def test_a_probe_calls_the_agent_once_and_tells_what_came_back(
    answer: str, said: str, written: Callable[..., Path], console: Console
) -> None:
    calls = written(answer=answer)
    assert console("check").code == 0
    assert not calls.exists()

    shown = console("check", "--probe")
    assert (shown.code, shown.err) == (0, "")
    [line] = [line for line in shown.out.splitlines() if line.startswith("probe: ")]
    [asked] = calls.read_text().splitlines()
    query, _, text = asked.partition(" ")
    assert text == "Be brief."
    called = f"called agent `agent.call` once, with case `{query.replace('q', 'c')}`"
    assert line == f"probe: {called}; it answered with {said}"


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ('[{"name": "search"}, {"name": "read"}]', "after calling `search`, `read` with"),
        ("[]", "after calling no tool with"),
    ],
)
def test_a_probe_names_the_tools_that_the_agent_called(
    calls: str, said: str, written: Callable[..., Path], console: Console
) -> None:
    reply = json.dumps({"text": "x", "steps": json.loads(calls)})
    Path("reply.json").write_text(reply)
    script = f"cat '{Path('reply.json').resolve()}'"
    command = json.dumps(["sh", "-c", script, "{query}", "{folder}"])
    written(f"{{command: {command}, answer: $.text, tools: $.steps}}\ndelivery: folder")
    shown = console("check", "--probe").out
    assert f"it answered {said} a text" in shown, shown


def test_a_probe_is_in_the_document(written: Callable[..., Path], console: Console) -> None:
    written(answer="{'n': 4}")
    probe = json.loads(console("check", "--probe", "--json").out)["probe"]
    assert probe.pop("case").startswith("c")
    assert probe == {"agent": "agent.call", "text": '{"n":4}', "output": {"n": 4}, "tools": None}
    assert "probe" not in json.loads(console("check", "--json").out)


@pytest.mark.parametrize(
    ("agent", "answer", "said"),
    [
        (PYTHON, "1 / 0", "agent `agent.call` failed on `c"),
        (PYTHON, "object()", "an agent returns a value of JSON or an AgentAnswer; fix it first"),
        (COMMAND.replace("SCRIPT", "'echo no >&2; exit 3'"), "", "exit code 3: no; fix it first"),
    ],
)
def test_an_agent_that_fails_is_told_with_its_case(
    agent: str, answer: str, said: str, written: Callable[..., Path], console: Console
) -> None:
    written(agent, answer)
    shown = console("check", "--probe")
    assert shown.code == 2
    [line] = shown.err.splitlines()
    assert "cases.jsonl:" in line
    assert said in line


def test_a_probe_of_a_command_leaves_nothing_behind(
    written: Callable[..., Path], console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    written(COMMAND.replace("SCRIPT", "'cat \"$2/role.md\"'"))
    assert 'a text: "Be brief."' in console("check", "--probe").out
    assert not [*(tmp_path / "tmp").iterdir()]


def test_what_has_no_agent_is_not_probed(written: Callable[..., Path], console: Console) -> None:
    written()
    text = Path("promptgraft.yaml").read_text()
    text = text.replace("{desk: {files: {role: role.md}}}", "{desk: role.md}")
    text = text.replace(f"agent: {PYTHON}\n", "")
    Path("role.md").write_text("# Role\n\nAnswer $query.\n")
    Path("promptgraft.yaml").write_text(text.replace("reflection: offline", "task: openai/m"))
    shown = console("check", "--probe")
    assert shown.code == 2
    assert "--probe: promptgraft.yaml names no `agent` to call" in shown.err
    assert console("check", "--probe", "--no-code").code == 2
