"""The loop of GEPA (Agrawal et al. 2025, arXiv:2507.19457, algorithms 1 and 2).

It holds no state that cannot be computed again from the answers: run on a journal, it takes
the same path to the same place, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Never

from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.confirming import Confirmation, confirm
from promptgraft.algorithms.gepa.desk import Desks
from promptgraft.algorithms.gepa.events import GepaMutationRejected
from promptgraft.algorithms.gepa.held_out import HeldOut, measure
from promptgraft.algorithms.gepa.pipeline import Pipeline
from promptgraft.algorithms.gepa.pool import Pool
from promptgraft.algorithms.gepa.search import Search
from promptgraft.algorithms.gepa.stops import Stops
from promptgraft.errors import BudgetExhaustedError, LimitReachedError, PermanentProviderError
from promptgraft.runtime.deadline import Deadline
from promptgraft.search.overlap import Overlap
from promptgraft.search.scores import beats
from promptgraft.search.stopping import (
    RunStoppedError,
    StopReason,
    is_orderly,
    reason_of,
)
from promptgraft.targets.base import Target
from promptgraft.targets.modules import Module
from promptgraft.targets.types import GepaExample

_ENDS = set(StopReason) - {
    StopReason.PROVIDER_FAILED,
    StopReason.DEADLINE,
    StopReason.CANCELLED,
    StopReason.STOP_FILE,
    StopReason.COST,
    StopReason.TOKENS,
}
"""Reasons that leave the means to confirm a winner, and to try it on held-out examples."""

_STOPPED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}


class GepaLoop:
    """Improves a target step by step until there is a reason to stop.

    Args:
        config: the settings.
        target: what is improved.
        pareto: D_pareto, what candidates are compared on.
        feedback: D_feedback, what mutations learn from.
        desks: what steps work with.
        overlap: where they are worked on.
        stops: the user's reasons to stop.
        deadline: when to stop.
    """

    def __init__(
        self,
        config: GepaConfig,
        target: Target,
        *,
        pareto: Sequence[GepaExample],
        feedback: Sequence[GepaExample],
        desks: Desks,
        overlap: Overlap,
        stops: Stops,
        deadline: Deadline | None,
    ) -> None:
        self._config = config
        self._pareto = pareto
        self._answers = desks.answers
        self._trials = desks.trials
        self._overlap = overlap
        self._stops = stops
        self._deadline = deadline
        self._search = Search(config, target, pareto=pareto, feedback=feedback, desks=desks)
        self._pipeline = Pipeline(
            desks,
            overlap=overlap,
            open_step=self._search.open_step,
            begin=self._search.begin,
            needs=self._search.needs,
            merge=lambda: self._search.merger.largest,
        )
        self.confirmation: Confirmation | None = None
        self.held_out = self._not_measured("the run was stopped before that")

    @property
    def pool(self) -> Pool:
        """The candidates so far."""
        return self._search.members.pool

    @property
    def best(self) -> int:
        """Position of the candidate that wins, if it is confirmed."""
        if self._config.pick:
            return self._search.members.pick(self._config.pick)
        return self.pool.best

    @property
    def is_confirmed(self) -> bool:
        """Whether the best candidate may be called a winner, as far as the policy asks."""
        if not self._config.acceptance.confirmations:
            return True
        return self.confirmation is not None and self.confirmation.confirmed

    @property
    def winner(self) -> int:
        """Position of the candidate that the run ends with; 0 is the baseline."""
        best = self.best if self.is_confirmed else 0
        if self._config.validation.ranks:
            return best
        # A search that was stopped has not compared its best one with the baseline.
        return best if beats(self.pool.scores_of(best), self.pool.scores_of(0)) else 0

    @property
    def steps(self) -> int:
        """Steps that were committed, the one included that the run ended in."""
        return self._search.steps

    @property
    def accepted(self) -> tuple[tuple[Module, ...], ...]:
        """What each accepted proposal has changed."""
        return tuple(self._search.accepted)

    @property
    def rejections(self) -> tuple[GepaMutationRejected, ...]:
        """Every rejected proposal."""
        return tuple(self._search.rejections.all)

    def run(self) -> tuple[StopReason, str]:
        """Run until there is a reason to stop, and return it, with the same in words.

        Raises:
            FeedbackError, BindingError: the caller's fault, at once.
            JournalError: the journal cannot be used.
        """
        ended = self._ended(self._make_steps)
        if ended[0] in _ENDS:
            ended = self._ended(lambda: self._search.validator.finish(self.steps), otherwise=ended)
        if ended[0] in _ENDS and self.pool.best and self._config.acceptance.confirmations:
            ended = self._ended(self._confirm, otherwise=ended)
        if ended[0] in _ENDS and self._config.held_out_examples:
            ended = self._ended(self._measure, otherwise=ended)
        return ended

    def _make_steps(self) -> None:
        self._search.evaluate_baseline()
        try:
            with self._overlap:
                self._go_on(self._reason_to_stop())
        finally:
            self._pipeline.leave()

    def _go_on(self, end: RunStoppedError | BudgetExhaustedError | None) -> Never:
        """Make steps until there is a reason to stop, and raise it."""
        while True:
            if end is None:
                self._pipeline.fill()
            proposal = self._pipeline.next()
            if proposal is None:
                raise end or self._out_of_budget()
            ended = self._taken(partial(self._search.commit, proposal))
            end = end or ended
            if proposal.last:
                if end is None:
                    self._pipeline.go_on_beside()
                ended = self._taken(self._search.race)
                with self._overlap.resting():
                    self._answers.sync()
                end = end or ended or self._reason_to_stop()

    def _taken(self, account: Callable[[], None]) -> RunStoppedError | BudgetExhaustedError | None:
        """Take account of something; return why the search ends if that ends it in good order.

        Raises:
            RunStoppedError, LimitReachedError, PermanentProviderError: it ends at once.
            FeedbackError: the caller's fault.
        """
        try:
            account()
        except (RunStoppedError, BudgetExhaustedError) as error:
            if not is_orderly(error):
                raise
            return error
        return None

    def _confirm(self) -> None:
        self.confirmation = confirm(
            self.pool,
            self._pareto,
            policy=self._config.acceptance,
            trials=self._trials,
            scorer=self._search.scorer,
        )

    def _measure(self) -> None:
        if not self.winner:
            self.held_out = self._not_measured("nothing beat the baseline")
            return
        self.held_out = measure(
            self.pool,
            self.winner,
            self._config.held_out_examples,
            trials=self._trials,
            scorer=self._search.scorer,
        )

    def _not_measured(self, why: str) -> HeldOut | None:
        ids = tuple(example.id for example in self._config.held_out_examples)
        return HeldOut(ids=ids, why_not=why) if ids else None

    def _ended(
        self, work: Callable[[], None], otherwise: tuple[StopReason, str] | None = None
    ) -> tuple[StopReason, str]:
        """Return why ``work`` ended; ``otherwise`` when it came to its own end."""
        try:
            work()
            self._answers.accept_faults()
        except RunStoppedError as stop:
            if stop.reason in _STOPPED_BY_FAULTS:
                self._answers.let_go()  # so that a run that is resumed asks again
            else:
                self._answers.accept_faults()
            return stop.reason, stop.detail
        except PermanentProviderError as error:
            return StopReason.PROVIDER_FAILED, str(error)
        except LimitReachedError as error:
            return reason_of(error), str(error)
        finally:
            self._answers.sync()
        assert otherwise is not None  # noqa: S101 - a search ends by raising
        return otherwise

    def _reason_to_stop(self) -> RunStoppedError | None:
        """Return why no step is begun any more; None while the search goes on.

        Raises:
            LimitReachedError: time or money is up.
        """
        if self._search.is_perfect:
            return RunStoppedError(
                StopReason.PERFECT, "the best candidate is perfect on every validation example"
            )
        if (stop := self._stop_of_user()) is not None:
            return stop
        if self._deadline is not None:
            self._deadline.check()
        self._trials.check()
        return None

    def _stop_of_user(self) -> RunStoppedError | None:
        """Return the reason of a stopper; None while there is none.

        Where an estimate would be one, it is made sure of as far as that is possible at once.
        """
        search = self._search
        while True:
            try:
                is_close = self._stops.check(
                    self.pool,
                    steps=self.steps,
                    proposals=search.proposals,
                    estimated=search.validator.estimates_best,
                )
                if not is_close or not search.deepen():
                    return None
            except RunStoppedError as stop:
                return stop

    def _out_of_budget(self) -> RunStoppedError:
        config = self._config
        left = config.rollout_budget - self._trials.used
        kept = config.reserved_size
        return RunStoppedError(
            StopReason.BUDGET,
            f"{left} of {config.rollout_budget} rollouts are left"
            f"{f', {kept} of them kept for what follows the search' if kept else ''}; "
            f"one more step may take {self._pipeline.next_needs}",
        )
