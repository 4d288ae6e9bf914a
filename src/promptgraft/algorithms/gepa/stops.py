"""Stoppers as a run asks them: between steps, in their order, with the state of the run."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.algorithms.gepa.pool import Pool
from promptgraft.clock import Clock
from promptgraft.errors import StopperError
from promptgraft.search.ledger import Ledger
from promptgraft.search.stoppers import (
    RequiredObjectives,
    RunState,
    Stopper,
    TargetScore,
    reason_for,
)
from promptgraft.search.stopping import RunStoppedError
from promptgraft.serde import shown


class Stops:
    """Asks the stoppers of a run.

    Args:
        stoppers: in the order in which they are asked.
        ledger: what the run has used.
        clock: tells how long it has taken; the run begins now.
    """

    def __init__(self, stoppers: Sequence[Stopper], *, ledger: Ledger, clock: Clock) -> None:
        self._stoppers = stoppers
        self._ledger = ledger
        self._clock = clock
        self._begun = clock.monotonic()
        self._best = 0
        self._improved_at = 0

    def check(self, pool: Pool, *, steps: int, proposals: int, estimated: bool) -> bool:
        """Return while no stopper has a reason; to be called after every step.

        Args:
            pool: the candidates.
            steps: steps made.
            proposals: proposals tried.
            estimated: whether the means of the best candidate are estimates.

        Returns:
            Whether a stopper would have a reason if they were none.

        Raises:
            RunStoppedError: the first that has one.
            StopperError: a stopper failed; names it.
        """
        if pool.best != self._best:
            self._best, self._improved_at = pool.best, steps
        if not self._stoppers:
            return False
        state = self._state(pool, steps, proposals, estimated=estimated)
        for position, stopper in enumerate(self._stoppers):
            if reason := _ask(position, stopper, state):
                raise RunStoppedError(reason_for(stopper), reason)
        targets = (
            one for one in self._stoppers if isinstance(one, TargetScore | RequiredObjectives)
        )
        return any(target.reached(state) for target in targets)

    def _state(self, pool: Pool, steps: int, proposals: int, *, estimated: bool) -> RunState:
        return RunState(
            steps=steps,
            proposals=proposals,
            rollouts=self._ledger.rollouts,
            reflections=self._ledger.reflections,
            candidates=len(pool),
            steps_since_improvement=steps - self._improved_at,
            best=pool.best,
            baseline_mean=pool.mean(0),
            best_mean=pool.estimate(pool.best),
            best_objectives=pool.objectives_of(pool.best),
            best_is_estimated=estimated,
            cost=self._ledger.known_cost,
            tokens=self._ledger.charge.tokens,
            seconds=self._clock.monotonic() - self._begun,
        )


def _ask(position: int, stopper: Stopper, state: RunState) -> str | None:
    name = getattr(stopper, "__qualname__", type(stopper).__qualname__)
    where = f"stoppers[{position}] (`{name}`)"
    try:
        reason: object = stopper(state)
    except Exception as error:
        raise StopperError(f"{where} raised {type(error).__name__}: {error}") from error
    if reason is None or (isinstance(reason, str) and reason.strip()):
        return reason
    raise StopperError(f"{where}: expected None or a reason in words, found {shown(reason)}")
