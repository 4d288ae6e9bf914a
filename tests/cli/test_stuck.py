"""Threads that never end: named and not waited for after a signal, ended at once by another."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integrations.words import AGENT, PROJECT, write_project
from programs import Programs, Started

WAITS = "threading.Event().wait()"
SPINS = "while True: pass"
METRICS = """
import os
import threading


def stuck(case, answer):
    if case.id == "bread":
        os.write(1, b"stuck\\n")
        {body}
    return 1.0
"""


@contextmanager
def stuck(programs: Programs, folder: Path, *arguments: str, body: str) -> Iterator[Started]:
    """Give a command whose metric does not return."""
    metric = '{name: slow, kind: python, function: "scoring.py:stuck"}'
    files = {
        "scoring.py": METRICS.replace("{body}", body),
        "promptgraft.yaml": PROJECT.replace("{name: exact}", metric),
    }
    write_project(folder, files=files)
    with programs.started("-m", "promptgraft", *arguments, folder=folder) as child:
        while child.stdout.readline() != "stuck\n":
            assert child.poll() is None
        yield child


@pytest.mark.parametrize(
    ("body", "workers"), [(WAITS, "1"), pytest.param(SPINS, "3", marks=pytest.mark.thorough)]
)
def test_a_metric_that_does_not_end_is_left_behind_and_named(
    body: str, workers: str, tmp_path: Path, programs: Programs
) -> None:
    command = ("eval", "--workers", workers, "--quiet")
    with stuck(programs, tmp_path, *command, body=body) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 3
        out, err = child.stdout.read(), child.stderr.read()

    assert "unscored: bread\n" in out or "among them: bread\n" in out
    assert err.splitlines() == [
        "promptgraft: stopped early: the run was stopped: interrupted (Ctrl+C)",
        "promptgraft: exiting without waiting for: metric `slow`, case `bread`",
    ]


def test_a_model_that_does_not_end_is_left_behind_and_named(
    tmp_path: Path, programs: Programs
) -> None:
    agent = AGENT.replace(
        "    if word == ", '    os.write(1, b"stuck\\n")\n    time.sleep(600)\n    if word == ', 1
    )
    write_project(tmp_path, files={"agent.py": f"import time\n{agent}"})
    command = ("-m", "promptgraft", "eval", "--workers", "1", "--quiet")
    with programs.started(*command, folder=tmp_path) as child:
        assert child.stdout.readline() == "stuck\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 3
        err = child.stderr.read()

    assert err.splitlines()[-1] == (
        "promptgraft: exiting without waiting for: adapter `scripted` on example `apple`"
    )


def test_a_second_signal_ends_the_command_at_once(tmp_path: Path, programs: Programs) -> None:
    with stuck(programs, tmp_path, "eval", "--quiet", body=SPINS) as child:
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 3
        assert child.stderr.read() == "promptgraft: interrupted again, ended at once\n"


def test_a_signal_that_arrives_several_times_at_once_is_one(
    tmp_path: Path, programs: Programs
) -> None:
    with stuck(programs, tmp_path, "eval", "--quiet", body=WAITS) as child:
        for _ in range(20):  # those that are pending together arrive as one
            child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 3
        first_line = child.stderr.readline()

    assert first_line == (
        "promptgraft: stopped early: the run was stopped: asked to end (SIGTERM)\n"
    )
