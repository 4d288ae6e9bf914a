"""A run put together, and its course: search, then held-out examples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs

from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import (
    CallerError,
    LimitReachedError,
    PermanentProviderError,
    PromptgraftError,
)
from promptgraft.runtime.deadline import Deadline
from promptgraft.search.algorithm import BaseSearch, Kit, Questions
from promptgraft.search.answers import Answers
from promptgraft.search.asks import Asking, GiveUp
from promptgraft.search.batches import Books, Sources
from promptgraft.search.calls import Calls
from promptgraft.search.config import RunConfig
from promptgraft.search.contest import Sides, measure
from promptgraft.search.context import OptimizationContext
from promptgraft.search.driver import Driver
from promptgraft.search.events import Emit
from promptgraft.search.fresh import HeldOut
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.passing import Passing, PassingSides
from promptgraft.search.population import Pool, Population
from promptgraft.search.remarks import Remarks
from promptgraft.search.result import RunResult
from promptgraft.search.stopping import RunStoppedError, StopReason, reason_of
from promptgraft.search.stops import Stops
from promptgraft.serde import shown
from promptgraft.targets.base import Target
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


@attrs.define(eq=False, kw_only=True)
class Course:
    """Runs a search, and measures its winner.

    Attributes:
        search: the search.
        answers: the journal as the run sees it.
        examples: held-out examples, which no part of the search sees.
        seed: draws their order.
        held_out: how the winner did on them; None without any.
    """

    _search: BaseSearch
    _answers: Answers
    _examples: Sequence[GepaExample]
    _seed: int
    held_out: HeldOut | None = attrs.field(init=False)
    _passing: Sides | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.held_out = self._not_measured("the run was stopped before that")

    @property
    def winner(self) -> int:
        """Position of the candidate that the run ends with; 0 is the baseline."""
        best, population = self._search.best, self._search.population
        return best if population.is_above_baseline(best) else 0

    @property
    def population(self) -> Population:
        """The candidates of the run."""
        return self._search.population

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
        if not self.winner:
            self.held_out = self._not_measured("nothing beat the baseline")
        elif self._examples:
            self.held_out, self._passing = yield from measure(
                self._search.kit, self.winner, self._examples, seed=self._seed
            )

    def _not_measured(self, why: str) -> HeldOut | None:
        ids = tuple(example.id for example in self._examples)
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
        self._search.kit.budget.under_way = yield from GiveUp()
        return ended

    def result(
        self,
        remarks: Remarks,
        *,
        run_id: str,
        tag: str,
        ledger: Ledger,
        stopped: Ending,
    ) -> RunResult:
        """Return the result of a run that has ended; nothing is persisted yet."""
        search, best = self._search, self.winner
        pool, passing = search.population.pool, search.population.passing
        candidates = tuple(pool.candidates)
        of_examples = sum(modules[0].is_example for modules in search.accepted)
        core = RunResult(
            run_id=run_id,
            name=search.kit.target.identity.name,
            tag=tag,
            best_index=best,
            best_pareto_mean=pool.estimate(best),
            baseline_pareto_mean=pool.means[0],
            persisted=False,
            candidates=candidates,
            scores_matrix=tuple(pool.scores),
            objectives=tuple(pool.objectives),
            frontier=tuple(pool.frontier()),
            held_out=self.held_out,
            passing=PassingSides(
                thresholds=passing.thresholds,
                validation=(search.population.figures(0), search.population.figures(best)),
                held_out=self._passing,
            ),
            remarks=remarks.texts(self.held_out),
            taught=tuple(remarks.taught),
            pareto_ids=tuple(example.id for example in search.kit.validation),
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


_MERGE = "merge"
_SHORTENING = "shortening"


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


def assemble(
    context: OptimizationContext,
    config: RunConfig,
    *,
    target: Target,
    questions: Questions,
    answers: Answers,
    ledger: Ledger,
    sources: Sources,
    publish: Emit,
) -> tuple[Course, Driver]:
    """Return the course of a run, and what runs it.

    Args:
        context: the surroundings of the run.
        config: its settings.
        target: what is improved.
        questions: the questions to the reflection model, as users have them now.
        answers: the journal as the run sees it.
        ledger: counts everything that the run uses.
        sources: where answers come from.
        publish: is called with every event.
    """
    books = Books(answers, ledger.part())
    driver = _driver(context, config, books=books, ledger=ledger, sources=sources, publish=publish)
    validation, training = config.split
    scorer = sources.scorer
    kit = Kit(
        target=target,
        validation=validation,
        training=training,
        scorer=scorer,
        population=Population(
            pool=config.pool(),
            target=target,
            examples=validation,
            scorer=scorer,
            required=config.objectives.required,
            max_unscored_share=config.limits.max_unscored_share,
            ledger=books.ledger,
            emit=driver.emit,
            passing=Passing.of(config.feedback_fn),
        ),
        budget=RolloutBudget(books.ledger, reserve=config.reserved_size),
        questions=questions,
        emit=driver.emit,
    )
    search: object = config.search(kit)
    if not isinstance(search, BaseSearch):
        raise CallerError(
            f"algorithm `{config.algorithm}`: `search` returned {shown(search)}; "
            "expected a BaseSearch"
        )
    course = Course(search=search, answers=answers, examples=config.held_out, seed=config.seed)
    return course, driver


def _driver(
    context: OptimizationContext,
    config: RunConfig,
    *,
    books: Books,
    ledger: Ledger,
    sources: Sources,
    publish: Emit,
) -> Driver:
    stops = Stops(
        stoppers=config.limits.stoppers,
        ledger=books.ledger,
        deadline=sources.deadline,
        pause=context.pause,
        clock=context.clock,
        perfect_score=config.objectives.perfect_score,
    )
    gathering = partial(
        BatchExecutor,
        journal=context.journal,
        deadline=sources.deadline,
        pause=context.pause,
        notices=context.event_bus,
    )
    return Driver(
        sources=sources,
        books=books,
        whole=ledger,
        calls=Calls(
            books.answers.journal.append_all,
            executor=context.executor,
            questions_at_once=config.questions_at_once,
            gathering=gathering if sources.in_batches else None,
            deadline=sources.deadline or Deadline(),
        ),
        max_unscored_share=config.limits.max_unscored_share,
        look=stops.look,
        publish=publish,
        author="" if type(config).__module__.startswith("promptgraft.") else config.algorithm,
    )
