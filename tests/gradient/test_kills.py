"""A gradient search is killed and resumed, and its journal cut: the end is the same."""

from __future__ import annotations

import os
from pathlib import Path

from forked import ends_the_same_when_killed
from gradient.flow_world import Run, settings
from promptgraft.journal import FileJournal

KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "1"))
"""Kills of the test; ``PROMPTGRAFT_KILLS=200`` is what the figures are of."""


def test_killed_at_random_moments_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    ends_the_same_when_killed(Path(__file__).with_name("kill_gradient.py"), tmp_path, KILLS)


def test_cut_at_every_line_the_journal_leads_to_the_same_end(tmp_path: Path) -> None:
    config = settings(train_batch=4)
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        whole = Run(config, journal=journal).start()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) > 40
    for kept in (1, 2, *range(3, len(lines), 3)):
        path.write_bytes(b"".join(lines[:kept]))
        with FileJournal(path) as journal:
            resumed = Run(config, journal=journal)
            result = resumed.start()
        assert (result.rounds, result.means) == (whole.rounds, whole.means)
        # Nothing that the journal has is asked again.
        paid = sum(b'"round/' in line and b'"reflection"' in line for line in lines[:kept])
        assert len(resumed.reflection.requests) == whole.total_reflections - paid
