"""What keeps answers and money safe while nothing goes wrong, and so is missed by no other test."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from decimal import Decimal
from typing import Any, ParamSpec, TypeVar

import pytest

from optimizers.paid import CENT, PaidAdapter
from optimizers.worlds import (
    PROMPT,
    REFUSED,
    RULES,
    Run,
    config,
    examples,
    failing,
    propose,
    target_of,
)
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import GepaExample, GepaOptimizer, RolloutFeedback, RolloutRecord
from promptgraft.errors import BudgetExhaustedError, DeadlineExceededError
from promptgraft.evals.spending import Role, Spending
from promptgraft.ground.serde import digest_text
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Deadline
from promptgraft.runtime.session import Budget
from promptgraft.search import (
    Asking,
    OptimizationContext,
    Outlook,
    RejectionReason,
    Rollouts,
    RunStoppedError,
    Start,
    StopReason,
)
from promptgraft.search.acceptance import Comparer, Strict
from promptgraft.search.answers import Answers
from promptgraft.search.asks import Checkpoint, GiveUp, Join, Standing
from promptgraft.search.batches import AnswerSources
from promptgraft.search.calls import Calls
from promptgraft.search.driver import Driver
from promptgraft.search.ledger import Ledger
from promptgraft.search.scores import Scorer
from promptgraft.targets.types import Candidate
from promptgraft.testing import FakeClock

P = ParamSpec("P")
T = TypeVar("T")
DATA = examples(6)
BASELINE = target_of(PROMPT, RULES).baseline()


def spent(cost: Decimal) -> Spending:
    return Spending(role=Role.TASK, model="m", calls=1, requests=1, cost=cost)


def record(example: GepaExample, *, cost: Decimal = CENT) -> RolloutRecord:
    return RolloutRecord(
        example_id=example.id,
        inputs_repr="",
        output_repr="",
        tool_trace_repr="",
        feedback=RolloutFeedback(score=1.0, feedback=""),
        spent=(spent(cost),),
    )


def rollouts(position: str, count: int) -> Rollouts:
    return Rollouts(position=position, candidate=BASELINE, examples=DATA[:count])


class SyncedJournal(MemoryJournal):
    """Knows how many of its answers would survive a power loss."""

    def __init__(self) -> None:
        super().__init__()
        self.durable = 0

    def _sync(self) -> None:
        self.durable = len(self)


class Later(Executor):
    """Keeps calls until they are made by hand."""

    def __init__(self) -> None:
        self.kept: list[tuple[Future[Any], Callable[[], object]]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self.kept.append((future, lambda: fn(*args, **kwargs)))
        return future

    def make(self, *places: int) -> None:
        for place in places:
            future, call = self.kept[place]
            if future.set_running_or_notify_cancel():
                future.set_result(call())


class World:
    """A driver, its journal, and the money of its run."""

    def __init__(self, *, budget: int = 100, money: Budget | None = None, **calls: Any) -> None:
        self.journal = SyncedJournal()
        self.journal.begin({})
        self.whole = Ledger(budget, budget=money or Budget())
        self.answers = Answers(self.journal, self.whole.part())
        self.made: list[str] = []
        self.seconds = 0
        self.clock = FakeClock()
        self.driver = Driver(
            sources=AnswerSources(
                rollout=self._rollout,
                example_digests={example.id: digest_text(example.id) for example in DATA},
                reflection=ScriptedAdapter([]),
            ),
            answers=self.answers,
            calls=Calls(self.journal, **{"executor": None, **calls}),
            look=self._look,
            publish=lambda _: None,
        )

    def _look(self, standing: Standing) -> Outlook:
        self.answers.ledger.check()
        return Outlook(None)

    def _rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        self.made.append(example.id)
        self.clock.advance(self.seconds)
        return record(example)


def checkpoint() -> Checkpoint:
    standing: Any = None  # what the looks of these tests do not look at
    return Checkpoint(standing)


def test_answers_survive_a_power_loss_from_each_checkpoint_on() -> None:
    world = World()
    durable: list[int] = []

    def search() -> Asking[None]:
        for step in range(3):
            yield from rollouts(f"step/{step}", 2)
            yield from checkpoint()
            durable.append(world.journal.durable)

    world.driver.run(search())
    assert durable == [2, 4, 6]


def test_a_resumed_run_has_the_money_left_that_the_first_process_left() -> None:
    journal = MemoryJournal()
    settings = config(max_cost="0.20", rollout_budget=200)

    def start(adapter: PaidAdapter) -> StopReason:
        writer = ScriptedAdapter(propose, identity="writer")
        context = OptimizationContext(adapter, reflection_adapter=writer, journal=journal)
        return GepaOptimizer(context, settings).optimize(PROMPT).stop_reason

    first, second = PaidAdapter(), PaidAdapter()
    assert start(first) is StopReason.COST
    assert first.calls == 20
    assert start(second) is StopReason.COST
    assert second.calls == 0


def test_a_reflection_model_that_refuses_for_good_is_asked_once() -> None:
    run = Run(config(), reflection=failing(REFUSED, lambda _: True))
    result = run.start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert result.stop_detail == str(REFUSED)
    assert run.reflection.calls == 1


def test_what_running_branches_have_spent_counts_before_they_are_joined() -> None:
    world = World(money=Budget(max_cost=2 * CENT))
    reached: list[str] = []

    def search() -> Asking[None]:
        branch = yield from Start(iter(rollouts("branch", 2)))
        reached.append("branch")
        yield from checkpoint()
        reached.append("checkpoint")
        yield from Join(branch)

    with pytest.raises(BudgetExhaustedError, match="max_cost"):
        world.driver.run(search())
    assert reached == ["branch"]


@pytest.mark.parametrize(("budget", "allowed"), [(6, True), (5, False)])
def test_an_algorithm_that_does_not_look_at_the_budget_cannot_exceed_it(
    budget: int, allowed: bool
) -> None:
    world = World(budget=budget)

    def search() -> Asking[None]:
        yield from rollouts("first", 4)
        yield from rollouts("second", 2)

    if allowed:
        world.driver.run(search())
    else:
        with pytest.raises(RunStoppedError, match="2 more rollouts") as stop:
            world.driver.run(search())
        assert stop.value.reason is StopReason.BUDGET
    assert len(world.made) == (6 if allowed else 4)


@pytest.mark.parametrize(("budget", "allowed"), [(6, True), (5, False)])
def test_rollouts_in_flight_count_towards_the_budget(budget: int, allowed: bool) -> None:
    later = Later()
    world = World(budget=budget, executor=later)

    def search() -> Asking[None]:
        yield from Start(iter(rollouts("branch", 4)))
        yield from Start(iter(rollouts("other", 2)))
        assert len(later.kept) == (6 if allowed else 4)
        later.make(*range(len(later.kept)))

    world.driver.run(search())
    assert len(world.made) == (6 if allowed else 4)


def test_no_call_begins_after_the_deadline() -> None:
    clock = FakeClock()
    world = World(deadline=Deadline.after(5, clock=clock))
    world.clock, world.seconds = clock, 3
    with pytest.raises(DeadlineExceededError):
        world.driver.run(iter(rollouts("first", 4)))
    assert world.made == ["e0", "e1"]
    assert len(world.journal) == 2


def test_calls_of_a_branch_that_is_given_up_are_not_made() -> None:
    later = Later()
    # Whoever waits for calls that nobody makes is told so.
    deadline = Deadline.after(5)
    world = World(executor=later, deadline=deadline)

    def search() -> Asking[int]:
        yield from Start(iter(rollouts("branch", 4)))
        later.make(0)
        used = yield from GiveUp()
        return used

    assert world.driver.run(search()) == 1
    assert not deadline.expired
    assert [future.cancelled() for future, _ in later.kept] == [False, True, True, True]
    assert [one.key for one in world.journal.records()] == ["branch/0"]


@pytest.mark.parametrize(
    ("parent", "child", "again", "refused"),
    [
        (1, 1, None, False),  # exactly the limit
        (9, 1, None, False),  # what the parent costs is no fault of the child
        (1, 2, None, True),
        (1, 1, 2, True),  # only when both are tried again
        (1, 1, 1, False),
    ],
)
def test_the_dearest_rollout_of_the_latest_batch_decides(
    parent: int, child: int, again: int | None, refused: bool
) -> None:
    comparer = Comparer(policy=Strict(), scorer=Scorer({}), max_rollout_cost=CENT)
    costs = [parent, child] if again is None else [parent, child, parent, again]
    batches = tuple((record(DATA[0], cost=cost * CENT),) for cost in costs)
    compared = comparer.judge(batches, DATA[:1])
    assert compared is not None
    assert compared.refusal is not None
    assert (compared.refusal[0] is RejectionReason.TOO_DEAR) == refused
