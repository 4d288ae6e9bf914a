"""Pools of processes that begin quickly, as forks of one that has imported promptgraft."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

IMPORTED = ("promptgraft.adapters.offline", "promptgraft.algorithms.gepa")


def process_pool(workers: int) -> ProcessPoolExecutor:
    """Return a pool whose processes have nothing of this one but what is pickled for them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    return ProcessPoolExecutor(workers, mp_context=context)
