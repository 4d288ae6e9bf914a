"""Agents that are commands: how they are started, what they answer, and that none is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from black_box.asking import asked
from promptgraft import BlackBox, Cancellation, Case, CommandAgent, Deadline, Session
from promptgraft.adapters.base import ToolInvoked
from promptgraft.errors import (
    AgentFaultError,
    ConfigError,
    RunCancelledError,
    TransientProviderError,
)

TESTS = str(Path(__file__).resolve().parents[1])
SHOW = 'printf "%s|" "$@"'


def shell(script: str, *arguments: str, **settings: Any) -> CommandAgent:
    given = arguments or ("{query}", "{texts.system}")
    return CommandAgent(command=("sh", "-c", script, "agent", *given), **settings)


def python(code: str, **settings: Any) -> CommandAgent:
    command = (sys.executable, "-S", "-c", code, "{query}", "{texts.system}")
    return CommandAgent(command=command, **settings)


HOSTILE = "$(touch pwned); `id` \"'\\ * {texts.skill} ${HOME} --flag\nline\tü"


def test_the_query_is_one_argument_whatever_stands_in_it(tmp_path: Path) -> None:
    found = asked(shell(SHOW, cwd=tmp_path), Case(id="c", input=HOSTILE))
    assert found.text == f"{HOSTILE}|Be brief.|"
    assert not list(tmp_path.iterdir())


def test_a_command_reads_what_stdin_names_and_else_nothing(tmp_path: Path) -> None:
    reading = CommandAgent(command=("cat",), stdin="{texts.system}\n{query}", cwd=tmp_path)
    assert asked(reading, Case(id="c", input=HOSTILE)).text == f"Be brief.\n{HOSTILE}"
    assert asked(shell("cat")).text == ""
    other = CommandAgent(command=("cat",), stdin="{query} {texts.system}", cwd=tmp_path)
    assert reading.identity != other.identity


def test_a_query_too_long_for_an_argument_is_read_from_stdin() -> None:
    long = Case(id="c", input="ä" * 200_000)
    with pytest.raises(AgentFaultError, match=r"Argument list too long; pass `\{query\}`.*`stdin`"):
        asked(shell("true"), long)
    assert asked(CommandAgent(command=("cat",), stdin="{query}{texts.skill}"), long).text == (
        f"{long.input}Count."
    )
    # One that reads nothing blocks nobody.
    assert asked(CommandAgent(command=("echo", "{texts.skill}"), stdin="{query}"), long).text == (
        "Count."
    )


def test_stdin_does_not_depend_on_the_free_descriptors_of_the_process() -> None:
    # In a new process the numbers that the guard of a command uses are free.
    code = (
        f"import sys; sys.path.insert(0, {TESTS!r})\n"
        "from black_box.asking import asked\n"
        "from promptgraft import CommandAgent\n"
        "agent = CommandAgent(command=('cat',), stdin='{query}{texts.skill}', timeout=20)\n"
        "print(asked(agent).text)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout == "how many?Count.\n"


def test_places_are_filled_in_arguments_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_KEY", "desk-secret-0123456789")
    env = {"SKILL": "{texts.skill}", "KEY": "${DESK_KEY}", "PAST": "{history}"}
    found = asked(shell('printf "%s" "$SKILL $KEY $PAST $1"', "q={query}", env=env))
    assert found.text == "Count. [secret] [] q=how many?"


LIST = "import os; print(' '.join(sorted(os.environ)))"


def names_seen(**settings: Any) -> set[str]:
    """Return the names of the variables that a command gets, without those that shells set."""
    return {*asked(python(LIST, **settings)).text.split()} - {"PWD", "OLDPWD", "SHLVL", "_"}


def test_a_command_gets_the_variables_that_are_named_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DESK_MODE", "fast")
    monkeypatch.setenv("OTHER_TOKEN", "other-secret-0123456789")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # otherwise Python sets `LC_CTYPE` for itself
    kept = ("DESK_MODE", "LC_ALL")
    assert names_seen(only=kept) == {"PATH", *kept}
    assert names_seen(only=kept, env={"MORE": "{query}"}) == {"PATH", "MORE", *kept}
    assert names_seen(only=["NOT_SET", "LC_ALL"]) == {"PATH", "LC_ALL"}


def test_a_key_of_a_provider_reaches_a_command_only_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = ("OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GROQ_API_KEY", "AWS_BEARER_TOKEN_BEDROCK")
    for name in (*keys, "DESK_MODE"):
        monkeypatch.setenv(name, "a-secret-0123456789")
    seen = names_seen()
    assert "DESK_MODE" in seen
    assert not seen.intersection(keys)
    assert seen.intersection(names_seen(only=keys)) == {"PATH"}
    assert {*keys} <= names_seen(only=keys)
    named = names_seen(env={"OPENAI_API_KEY": "${OPENAI_API_KEY}"})
    assert named - seen == {"OPENAI_API_KEY"}


def test_secrets_that_are_passed_on_are_blanked_in_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_TOKEN", "desk-secret-0123456789")
    monkeypatch.setenv("DESK_MODE", "fast")
    agent = shell('echo "$DESK_TOKEN $DESK_MODE"', only=["DESK_TOKEN", "DESK_MODE"])
    assert asked(agent).text == "[secret] fast"


@pytest.mark.parametrize("more", [3_985, 65_525, 200_000])
def test_no_part_of_a_secret_is_left_where_long_errors_are_cut(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", "desk-secret-0123456789")
    code = "import os, sys; sys.exit(os.environ['DESK_TOKEN'] + int(sys.argv[1]) * 'x')"
    command = (sys.executable, "-S", "-c", code, str(more), "{query}", "{texts.system}")
    with pytest.raises(AgentFaultError, match=r"exit code 1: .*x{100}$") as raised:
        asked(CommandAgent(command=command, only=["DESK_TOKEN"]))
    assert "123456" not in str(raised.value)


def printed(output: str, answer: str) -> CommandAgent:
    given = ("{query}", "{texts.system}", output)
    return shell('printf %s "$3"', *given, answer=answer)


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ('Loading config\n{"text": "4"}\n\n', "$.text"),
        ('{"text": "thinking"}\n{"text": "4"}\nbye', "$.text"),
        ('{"item": {"text": "4"}}\n{"type": "done", "usage": 5}\n', "$.item.text"),
        ('{"text": 4}\n"4"', "$"),
        ('{\n"text":\n"4"\n}', "$.text"),
        ('Loading\n{\n  "of": [\n    "5"\n  ],\n  "text": "4"\n}\nbye', "$.text"),
        ('Loading\r\n[\r\n  {\r\n    "text": "4"\r\n  }\r\n]\r\n', "$[0].text"),
        ('Loading\n{"text": "4", "of": "a\u2028b"}', "$.text"),
        ('{\n  "text": "4"\n}\n{\n  broken\n}\n', "$.text"),
    ],
    ids=[
        *("log", "events", "answer before the end", "whole line", "one value"),
        *("indented", "list of Windows", "line separator in a text", "broken value"),
    ],
)
def test_an_answer_is_the_last_among_the_lines_of_a_log_or_of_events(
    output: str, answer: str
) -> None:
    assert asked(printed(output, answer)).text == "4"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("Loading\nready", r"expected JSON from the agent, found 'Loading\\nready'; without"),
        ('Loading\n{"other": 4}', r"expected one value at `\$\.text` .* found '{\"other\":4}'"),
        ('Loading\n{"error": "no"}', "answered with an error: '\"no\"'"),
    ],
)
def test_lines_without_an_answer_are_a_fault(output: str, line: str) -> None:
    with pytest.raises(AgentFaultError, match=line):
        asked(printed(output, "$.text"))


def test_a_path_to_several_values_says_how_many_there_are() -> None:
    with pytest.raises(AgentFaultError, match=r"expected one value at .*, found 2 of them in "):
        asked(shell("echo '{\"a\": [1, 2]}'", answer="$.a[*]"))


def test_values_in_json_are_escaped() -> None:
    document = '{"message": "Q: {query}", "system": ["{texts.system}"]}'
    query = Case(id="c", input=HOSTILE)
    in_argument = shell('printf %s "$1"', document, answer="$.message")
    in_input = shell("cat", "-", stdin=document, answer="$.message")
    for agent in (in_argument, in_input):
        assert asked(agent, query).text == f"Q: {HOSTILE}"
    keys = shell('printf %s "$1"', '{"{texts.system}": ["{query}", "{texts.system}"]}')
    assert json.loads(asked(keys, query).text) == {"Be brief.": [HOSTILE, "Be brief."]}
    outside = shell('printf %s "$1"', '{"of": {files}, "q": "{query}", "s": "{texts.system}"}')
    assert json.loads(asked(outside, query).text) == {"of": [], "q": HOSTILE, "s": "Be brief."}
    for text in ('{"a": {query}} {texts.system}', "[{query}] {texts.system}"):  # no JSON
        assert asked(shell('printf %s "$1"', text), Case(id="c", input="4")).text.startswith(
            text.partition(" {texts")[0].replace("{query}", "4")
        )


def test_json_without_a_place_is_sent_as_it_is_written() -> None:
    given = ("[1,2]", '{"a":1.50}', "{query}", "{texts.system}")
    assert asked(shell('printf "%s %s" "$1" "$2"', *given)).text == '[1,2] {"a":1.50}'


def test_an_answer_is_read_from_json_with_its_tools() -> None:
    reply = '{"result": "4", "calls": [{"name": "count", "arguments": {}}]}'
    session = Session()
    agent = shell(f"echo '{reply}'", answer="$.result", tools="$.calls")
    assert asked(agent, session=session).text == "4"
    assert [one.name for one in session.select_all(ToolInvoked)] == ["count"]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo begun; echo broken >&2; exit 3", "the agent ended with exit code 3: broken"),
        ("echo only this; exit 1", "the agent ended with exit code 1: only this"),
        ("kill -9 $$", "the agent was killed by SIGKILL"),
        ("exec missing-program", "the agent ended with exit code 127"),
        ("yes | head -c 11000000", "the agent wrote more than 10,000,000 bytes"),
    ],
)
def test_a_command_that_fails_is_at_fault(script: str, line: str) -> None:
    with pytest.raises(AgentFaultError) as raised:
        asked(shell(script))
    assert line in str(raised.value)


@pytest.mark.parametrize("query", ["x\0y", "x" * 3_000_000])
def test_a_query_that_no_command_can_be_given_is_at_fault(query: str) -> None:
    with pytest.raises(AgentFaultError):
        asked(shell(SHOW), Case(id="c", input=query))


FAMILY = """
import os, subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()} {grandchild.pid}\\n")
print("begun", flush=True)
if "wait" in sys.argv:
    time.sleep(600)
"""


def family(pids: Path, *more: str, **settings: Any) -> CommandAgent:
    """Return an agent that starts a process of its own, and both write down their numbers."""
    command = (sys.executable, "-S", "-c", FAMILY, str(pids), "{query}", "{texts.system}", *more)
    return CommandAgent(command=command, **settings)


def alive(pids: Path) -> list[int]:
    """Return who of those that have written down their numbers still runs."""
    return [int(one) for one in pids.read_text().split() if _runs(int(one))]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone(pids: Path) -> bool:
    """Wait until none of them runs; a kill takes a moment."""
    until = Deadline.after(10)
    while alive(pids) and not until.expired:
        os.sched_yield()
    return not alive(pids)


def begun(pids: Path, count: int = 1) -> None:
    until = Deadline.after(20)
    while not until.expired:
        if pids.exists() and pids.read_text().count("\n") >= count:
            return
        os.sched_yield()
    raise AssertionError("the command has not begun")


def test_what_a_command_leaves_behind_is_killed_and_does_not_hold_up_the_answer(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    assert asked(family(pids)).text == "begun"
    assert gone(pids)


# Slow enough for the longest answer; `yes` would exceed it before the command has ended.
ENDLESS = 'sh -c "while :; do echo y; done"'


@pytest.mark.parametrize(
    ("left", "answer"),
    [
        ("sleep 600", "roads"),
        ("sleep 600", "x" * 300_000),  # more than a pipe holds
        (ENDLESS, "roads"),
    ],
)
def test_a_process_that_leaves_the_group_with_the_output_open_is_not_waited_for(
    left: str, answer: str, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    (tmp_path / "answer").write_text(answer)
    script = f"""cat answer; setsid sh -c 'echo $$ > "$1"; exec {left}' sh "$1" & \
        until [ -s "$1" ]; do :; done"""
    command = ("sh", "-c", script, "agent", str(pids), "{query}", "{texts.system}")
    try:
        text = asked(CommandAgent(command=command, cwd=tmp_path, timeout=60)).text
    finally:
        os.kill(int(pids.read_text()), signal.SIGKILL)
    assert text == answer or (left == ENDLESS and text.startswith(answer))


def test_nothing_is_left_after_the_time_limit(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    for limit in (1.5, 6.0, 24.0, 96.0):  # a busy machine may need long to start a process
        with pytest.raises(TransientProviderError, match=rf"did not answer within {limit:g} s"):
            asked(family(pids, "wait", timeout=limit))
        if pids.exists():
            break
    assert gone(pids)


def test_nothing_is_left_after_the_run_was_cancelled(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    cancellation = Cancellation()

    def cancel() -> None:
        begun(pids)
        cancellation.set("Ctrl+C")

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(RunCancelledError, match=r"Ctrl\+C"):
        asked(family(pids, "wait"), deadline=Deadline(cancellation=cancellation))
    thread.join()
    assert gone(pids)


PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from black_box.asking import asked
from black_box.test_command_agents import family
agent = family(Path(sys.argv[1]), "wait")
with ThreadPoolExecutor(4) as executor:
    list(executor.map(lambda _: asked(agent), range(4)))
"""


def test_nothing_is_left_when_the_process_itself_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    env = {**os.environ, "PYTHONPATH": TESTS}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(pids)], env=env) as process:
        begun(pids, 4)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(pids.read_text().split()) == 8
    assert gone(pids)


def test_a_command_names_its_version_or_the_digest_of_its_files(tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text("echo 1")
    agent = CommandAgent(command=("sh", "agent.sh", "{query}"), cwd=tmp_path)
    fixed = CommandAgent(command=agent.command, cwd=tmp_path, version="7")
    before = agent.identity, fixed.identity
    assert (agent.identity, fixed.identity) == before
    script.write_text("echo 2")
    assert agent.identity != before[0]
    assert fixed.identity == before[1]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"command": "cli {query}"}, 'command: expected a list of texts such as ["cli", "{query}"'),
        ({"command": []}, "command: expected a list of texts"),
        ({"command": ["cli", 5]}, "command: expected a list of texts"),
        (
            {"command": ["sh", "{texts.system}"]},
            "neither an argument nor `stdin` contains `{query}`",
        ),
        (
            {"command": ["sh", "{texts.system}"], "stdin": "{qeury}"},
            "stdin: there is no place `{qeury}` (did you mean `query`?)",
        ),
        ({"command": ["sh", "{query}"]}, "nor `stdin` contains `{texts.NAME}`, so the texts"),
        ({"command": ["sh", "{quer}"]}, "there is no place `{quer}` (did you mean `query`?)"),
        (
            {"command": ["no-such-program", "{query}", "{texts.system}"]},
            "command: there is no program `no-such-program`",
        ),
        ({"command": ["./agent.sh", "{query}", "{texts.system}"]}, "no program `./agent.sh`"),
        ({"timeout": -1}, "timeout: expected seconds above 0, found -1"),
        ({"only": "HOME"}, "only: expected a list of names such as ['HOME'], found 'HOME'"),
        ({"env": ["A"]}, "env: expected variables by name, found ['A']"),
        ({"env": {"A=B": "x"}}, "env: expected the name of an environment variable such as HOME"),
        ({"env": {"": "x"}}, "env: expected the name of an environment variable such as HOME"),
        ({"env": {"A\0": "x"}}, "env: expected the name of an environment variable such as HOME"),
        ({"env": {"A": "x\0"}}, "env.A: expected a text without NUL characters as its value"),
        ({"env": {"A": 5}}, "env.A: expected a text without NUL characters as its value"),
        ({"only": ["A=B"]}, "only: expected the name of an environment variable such as HOME"),
        ({"in_copy": True}, "cwd: `{folder}` is the copy that the delivery `folder` makes"),
    ],
)
def test_a_command_that_cannot_be_asked_is_refused(settings: dict[str, Any], line: str) -> None:
    given = {"command": ["sh", "{query}", "{texts.system}"], **settings}
    with pytest.raises(ConfigError) as raised:
        BlackBox({"system": "x", "skill": "y"}, agent=CommandAgent(**given))
    assert line in str(raised.value)


def test_a_script_that_is_no_program_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("print('x')\n")
    script = CommandAgent(command=("./agent.py", "{query}", "{texts.system}"), cwd=tmp_path)
    with pytest.raises(ConfigError, match=r"`\./agent\.py` is no program; make it one with `chmod"):
        BlackBox({"system": "x"}, agent=script)


def test_marks_and_line_ends_of_windows_are_no_part_of_an_answer() -> None:
    assert asked(shell(r"printf '\357\273\277yes\r\n'")).text == "yes"
    assert (
        asked(shell("""printf '\\357\\273\\277{"a": "yes"}\\r\\n'""", answer="$.a")).text == "yes"
    )
