"""A gradient search is killed and resumed, and its journal cut: the end is the same."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from forked import forking
from gradient.flow_world import Run, settings
from promptgraft.journal import FileJournal

KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "4"))
"""Kills of the test; ``PROMPTGRAFT_KILLS=200`` is what the figures are of."""

DRIVER = Path(__file__).with_name("kill_gradient.py")


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


def test_cut_at_every_line_the_journal_leads_to_the_same_end(tmp_path: Path) -> None:
    config = settings(train_batch=4)
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        whole = Run(config, journal=journal).start()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 40
    for kept in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        with FileJournal(path) as journal:
            resumed = Run(config, journal=journal)
            result = resumed.start()
        assert (result.rounds, result.means) == (whole.rounds, whole.means)
        # Nothing that the journal has is asked again.
        paid = sum(b'"round/' in line and b'"reflection"' in line for line in lines[:kept])
        assert len(resumed.reflection.requests) == whole.total_reflections - paid
