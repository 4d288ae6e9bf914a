"""A run is a function of configuration, seed and answers; of nothing else."""

from __future__ import annotations

import functools
import operator
import random
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import attrs
import pytest
from resume_world import run as run_every_kind

from further import thorough
from optimizers.worlds import (
    NOTES,
    OVERLOADED,
    PROMPT,
    RULES,
    TEMPLATE,
    PlainAdapter,
    Question,
    Run,
    about,
    answer,
    answers,
    config,
    current_text,
    examples,
    failing,
    instruction,
    judge,
    optimize,
    propose,
    scored,
    twin,
    with_output,
)
from process_pools import process_pool
from promptgraft.adapters.base import PromptAsked, PromptResponse
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    GepaWorking,
    RolloutFeedback,
)
from promptgraft.errors import JournalMismatchError
from promptgraft.journal import FileJournal, MemoryJournal
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import MarkdownSection, Prompt, RenderedPrompt
from promptgraft.runtime import EventBus, Session, SessionProtocol
from promptgraft.runtime.session import CallsInFlight
from promptgraft.search import OptimizationContext
from promptgraft.targets.part_questions import REFLECT_ON_SECTION

P = ParamSpec("P")
T = TypeVar("T")

BATCH = 4
LONG_ENOUGH = 60  # seconds until a test that hangs is given up


def settings(**changes: Any) -> GepaConfig:
    """Return a configuration in which every batch has four rollouts.

    One of the words to compare on is never learnt, so that the budget is used up.
    """
    learning = tuple(twin(e, f"{e.id}-again") for e in examples(12))
    return config(
        **{
            "training_examples": (*examples(3), *examples(1, first=99), *learning),
            "pareto_set_size": BATCH,
            "minibatch_size": BATCH,
            "rollout_budget": 150,
        }
        | changes
    )


flaky = failing(OVERLOADED, about("w11"))


def moody(rendered: RenderedPrompt[object]) -> str:
    """Propose something useful, something useless, or nothing, as the question decides."""
    mood = random.Random(rendered.text).randrange(4)
    return (instruction(f"{current_text(rendered)} x"), "hm", *[propose(rendered)] * 2)[mood]


def outcome(reply: Reply, executor: Executor | None) -> tuple[object, ...]:
    """Return everything that a run leaves behind."""
    journal, session = MemoryJournal(), Session()
    result = optimize(
        settings(),
        task=reply,
        reflection=moody,
        journal=journal,
        session=session,
        executor=executor,
    )
    return result, answers(journal), session.select_all(object)


@pytest.fixture(scope="module")
def in_turn() -> tuple[object, ...]:
    """What the run leaves behind when its rollouts are made one after another."""
    found = outcome(flaky, None)
    result = found[0]
    assert isinstance(result, GepaResult)
    assert result.accepted_mutations > 3
    assert len({rejection.reason for rejection in result.rejections}) > 1
    assert result.unscored_rollouts > 3
    assert result.total_rollouts > 100
    return found


class Shuffled:
    """Answers a batch in an order that ``seed`` decides; all of its calls wait for each other."""

    def __init__(self, reply: Reply, seed: int) -> None:
        self._reply = reply
        self._random = random.Random(seed)
        self._order = list(range(BATCH))
        self._begun = threading.Barrier(BATCH, action=self._shuffle, timeout=LONG_ENOUGH)
        self._turns = threading.Condition()
        self._turn = 0

    def _shuffle(self) -> None:
        self._random.shuffle(self._order)
        self._turn = 0

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        mine = self._order[self._begun.wait()]
        with self._turns:
            assert self._turns.wait_for(lambda: self._turn == mine, timeout=LONG_ENOUGH)
            try:
                return self._reply(rendered)
            finally:
                self._turn += 1
                self._turns.notify_all()


class Reordered(Executor):
    """Runs nothing until a batch is complete, and then in an order of its own."""

    def __init__(self, reorder: Callable[[list[Callable[[], None]]], None]) -> None:
        self._reorder = reorder
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()

        self._waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        if len(self._waiting) == BATCH:
            batch, self._waiting = self._waiting, []
            self._reorder(batch)
            for task in batch:
                task()
        return future


@pytest.mark.parametrize("workers", [4, *thorough([1, 16])])
def test_threads_do_not_change_the_outcome(workers: int, in_turn: tuple[object, ...]) -> None:
    with ThreadPoolExecutor(workers) as executor:
        assert outcome(flaky, executor) == in_turn


def test_threads_do_not_change_mutations_of_every_kind_and_merges(tmp_path: Path) -> None:
    def outcome_with(workers: int) -> tuple[object, ...]:
        folder, seen, bus = tmp_path / str(workers), list[object](), EventBus()
        folder.mkdir()
        bus.subscribe(object, seen.append)
        with ThreadPoolExecutor(workers or 1) as executor:
            result = run_every_kind(
                folder, budget=130, executor=executor if workers else None, bus=bus
            )
        with FileJournal(folder / "journal.jsonl") as journal:
            answered = {record.key: record.answer for record in journal.records()}
        told = [
            event
            for event in seen
            if not isinstance(event, GepaWorking | CallsInFlight | PromptAsked)
        ]
        return result, answered, told

    in_turn = outcome_with(0)
    assert outcome_with(8) == in_turn


@pytest.mark.parametrize(("workers", "seed"), [(4, 0), (16, 1), *thorough([(4, 2), (16, 3)])])
def test_answers_that_arrive_in_any_order_do_not_change_the_outcome(
    workers: int, seed: int, in_turn: tuple[object, ...]
) -> None:
    with ThreadPoolExecutor(workers) as executor:
        assert outcome(Shuffled(flaky, seed), executor) == in_turn


@pytest.mark.parametrize("reorder", [list.reverse, random.Random(3).shuffle])
def test_an_executor_that_runs_later_tasks_first_does_not_change_the_outcome(
    reorder: Callable[[list[Any]], None], in_turn: tuple[object, ...]
) -> None:
    assert outcome(flaky, Reordered(reorder)) == in_turn


def test_processes_do_not_change_the_outcome() -> None:
    """Prompt, overrides, examples and records travel, Jinja blocks among them."""
    jinja = MarkdownSection(
        title="Spelling",
        key="spelling",
        syntax="jinja",
        template="{% for letter in word %}{{ letter }} {% endfor %}{{ word|upper }}",
    )
    store = InMemoryPromptOverridesStore()
    template = with_output(Literal["ok", "no"]).template
    template = attrs.evolve(template, sections=(*TEMPLATE.sections, jinja))
    prompt = Prompt[object](template, overrides_store=store)
    store.set_section_override(prompt, path=NOTES, body="Even more words: w3")

    def run(executor: Executor | None, overlap: int = 1) -> tuple[object, ...]:
        journal = MemoryJournal()
        context = OptimizationContext(
            PlainAdapter(),
            reflection_adapter=ScriptedAdapter(propose),
            overrides_store=store,
            executor=executor,
            journal=journal,
        )
        chosen = settings(persist=False, proposals_per_step=overlap, steps_at_once=overlap)
        result = GepaOptimizer(context, chosen).optimize(prompt)
        assert result.found_better
        return result, answers(journal)

    with process_pool(2) as executor:
        assert run(executor) == run(None)
        assert run(executor, overlap=3) == run(None, overlap=3)


def test_an_error_in_another_process_keeps_its_name_and_its_message() -> None:
    context = OptimizationContext(PlainAdapter(), reflection_adapter=ScriptedAdapter(propose))
    wrong = settings(example_formatter=operator.sub)
    with (
        process_pool(2) as executor,
        pytest.raises(Exception, match="_formatter on example `e0` raised TypeError") as caught,
    ):
        GepaOptimizer(attrs.evolve(context, executor=executor), wrong).optimize(PROMPT)
    assert type(caught.value).__name__ == "FeedbackError"


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (optimize(settings(seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert [c.section_bodies for c in first.candidates] != [
        c.section_bodies for c in other.candidates
    ]


def test_a_journal_does_not_change_the_outcome() -> None:
    assert optimize(settings(), journal=MemoryJournal()) == optimize(settings())


def test_characters_that_a_stream_cut_in_two_do_not_disturb_a_journal() -> None:
    def in_halves(rendered: RenderedPrompt[object]) -> str:
        return propose(rendered).replace("\n```", " \ud83d\ude00\n```")

    def judge_halves(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        feedback = judge(example, attrs.evolve(response, text=response.text[:2]), session)
        return attrs.evolve(feedback, feedback=f"{feedback.feedback} \ud83d\ude00")

    journal = MemoryJournal()
    changes = settings(feedback_fn=judge_halves)
    results = [
        optimize(
            changes,
            task=lambda rendered: f"{answer(rendered)} \ud83d\ude00",
            reflection=in_halves,
            journal=kept,
        )
        for kept in (journal, journal, None)
    ]
    assert results[0] == results[1] == results[2]
    assert results[0].found_better
    assert results[0].best_section_overrides[RULES].endswith("😀")


def run_id(changed: GepaConfig | None = None, prompt: Prompt[object] = PROMPT, **run: Any) -> str:
    return optimize(changed or settings(), prompt=prompt, reflection=[""] * 99, **run).run_id


@functools.cache
def usual_id() -> str:
    return run_id()


def with_sections(*sections: MarkdownSection, **changes: Any) -> Prompt[object]:
    parts = sections or TEMPLATE.sections
    return Prompt(attrs.evolve(TEMPLATE, sections=parts, **changes))


def edited(index: int, **changes: Any) -> Prompt[object]:
    sections = list(TEMPLATE.sections)
    sections[index] = attrs.evolve(sections[index], **changes)
    return with_sections(*sections)


DATA = settings().training_examples


@pytest.mark.parametrize(
    "change",
    [
        {"target_section_paths": (NOTES, RULES)},
        {"target_section_paths": (RULES,)},
        {"proposals_per_step": 2},
        {"minibatch_size": 3},
        {"pareto_set_size": 3},
        {"seed": 2},
        {"shuffle": True},
        {"perfect_score": 0.9},
        {"on_error": "zero"},
        {"max_example_chars": 200},
        {"max_trace_chars": 200},
        {"max_part_chars": 200},
        {"feedback_fn": scored(0.0)},
        {"example_formatter": lambda example, response: ("in", "out")},
        {"trace_formatter": lambda session: ""},
        {"training_examples": DATA[:-1]},
        {"training_examples": (DATA[1], DATA[0], *DATA[2:])},
        {"training_examples": (attrs.evolve(DATA[0], label="x"), *DATA[1:])},
        {"training_examples": (attrs.evolve(DATA[0], id="x"), *DATA[1:])},
        {"training_examples": (attrs.evolve(DATA[0], params=(Question("x"),)), *DATA[1:])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_setting_that_decides_the_path_makes_another_run(change: dict[str, Any]) -> None:
    assert run_id(settings(**change)) != usual_id()


@pytest.mark.parametrize(
    "change",
    [
        {"rollout_budget": 151},
        {"max_failed_reflections": 3},
        {"max_idle_steps": 3},
        {"max_unscored_share": 0.9},
        {"persist": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_setting_that_decides_where_the_path_ends_makes_the_same_run(
    change: dict[str, Any],
) -> None:
    assert run_id(settings(**change)) == usual_id()


@pytest.mark.parametrize(
    "prompt",
    [
        edited(1, template="Well, do you know $word?"),
        edited(1, title="Riddle"),
        edited(1, summary="A question."),
        with_sections(*TEMPLATE.sections, MarkdownSection(title="End", key="end")),
        with_output(Literal["ok", "no"]),
        PROMPT.bind({"tone": "kind"}),
    ],
    ids=["text", "title", "summary", "section", "output", "bound"],
)
def test_another_prompt_makes_another_run(prompt: Prompt[object]) -> None:
    assert run_id(prompt=prompt) != usual_id()


def test_another_model_or_meta_prompt_makes_another_run() -> None:
    store = InMemoryPromptOverridesStore()
    assert run_id(overrides_store=store) == usual_id()
    store.set_section_override(Prompt(REFLECT_ON_SECTION), path=("role",), body="You are terse.")
    assert run_id(overrides_store=store) != usual_id()

    def named(task: str, reflection: str) -> str:
        context = OptimizationContext(
            ScriptedAdapter(answer, identity=task),
            reflection_adapter=ScriptedAdapter([""] * 99, identity=reflection),
        )
        return GepaOptimizer(context, settings()).optimize(PROMPT).run_id

    assert len({named("a", "b"), named("b", "b"), named("a", "a")}) == 3
    assert named("task", "reflection") == usual_id()


def test_labels_without_a_plain_form_are_told_apart_by_their_repr_without_addresses() -> None:
    class Odd:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return f"<Odd {self.name} at {id(self):#x}>"

    def labelled(name: str) -> str:
        data = (attrs.evolve(DATA[0], label=Odd(name)), *DATA[1:])
        return run_id(settings(training_examples=data, feedback_fn=judge))

    assert labelled("a") == labelled("a")
    assert labelled("a") != labelled("b")


def test_a_journal_of_another_run_is_refused_and_the_difference_named() -> None:
    journal = MemoryJournal()
    optimize(settings(), journal=journal)
    run = Run(settings(minibatch_size=3, seed=9), journal=journal)
    with pytest.raises(
        JournalMismatchError,
        match="`minibatch_size` is 4 in the journal, 3 here; `seed` is 1 in the journal, 9 here",
    ):
        run.start()
    assert run.task.calls == 0
