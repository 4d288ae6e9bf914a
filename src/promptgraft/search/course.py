"""The course of a run: search, then held-out examples."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.errors import (
    CallerError,
    LimitReachedError,
    PermanentProviderError,
    PromptgraftError,
)
from promptgraft.search.algorithm import BaseSearch
from promptgraft.search.answers import Answers
from promptgraft.search.asks import Asking, GiveUp
from promptgraft.search.contest import Sides, measure
from promptgraft.search.fresh import HeldOut
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.passing import PassingSides
from promptgraft.search.population import Pool
from promptgraft.search.remarks import Remarks
from promptgraft.search.result import RunResult
from promptgraft.search.scores import Scorer
from promptgraft.search.stopping import RunStoppedError, StopReason, reason_of
from promptgraft.targets.types import GepaExample

_ENDS = set(StopReason) - {
    StopReason.PAUSED,
    StopReason.FAILED,
    StopReason.PROVIDER_FAILED,
    StopReason.DEADLINE,
    StopReason.CANCELLED,
    StopReason.STOP_FILE,
    StopReason.COST,
    StopReason.TOKENS,
}
"""Reasons that leave the means to evaluate a winner on held-out examples."""

_STOPPED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}

Ending = tuple[StopReason, str]
"""Why a run has ended, and the same in words."""


class Course:
    """Runs a search, and measures its winner.

    Args:
        search: the search.
        answers: the journal as the run sees it.
        held_out: examples that no part of the search sees.
        scorer: gives rollouts their scores.
        budget: what is left of the rollouts.
        seed: draws the order of the held-out examples.

    Attributes:
        held_out: how the winner did on held-out examples; None without any.
    """

    def __init__(
        self,
        search: BaseSearch,
        *,
        answers: Answers,
        held_out: Sequence[GepaExample],
        scorer: Scorer,
        budget: RolloutBudget,
        seed: int,
    ) -> None:
        self._search = search
        self._budget = budget
        self._answers = answers
        self._held_out = held_out
        self._scorer = scorer
        self._seed = seed
        self.held_out = self._not_measured("the run was stopped before that")
        self._passing: Sides | None = None

    @property
    def winner(self) -> int:
        """Position of the candidate that the run ends with; 0 is the baseline."""
        best, population = self._search.best, self._search.population
        return best if population.is_above_baseline(best) else 0

    @property
    def passing(self) -> PassingSides:
        """How many answers of baseline and winner pass."""
        population = self._search.population
        sides = (population.figures(0), population.figures(self.winner))
        thresholds = population.passing.thresholds
        return PassingSides(thresholds=thresholds, validation=sides, held_out=self._passing)

    def run(self) -> Asking[Ending]:
        """Run to the end and return why it came.

        Raises:
            FeedbackError, BindingError: the caller's fault, at once.
            CallerError: the search has not evaluated the baseline.
            JournalError: the journal cannot be used.
        """
        done = StopReason.DONE, "the search has come to its own end"
        ended = yield from self._until_end(self._search.run(), done)
        if not self._search.population.pool.candidates:
            raise CallerError(
                f"{type(self._search).__name__}.run: expected the baseline to be taken in first; "
                "begin with `yield from self.validate(self.kit.target.baseline())`"
            )
        if ended[0] in _ENDS:
            ended = yield from self._until_end(self._search.finish(), ended)
        if ended[0] in _ENDS:
            ended = yield from self._until_end(self._measure(), ended)
        return ended

    def _measure(self) -> Asking[None]:
        if not self._held_out:
            return
        if not self.winner:
            self.held_out = self._not_measured("nothing beat the baseline")
            return
        self.held_out, self._passing = yield from measure(
            self._search.population,
            self.winner,
            self._held_out,
            scorer=self._scorer,
            budget=self._budget,
            seed=self._seed,
        )

    def _not_measured(self, why: str) -> HeldOut | None:
        ids = tuple(example.id for example in self._held_out)
        return HeldOut(ids=ids, why_not=why) if ids else None

    def _until_end(self, part: Asking[None], otherwise: Ending) -> Asking[Ending]:
        """Return why a part of the run has ended; ``otherwise`` when it came to its own end."""
        ended = otherwise
        try:
            yield from part
            self._answers.accept_faults()
        except RunStoppedError as stop:
            if stop.reason in _STOPPED_BY_FAULTS:
                self._answers.held.clear()  # so that a run that is resumed asks again
            else:
                self._answers.accept_faults()
            ended = stop.reason, stop.detail
        except PermanentProviderError as error:
            ended = StopReason.PROVIDER_FAILED, str(error)
        except LimitReachedError as error:
            ended = reason_of(error), str(error)
        except PromptgraftError:
            self._answers.journal.sync()
            raise
        self._answers.journal.sync()
        self._budget.under_way = yield from GiveUp()
        return ended


_MERGE = "merge"
_SHORTENING = "shortening"


def build_result(
    search: BaseSearch,
    course: Course,
    remarks: Remarks,
    *,
    run_id: str,
    name: str,
    tag: str,
    pareto: Sequence[GepaExample],
    ledger: Ledger,
    stopped: tuple[StopReason, str],
) -> RunResult:
    """Return the result of a run that has ended; nothing is persisted yet."""
    pool = search.population.pool
    candidates = tuple(pool.candidates)
    best = course.winner
    of_examples = sum(modules[0].is_example for modules in search.accepted)
    core = RunResult(
        run_id=run_id,
        name=name,
        tag=tag,
        best_index=best,
        best_pareto_mean=pool.estimate(best),
        baseline_pareto_mean=pool.means[0],
        persisted=False,
        candidates=candidates,
        scores_matrix=tuple(pool.scores),
        objectives=tuple(pool.objectives),
        frontier=tuple(pool.frontier()),
        held_out=course.held_out,
        passing=course.passing,
        remarks=remarks.texts(course.held_out),
        taught=tuple(remarks.taught),
        pareto_ids=tuple(example.id for example in pareto),
        means=tuple(pool.estimate(position) for position in range(len(pool))),
        ancestry=tuple(found.parents[0] if found.parents else None for found in candidates),
        parents=tuple(found.parents for found in candidates),
        gains=_gains(pool, best),
        accepted_mutations=len(search.accepted) - of_examples,
        accepted_example_mutations=of_examples,
        accepted_merges=sum(len(found.parents) == 2 for found in candidates),
        rejections=tuple(search.rejections),
        total_rollouts=ledger.rollouts,
        unscored_rollouts=ledger.unscored,
        total_reflections=ledger.reflections,
        ledger=ledger.entries,
        steps=search.steps,
        stop_reason=stopped[0],
        stop_detail=stopped[1],
    )
    return search.result(core)


def _gains(pool: Pool, best: int) -> dict[str, float]:
    """Add up along the winner's line what each kind of change did to its mean."""
    gains: dict[str, float] = {}
    position = best
    while candidate_parents := pool.candidates[position].parents:
        parent = candidate_parents[0]
        after, before = pool.estimate(position), pool.estimate(parent)
        kinds = {module.kind: None for module in pool.candidates[position].modules}
        kind = " + ".join(kinds) or _MERGE
        kind = _SHORTENING if pool.candidates[position].shortened else kind
        if after is not None and before is not None:
            gains[kind] = gains.get(kind, 0.0) + after - before
        position = parent
    return gains
