"""Checks for reasons to stop: stoppers, idle steps, too many faults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from promptgraft.errors import StopperError, user_errors
from promptgraft.ground.clock import Clock
from promptgraft.ground.serde import shown
from promptgraft.ground.text import raised
from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.event_loop import awaited
from promptgraft.search.asks import Outlook, Standing
from promptgraft.search.ledger import Ledger
from promptgraft.search.stopping import (
    BuiltIn,
    Leader,
    RequiredObjectives,
    RunState,
    RunStoppedError,
    Stopper,
    StopReason,
    TargetScore,
)
from promptgraft.targets.base import RejectionReason


@attrs.define(eq=False, kw_only=True)
class Stops:
    """Checks for a reason to stop between steps.

    Attributes:
        stoppers: the user's stoppers, in the order in which they are called.
        ledger: what the search has used.
        deadline: when the run ends.
        pause: set to pause the run.
        clock: measures how long the run has taken, from now on.
        perfect_score: a score that leaves nothing to learn.
        for_steps: rollouts of the budget that are not reserved for what follows the search.
    """

    _stoppers: Sequence[Stopper]
    _ledger: Ledger
    _deadline: Deadline | None
    _pause: Cancellation | None
    _clock: Clock
    _perfect_score: float
    _for_steps: int
    _begun: float = attrs.field(init=False)
    _improved_at: int = attrs.field(default=0, init=False)
    _leaders: dict[int, int] = attrs.field(factory=lambda: {0: 0}, init=False)

    @_begun.default
    def _now(self) -> float:
        return self._clock.monotonic()

    def look(self, standing: Standing) -> Outlook:
        """Return whether another step may begin. Call it after every step.

        Raises:
            StopperError: a stopper failed; names it.
            LimitReachedError: time or money is used up.
        """
        # The order of the checks decides which of several reasons is reported.
        pool = standing.pool
        if pool.best != next(reversed(self._leaders)):
            # One that takes the lead again stands last, where `next(reversed(...))` looks for it.
            self._leaders.pop(pool.best, None)
            self._leaders[pool.best] = self._ledger.rollouts
            self._improved_at = standing.steps
        scores = pool.scores[pool.best]
        if all(score is not None and score >= self._perfect_score for score in scores):
            detail = "the best candidate is perfect on every validation example"
            return Outlook(RunStoppedError(StopReason.PERFECT, detail))
        if self._pause is not None and self._pause.is_set:
            return Outlook(RunStoppedError(StopReason.PAUSED, "the run was asked to pause"))
        is_close = False
        if self._stoppers:
            state = self._state(standing)
            for position, stopper in enumerate(self._stoppers):
                if why := _ask(position, stopper, state):
                    reason = stopper.reason if isinstance(stopper, BuiltIn) else StopReason.STOPPER
                    return Outlook(RunStoppedError(reason, why))
            targets = (
                stopper
                for stopper in self._stoppers
                if isinstance(stopper, TargetScore | RequiredObjectives)
            )
            # Only these two wait until the means are no longer estimates.
            is_close = any(target.reached(state) for target in targets)
        if self._deadline is not None:
            self._deadline.check()
        self._ledger.check()
        return Outlook(None, is_close)

    def _state(self, standing: Standing) -> RunState:
        pool = standing.pool
        return RunState(
            steps=standing.steps,
            proposals=standing.proposals,
            rollouts=self._ledger.rollouts,
            reflections=self._ledger.reflections,
            candidates=len(pool.candidates),
            steps_since_improvement=standing.steps - self._improved_at,
            best=pool.best,
            baseline_mean=pool.means[0],
            best_mean=pool.estimate(pool.best),
            best_objectives=pool.objectives[pool.best],
            best_is_estimated=standing.estimated,
            cost=self._ledger.known_cost,
            tokens=self._ledger.charge.tokens,
            seconds=self._clock.monotonic() - self._begun,
            left=max(0, self._for_steps - self._ledger.rollouts),
            leaders=tuple(
                Leader(rollouts, pool.scores[position])
                for position, rollouts in self._leaders.items()
            ),
        )


def _ask(position: int, stopper: Stopper, state: RunState) -> str | None:
    name = getattr(stopper, "__qualname__", type(stopper).__qualname__)
    where = f"stoppers[{position}] (`{name}`) after step {state.steps}"
    try:
        reason: object = awaited(stopper(state))
    except user_errors() as error:
        raise StopperError(f"{where} raised {raised(error)}") from error
    if reason is None or (isinstance(reason, str) and reason.strip()):
        return reason
    raise StopperError(f"{where}: expected None or a reason in words, found {shown(reason)}")


_NOTHING_NEW = {RejectionReason.UNCHANGED, RejectionReason.DUPLICATE}


@attrs.define(eq=False, kw_only=True)
class Patience:
    """Counts steps since a child was last evaluated.

    Attributes:
        max_idle_steps: those with nothing to evaluate, at least 1.
        max_failed_reflections: those without a usable reply, at least 1.
    """

    _max_idle_steps: int
    _max_failed_reflections: int
    _idle: int = attrs.field(default=0, init=False)
    _failed: int = attrs.field(default=0, init=False)

    def renew(self) -> None:
        """Reset the counts, because a child is evaluated."""
        self._idle = self._failed = 0

    def idle(self, why: str) -> None:
        """Count a step with nothing to evaluate.

        Raises:
            RunStoppedError: there were too many.
        """
        self._idle += 1
        if self._idle >= self._max_idle_steps:
            raise RunStoppedError(
                StopReason.NO_PROGRESS, f"{self._idle} steps in a row tried nothing: {why}"
            )

    def refused(self, reason: RejectionReason, detail: str) -> None:
        """Count a step whose last reply was refused.

        Raises:
            RunStoppedError: there were too many.
        """
        # The model answers properly and has no other idea, so it has not failed.
        if reason in _NOTHING_NEW:
            self.idle(f"the last proposal was no new text: {detail}")
            return
        self._failed += 1
        if self._failed >= self._max_failed_reflections:
            why = f"{self._failed} steps gave no usable proposal; the last: {detail}"
            # Replies are recorded: resumed within the same limit, the run ends here again.
            if reason is not RejectionReason.REFLECTION_FAILED:
                why += "; raise limits.max_failed_reflections to try more"
            if reason is RejectionReason.COPIED_ANSWER:
                why += ", or set guards.max_copied_words to 0 if such words must be in the prompt"
            raise RunStoppedError(StopReason.REFLECTION_FAILED, why)


UNSCORED_ALLOWANCE = 4
"""Rollouts that may stay unscored in any stretch of a run, in addition to the share."""


@attrs.define
class FaultyStretch:
    """The latest rollouts of a run, since the unscored ones began to exceed their share.

    A run continues while, in every stretch of consecutive rollouts, at most ``share`` of them plus
    ``UNSCORED_ALLOWANCE`` are unscored. So a single fault in a small batch is harmless, and a
    provider that fails after a thousand good rollouts is noticed as soon as one that never worked.
    Watching one stretch is enough, because no other stretch that ends here is worse. With a share
    of 0 there is no allowance: the first fault ends the run.

    Attributes:
        share: share of the rollouts that may stay unscored, 0 to 1.
        unscored: unscored rollouts of the stretch.
        rollouts: rollouts of the stretch.
    """

    share: float
    unscored: int = 0
    rollouts: int = 0

    def add(self, batches: Iterable[Sequence[bool]]) -> None:
        """Add rollouts in the order in which the run asked for them; True means unscored."""
        for faults in batches:
            # Batches without faults would leave an empty stretch empty, so skip them.
            for fault in faults if self.unscored or True in faults else ():
                self.rollouts += 1
                self.unscored += fault
                if self.unscored <= self.share * self.rollouts:
                    self.unscored = self.rollouts = 0

    @property
    def is_too_faulty(self) -> bool:
        """Whether the unscored rollouts exceed share and allowance."""
        allowance = UNSCORED_ALLOWANCE if self.share else 0
        return self.unscored > self.share * self.rollouts + allowance
