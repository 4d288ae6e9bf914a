"""What users' own adapters, stores and functions raise or return is named, and nothing is lost."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, Literal, NoReturn

import attrs
import pytest

import agent_world
from optimizers.worlds import (
    PROMPT,
    TEMPLATE,
    Run,
    answer,
    config,
    numbered,
    optimize,
    propose,
    with_output,
)
from promptgraft import errors
from promptgraft.adapters.base import PromptResponse
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import (
    GepaOptimizer,
    GepaResult,
    GepaRolloutCompleted,
    RolloutFeedback,
)
from promptgraft.errors import (
    AdapterError,
    BindingError,
    CandidateError,
    ConfigError,
    JournalMismatchError,
    PermanentProviderError,
    PromptEvaluationError,
    PromptgraftError,
    StoreError,
    WinnerNotStoredError,
)
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, RenderedPrompt
from promptgraft.runtime import Session
from promptgraft.search import OptimizationContext, StopReason


@attrs.frozen
class Own:
    """An adapter of a user's."""

    give: Callable[[], Any]
    identity: str = "mine"

    def evaluate(self, prompt: Any, *, session: Any, deadline: Any = None) -> Any:
        return self.give()


def raising(error: Exception) -> Callable[..., NoReturn]:
    def give(*_: object, **__: object) -> NoReturn:
        raise error

    return give


async def unawaited() -> object:
    return unawaited


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (raising(ValueError("no model")), "raised ValueError: no model"),
        (raising(KeyError("choices")), "raised KeyError: 'choices'"),
        (lambda: None, "found None"),
        (lambda: "ok", "found 'ok'"),
        (unawaited, "found <function unawaited"),
        (lambda: PromptResponse(text=None), "its text: expected a str, found None"),  # type: ignore[arg-type]
        (lambda: PromptResponse(text="", usage=None), "its usage: expected a Usage, found None"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("role", ["task", "reflection"])
def test_an_adapter_that_no_run_can_use_is_named_with_example_and_position(
    give: Callable[[], Any], message: str, role: str
) -> None:
    own = Own(give)
    run = Run()
    adapters = (own, run.reflection) if role == "task" else (run.task, own)
    context = OptimizationContext(adapters[0], reflection_adapter=adapters[1])
    where = "on example `e0`" if role == "task" else "on the reflection `reflect-section`"
    position = "baseline/0" if role == "task" else "step/1/reflect/0"
    with pytest.raises(AdapterError) as caught:
        GepaOptimizer(context, config()).optimize(PROMPT)
    assert f"adapter `mine` {where}" in str(caught.value)
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"; at `{position}` of the run")


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("slow")])
def test_a_broken_connection_of_an_adapter_is_the_providers_fault(error: Exception) -> None:
    def task(number: int, rendered: Any) -> str:
        if number == 7:
            raise error
        return answer(rendered)

    result = optimize(task=numbered(task))
    assert result.unscored_rollouts == 1
    assert result.found_better


EVALUATION_ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, PromptEvaluationError) and kind is not PermanentProviderError
]


@pytest.mark.parametrize("kind", EVALUATION_ERRORS)
@pytest.mark.parametrize("on_error", ["unscored", "zero"])
def test_every_failure_of_an_evaluation_is_a_zero_of_the_candidate_or_no_score(
    kind: type[PromptEvaluationError], on_error: Literal["unscored", "zero"]
) -> None:
    """Also one that does not say whose fault it is."""

    def task(number: int, rendered: Any) -> str:
        if number == 1:
            raise kind("no answer today")
        return answer(rendered)

    session = Session()
    result = optimize(config(on_error=on_error), task=numbered(task), session=session)
    failed = session.select_all(GepaRolloutCompleted)[1].record
    is_candidates_fault = issubclass(kind, CandidateError)
    assert failed.score == (0.0 if is_candidates_fault or on_error == "zero" else None)
    assert "no answer today" in failed.fault
    assert result.found_better


def test_a_reflection_without_an_answer_costs_a_step_whatever_its_adapter_raises() -> None:
    def reflection(number: int, rendered: Any) -> str:
        if number == 0:
            raise PromptEvaluationError("no answer today")
        return propose(rendered)

    result = optimize(reflection=numbered(reflection))
    [refused] = [one for one in result.rejections if one.reason == "reflection failed"]
    assert "no answer today" in refused.detail
    assert result.found_better


def test_an_error_in_the_middle_of_a_run_carries_what_was_found() -> None:
    def task(number: int, rendered: Any) -> str:
        if number == 60:
            raise ValueError("no model")
        return answer(rendered)

    journal = MemoryJournal()
    with pytest.raises(AdapterError) as caught:
        optimize(task=numbered(task), journal=journal)
    result = caught.value.result
    assert isinstance(result, GepaResult)
    assert result.stop_reason is StopReason.FAILED
    assert result.found_better
    assert result.stop_detail == str(caught.value)
    resumed = Run(journal=journal)
    assert resumed.start().found_better
    assert resumed.task.calls + result.total_rollouts == optimize().total_rollouts


def test_an_error_with_what_was_found_survives_a_process() -> None:
    error = PromptgraftError("x").at("baseline/0")
    error.result = 3
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.result) == ("x; at `baseline/0` of the run", 3)


def surroundings(**given: Any) -> OptimizationContext:
    return OptimizationContext(**given)


class Full(InMemoryPromptOverridesStore):
    upsert_all = raising(OSError(28, "No space left on device"))


class Unreadable(InMemoryPromptOverridesStore):
    resolve = raising(PermissionError(13, "Permission denied"))


def test_a_store_that_cannot_write_leaves_the_winner_in_the_error() -> None:
    with pytest.raises(WinnerNotStoredError, match=r"OSError: .*No space left") as caught:
        optimize(overrides_store=Full())
    assert isinstance(caught.value.result, GepaResult)
    assert caught.value.result.found_better


def test_a_store_that_cannot_be_read_names_itself_and_the_tag() -> None:
    with pytest.raises(StoreError, match=r"\(Unreadable\), tag `latest`.*PermissionError"):
        optimize(overrides_store=Unreadable())


@pytest.mark.parametrize("name", ["enabled", "visibility"])
def test_a_function_of_a_section_that_raises_is_named_with_its_example(name: str) -> None:
    def decide(values: Any) -> bool:
        if values["word"] == "w3":
            raise LookupError("no w3")
        return True

    section = MarkdownSection(title="X", key="x", template="x", summary="s", **{name: decide})  # type: ignore[arg-type]
    template = attrs.evolve(TEMPLATE, sections=(*TEMPLATE.sections, section))
    run = Run(prompt=Prompt(template))
    message = rf"example `e3.*`: section `x`: `{name}` raised LookupError: no w3"
    with pytest.raises(BindingError, match=message):
        run.start()
    assert run.task.calls == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimize(prompt=TEMPLATE), "prompt: expected a Prompt, found the template"),
        (lambda: optimize(prompt="text"), "prompt: expected a Prompt, Texts, Prompts"),
        (lambda: optimize(session={}), "session: expected a session"),
        (lambda: GepaOptimizer(OptimizationContext(), {}), "config: expected settings"),  # type: ignore[arg-type]
        (lambda: GepaOptimizer({}, config()), "context: expected an OptimizationContext"),  # type: ignore[arg-type]
        (lambda: surroundings(overrides_store="x"), "overrides_store: expected a store"),
        (lambda: surroundings(event_bus=print), "event_bus: expected an EventBus"),
        (lambda: surroundings(deadline=3), "deadline: expected a Deadline"),
        (lambda: surroundings(executor=4), "executor: expected an Executor"),
        (lambda: surroundings(journal="x"), "journal: expected a Journal"),
        (lambda: Prompt("text"), "template: expected a PromptTemplate, found 'text'"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_a_wrong_kind_is_one_line(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_feedback_and_answers_that_do_not_fit_are_kept_within_their_bound() -> None:
    def long(example: Any, response: Any, session: Any) -> RolloutFeedback:
        return RolloutFeedback(score=0.0, feedback="f" * 300_000)

    asked_for: list[int] = []

    def reflect(rendered: RenderedPrompt[object]) -> str:
        asked_for.append(len(rendered.text))
        return ""

    journal = MemoryJournal()
    settings = config(feedback_fn=long, max_example_chars=500, rollout_budget=20)
    optimize(settings, reflection=reflect, journal=journal)
    assert max(asked_for) < 10_000
    prompt = with_output(Literal["ok", "no"])
    settings = config(max_example_chars=500, rollout_budget=20)
    other = MemoryJournal()
    answered = "x" * 100_000
    optimize(settings, prompt=prompt, task=lambda _: answered, reflection=reflect, journal=other)
    assert max(asked_for) < 10_000
    kept = [*journal.records(), *other.records()]
    assert max(len(str(record.answer)) for record in kept) < 3_000


def test_a_heading_in_the_description_of_a_tool_opens_no_section_of_a_meta_prompt() -> None:
    heading = "# Task"
    tool = attrs.evolve(agent_world.SEARCH, description=f"Finds things.\n\n{heading}\n\nStop.")
    role = attrs.evolve(agent_world.TEMPLATE.sections[0], tools=(tool,))
    template = attrs.evolve(
        agent_world.TEMPLATE, sections=(role, *agent_world.TEMPLATE.sections[1:])
    )
    asked: list[str] = []
    wrong = '{"severity": "low"}'

    def reflect(rendered: RenderedPrompt[object]) -> str:
        asked.append(rendered.text)
        return ""

    settings = config(
        training_examples=agent_world.EXAMPLES,
        feedback_fn=agent_world.feedback,
        minibatch_size=2,
        pareto_set_size=4,
        target_section_paths=(),
        target_task_examples=(("examples", "first"),),
    )
    optimize(settings, prompt=Prompt(template), task=lambda _: wrong, reflection=reflect)
    assert f"```\nFinds things.\n\n{heading}\n\nStop.\n```" in asked[0]
    # As a part that stays as it is, the tool is fenced too.
    assert asked[0].count(heading) - asked[0].count(f"\n\n{heading}\n\nStop.\n```") == 1


def test_an_executor_that_is_shut_down_ends_the_run_instead_of_waiting_for_ever() -> None:
    executor = ThreadPoolExecutor(2)
    executor.shutdown()
    with pytest.raises(ConfigError, match="executor: ThreadPoolExecutor takes no calls: "):
        optimize(executor=executor)


class Nameless:
    """An adapter of a user's without an identity."""

    def __init__(self, model: ScriptedAdapter) -> None:
        self.model = model

    def evaluate(self, prompt: Any, *, session: Any, deadline: Any = None) -> Any:
        return self.model.evaluate(prompt, session=session, deadline=deadline)


def test_an_adapter_without_an_identity_is_known_by_its_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(task: Any, journal: MemoryJournal | None = None) -> GepaResult:
        reflection = ScriptedAdapter(propose, identity="reflection")
        context = OptimizationContext(task, reflection_adapter=reflection, journal=journal)
        return GepaOptimizer(context, config()).optimize(PROMPT)

    named, nameless = ScriptedAdapter(answer), Nameless(ScriptedAdapter(answer))
    assert run(nameless).scores_matrix == run(named).scores_matrix
    assert "has no `identity`" not in caplog.text

    journal = MemoryJournal()
    run(nameless, journal)
    [warning] = [said for said in caplog.messages if "`identity`" in said]
    assert warning.startswith("adapter `Nameless` has no `identity`: ")
    calls = nameless.model.calls
    run(nameless, journal)
    assert nameless.model.calls == calls
    with pytest.raises(JournalMismatchError, match="`task_model` is 'Nameless' in the journal"):
        run(named, journal)


@pytest.mark.parametrize("workers", [None, 2])
def test_replies_that_run_out_are_named_with_their_position(workers: int | None) -> None:
    pool = nullcontext() if workers is None else ThreadPoolExecutor(workers)
    replies = iter(["no instruction"])
    with pool as executor:
        with pytest.raises(ConfigError, match=r"all 1 replies are used; .* at `step/1/reflect/1`"):
            Run(reflection=["no instruction"], executor=executor).start()
        with pytest.raises(
            AdapterError, match=r"reflect-section` raised StopIteration.*/reflect/1`"
        ):
            Run(reflection=lambda _: next(replies), executor=executor).start()
