"""Settings tried on seeds that the comparison does not use: gepa's best ones, and ours.

First everything at once of what matters most: how parents are chosen, how many items a reflection
sees, and the cache. Then, on the best of these, one other setting after the other, each kept when
it is better, with a second look at the first ones. ``val_evaluation_policy`` has one built-in
value, and with one score an item all of ``frontier_type`` come to the same, so neither is tried.

Of promptgraft's ``lean`` one setting after the other is changed, to see what each is worth.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from gepa.strategies.proposal_sampling import IndependentSampling, SameParentSampling
from gepa.strategies.proposal_selection import BestImprovement

from promptgraft.algorithms.gepa import Full, Racing
from search import peer
from search.curves import median
from search.methods import LEAN, METHODS, Run, run

SEEDS = range(100, 108)

Settings = Mapping[str, Any]

GRID: Mapping[str, Sequence[Any]] = {
    "candidate_selection_strategy": ("pareto", "current_best", "epsilon_greedy", "top_k_pareto"),
    "reflection_minibatch_size": (3, 6, 10),
    "cache_evaluation": (False, True),
}
OTHERS: Sequence[Settings] = (
    {"module_selector": "all"},
    {"acceptance_criterion": "improvement_or_equal"},
    {"use_merge": True},
    {"use_merge": True, "max_merge_invocations": 20},
    {"reflection_minibatch_size": 6},
    {"cache_evaluation": False},
    {"candidate_selection_strategy": "epsilon_greedy"},
    {"reflection_minibatch_size": 16},
    {"reflection_minibatch_size": 24},
    {"reflection_minibatch_size": 32},
    {"sampling_strategy": SameParentSampling(2), "selection_strategy": BestImprovement()},
    {"sampling_strategy": SameParentSampling(4), "selection_strategy": BestImprovement()},
    {"sampling_strategy": IndependentSampling(4)},
    {"skip_perfect_score": False},
)

EARLY = 800
"""Calls after which a search is looked at early."""

CHANGES: Sequence[Settings] = (
    {},
    {"validation": Full()},
    {"validation": Racing(first=2)},
    {"validation": Racing(first=8)},
    {"validation": Racing(every=2)},
    {"validation": Racing(every=32)},
    {"exploration": 0.0},
    {"exploration": 0.4},
    {"minibatches": "random"},
    {"reuse_rollouts": False},
    {"module_choice": "turns"},
    {"minibatch_size": 3},
    {"minibatch_size": 10},
    {"enable_merge": True},
    {"proposals_per_step": 4},
    {"proposals_per_step": 8},
    {"proposals_per_step": 8, "steps_at_once": 2},
    {"proposals_per_step": 8, "steps_at_once": 4},
)
"""Of ``lean``, one after the other."""


def ablate(executor: Executor, families: Sequence[str]) -> Iterator[str]:
    """Yield a line for each change: means of final and early scores, reflections, finals."""
    for change in CHANGES:
        tasks = [(dict(change), family, seed) for family in families for seed in SEEDS]
        curves = [found.curve for found in executor.map(_lean, tasks)]
        finals = [curve.final for curve in curves]
        early = statistics.fmean(curve.at(EARLY) for curve in curves)
        asked = median([curve.reflections for curve in curves])
        each = " ".join(f"{score:.3f}" for score in _by_family(finals, len(families)))
        shown = _shown(change) or "nothing"
        yield f"{statistics.fmean(finals):.3f}  {early:.3f}  {asked:>5.0f}  {each}  {shown}"


def _lean(task: tuple[dict[str, Any], str, int]) -> Run:
    settings, family, seed = task
    return run(partial(METHODS[LEAN], **settings), family, seed)


def tune(executor: Executor, families: Sequence[str]) -> Iterator[str]:
    """Yield a line for each of the settings tried, and one for the best."""
    best, reached = dict[str, Any](), -1.0
    for values in itertools.product(*GRID.values()):
        tried = dict(zip(GRID, values, strict=True))
        scores = _scores(executor, families, tried)
        yield _line(scores, tried)
        if statistics.fmean(scores) > reached:
            best, reached = tried, statistics.fmean(scores)
    for other in OTHERS:
        tried = {**best, **other}
        scores = _scores(executor, families, tried)
        yield _line(scores, other)
        if statistics.fmean(scores) > reached:
            best, reached = tried, statistics.fmean(scores)
    yield f"best: {reached:.4f}  {_shown(best)}"


def _scores(executor: Executor, families: Sequence[str], settings: Settings) -> list[float]:
    """Return the mean final score in each family."""
    tasks = [(dict(settings), family, seed) for family in families for seed in SEEDS]
    return _by_family(list(executor.map(_final, tasks)), len(families))


def _by_family(finals: Sequence[float], families: int) -> list[float]:
    count = len(SEEDS)
    return [statistics.fmean(finals[n * count : (n + 1) * count]) for n in range(families)]


def _final(task: tuple[dict[str, Any], str, int]) -> float:
    settings, family, seed = task
    return run(partial(peer.search, **settings), family, seed).curve.final


def _line(scores: Sequence[float], settings: Settings) -> str:
    each = " ".join(f"{score:.3f}" for score in scores)
    return f"{statistics.fmean(scores):.4f}  {each}  {_shown(settings)}"


def _shown(settings: Settings) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in settings.items())


def _value(value: object) -> str:
    if isinstance(value, (str, int, float, Full, Racing)):
        return repr(value)
    inside = ", ".join(map(repr, vars(value).values()))
    return f"{type(value).__name__}({inside})"
