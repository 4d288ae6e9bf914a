"""The course of a run: search, confirmation of the winner, held-out examples."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.errors import LimitReachedError, PermanentProviderError, PromptgraftError
from promptgraft.evals.statistics import paired_test
from promptgraft.search.acceptance import AcceptancePolicy
from promptgraft.search.algorithm import Search
from promptgraft.search.answers import Answers
from promptgraft.search.asks import Asking, GiveUp, Rollouts, Together
from promptgraft.search.fresh import Confirmation, HeldOut
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.population import Pool
from promptgraft.search.result import RunResult
from promptgraft.search.scores import Score, Scorer, mean_score
from promptgraft.search.stopping import RunStoppedError, StopReason, reason_of
from promptgraft.targets.types import GepaExample, RolloutRecord

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
"""Reasons that leave the means to confirm a winner, and to evaluate it on held-out examples."""

_STOPPED_BY_FAULTS = {StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}

Ending = tuple[StopReason, str]
"""Why a run has ended, and the same in words."""


class Course:
    """Runs a search, confirms its winner and measures it.

    Args:
        search: the search.
        answers: the journal as the run sees it.
        validation: the validation set.
        held_out: examples that no part of the search sees.
        acceptance: says whether a winner is confirmed, and how.
        scorer: gives rollouts their scores.
        budget: what is left of the rollouts.

    Attributes:
        confirmation: how the winner did on fresh answers; None where that was not asked for.
        held_out: how it did on held-out examples; None without any.
    """

    def __init__(
        self,
        search: Search,
        *,
        answers: Answers,
        validation: Sequence[GepaExample],
        held_out: Sequence[GepaExample],
        acceptance: AcceptancePolicy,
        scorer: Scorer,
        budget: RolloutBudget,
    ) -> None:
        self._search = search
        self._budget = budget
        self._answers = answers
        self._validation = validation
        self._held_out = held_out
        self._acceptance = acceptance
        self._scorer = scorer
        self.confirmation: Confirmation | None = None
        self.held_out = self._not_measured("the run was stopped before that")

    @property
    def winner(self) -> int:
        """Position of the candidate that the run ends with; 0 is the baseline."""
        confirmed = self.confirmation is not None and self.confirmation.confirmed
        if self._acceptance.confirmations and not confirmed:
            return 0
        best, population = self._search.best, self._search.population
        return best if population.is_above_baseline(best) else 0

    def run(self) -> Asking[Ending]:
        """Run to the end and return why it came.

        Raises:
            FeedbackError, BindingError: the caller's fault, at once.
            JournalError: the journal cannot be used.
        """
        done = StopReason.DONE, "the search has come to its own end"
        ended = yield from self._until_end(self._search.run(), done)
        if ended[0] in _ENDS:
            ended = yield from self._until_end(self._search.finish(), ended)
        if ended[0] in _ENDS and self._search.population.pool.best:
            ended = yield from self._until_end(self._confirm(), ended)
        if ended[0] in _ENDS:
            ended = yield from self._until_end(self._measure(), ended)
        return ended

    def _confirm(self) -> Asking[None]:
        if self._acceptance.confirmations:
            self.confirmation = yield from confirm(
                self._search.population.pool,
                self._validation,
                policy=self._acceptance,
                scorer=self._scorer,
            )

    def _measure(self) -> Asking[None]:
        if not self._held_out:
            return
        if not self.winner:
            self.held_out = self._not_measured("nothing beat the baseline")
            return
        self.held_out = yield from measure(
            self._search.population.pool, self.winner, self._held_out, scorer=self._scorer
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
            self._answers.sync()
            raise
        self._answers.sync()
        self._budget.keep((yield from GiveUp()))
        return ended


def confirm(
    pool: Pool, examples: Sequence[GepaExample], *, policy: AcceptancePolicy, scorer: Scorer
) -> Asking[Confirmation]:
    """Ask for fresh answers of baseline and winner, and test one against the other."""
    best, rounds = pool.best, range(policy.confirmations)
    made = yield from Together(
        *(
            Rollouts(
                position=f"confirm/{best}/{name}/{number}",
                candidate=pool.candidates[position],
                examples=examples,
            )
            for name, position in (("baseline", 0), ("winner", best))
            for number in rounds
        )
    )
    before, after = (_means(made[side:][: len(rounds)], scorer) for side in (0, len(rounds)))
    found = paired_test(before, after)
    return Confirmation(
        candidate=best,
        baseline_mean=mean_score(before),
        winner_mean=mean_score(after),
        p_value=found.p_value,
        confirmed=found.mean_gain > 0 and found.p_value <= policy.level,
    )


def _means(rounds: Sequence[Sequence[RolloutRecord]], scorer: Scorer) -> list[Score]:
    """Return the mean score of each example over the rounds."""
    answers = zip(*rounds, strict=True)
    return [mean_score([scorer.score(one) for one in again]) for again in answers]


def measure(
    pool: Pool, winner: int, examples: Sequence[GepaExample], *, scorer: Scorer
) -> Asking[HeldOut]:
    """Evaluate baseline and winner once on each held-out example.

    Examples that a resumed run does not have any more are not counted, others are evaluated then.
    """
    made = yield from Together(
        *(
            Rollouts(
                position=f"held-out/{position}",
                candidate=pool.candidates[position],
                examples=examples,
                by_example=True,
            )
            for position in (0, winner)
        )
    )
    before, after = (tuple(scorer.score(record) for record in records) for records in made)
    return HeldOut(
        ids=tuple(example.id for example in examples),
        baseline_scores=before,
        winner_scores=after,
    )


_MERGE = "merge"
_SHORTENING = "shortening"


def build_result(
    search: Search,
    course: Course,
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
    confirmation = course.confirmation
    best = course.winner
    of_examples = sum(modules[0].is_example for modules in search.accepted)
    return RunResult(
        run_id=run_id,
        name=name,
        tag=tag,
        best_index=best,
        best_pareto_mean=pool.estimate(best),
        baseline_pareto_mean=pool.means[0],
        improved=best != 0,
        persisted=False,
        candidates=candidates,
        scores_matrix=tuple(pool.scores),
        objectives=tuple(pool.objectives),
        frontier=tuple(pool.frontier()),
        confirmation=confirmation,
        held_out=course.held_out,
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
