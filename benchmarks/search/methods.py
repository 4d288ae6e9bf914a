"""The searches that are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from search import ours, peer
from search.curves import Curve
from search.tasks import TASKS

Search = Callable[..., Curve]
"""Searches a world with a reflection model and a budget of calls."""

LEAN, PAPER = "promptgraft lean", "promptgraft paper"
DEFAULTS, BEST = "gepa defaults", "gepa best settings"

BEST_SETTINGS: Mapping[str, Any] = {
    "candidate_selection_strategy": "current_best",
    "reflection_minibatch_size": 16,
    "cache_evaluation": True,
    "module_selector": "all",
    "use_merge": True,
}
"""What ``benchmarks/search_bench.py --tune-peer`` finds."""


METHODS: Mapping[str, Search] = {
    LEAN: partial(ours.search, preset="lean", minibatch_size=6),
    PAPER: partial(ours.search, preset="paper", minibatch_size=3),
    DEFAULTS: peer.search,
    BEST: partial(peer.search, **BEST_SETTINGS),
}


@attrs.frozen(kw_only=True)
class Run:
    """One search.

    Attributes:
        curve: what it found.
        seconds: of a processor.
    """

    curve: Curve
    seconds: float


def run(search: Search, family: str, seed: int, budget: int | None = None) -> Run:
    """Search the world of a seed."""
    task = TASKS[family]
    world, reflector = task.make(seed)
    begun = time.process_time()
    curve = search(world, reflector, budget=budget or task.budget)
    return Run(curve=curve, seconds=time.process_time() - begun)
