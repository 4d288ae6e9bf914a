"""Threads that never end: named and not waited for after one signal, ended at once by a second."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integrations.words import AGENT, PROJECT, write_project

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
def stuck(folder: Path, *arguments: str, body: str) -> Iterator[subprocess.Popen[bytes]]:
    """Give a command whose metric does not return."""
    metric = '{name: slow, kind: python, function: "scoring.py:stuck"}'
    files = {
        "scoring.py": METRICS.replace("{body}", body),
        "promptgraft.yaml": PROJECT.replace("{name: exact}", metric),
    }
    write_project(folder, files=files)
    command = [sys.executable, "-m", "promptgraft", *arguments]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None
            while child.stdout.readline() != b"stuck\n":
                assert child.poll() is None
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize(("body", "workers"), [(WAITS, "1"), (SPINS, "3")])
def test_a_metric_that_does_not_end_is_left_behind_and_named(
    body: str, workers: str, tmp_path: Path
) -> None:
    with stuck(tmp_path, "eval", "--workers", workers, "--quiet", body=body) as child:
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)

    assert child.returncode == 3
    assert b"unscored: bread\n" in out or b"among them: bread\n" in out
    assert err.decode().splitlines() == [
        "promptgraft: stopped early: the run was stopped: interrupted (Ctrl+C)",
        "promptgraft: exiting without waiting for: metric `slow`, case `bread`",
    ]


def test_a_model_that_does_not_end_is_left_behind_and_named(tmp_path: Path) -> None:
    agent = AGENT.replace(
        "    if word == ", '    os.write(1, b"stuck\\n")\n    time.sleep(600)\n    if word == ', 1
    )
    write_project(tmp_path, files={"agent.py": f"import time\n{agent}"})
    command = [sys.executable, "-m", "promptgraft", "eval", "--workers", "1", "--quiet"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"stuck\n"
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)

    assert child.returncode == 3
    assert err.decode().splitlines()[-1] == (
        "promptgraft: exiting without waiting for: adapter `scripted` on example `apple`"
    )


def test_a_second_signal_ends_the_command_at_once(tmp_path: Path) -> None:
    with stuck(tmp_path, "eval", "--quiet", body=SPINS) as child:
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=60)

    assert child.returncode == 3
    assert err == b"promptgraft: interrupted again, ended at once\n"
