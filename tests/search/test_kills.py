"""A search of several steps at once with async adapters, killed and resumed."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from forked import forking

KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "8"))
"""Kills of the test; a share of what ``PROMPTGRAFT_KILLS=200`` asks for."""

DRIVER = Path(__file__).with_name("kill_overlapping.py")


def test_killed_at_random_moments_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    with forking(DRIVER) as run, forking(DRIVER) as run_again:
        ended = run(tmp_path / "whole.jsonl", 0)
        assert ended[0] == 0
        answers = int(ended[1].split()[1])
        chance = random.Random(KILLS)
        for number in range(KILLS):
            journal = tmp_path / f"{number}.jsonl"
            # Answers that end together are one append, so there are fewer appends than answers.
            assert run(journal, chance.randrange(1, answers // 4))[0] == -signal.SIGKILL
            if number % 2:  # and again on the way, if there is still something to ask for
                assert run_again(journal, chance.randrange(1, 6))[0] in (-signal.SIGKILL, 0)
            assert run_again(journal, 0) == ended
