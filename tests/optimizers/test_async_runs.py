"""Adapters, feedback functions and metrics that are ``async``: the same run, in one event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import attrs
import pytest

from further import thorough
from optimizers.async_world import AsyncAdapter, AsyncJudge, Client, Hanging, Judge
from optimizers.worlds import (
    OVERLOADED,
    PROMPT,
    RULES,
    PlainAdapter,
    about,
    answer,
    answers,
    config,
    failing,
    judge,
    propose,
)
from process_pools import process_pool
from promptgraft.adapters.base import PromptResponse, ProviderAdapter, evaluated
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import (
    FeedbackFn,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.errors import CallerError, ConfigError, FeedbackError
from promptgraft.evals.metrics import Python
from promptgraft.evals.types import Answer, Case, Metric, Verdict
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import Prompt, RenderedPrompt
from promptgraft.runtime import Cancellation, Deadline, Session, SessionProtocol
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.targets.judging import examples_from, feedback_from

OutputT = TypeVar("OutputT")

WORKERS = (0, 4)
flaky = failing(OVERLOADED, about("w5"))


def settings(**changes: Any) -> GepaConfig:
    """Return a search with merges, several proposals, and several steps at once."""
    chosen = {
        "preset": "lean",
        "rollout_budget": 120,
        "proposals_per_step": 2,
        "steps_at_once": 2,
        "enable_merge": True,
        "max_unscored_share": 1.0,
        "feedback_fn": Judge(),
    }
    return config(**(chosen | changes))


@contextmanager
def workers(count: int) -> Iterator[Executor | None]:
    """Give so many threads; none for 0."""
    with ThreadPoolExecutor(count) if count else nullcontext() as executor:
        yield executor


@attrs.frozen(kw_only=True)
class World:
    """What may be plain or ``async``; the answers are the same."""

    task: ProviderAdapter
    reflection: ProviderAdapter
    feedback: FeedbackFn

    def optimizer(self, journal: MemoryJournal, **surroundings: Any) -> GepaOptimizer:
        context = OptimizationContext(
            self.task, reflection_adapter=self.reflection, journal=journal, **surroundings
        )
        return GepaOptimizer(context, settings(feedback_fn=self.feedback))

    def outcome(self, count: int) -> tuple[object, ...]:
        """Return everything that a run with so many workers leaves behind."""
        journal, session = MemoryJournal(), Session()
        with workers(count) as executor:
            result = self.optimizer(journal, executor=executor).optimize(PROMPT, session=session)
        return result, answers(journal), session.select_all(object)

    def outcome_in_loop(self, count: int) -> tuple[object, ...]:
        """Return the same of a run that a loop waits for."""
        journal, session = MemoryJournal(), Session()

        async def run() -> GepaResult:
            with workers(count) as executor:
                optimizer = self.optimizer(journal, executor=executor)
                result = await optimizer.aoptimize(PROMPT, session=session)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return result

        return asyncio.run(run()), answers(journal), session.select_all(object)


def plain() -> World:
    return World(
        task=ScriptedAdapter(flaky, identity="task"),
        reflection=ScriptedAdapter(propose, identity="reflection"),
        feedback=Judge(),
    )


@pytest.fixture(scope="module")
def in_turn() -> tuple[object, ...]:
    """What the run of plain functions leaves behind without workers."""
    found = plain().outcome(0)
    result = found[0]
    assert isinstance(result, GepaResult)
    assert result.accepted_mutations > 2
    assert result.unscored_rollouts > 2
    return found


def of_one_client(changed: str) -> tuple[World, Client]:
    """Return the world in which some parts are ``async`` and share a client."""
    client = Client()
    parts: dict[str, Any] = {
        "task": AsyncAdapter(flaky, "task", client),
        "reflection": AsyncAdapter(propose, "reflection", client),
        "feedback": AsyncJudge(client),
    }
    return attrs.evolve(plain(), **{name: parts[name] for name in changed.split()}), client


EVERYTHING = "task reflection feedback"
MIXES = ("task", "reflection", "feedback", "task feedback", EVERYTHING)


@pytest.mark.parametrize(
    ("changed", "count"),
    [(MIXES[1], 1), (MIXES[4], 16), *thorough([(MIXES[0], 0), (MIXES[2], 4), (MIXES[3], 4)])],
)
def test_async_parts_do_not_change_results_events_and_journal(
    changed: str, count: int, in_turn: tuple[object, ...]
) -> None:
    world, client = of_one_client(changed)
    assert world.outcome(count) == in_turn
    assert len(client.loops) == 1


@pytest.mark.parametrize("count", WORKERS)
@pytest.mark.parametrize("changed", ["", EVERYTHING, *thorough(["feedback"])])
def test_a_run_that_a_loop_waits_for_is_the_same_run(
    changed: str, count: int, in_turn: tuple[object, ...]
) -> None:
    world, client = of_one_client(changed)
    assert world.outcome_in_loop(count) == in_turn
    assert len(client.loops) == bool(changed)


def test_one_client_serves_one_run_after_the_other(in_turn: tuple[object, ...]) -> None:
    world, client = of_one_client(EVERYTHING)
    assert world.outcome(4) == world.outcome(0) == in_turn
    assert len(client.loops) == 1


def test_a_client_that_was_used_in_the_loop_before_serves_the_run_in_it() -> None:
    world, client = of_one_client(EVERYTHING)

    async def run() -> set[asyncio.AbstractEventLoop]:
        await client.ask(lambda: "")
        with workers(4) as executor:
            await world.optimizer(MemoryJournal(), executor=executor).aoptimize(PROMPT)
        return {asyncio.get_running_loop()}

    assert asyncio.run(run()) == client.loops


def test_processes_have_a_loop_of_their_own(in_turn: tuple[object, ...]) -> None:
    def found(task: ProviderAdapter, feedback: FeedbackFn, executor: Executor | None) -> object:
        journal = MemoryJournal()
        world = attrs.evolve(plain(), task=task, feedback=feedback)
        optimizer = world.optimizer(journal, executor=executor)
        result = asyncio.run(optimizer.aoptimize(PROMPT))
        return result, answers(journal)

    with process_pool(2) as executor:
        assert found(TravellingAdapter(), TravellingJudge(), executor) == found(
            PlainAdapter(), Judge(), None
        )


@attrs.frozen
class TravellingAdapter:
    """Answers like ``PlainAdapter``, in a coroutine."""

    identity: str = "task"

    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        await asyncio.sleep(0)
        return PlainAdapter().evaluate(prompt, session=session, deadline=deadline)


@attrs.frozen
class TravellingJudge:
    identity: str = "judge"

    async def __call__(
        self, example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        await asyncio.sleep(0)
        return judge(example, response, session)


# Ways to write an `async` function.


async def judged(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    await asyncio.sleep(0)
    return judge(example, response, session)


def wrapped(*given: Any) -> Awaitable[RolloutFeedback]:
    return judged(*given)


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, *given: Any) -> None:
        self._given = given

    def __await__(self) -> Any:
        return judged(*self._given).__await__()


def run_with(feedback: Any, **surroundings: Any) -> GepaResult:
    world = attrs.evolve(plain(), feedback=feedback)
    return world.optimizer(MemoryJournal(), **surroundings).optimize(PROMPT)


@pytest.mark.parametrize(
    "feedback",
    [judged, functools.partial(judged), wrapped, Later],
    ids=["async def", "partial", "wrapped", "awaitable"],
)
def test_whatever_returns_an_awaitable_is_awaited(feedback: Any) -> None:
    assert run_with(feedback).scores_matrix == run_with(judge).scores_matrix


async def known(case: Case, answer: Answer) -> tuple[bool, str]:
    await asyncio.sleep(0)
    return answer.text == "ok", "fine" if answer.text == "ok" else f"missing {case.input}"


def known_at_once(case: Case, answer: Answer) -> tuple[bool, str]:
    return answer.text == "ok", "fine" if answer.text == "ok" else f"missing {case.input}"


@attrs.frozen
class Own:
    """A metric of a user's own."""

    name: str = "own"
    threshold: float = 1.0

    async def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        await asyncio.sleep(0)
        right = answer.text == "ok"
        reason = "fine" if right else f"missing {case.input}"
        return Verdict(metric=self.name, score=float(right), passed=right, reason=reason)


@pytest.mark.parametrize("count", [4, *thorough([0])])
@pytest.mark.parametrize(
    "metric", [Python(function=known, name="known"), Own(name="known")], ids=["function", "own"]
)
def test_metrics_may_be_async(metric: Metric, count: int) -> None:
    def found(metric: Metric, count: int) -> tuple[object, ...]:
        cases = [
            Case(id=f"e{n}", input=f"w{n % 6}", expected="ok", state={"n": n}) for n in range(12)
        ]
        data = examples_from(PROMPT, cases)
        with workers(count) as executor:
            context = OptimizationContext(
                PlainAdapter(),
                reflection_adapter=ScriptedAdapter(propose, identity="reflection"),
                executor=executor,
            )
            chosen = settings(training_examples=data, feedback_fn=feedback_from([metric]))
            result = GepaOptimizer(context, chosen).optimize(PROMPT)
        return result.scores_matrix, result.best_section_overrides, result.total_rollouts

    expected = found(Python(function=known_at_once, name="known"), 0)
    assert found(metric, count) == expected
    assert RULES in expected[1]  # type: ignore[operator]


# The loop of the caller.


def test_tasks_of_the_loop_make_progress_while_a_run_goes_on() -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def patient(rendered: Any) -> str:
        """Answer once the other task has had its turn; a plain function in another thread."""
        before, waited = turns, threading.Event()
        while turns == before:
            waited.wait(0.001)
        return answer(rendered)

    async def run() -> GepaResult:
        ticking = asyncio.create_task(tick())
        world = attrs.evolve(plain(), task=ScriptedAdapter(patient, identity="task"))
        try:
            return await world.optimizer(MemoryJournal()).aoptimize(PROMPT)
        finally:
            ticking.cancel()

    result = asyncio.run(run())
    assert result.found_better
    assert turns > result.total_rollouts


def test_two_runs_share_a_loop() -> None:
    async def run() -> list[GepaResult]:
        worlds = [of_one_client(EVERYTHING)[0] for _ in range(3)]
        return await asyncio.gather(
            *(world.optimizer(MemoryJournal()).aoptimize(PROMPT) for world in worlds)
        )

    first, *others = asyncio.run(run())
    assert others == [first, first]


def test_a_plain_run_inside_a_running_loop_works() -> None:
    world, client = of_one_client(EVERYTHING)

    async def run() -> GepaResult:
        return world.optimizer(MemoryJournal()).optimize(PROMPT)

    assert asyncio.run(run()).found_better
    assert len(client.loops) == 1


@pytest.mark.parametrize("count", [0, 4])
def test_a_task_that_is_cancelled_ends_its_run_in_good_order(
    count: int, in_turn: tuple[object, ...]
) -> None:
    journal = MemoryJournal()
    calls = 30

    async def run() -> Hanging:
        hangs = asyncio.Event()
        task = Hanging(calls, hangs.set)
        world = attrs.evolve(plain(), task=task, reflection=AsyncAdapter(propose, "reflection"))
        with workers(count) as executor:
            optimizer = world.optimizer(journal, executor=executor)
            running = asyncio.create_task(optimizer.aoptimize(PROMPT))
            await hangs.wait()
            running.cancel()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return task

    hanging = asyncio.run(run())
    assert sorted(hanging.cancelled) == sorted(hanging.seen[calls:])
    rollouts = [record for record in journal.records() if record.kind == "rollout"]
    assert len(rollouts) == calls

    resumed = plain_without_faults().optimizer(journal).optimize(PROMPT)
    assert resumed == plain_without_faults().optimizer(MemoryJournal()).optimize(PROMPT)


def test_a_task_that_is_cancelled_while_its_loop_sleeps_ends_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("promptgraft.runtime.event_loop._LOOK_EVERY", 0.01)

    woken, in_time = threading.Event(), list[bool]()

    async def run() -> None:
        def interrupted(rendered: RenderedPrompt[Any]) -> str:
            # As Jupyter does in its signal handler, which does not wake the loop.
            running.cancel()
            loop.call_soon(woken.set)
            in_time.append(woken.wait(0 if in_time else 1))
            return answer(rendered)

        loop = asyncio.get_running_loop()
        world = attrs.evolve(plain(), task=ScriptedAdapter(interrupted, identity="task"))
        running = asyncio.create_task(world.optimizer(MemoryJournal()).aoptimize(PROMPT))
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    assert in_time
    assert all(in_time)


def plain_without_faults() -> World:
    return attrs.evolve(plain(), task=ScriptedAdapter(answer, identity="task"))


def test_an_error_of_a_run_reaches_the_task_that_awaits_it() -> None:
    async def run() -> None:
        await attrs.evolve(plain(), feedback=divide).optimizer(MemoryJournal()).aoptimize(PROMPT)

    with pytest.raises(FeedbackError, match="`e0` raised ZeroDivisionError"):
        asyncio.run(run())


def test_the_cancellation_of_the_context_ends_a_run_that_a_loop_waits_for() -> None:
    stop = Cancellation()
    world = attrs.evolve(plain(), task=Hanging(10, lambda: stop.set("enough")))
    result = asyncio.run(world.optimizer(MemoryJournal(), cancellation=stop).aoptimize(PROMPT))
    assert (result.stop_reason, result.stop_detail) == (
        StopReason.CANCELLED,
        "the run was stopped: enough",
    )


# What goes wrong.


async def divide(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    await asyncio.sleep(0)
    return RolloutFeedback(score=1 / 0, feedback="")


async def nothing(*given: object) -> None:
    return None


async def give_up(*given: object) -> None:
    raise asyncio.CancelledError


async def generate(*given: object) -> Any:
    yield RolloutFeedback(score=1.0, feedback="")


@pytest.mark.parametrize("count", WORKERS)
@pytest.mark.parametrize(
    ("feedback", "said"),
    [
        (divide, "`e0` raised ZeroDivisionError: float division by zero|division by zero"),
        (nothing, "`e0`: expected a RolloutFeedback, found None"),
        (give_up, "`e0` raised CancelledElsewhereError: a coroutine of the run was cancelled"),
        (generate, "`e0`: expected a RolloutFeedback, found <async_generator object generate"),
    ],
)
def test_a_fault_of_an_async_feedback_function_names_the_example(
    feedback: Any, said: str, count: int
) -> None:
    with (
        workers(count) as executor,
        pytest.raises(FeedbackError, match=f"feedback function on example {said}"),
    ):
        run_with(feedback, executor=executor)


@attrs.frozen
class Says:
    """An adapter that returns anything."""

    value: Any
    identity: str = "odd"

    def evaluate(
        self,
        prompt: Prompt[object],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> Any:
        return self.value() if callable(self.value) else self.value


async def text() -> str:
    return "ok"


@pytest.mark.parametrize(
    ("value", "found"), [(None, "None"), ("ok", "'ok'"), (text, "'ok'"), (nothing, "None")]
)
def test_an_adapter_that_returns_something_else_is_named_with_the_example(
    value: Any, found: str
) -> None:
    world = attrs.evolve(plain(), task=Says(value))
    with pytest.raises(CallerError) as caught:
        world.optimizer(MemoryJournal()).optimize(PROMPT)
    assert str(caught.value) == (
        f"adapter `odd` on example `e0`: `evaluate` must return a PromptResponse, found {found}; "
        "`promptgraft.adapters.base.answered` builds one; at `baseline/0` of the run"
    )
    with pytest.raises(
        CallerError, match="adapter `odd` on the reflection `reflect-section`: `evaluate` must"
    ):
        attrs.evolve(plain(), reflection=Says(value)).optimizer(MemoryJournal()).optimize(PROMPT)


@pytest.mark.parametrize("name", ["adapter", "reflection_adapter"])
def test_a_function_or_a_class_in_place_of_an_adapter_is_refused(name: str) -> None:
    for wrong, why in (
        (nothing, "`FunctionAdapter(f)` of promptgraft.adapters asks a function"),
        (object(), "it has no method `evaluate(prompt, *, session, deadline=None)`"),
        (AsyncAdapter, "it is a class, not an instance"),
    ):
        with pytest.raises(ConfigError) as caught:
            OptimizationContext(**{"adapter": PlainAdapter(), name: wrong})  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"{name}: expected an adapter, found ")
        assert why in str(caught.value)


@pytest.mark.parametrize("count", [0, 4])
def test_a_deadline_ends_coroutines_that_hang(count: int) -> None:
    task = Hanging(10)
    with workers(count) as executor:
        world = attrs.evolve(plain(), task=task)
        result = world.optimizer(
            MemoryJournal(), executor=executor, deadline=Deadline.after(1)
        ).optimize(PROMPT)
    assert result.stop_reason is StopReason.DEADLINE
    assert len(task.cancelled) == len(task.seen[10:]) >= 1


def test_a_coroutine_that_waits_for_its_own_loop_is_told_how_to_do_it() -> None:
    inner = AsyncAdapter(answer, "inner")

    async def ask_in_loop(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        evaluated(inner, PROMPT.bind(*example.params), session=session)
        return judge(example, response, session)

    async def ask_in_thread(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        prompt = PROMPT.bind(*example.params)
        await asyncio.to_thread(evaluated, inner, prompt, session=session)
        return judge(example, response, session)

    runs: list[Callable[[GepaOptimizer], GepaResult]] = [
        lambda optimizer: optimizer.optimize(PROMPT),
        lambda optimizer: asyncio.run(optimizer.aoptimize(PROMPT)),
    ]
    for run in runs:
        world = attrs.evolve(plain(), feedback=ask_in_loop)
        with pytest.raises(FeedbackError, match=r"call it with `await asyncio.to_thread\(...\)`"):
            run(world.optimizer(MemoryJournal()))
        inner.client.loops.clear()
        assert run(
            attrs.evolve(world, feedback=ask_in_thread).optimizer(MemoryJournal())
        ).found_better
        assert len(inner.client.loops) == 1
        inner.client.loops.clear()


def test_a_run_inside_a_coroutine_of_a_run_is_refused_or_works() -> None:
    async def plainly(*given: Any) -> RolloutFeedback:
        with ThreadPoolExecutor(2) as executor:
            optimizer(judged, executor=executor).optimize(PROMPT)
        return judge(*given)

    async def awaiting(*given: Any) -> RolloutFeedback:
        await optimizer(judged).aoptimize(PROMPT)
        return judge(*given)

    few = settings(rollout_budget=30, proposals_per_step=1, steps_at_once=1, enable_merge=False)

    def optimizer(feedback: Any, executor: Executor | None = None) -> GepaOptimizer:
        context = OptimizationContext(
            plain().task, reflection_adapter=plain().reflection, executor=executor
        )
        return GepaOptimizer(context, attrs.evolve(few, feedback_fn=feedback))

    with pytest.raises(FeedbackError, match=r"asyncio\.to_thread"):
        optimizer(plainly).optimize(PROMPT)
    assert optimizer(awaiting).optimize(PROMPT).total_rollouts
    for feedback in (plainly, awaiting):
        assert asyncio.run(optimizer(feedback).aoptimize(PROMPT)).total_rollouts


def test_an_exit_in_a_coroutine_is_its_fault_and_leaves_the_loop_running() -> None:
    async def leave(*given: object) -> RolloutFeedback:
        raise SystemExit(3)

    with pytest.raises(FeedbackError, match="`e0` raised SystemExit: 3"):
        run_with(leave)
    assert run_with(judged).found_better
