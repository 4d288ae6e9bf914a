"""The parts of a run, put together: driver, population, search, and the course of all three."""

from __future__ import annotations

from functools import partial

from promptgraft.adapters.calling.gathering import BatchExecutor
from promptgraft.errors import CallerError
from promptgraft.search.algorithm import BaseSearch, Kit, Questions
from promptgraft.search.answers import Answers
from promptgraft.search.batches import Books, Sources
from promptgraft.search.calls import Calls
from promptgraft.search.config import RunConfig
from promptgraft.search.context import OptimizationContext
from promptgraft.search.course import Course
from promptgraft.search.driver import Driver
from promptgraft.search.events import Emit
from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.passing import Passing
from promptgraft.search.population import Population
from promptgraft.search.stops import Stops
from promptgraft.serde import shown
from promptgraft.targets.base import Target


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
) -> tuple[BaseSearch, Course, Driver]:
    """Return a search, the course of its run, and what runs it.

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
    course = Course(
        search,
        answers=answers,
        held_out=config.held_out,
        scorer=scorer,
        budget=kit.budget,
        seed=config.seed,
    )
    return search, course, driver


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
        sources,
        books=books,
        whole=ledger,
        calls=Calls(
            books.answers.journal.append_all,
            executor=context.executor,
            questions_at_once=config.questions_at_once,
            gathering=gathering if sources.in_batches else None,
            deadline=sources.deadline,
        ),
        max_unscored_share=config.limits.max_unscored_share,
        look=stops.look,
        publish=publish,
        author="" if type(config).__module__.startswith("promptgraft.") else config.algorithm,
    )
