"""Lines of logs and of screens hold no escape sequence and no half character of hostile texts."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from promptgraft.cli.output import Screen
from promptgraft.service.jobs.logs import Form, told, writing_logs

HOSTILE = "red\x1b[31m half \ud83d turned \u202e end\x07"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
_logger = logging.getLogger("promptgraft.tests")


def logged(form: Form, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with writing_logs(form):
        told(_logger, logging.ERROR, "job_failed", HOSTILE, job="1" * 8, reason=HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            _logger.exception("a handler failed: %s", HOSTILE)
    return stream.getvalue()


def test_lines_of_json_can_be_read_by_every_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = logged("json", monkeypatch).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.isascii()
        document = json.loads(line)
        texts = [document["message"], document.get("reason", ""), document.get("traceback", "")]
        for text in texts:
            assert UNSAFE.search(text) is None
            text.encode("utf-8")
        assert r"red\x1b[31m half \ud83d turned \u202e end\x07" in document["message"]
    assert "ValueError: red" in json.loads(lines[1])["traceback"]


def test_lines_for_people_hold_nothing_that_a_terminal_obeys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = logged("text", monkeypatch)
    assert UNSAFE.search(text) is None
    assert "ValueError: red" in text


def test_names_and_cells_on_screens_are_escaped_and_aligned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    screen.fields([(HOSTILE, HOSTILE), ("plain", "value")])
    screen.table([("name", "value"), (HOSTILE, HOSTILE), ("x", "y")])
    shown = capsys.readouterr().out
    assert UNSAFE.search(shown) is None
    first, second, head, row, last = shown.splitlines()
    assert first.index("  red") == second.index("  value")
    assert head.index("value") + len("value") <= len(row)
    assert row.count("  ") == 1
    assert last.endswith("y")


SCRIPT = """
import logging, sys
from promptgraft.cli import main
main._COMMANDS = {}
def invoke(arguments):
    logging.getLogger("promptgraft").warning("a model said: %s", "red\\x1b[31m\\ud83d\\nnew line")
    raise RuntimeError("a bug\\x1b[31m")
main._invoke = invoke
sys.argv = ["promptgraft"]
main.main()
"""


def test_warnings_and_tracebacks_of_a_command_are_escaped(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 70
    assert UNSAFE.search(ended.stderr) is None
    first, *_ = ended.stderr.splitlines()
    assert first == r"a model said: red\x1b[31m\ud83d\nnew line"
    assert r"RuntimeError: a bug\x1b[31m" in ended.stderr
