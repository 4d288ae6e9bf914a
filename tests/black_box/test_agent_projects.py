"""The section ``agent`` of a project file: what it says, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft import Agent, Case, CommandAgent, Dataset, HttpAgent, PromptResponse, Session
from promptgraft.adapters.base import evaluated
from promptgraft.agents.python import PythonAgent
from promptgraft.cli.main import run
from promptgraft.errors import DataFormatError
from promptgraft.evals.attempt import answer_of
from promptgraft.project import load_project
from promptgraft.project.checking import check_project

CODE = """
TEXTS = {"system": "Be brief.", "skill": "Count."}

async def call(query, call):
    return "four" if "letters" in call.texts["skill"] else query

def deaf(query):
    return query
"""
FILE = """version: 1
prompts: {desk: agent.py:TEXTS}
agent: {python: agent.py:call}
dataset: {path: cases.jsonl}
metrics: [{name: exact}]
models: {reflection: {provider: offline}}
"""
AGENT = "{python: agent.py:call}"

Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Write a project with another agent, or another line, and return its file."""
    monkeypatch.chdir(tmp_path)

    def write(agent: str = AGENT, **lines: str) -> Path:
        text = FILE.replace(AGENT, agent)
        for line, new in lines.items():
            text = "".join(
                new if one.startswith(f"{line}:") else one for one in text.splitlines(keepends=True)
            )
        Path("agent.py").write_text(CODE, "utf-8")
        rows = ({"id": f"c{n}", "input": f"q{n}", "expected": "four"} for n in range(20))
        Path("cases.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
        Path("promptgraft.yaml").write_text(text, "utf-8")
        return Path("promptgraft.yaml")

    return write


def agent_of(file: Path) -> Agent | None:
    asking = load_project(file).asking
    return None if asking is None else asking.agent


def test_each_kind_of_agent_is_made_of_the_file(written: Written) -> None:
    function = agent_of(written("{python: agent.py:call, version: '3', timeout: 5}"))
    assert isinstance(function, PythonAgent)
    assert (function.identity, function.timeout) == ("agent.call 3", 5)

    service = agent_of(
        written(
            "{http: {url: 'http://localhost:1/ask', json: {q: '{query}', p: '{texts.system}'}, "
            "headers: {Authorization: 'Bearer ${DESK_KEY}'}, answer: $.text, timeout: 3}}"
        )
    )
    assert isinstance(service, HttpAgent)
    assert service.json == {"q": "{query}", "p": "{texts.system}"}
    assert (service.answer, service.timeout, service.variables) == ("$.text", 3, ("DESK_KEY",))

    command = agent_of(
        written("{command: [sh, agent.py, '{query}', '{texts.skill}'], env: {A: b}, timeout: 9}")
    )
    assert isinstance(command, CommandAgent)
    assert command.command == ("sh", "agent.py", "{query}", "{texts.skill}")
    assert (dict(command.env), command.timeout) == ({"A": "b"}, 9)


def test_the_agent_answers_the_cases_of_a_project(written: Written) -> None:
    project = load_project(written())
    result = project.job().run()
    assert result.baseline_pareto_mean == 0.0
    task = project.adapter("task")
    assert getattr(task, "identity", None) == "agent agent.call"


def test_a_secret_that_is_not_set_is_a_warning_of_check(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DESK_KEY", raising=False)
    file = written("{command: [sh, '{query}', '{texts.skill}'], env: {KEY: '${DESK_KEY}'}}")
    checked = check_project(file)
    assert checked.project is not None
    assert "promptgraft.yaml:3: agent: the environment variable DESK_KEY is not set" in str(
        checked.warnings
    )


FILES = "prompts: {desk: {files: {skill: desk/skill.md}}}\n"


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ("", "HERE"),
        (", cwd: {folder: tools}", "HERE/tools"),
        (", cwd: '{folder}'", "COPY"),
        (", env: {only: [DESK_MODE], MORE: yes please}", "HERE fast yes please"),
        (", env: {DESK: '${OPENAI_API_KEY}'}", "HERE [secret]"),
    ],
)
def test_a_command_gets_the_folder_and_the_variables_of_the_file(
    settings: str, answer: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_MODE", "fast")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-0123456789")
    script = "echo $(test -e skill.md && echo COPY || pwd -P) $OPENAI_API_KEY"
    script += " $DESK" if "DESK:" in settings else " $DESK_MODE $MORE" if "only" in settings else ""
    command = f"[sh, -c, '{script}', agent, '{{query}}', '{{folder}}']"
    for folder in ("desk", "tools"):
        Path(folder).mkdir()
    Path("desk", "skill.md").write_text("Count.")
    file = written(f"{{command: {command}{settings}}}\ndelivery: {{folder: desk}}", prompts=FILES)
    project = load_project(file)
    assert project.asking is not None
    prompt = project.prompt().prompt.bind(Case(id="c", input="how many?"))
    found = evaluated(project.asking, prompt, session=Session()).text
    assert found == answer.replace("HERE", str(Path.cwd()))


def test_a_program_of_the_project_is_found_from_its_folder_and_from_elsewhere(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Path("answer.sh")
    program.write_text("#!/bin/sh\necho four\n")
    program.chmod(0o755)
    file = written("{command: [./answer.sh, '{query}', '{texts.system}']}")
    elsewhere = file.absolute()
    assert check_project(file).faults == ()
    monkeypatch.chdir("/")
    assert check_project(elsewhere).faults == ()


@pytest.mark.parametrize("env", ["", ", env: {KEY: '${OPENAI_API_KEY}'}", ", env: {only: [PATH]}"])
def test_check_names_a_key_that_the_command_does_not_get(
    env: str, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-0123456789")
    checked = check_project(written(f"{{command: [sh, '{{query}}', '{{texts.skill}}']{env}}}"))
    line = "promptgraft.yaml:3: agent: the command does not get OPENAI_API_KEY"
    assert any(warning.startswith(line) for warning in checked.warnings) == (not env)


CLI = "{command: [sh, '{query}', '{texts.skill}']"
HTTP = "{http: {url: 'http://localhost:1/', json: {q: '{query}', p: '{texts.system}'}"


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("{}", "agent: expected an object with one of `python`, `http` and `command`, found an"),
        (HTTP + "}, python: a.py:b}", "agent: expected an object with one of `python`, `http`"),
        ("{python: call}", "agent.python: expected `file.py:NAME` or `module:NAME`"),
        ("{python: agent.py:cal}", "has no `cal` (did you mean `call`?)"),
        ("{python: agent.py:TEXTS}", "to be a function"),
        ("{python: agent.py:deaf}", "agent `agent.deaf` takes the query only, so the texts"),
        ("{python: agent.py:call, timeout: soon}", "agent.timeout: expected seconds above 0"),
        ("{python: agent.py:call, on_agent_error: no}", "agent.on_agent_error: expected one of"),
        ("{python: agent.py:call, http: 5}", "agent: expected an object with one of"),
        (
            "{http: {json: {}}}",
            "agent.http: expected the key `url` (the address of the service), found",
        ),
        (HTTP + ", method: GET}}", "agent.http.method: unknown key"),
        (HTTP + ", headers: {Authorization: abc}}}", "agent.http.headers.Authorization: expected"),
        (HTTP + ", answer: '$.a['}}", "agent.http.answer: expected a path such as"),
        ("{http: {url: 'http://${HOST}/'}}", "`${HOST}` is expanded only in"),
        ("{http: {url: 'localhost'}}", "agent.http.url: expected an address such as"),
        ("{http: {url: 'http://x/'}}", "agent: json: nothing in it contains `{texts.NAME}`"),
        ("{command: 'cli {query}'}", "agent.command: expected a list of texts"),
        ("{command: [sh, '{query}', '{texts.nope}']}", "command: there is no text `nope`"),
        ("{command: [nope-cli, '{query}', '{texts.skill}']}", "there is no program `nope-cli`"),
        ("{command: [sh, '{query}'], env: {API_KEY: abcdef}}", "agent.env.API_KEY: expected `${"),
        (f"{CLI}, env: {{only: HOME}}}}", "agent.env.only: expected a list of names of environ"),
        (f"{CLI}, env: {{only: ['A=B']}}}}", "agent.env.only[0]: expected the name of an env"),
        (f"{CLI}, env: [HOME]}}", "agent.env: expected variables by name, and in `only`"),
        (f"{CLI}, cwd: tools}}", "agent.cwd: expected one of `{folder}`, found"),
        (f"{CLI}, cwd: {{folder}}}}", 'agent.cwd: expected the key `folder` (in quotes, "{fold'),
        (f"{CLI}, cwd: {{folder: ..}}}}", "agent: cwd: expected a folder in the project, found .."),
        (f"{CLI}, cwd: {{folder: /}}}}", "agent: cwd: expected a folder in the project, found /"),
        (
            f"{CLI}, cwd: {{folder: link}}}}",
            "agent: cwd: expected a folder in the project, found l",
        ),
        (
            f"{CLI}, cwd: {{folder: none}}}}",
            "agent: cwd: expected a folder in the project, found n",
        ),
        (f"{CLI}, cwd: '{{folder}}'}}", "agent: cwd: `{folder}` is the copy that the delivery"),
    ],
)
def test_what_is_wrong_with_an_agent_is_said_with_its_line(
    written: Written, agent: str, line: str
) -> None:
    file = written(agent)
    Path("link").symlink_to("/")
    with pytest.raises(DataFormatError) as raised:
        load_project(file)
    assert raised.value.faults[0].startswith("promptgraft.yaml:3: ")
    assert line in raised.value.faults[0]


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ({"models": "models: {}\n"}, "models: expected the key `reflection` (Proposes new texts)"),
        (
            {"models": "models: {task: {provider: offline}}\n"},
            "models: `task` answers prompts, and here the `agent` does; leave it out",
        ),
        ({"agent": "", "models": "models: {}\n"}, "expected the key `task` (Answers the prompts)"),
        (
            {"agent": "", "models": "models: {task: {provider: offline}}\n"},
            "prompts.desk: expected a prompt that a model answers, found texts of an agent",
        ),
        ({"metrics": "metrics: [{name: exact}]\nparams: a:b\n"}, "params: an agent is asked with"),
        (
            {"prompts": "prompts: {a: agent.py:TEXTS, b: agent.py:TEXTS}\n"},
            "prompts: expected one with all texts of the agent",
        ),
    ],
)
def test_settings_that_do_not_fit_an_agent_are_refused(
    written: Written, lines: dict[str, str], line: str
) -> None:
    with pytest.raises(DataFormatError) as raised:
        load_project(written(**lines))
    assert line in raised.value.faults[0]


def test_a_simulated_user_is_a_model_of_the_project(written: Written) -> None:
    file = written(
        "{python: agent.py:call, max_turns: 3}",
        models="models: {reflection: {provider: offline}, user: {python: 'agent.py:USER'}}\n",
    )
    code = """
import json
from promptgraft import ScriptedAdapter
USER = ScriptedAdapter(lambda *_: json.dumps({"message": "and letters?"}), identity="guest")
"""
    Path("agent.py").write_text(CODE + code, "utf-8")
    case = {
        "eval_id": "guest",
        "conversation_scenario": {"starting_prompt": "hi", "conversation_plan": "Ask."},
    }
    Path("guest.json").write_text(json.dumps({"eval_set_id": "g", "eval_cases": [case]}))
    asking = load_project(file).asking
    assert asking is not None
    [found] = Dataset.load("guest.json")
    session = Session()
    prompt = load_project(file).prompt().prompt.bind(found)
    assert evaluated(asking, prompt, session=session).text == "and letters?"
    turns = answer_of(PromptResponse(text=""), session).turns
    assert [turn.query for turn in turns] == ["hi", "and letters?", "and letters?"]

    identity = asking.identity
    assert run(["meta", "write", "meta"]) == 0
    page = Path("meta", "simulated-user.md")
    page.write_text(page.read_text().replace("one short message", "one rude message"))
    assert run(["meta", "apply", "meta"]) == 0
    project = load_project(file)
    assert project.asking is not None
    assert project.asking.identity.startswith(identity + " ")
    evaluated(project.asking, prompt, session=Session())
    said = project.model(("models", "user")).requests[-1].text  # type: ignore[attr-defined]
    assert "one rude message" in said
