"""Progress on real terminals: 60 columns in tmux, no colours, dumb, no UTF-8."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.console import read_terminal
from programs import Programs

SCRIPT = """
import json, subprocess, sys
from promptgraft.cli.display import progress_for
from promptgraft.cli.output import spell_for_encoding
from promptgraft.runs.event_file import decoded

def candidate(number, mean):
    return {"event": "candidate", "step": number, "candidate": number, "best": number,
            "parents": [], "module": None, "mean": mean, "scores": [], "objectives": {},
            "rollouts": 10, "reflections": 0, "tokens": 0, "cost": "0", "texts": {}, "entries": {}}

LINES = [
    {"event": "started", "run_id": "r", "prompt": "a/b", "seed": 0, "settings": {},
     "modules": [], "texts": {}, "pareto_ids": []},
    {"event": "plan", "budget": 100, "line": "plan: at most 100 rollouts",
     "warnings": ["a small budget"], "max_cost": "2"},
    candidate(0, 0.5),
    candidate(1, 0.75),
    {"event": "accepted", "step": 1, "candidate": 1, "module": "section \\u0440\\u2026",
     "parent": 0, "parent_score": 0, "child_score": 1, "pareto_mean": 1, "best_pareto_mean": 1},
    {"event": "progress", "position": "step/2/reflect/0", "done": 0, "total": 1, "step": 2,
     "rollouts": 30, "reflections": 1, "cost": "0.5", "tokens": 7, "budget": 100, "candidates": 2,
     "accepted": 1, "rejected": 0, "best": 1, "baseline_mean": 0.5, "best_mean": 0.75,
     "baseline_estimated": False, "best_estimated": False},
    {"event": "waiting", "model": "m\\u2019s", "seconds": None, "reason": "rate limited"},
]
spell_for_encoding(sys.stdout, sys.stderr)
with progress_for("promptgraft optimize triage", quiet=False) as progress:
    for line in LINES:
        text = json.dumps({"time": "2026-01-01T00:00:00Z", **line})
        progress.on_line(decoded(text.encode(), "here"))
    progress.say("drawn")
    for command in sys.argv[1:]:
        subprocess.run(command.split(), check=True)
print("the summary")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "shows_progress.py"
    path.write_text(SCRIPT, "utf-8")
    return path


class Tmux:
    """A terminal of 60 columns and 24 lines, with a server of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def __call__(self, *arguments: str) -> str:
        command = ["tmux", "-f", os.devnull, "-S", str(self._socket), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    @property
    def lines(self) -> list[str]:
        """What stands on the screen."""
        return self("capture-pane", "-p", "-t", "main").rstrip("\n").splitlines()


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    tmux = Tmux(tmp_path / "tmux")
    shell = "env -u COLUMNS -u LINES LC_ALL=C.UTF-8 PS1=ready bash --norc --noprofile"
    tmux("-u", "new-session", "-d", "-s", "main", "-x", "60", "-y", "24", shell)
    yield tmux
    tmux("kill-server")


def test_the_panel_stands_on_a_terminal_of_60_columns_and_goes(script: Path, tmux: Tmux) -> None:
    words = [sys.executable, str(script), "tmux wait-for -S drawn", "tmux wait-for go"]
    tmux("send-keys", "-t", "main", f"clear; {shlex.join(words)}; tmux wait-for -S gone", "Enter")
    tmux("wait-for", "drawn")
    shown = tmux.lines

    assert shown[0] == "warning: a small budget"
    assert shown[1].startswith("╭─ promptgraft optimize triage ─")
    assert {len(row) for row in shown[1:]} == {57}
    assert len(shown) == 14
    assert "│ validation  0.500 -> 0.750 (+0.250) " in shown[3]
    assert "│ used        $0.50 (max $2.00), 7 tokens " in shown[5]
    assert "│ calls       waiting for m’s: rate limited " in shown[8]
    assert "step 1: 0.750 in validation, best so far" in "\n".join(shown)

    tmux("wait-for", "-S", "go")
    tmux("wait-for", "gone")
    assert tmux.lines[:2] == ["warning: a small budget", "the summary"]
    assert "\n".join(tmux.lines[2:]).replace("ready", "").strip() == ""


USUAL = {"TERM": "xterm-256color", "COLUMNS": "60", "LINES": "24"}


def on_terminal(programs: Programs, script: Path, **environment: str) -> str:
    """Run the script with a terminal for standard error; return what it got."""
    ours, theirs = pty.openpty()
    with programs.started(script, environment=USUAL | environment, terminals=[theirs]) as child:
        assert child.wait(60) == 0
    os.close(theirs)
    return read_terminal(ours).decode().replace("\r\n", "\n")


def in_encoding(name: str, script: Path, **environment: str) -> str:
    """Do so in a process of its own: which encoding it has is read as it begins."""
    ours, theirs = pty.openpty()
    small = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": name}
    child = subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, **USUAL, **small, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    got = read_terminal(ours)
    assert child.wait(timeout=60) == 0
    return got.decode().replace("\r\n", "\n")


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_colours_are_left_out_when_they_are_not_wanted(script: Path, programs: Programs) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|38;[0-9;]+)m")

    assert colour.search(on_terminal(programs, script))
    plain = on_terminal(programs, script, NO_COLOR="1")
    assert not colour.search(plain)
    assert "╭─ promptgraft optimize triage" in without_escapes(plain)


def test_a_dumb_terminal_gets_lines(script: Path, programs: Programs) -> None:
    assert on_terminal(programs, script, TERM="dumb").splitlines() == [
        "promptgraft optimize triage",
        "plan: at most 100 rollouts",
        "warning: a small budget",
        "your prompt: score 0.500",
        (
            "step 1: new text for section р…: 0.00 -> 1.00 on its cases, 0.750 in validation, "
            "best so far"
        ),
        "waiting for m’s: rate limited",
        "drawn",
    ]


def test_a_small_encoding_gets_a_plain_frame_and_spelled_letters(script: Path) -> None:
    panel = in_encoding("latin-1", script)
    lines = in_encoding("ascii", script, TERM="dumb")

    assert panel.isascii()
    assert "+- promptgraft optimize triage -" in without_escapes(panel)
    assert "for m's: rate limited" in panel
    assert "section \\u0440..." in lines
