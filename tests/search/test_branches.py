"""Branches of a search, and the journal behind them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import pytest

from optimizers.worlds import PROMPT, RULES, examples, target_of
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import GepaExample, RolloutFeedback, RolloutRecord
from promptgraft.errors import CallerError, ConfigError
from promptgraft.ground.serde import digest_text
from promptgraft.journal import MemoryJournal, Record
from promptgraft.runtime import Deadline
from promptgraft.search import (
    AnyEnded,
    Asking,
    Join,
    Outlook,
    Rollouts,
    RunStoppedError,
    Start,
    Together,
)
from promptgraft.search.answers import Answers
from promptgraft.search.asks import GiveUp, Release
from promptgraft.search.batches import AnswerSources
from promptgraft.search.calls import Calls
from promptgraft.search.driver import Driver
from promptgraft.search.events import RolloutCompleted
from promptgraft.search.ledger import Ledger
from promptgraft.targets.types import Candidate

P = ParamSpec("P")
T = TypeVar("T")

DATA = examples(4)
BASELINE = target_of(PROMPT, RULES).baseline()


class CountingJournal(MemoryJournal):
    """Remembers how many answers came in each append."""

    def __init__(self) -> None:
        super().__init__()
        self.appends: list[int] = []

    def append_all(self, records: Sequence[Record]) -> None:
        self.appends.append(len(records))
        super().append_all(records)


class World:
    """A driver over a journal, with what it publishes."""

    def __init__(self, workers: ThreadPoolExecutor | None = None, *, budget: int = 100) -> None:
        self.journal = CountingJournal()
        self.journal.begin({})
        self.told: list[object] = []
        self.made: list[str] = []
        self.before_rollout: Callable[[GepaExample], object] = lambda _: None
        self.answers = Answers(self.journal, Ledger(budget).part())
        self.driver = Driver(
            sources=AnswerSources(
                rollout=self._rollout,
                example_digests={example.id: digest_text(example.id) for example in DATA},
                reflection=ScriptedAdapter([]),
            ),
            answers=self.answers,
            calls=Calls(self.journal, executor=workers),
            look=lambda _: Outlook(None),
            publish=self._publish,
        )

    def _publish(self, event: object) -> None:
        at = event.position if isinstance(event, RolloutCompleted) else event
        self.told.append(at)

    def _rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        del candidate, deadline
        self.before_rollout(example)
        self.made.append(example.id)
        return RolloutRecord(
            example_id=example.id,
            inputs_repr="",
            output_repr="",
            tool_trace_repr="",
            feedback=RolloutFeedback(score=1.0, feedback=""),
        )

    def part(self, position: str, *places: int) -> Asking[str]:
        chosen = [DATA[place] for place in places]
        yield from Rollouts(position=position, candidate=BASELINE, examples=chosen)
        self.driver.emit(f"end of {position}")
        return position


def test_what_a_branch_did_is_seen_when_it_is_joined_and_in_that_order() -> None:
    world = World()

    def search() -> Asking[list[str]]:
        first = yield from Start(world.part("a", 0))
        second = yield from Start(world.part("b", 1, 2))
        assert first.has_ended
        assert second.rollouts == 2
        assert (world.told, world.answers.ledger.rollouts) == ([], 0)
        found = [(yield from Join(first))]
        assert (world.told, world.answers.ledger.rollouts) == (["a/0", "end of a"], 1)
        return [*found, (yield from Join(second))]

    assert world.driver.run(search()) == ["a", "b"]
    assert world.told == ["a/0", "end of a", "b/0", "b/1", "end of b"]
    assert world.answers.ledger.rollouts == 3


def test_a_held_branch_asks_nothing_until_it_is_released() -> None:
    world = World()

    def search() -> Asking[str]:
        branch = yield from Start(world.part("a", 0), released=False)
        assert world.made == []
        yield from Release(branch)
        return (yield from Join(branch))

    assert world.driver.run(search()) == "a"
    assert world.made == [DATA[0].id]


def test_what_a_line_asks_for_goes_before_the_calls_of_branches_that_it_has_released() -> None:
    with ThreadPoolExecutor(1) as workers:
        world = World(workers)

        def search() -> Asking[None]:
            branch = yield from Start(world.part("later", 0, 1), released=False)
            yield from Release(branch)
            yield from world.part("race", 2, 3)
            yield from Join(branch)

        world.driver.run(search())
    assert world.made == [DATA[place].id for place in (2, 3, 0, 1)]


class GatedPool(ThreadPoolExecutor):
    """One thread that does nothing before so many calls were submitted."""

    def __init__(self, count: int) -> None:
        super().__init__(1)
        self._left, self._gate = count, threading.Event()
        super().submit(self._gate.wait)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        self._left -= 1
        if not self._left:
            self._gate.set()
        return future


def test_a_free_thread_makes_the_calls_of_the_oldest_branch_first() -> None:
    with GatedPool(4) as workers:
        world = World(workers)

        def search() -> Asking[list[str]]:
            older = yield from Start(world.part("older", 0, 1), released=False)
            younger = yield from Start(world.part("younger", 2, 3))
            yield from Release(older)
            return [(yield from Join(older)), (yield from Join(younger))]

        assert world.driver.run(search()) == ["older", "younger"]
    assert world.made == [DATA[place].id for place in (0, 1, 2, 3)]


def test_a_pool_that_drops_waiting_calls_ends_the_run_instead_of_waiting_for_ever() -> None:
    workers = GatedPool(4)
    world = World(workers)
    world.before_rollout = lambda _: workers.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(ConfigError, match="GatedPool cancelled calls of the run; keep it open"):
        world.driver.run(world.part("a", 0, 1, 2, 3))
    assert world.made == [DATA[0].id]


def test_waiting_for_a_branch_that_is_not_released_is_an_error() -> None:
    world = World()

    def search() -> Asking[str]:
        return (yield from Join((yield from Start(world.part("a", 0), released=False))))

    with pytest.raises(CallerError, match="waits for a branch that it has not released"):
        world.driver.run(search())


def test_something_that_is_no_ask_is_named() -> None:
    def search() -> Any:
        yield "what is best?"

    with pytest.raises(CallerError, match=r"expected something to ask for, .*'what is best"):
        World().driver.run(search())


def test_what_is_in_flight_in_a_branch_that_is_given_up_is_recorded() -> None:
    begun, answers = threading.Event(), threading.Event()

    with ThreadPoolExecutor(1) as workers:
        world = World(workers)

        def wait(example: GepaExample) -> None:
            del example
            begun.set()
            answers.wait()

        world.before_rollout = wait

        def search() -> Asking[int]:
            yield from Start(world.part("a", 0, 1, 2))
            begun.wait()
            answers.set()
            return (yield from GiveUp())

        assert world.driver.run(search()) == len(world.journal) == len(world.made)
        assert world.told == []


def test_answers_that_ended_together_are_recorded_in_one_append() -> None:
    with ThreadPoolExecutor(1) as workers:
        world = World(workers)

        def search() -> Asking[None]:
            yield from Start(world.part("a", 0, 1, 2, 3))
            workers.submit(int).result()  # the only worker has made all calls before this one
            yield from AnyEnded()

        world.driver.run(search())
    assert world.journal.appends == [4]


def test_branches_that_ask_at_the_same_time_do_not_exceed_the_budget_together() -> None:
    with ThreadPoolExecutor(2) as workers:
        world = World(workers, budget=5)
        both = Together([world.part("a", 0, 1, 2, 3), world.part("b", 0, 1, 2, 3)])
        with pytest.raises(RunStoppedError, match="more than the budget has left"):
            world.driver.run(iter(both))
    assert len(world.made) == 4
