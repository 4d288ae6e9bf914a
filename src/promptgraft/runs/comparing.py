"""Two runs side by side."""

from __future__ import annotations

import attrs

from promptgraft.runs.records import RunRecord
from promptgraft.search.ledger import money

Ancestry = tuple[tuple[int, str, float | None, bool], ...]


@attrs.frozen(kw_only=True)
class RunFigures:
    """What two runs are compared in.

    Attributes:
        run: id of the run.
        state: whether somebody works on it.
        prompt: the prompt.
        seed: its seed.
        baseline: mean of the baseline on D_pareto.
        baseline_estimated: whether that is an estimate, because some examples have no score.
        best: mean of the best candidate.
        best_estimated: the same of that.
        held_out: means of baseline and winner on the held-out examples; None without them.
        improved: whether the best beats the baseline; None before the end.
        stop_reason: why it ended; empty before the end.
        stop_detail: the same in words.
        steps: steps begun.
        candidates: candidates in the pool.
        rejected: rejected proposals.
        rollouts: rollouts used.
        cost: US dollars as text; None when a price is not known, or before the first candidate.
        path: the line from the baseline to the best candidate: number, what was changed, mean,
            and whether the mean is an estimate because some examples have no score.
    """

    run: str
    state: str
    prompt: str
    seed: int | None
    baseline: float | None
    baseline_estimated: bool
    best: float | None
    best_estimated: bool
    held_out: tuple[float | None, float | None] | None
    improved: bool | None
    stop_reason: str
    stop_detail: str
    steps: int
    candidates: int
    rejected: int
    rollouts: int
    cost: str | None
    path: Ancestry


def figures_of(record: RunRecord) -> RunFigures:
    """Return what a run is compared in."""
    ended, path = record.ended, _path(record)
    return RunFigures(
        run=record.id,
        state=str(record.state),
        prompt=record.prompt,
        seed=record.seed,
        baseline=record.means[0],
        baseline_estimated=record.estimated[0],
        best=record.means[1],
        best_estimated=record.estimated[1],
        held_out=held_out_means(record),
        improved=None if ended is None else ended.improved,
        stop_reason="" if ended is None else ended.stop_reason,
        stop_detail="" if ended is None else ended.stop_detail,
        steps=record.steps,
        candidates=len(record.candidates),
        rejected=len(record.rejections),
        rollouts=record.rollouts,
        cost=money(record.cost) if record.candidates else None,
        path=path,
    )


def held_out_means(record: RunRecord) -> tuple[float | None, float | None] | None:
    """Return the means of baseline and winner on the held-out examples; None without them."""
    found = record.ended.held_out if record.ended else None
    if found is None or found.why_not:
        return None
    return found.baseline_mean, found.winner_mean


def _path(record: RunRecord) -> Ancestry:
    line = []
    position: int | None = record.best if record.candidates else None
    while position is not None:
        found = record.candidates[position]
        line.append((position, found.changed, found.mean, found.estimated))
        position = found.parents[0] if found.parents else None
    return tuple(reversed(line))
