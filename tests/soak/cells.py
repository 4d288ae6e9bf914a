"""Any cell of the grid of data, prompts, searches and writers."""

from __future__ import annotations

import random
from pathlib import Path

from grid.world import FACTORS, check


def grid(chance: random.Random, folder: Path) -> None:
    """Carry out one cell: it ends in a result or one line, however it is carried out."""
    check({name: chance.choice(values) for name, values in FACTORS.items()}, folder)
