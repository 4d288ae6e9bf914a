"""Two runs side by side."""

from __future__ import annotations

import attrs

from promptgraft.runs.fields import Fields
from promptgraft.runs.records import CandidateRecord, RunRecord
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
    """Return what a run is compared in.

    Raises:
        DataFormatError: ``result.json`` is not what a run writes.
    """
    pool, result = record.candidates, record.result
    fields = None if result is None else Fields(result, str(record.folder.result))
    best = record.leader if fields is None else fields.integer("best")
    stop = None if fields is None else fields.inside("stop")
    last = pool[-1] if pool else None
    path = _path(pool, best)
    return RunFigures(
        run=record.id,
        state=str(record.state),
        prompt=record.prompt,
        seed=record.seed,
        baseline=pool[0].mean if pool else None,
        baseline_estimated=path[0][3] if path else False,
        best=pool[best].mean if best < len(pool) else None,
        best_estimated=path[-1][3] if path else False,
        held_out=held_out_means(record),
        improved=None if fields is None else fields.flag("improved"),
        stop_reason="" if stop is None else stop.text("reason"),
        stop_detail="" if stop is None else stop.text("detail"),
        steps=record.steps,
        candidates=len(pool),
        rejected=len(record.rejections),
        rollouts=record.rollouts,
        cost=_cost(fields, last),
        path=path,
    )


def _cost(fields: Fields | None, last: CandidateRecord | None) -> str | None:
    if fields is not None:
        return money(fields.money("cost"))
    return None if last is None else money(last.cost)


def held_out_means(record: RunRecord) -> tuple[float | None, float | None] | None:
    """Return the means of baseline and winner on the held-out examples; None without them.

    Raises:
        DataFormatError: ``result.json`` is not what a run writes.
    """
    if record.result is None:
        return None
    scores = Fields(record.result, str(record.folder.result)).inside("scores")
    if scores.is_null("held_out"):
        return None
    unseen = scores.inside("held_out")
    return unseen.number("baseline"), unseen.number("best")


def _path(pool: tuple[CandidateRecord, ...], best: int) -> Ancestry:
    line = []
    position: int | None = best if best < len(pool) else None
    while position is not None:
        found = pool[position]
        line.append((found.n, found.changed, found.mean, found.is_estimated))
        position = found.parents[0] if found.parents else None
    return tuple(reversed(line))
