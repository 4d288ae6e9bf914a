"""Standard streams of commands: real processes, pipes, closed streams, terminals."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click import Context

from cli.console import Console, on_terminals, process, write
from integrations.words import AGENT, write_project
from programs import Programs
from promptgraft.cli.main import app
from promptgraft.overrides import Revision

NAME = "support/triage"
COMMANDS = tuple(app.list_commands(Context(app)))
HOSTILE = "[red]$subject[/red]\x1b[31m\x1b]0;title\x07\rover\x9b2J\u202eevil \u2192 \u00e9\u2026"
CONTROLS = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
IN_TURN = """
import sys
from promptgraft.cli.main import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as ended:
        sys.stdout.buffer.write(b"\\0%d\\0" % ended.code)
        sys.stdout.flush()
"""
"""Carries out several command lines in one process: starting one takes longer than a command."""


def in_turn(
    *lines: str, folder: Path, environment: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """Run command lines in one process, in which all must be well; return what each printed."""
    ended = subprocess.run(
        [sys.executable, "-c", IN_TURN, *lines],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    return printed_by(ended.stdout, lines)


def printed_by(output: bytes, lines: Sequence[str]) -> dict[str, bytes]:
    *parts, rest = output.split(b"\0")
    assert (parts[1::2], rest) == ([b"0"] * len(lines), b"")
    return dict(zip(lines, parts[::2], strict=True))


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which `promptgraft` is this one."""
    command = f"promptgraft() {{ '{sys.executable}' -m promptgraft \"$@\"; }}; {line}"
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, timeout=60, check=False
    )


def on_terminal(programs: Programs, *words: str, folder: Path, **environment: str) -> str:
    """Run a command, which must be well, on a terminal of 60 columns; return what that got."""
    usual = {"TERM": "xterm-256color", "COLUMNS": "60"}
    code, (got, _) = on_terminals(
        programs, *words, number=2, folder=folder, environment=usual | environment
    )
    assert code == 0
    return got


@pytest.fixture
def hostile(project: Path) -> Path:
    write(project, {("rules",): "Choose a queue for $subject."}, note="plain")
    write(project, {("rules",): HOSTILE}, note="a \x1b[31mnote\n\u2192 of two lines")
    return project


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_reads_well_on_a_narrow_terminal(
    command: str, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ended = console(*command.split(), "--help")

    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith(f"Usage: promptgraft {command}".strip())
    assert max(len(line) for line in lines) <= 60
    if "Commands:" in lines and command:
        return  # a group, whose commands have the examples
    assert "  Examples:" in lines
    for line in lines[lines.index("  Examples:") + 1 :]:
        assert line.startswith("    promptgraft ")


def test_help_of_the_program_says_what_each_command_says(console: Console) -> None:
    told = console("--help").out

    assert console().out == told
    for command in COMMANDS:
        summary = re.search(rf"^  {command} +(.+)$", told.partition("Commands:")[2], re.MULTILINE)
        assert summary is not None
        ended = console(command, "-h")
        assert (ended.code, ended.err) == (0, "")
        first = " ".join(ended.out.split("\n\n")[1].split())
        assert first.startswith(summary[1].rstrip("."))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["demo", "--help"]])
def test_help_loads_nothing_that_it_does_not_need(arguments: list[str], project: Path) -> None:
    heavy = [
        "attrs",
        "jinja2",
        "cattrs",
        "rich",
        "promptgraft.search",
        "promptgraft.prompt",
    ]
    code = (
        "import sys\nfrom promptgraft.cli.main import run\n"
        f"code = run({arguments!r})\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert ended.stderr == b"[]\n"


def test_standard_input_is_never_read(hostile: Path) -> None:
    lines = [f"{command} {NAME}" for command in ("show", "diff", "history", "rollback")]
    program = shlex.join([sys.executable, "-c", IN_TURN, *lines])

    ended = shell(f"{{ {program} >&2; cat; }} <<< untouched", hostile)

    assert (ended.returncode, ended.stdout) == (0, b"untouched\n")
    assert all(printed_by(ended.stderr, lines).values())


@pytest.mark.parametrize(
    "closed", [pytest.param("<&-", marks=pytest.mark.thorough), "<&- >&- 2>&-"]
)
def test_closed_streams_are_no_fault(closed: str, hostile: Path) -> None:
    assert shell(f"promptgraft show {NAME} {closed}", hostile).returncode == 0
    assert shell(f"promptgraft show a/b {closed}", hostile).returncode == 2


def test_a_reader_that_leaves_ends_the_command_quietly(project: Path) -> None:
    write(project, {("tone",): "warm\n" * 100_000})

    ended = shell(f"promptgraft show {NAME} | head -1; echo ${{PIPESTATUS[0]}}", project)

    assert ended.stdout == b"prompt    support/triage\n141\n"
    assert ended.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(hostile: Path) -> None:
    ended = shell(f"promptgraft show {NAME} > /dev/full", hostile)

    assert ended.returncode == 2
    assert (
        ended.stderr
        == b"promptgraft: the output: No space left on device; make space on the disk\n"
    )


def test_a_folder_that_was_removed_is_named(hostile: Path) -> None:
    ended = shell("mkdir gone; cd gone; rmdir ../gone; promptgraft runs", hostile)

    assert ended.returncode == 2
    assert ended.stderr == (
        b"promptgraft: the current folder: No such file or directory; name one that exists\n"
    )


def test_text_in_a_pipe_has_no_control_characters(hostile: Path) -> None:
    lines = [f"{command} {NAME}" for command in ("show", "diff", "history", "rollback")]

    printed = in_turn(*lines, folder=hostile, environment={"FORCE_COLOR": "1"})

    for line, text in printed.items():
        assert not CONTROLS.search(text), line
        assert "\u202e" not in text.decode(), line
    for line in lines[:2]:
        assert (
            "[red]$subject[/red]\\x1b[31m\\x1b]0;title\\x07\\rover\\x9b2J\\u202eevil → é…"
        ) in printed[line].decode()
    assert "a \\x1b[31mnote\\n→ of two lines\n" in printed[f"history {NAME}"].decode()


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.thorough),
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        pytest.param({"PYTHONIOENCODING": "latin-1:strict"}, marks=pytest.mark.thorough),
    ],
)
def test_no_locale_is_too_small(environment: dict[str, str], hostile: Path) -> None:
    lines = [f"{command} {NAME}" for command in ("show", "diff", "history", "show --json")]
    lines += [f"rollback {NAME}", f"show {NAME} --json"]

    printed = in_turn(*lines, folder=hostile, environment=environment)

    assert all(printed.values())
    if "latin-1:strict" not in environment.values():
        assert b"\\u202eevil -> \\xe9..." in printed[f"show {NAME}"]
    for line in (f"show --json {NAME}", f"show {NAME} --json"):
        assert json.loads(printed[line])["tag"] == "canary"
        assert printed[line].isascii()


def test_json_gives_hostile_texts_back_unchanged(hostile: Path, console: Console) -> None:
    ended = console("show", NAME, "--json")

    assert json.loads(ended.out)["parts"][0]["content"]["body"] == HOSTILE
    assert not CONTROLS.search(ended.out.encode())


def test_what_a_template_prints_does_not_mix_with_the_document(
    hostile: Path, revisions: tuple[Revision, Revision]
) -> None:
    source = hostile / "prompts.py"
    source.write_text(f"print('hello')\n{source.read_text('utf-8')}", "utf-8")

    ended = process("show", NAME, "--template", f"{source}:TEMPLATE", "--json", folder=hostile)

    assert json.loads(ended.stdout)["parts"][0]["status"] == "applied"
    assert ended.stderr == b"hello\n"


def test_colours_only_on_a_terminal_that_wants_them(hostile: Path, programs: Programs) -> None:
    assert "\x1b[32m" in on_terminal(programs, "diff", NAME, folder=hostile)
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(programs, "diff", NAME, folder=hostile, **environment)


@pytest.mark.parametrize("command", ["show", "diff", "history"])
def test_hostile_texts_do_not_reach_a_terminal(
    command: str, hostile: Path, programs: Programs
) -> None:
    got = on_terminal(programs, command, NAME, folder=hostile)

    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m|\r\n", "", got).encode())
    assert "\x1b[31mover" not in got
    assert "\u202e" not in got


def test_long_values_are_wrapped_on_a_terminal_and_paths_stay_whole(
    hostile: Path, programs: Programs
) -> None:
    path = f"{hostile}/.promptgraft/overrides/support/triage/canary.json"

    got = on_terminal(programs, "show", NAME, folder=hostile, NO_COLOR="1")

    lines = got.splitlines()
    assert f"file      {path}" in lines
    assert "revision  2 (" in got
    revision = next(index for index, line in enumerate(lines) if line.startswith("revision"))
    assert len(lines[revision]) <= 60
    assert lines[revision + 1].startswith(" " * 10)


def test_what_code_of_a_project_writes_is_whole_when_a_command_has_ended(tmp_path: Path) -> None:
    # In a cycle of objects, which the interpreter has to find to write the rest of the file.
    log = "class Log:\n    def __init__(self):\n        self.file = open('log.txt', 'w')\n"
    log += "        self.file.write('whole')\n        self.me = self\n\nLOG = Log()\n"
    write_project(tmp_path, files={"agent.py": AGENT + log})

    ended = shell("promptgraft check", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "log.txt").read_text() == "whole"
