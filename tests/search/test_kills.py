"""A search of several steps at once with async adapters, killed and resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "8"))
"""Kills of the test; a share of what ``PROMPTGRAFT_KILLS=200`` asks for."""

DRIVER = Path(__file__).with_name("kill_overlapping.py")


def run(journal: Path, fatal: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DRIVER), str(journal), str(fatal)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_killed_at_random_moments_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole.jsonl", 0)
    assert whole.returncode == 0, whole.stderr
    answers = int(whole.stdout.split()[1])
    chance = random.Random(KILLS)
    for number in range(KILLS):
        journal = tmp_path / f"{number}.jsonl"
        # Answers that end together are one append, so there are fewer appends than answers.
        killed = run(journal, chance.randrange(1, answers // 4))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        if number % 2:  # and again on the way, if there is still something to ask for
            assert run(journal, chance.randrange(1, 6)).returncode in (-signal.SIGKILL, 0)
        resumed = run(journal, 0)
        assert resumed.stdout == whole.stdout, resumed.stderr
