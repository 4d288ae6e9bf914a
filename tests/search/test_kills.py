"""A search of several steps at once with async adapters, killed and resumed."""

from __future__ import annotations

import os
from pathlib import Path

from forked import ends_the_same_when_killed

KILLS = int(os.environ.get("PROMPTGRAFT_KILLS", "1"))
"""Kills of the test; ``PROMPTGRAFT_KILLS=200`` is what the figures are of."""


def test_killed_at_random_moments_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    ends_the_same_when_killed(Path(__file__).with_name("kill_overlapping.py"), tmp_path, KILLS)
