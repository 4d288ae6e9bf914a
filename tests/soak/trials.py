"""The parts of the soak, and one trial of one of them."""

from __future__ import annotations

import random
import resource
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from killing import folder_in_memory
from promptgraft.errors import PromptgraftError
from soak import cells, damage, fuzz, providers

TESTS = Path(__file__).parents[1]
MOST_MEMORY = 4 << 30

Trial = Callable[[random.Random, Path], None]
PARTS: Mapping[str, Trial] = {
    "projects": fuzz.projects,
    "datasets": fuzz.datasets,
    "prompts": fuzz.prompts,
    "metrics": fuzz.metrics,
    "answers": fuzz.answers,
    "journals": damage.journals,
    "stores": damage.stores,
    "kills": damage.kills,
    "providers": providers.providers,
    "grid": cells.grid,
}
"""What is tried, by name."""


def carry_out(part: str, seed: int, number: int) -> None:
    """Make one trial; what is raised is its failure, and no error that is promised."""
    chance = random.Random(f"{seed}/{part}/{number}")
    with folder_in_memory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            PARTS[part](chance, folder)
        except PromptgraftError as error:
            fuzz.check_error(error)


def close() -> None:
    """Let go of what trials share."""
    providers.close()


def bound_memory() -> None:
    """Let what takes too much memory fail in this process, and not the machine."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
