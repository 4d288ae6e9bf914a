"""Steps of any algorithm overlap: the same path with any executor, and an exact budget."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizers.worlds import NOTES, PROMPT, RULES, answer, judge, twins
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.journal import MemoryJournal
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search import (
    Asking,
    BaseSearch,
    Data,
    Kit,
    OptimizationContext,
    Optimizer,
    Pipeline,
    Records,
    Rollouts,
    RunConfig,
    RunResult,
    Step,
    Stepping,
    StopReason,
)
from promptgraft.search.validation import Entrant, PoolEntry, Validator
from promptgraft.targets.types import Candidate

WORDS = 8


@attrs.define(eq=False)
class Guess:
    """A word added to the best candidate, tried on the training set."""

    position: str
    candidate: Candidate
    largest: int
    records: Records = ()

    @property
    def score(self) -> float:
        return sum(record.score or 0.0 for record in self.records)


class Guessing(Stepping[Step[Guess], Guess], BaseSearch):
    """Adds the next words, several at once, and keeps the best of a step."""

    def __init__(self, config: GuessConfig, kit: Kit) -> None:
        super().__init__(kit)
        self.config = config
        self.validator = Validator(kit.validation, kit.population)
        self.better: tuple[Step[Guess], Guess] | None = None
        self.begun = 0

    def run(self) -> Asking[None]:
        yield from self.evaluate_baseline()
        yield from Pipeline(
            search=self,
            kit=self.kit,
            validator=self.validator,
            at_once=self.config.steps_at_once,
            most_questions=0,
        ).run()

    @property
    def pending(self) -> PoolEntry | None:
        return None if self.better is None else self.better[0].entry

    def begin(self, number: int, *, ahead: int) -> Step[Guess]:
        pool, target = self.population.pool, self.kit.target
        parent, module = pool.candidates[pool.best], target.modules[0]
        attempts = []
        for index in range(self.config.guesses):
            word = f"w{(number * self.config.guesses + index) % WORDS} g{number}-{index}"
            text = f"{target.text(module, parent)} {word}"
            child = target.graft(
                parent, module, text, parents=(pool.best,), examples=self.kit.training
            )
            attempts.append(Guess(f"step/{number}/{index + 1}", child, len(self.kit.training)))
        entry = self.validator.begin(alone=not ahead)
        self.begun = number
        return Step(number=number, entry=entry, attempts=attempts)

    def work(self, attempt: Guess) -> Asking[None]:
        attempt.records = yield from Rollouts(
            position=f"{attempt.position}/child",
            candidate=attempt.candidate,
            examples=self.kit.training,
        )

    def commit(self, attempt: Guess, ended: Asking[None]) -> Asking[None]:
        yield from ended
        self.proposals += 1

    def close(self, step: Step[Guess]) -> Asking[None]:
        self.steps = step.number
        self.better = (step, max(step.attempts, key=lambda guess: guess.score))
        yield from ()

    def conclude(self) -> Asking[None]:
        if self.better is None:
            return
        step, guess = self.better
        budget = self.kit.budget
        reserved = budget.whole - budget.used - budget.left
        self.config.reserved.add((self.begun - step.number, reserved))
        entrant = Entrant(candidate=guess.candidate, step=step.number, entry=step.entry)
        yield from self.validator.validate(f"step/{step.number}/pareto", entrant)
        self.better = None


@attrs.frozen(kw_only=True)
class GuessConfig(RunConfig):
    algorithm: ClassVar[str] = "guessing"
    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {}
    guesses: int = 2
    steps_at_once: int = 1
    reserved: set[tuple[int, int]] = attrs.field(factory=set)

    def search(self, kit: Kit) -> Guessing:
        return Guessing(self, kit)


def run(
    budget: int, journal: MemoryJournal, *, workers: int = 0, **sizes: Any
) -> tuple[RunResult, int]:
    """Return the result of a search, and how many calls it made."""
    config = GuessConfig(
        rollout_budget=budget,
        pareto_set_size=4,
        target_section_paths=(RULES, NOTES),
        training_examples=twins(4),
        feedback_fn=judge,
        data=Data(held_out=()),
        **sizes,
    )
    task = ScriptedAdapter(answer, identity="task")
    if not workers:
        context = OptimizationContext(task, journal=journal)
        return Optimizer(context, config).optimize(PROMPT), task.calls
    with ThreadPoolExecutor(workers) as executor:
        context = OptimizationContext(task, journal=journal, executor=executor)
        return Optimizer(context, config).optimize(PROMPT), task.calls


def answers(journal: MemoryJournal) -> dict[str, object]:
    return {record.key: record.answer for record in journal.records()}


@pytest.mark.filterwarnings("ignore")
@given(
    budget=st.integers(20, 120),
    more=st.integers(1, 60),
    guesses=st.integers(1, 3),
    steps=st.integers(1, 4),
)
@settings(max_examples=4, deadline=None)
def test_overlapping_steps_keep_their_budget_and_a_larger_one_continues_them(
    budget: int, more: int, guesses: int, steps: int
) -> None:
    sizes = {"guesses": guesses, "steps_at_once": steps}
    journal = MemoryJournal()
    alone, calls = run(budget, journal, **sizes)
    assert calls == alone.total_rollouts <= budget
    if alone.stop_reason is StopReason.BUDGET:
        largest = (guesses * 4 + 4) * steps
        assert budget - alone.total_rollouts < largest

    beside = MemoryJournal()
    together, _ = run(budget, beside, workers=4, **sizes)
    assert together.candidates == alone.candidates
    assert answers(beside) == answers(journal)

    before = answers(journal)
    longer, further = run(budget + more, journal, **sizes)
    assert answers(journal).items() >= before.items()
    assert further == longer.total_rollouts - alone.total_rollouts
    fresh, _ = run(budget + more, MemoryJournal(), **sizes)
    assert fresh.candidates == longer.candidates


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("guesses", "steps"), [(1, 1), (2, 2), (3, 4)])
def test_all_that_steps_under_way_may_use_is_reserved_while_a_result_is_validated(
    guesses: int, steps: int
) -> None:
    reserved: set[tuple[int, int]] = set()
    run(150, MemoryJournal(), guesses=guesses, steps_at_once=steps, reserved=reserved)
    counts = {under_way for under_way, _ in reserved}
    assert max(counts) == steps - 1
    assert reserved == {(count, count * (guesses * 4 + 4)) for count in counts}
