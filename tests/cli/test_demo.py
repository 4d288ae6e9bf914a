"""The demo as a newcomer runs it: real processes, the real example, the embedded model."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from cli.console import on_terminals, process
from programs import Programs
from promptgraft.cli.demo_run import load_example
from promptgraft.overrides import LocalPromptOverridesStore

# Enough for the baseline and a winner.
SHORT = ("--budget", "300")
CONTROLS = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> Path:
    """A folder in which the demo has run once, and its document."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / ".git").mkdir()
    ended = programs.promptgraft("demo", *SHORT, "--json", folder=folder)
    assert ended.returncode == 0, ended.stderr
    (folder / "first.json").write_text(ended.stdout, "utf-8")
    (folder / "first.log").write_text(ended.stderr, "utf-8")
    return folder


def test_the_demo_improves_and_says_so_in_one_document(finished: Path) -> None:
    document = json.loads((finished / "first.json").read_bytes())

    assert document["model"] == "embedded offline model"
    assert document["improved"] is True
    assert document["scores"]["pareto"]["gain"] > 0
    assert document["rollouts"]["used"] <= 300 + 214
    assert Path(document["stored"]["file"]).is_file()
    assert document["stored"]["store"] == str(finished)


def test_the_held_out_tickets_are_no_training_tickets() -> None:
    config = load_example().config
    training, held_out = config.training_examples, config.held_out

    assert len(training) + len(held_out) >= 240
    assert not {ticket.params for ticket in training} & {ticket.params for ticket in held_out}


def test_progress_in_a_pipe_is_plain_lines(finished: Path) -> None:
    log = (finished / "first.log").read_bytes()

    assert not CONTROLS.search(log)
    lines = log.decode().splitlines()
    assert lines[0] == "promptgraft demo, embedded offline model, seed 0"
    assert lines[1] == f"the winner will be kept under tag `triage-demo` in {finished}"
    assert lines[2].startswith("plan: about 514 test calls and ")
    assert lines[-1].startswith("improved: ")
    assert any(re.match(r"step \d+: new text for section ", line) for line in lines)


def test_the_printed_python_renders_the_winner(finished: Path, programs: Programs) -> None:
    document = json.loads((finished / "first.json").read_bytes())

    ended = programs("-c", "\n".join(document["use"]), folder=finished)

    assert ended.stderr == ""
    for part in document["winner"]:
        longest = max(part["content"]["body"].splitlines(), key=len)
        assert longest in ended.stdout


def test_the_stored_winner_is_shown_and_fits_its_source(finished: Path, programs: Programs) -> None:
    document = json.loads((finished / "first.json").read_bytes())
    folder = document["use"][1].split("'")[1]

    shown = programs.promptgraft(
        *("show", document["prompt"], "--template", f"{folder}/task.py:TEMPLATE"), folder=finished
    )

    assert shown.returncode == 0
    assert shown.stdout.count(": applied\n") == len(document["winner"])


def test_on_a_terminal_a_panel_is_drawn_and_taken_away_and_the_report_fits_a_narrow_screen(
    finished: Path, programs: Programs
) -> None:
    narrow = {"TERM": "xterm-256color", "COLUMNS": "60", "LINES": "40"}
    command = ("demo", *SHORT)
    code, shown = on_terminals(programs, *command, number=2, folder=finished, environment=narrow)
    out, screen = (text.replace("\r\n", "\n") for text in shown)

    assert code == 0
    assert "promptgraft demo, embedded offline model, seed 0" in screen
    assert " kept, " in screen
    assert screen.endswith("\x1b[?25h") or "\x1b[?25h" in screen[-200:]

    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    changed = lines[lines.index("changed: section queues") + 1 :]
    changed = changed[: changed.index("")]
    # Lines break between words, and their later rows are indented.
    document = json.loads((finished / "first.json").read_bytes())
    body = document["winner"][0]["content"]["body"]
    assert {word for line in changed for word in line.split()} <= set(body.split())
    assert all(len(line) <= 60 and line.startswith("  ") for line in changed)
    figures = lines[next(i for i, line in enumerate(lines) if "before  after" in line) :]
    assert max(len(line) for line in lines[: len(lines) - len(figures)]) <= 60
    assert len(figures) <= 60


def test_ctrl_c_is_one_line(finished: Path, programs: Programs) -> None:
    command = ("-m", "promptgraft", "demo", "--budget", "1000000", "--workers", "3")
    with programs.started(*command, folder=finished) as child:
        while not child.stderr.readline().startswith("your prompt: "):
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 3
        out, err = child.stdout.read(), child.stderr.read()

    assert out == ""
    assert err.splitlines()[-1] == "promptgraft: interrupted, nothing was stored"
    assert "Traceback" not in err


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_winner_elsewhere_in_a_small_locale(
    finished: Path, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    locale = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    # Texts are hashed in another way there than in the first run.
    environment = {**locale, "PYTHONIOENCODING": "ascii", "PYTHONHASHSEED": "1"}
    ended = process("demo", *SHORT, "--workers", "4", folder=tmp_path, environment=environment)

    assert ended.returncode == 0
    assert (ended.stdout + ended.stderr).isascii()
    address = {"ns": "examples/support", "prompt_key": "triage", "tag": "triage-demo"}
    first, again = (
        LocalPromptOverridesStore(folder).current(**address) for folder in (finished, tmp_path)
    )
    assert first is not None
    assert again is not None
    assert again.override.sections == first.override.sections
    assert again.provenance.scores == first.provenance.scores
