"""Batches of rollouts: recorded as they arrive, used in asking order, paid for once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from decimal import Decimal
from typing import ParamSpec, TypeVar

import pytest

from optimizers.worlds import PROMPT, RULES, answers, examples, target_of
from promptgraft.adapters.base import Usage
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import Candidate, GepaExample, RolloutFeedback, RolloutRecord
from promptgraft.errors import FeedbackError, JournalCorruptError, JournalMismatchError
from promptgraft.evals.spending import Role, Spending
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import MemoryJournal
from promptgraft.journal.base import NoJournal
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.runtime import Deadline
from promptgraft.search.answers import Answers, record_from_json, record_to_json
from promptgraft.search.asks import Outlook, Records, Rollouts, Together
from promptgraft.search.batches import AnswerSources
from promptgraft.search.calls import Calls
from promptgraft.search.driver import Driver
from promptgraft.search.ledger import Ledger, LedgerEntry

P = ParamSpec("P")
T = TypeVar("T")

DATA = examples(6)
SPENT = Spending(
    role=Role.TASK,
    model="m",
    requests=3,
    input_tokens=10,
    output_tokens=2,
    cost=Decimal("0.25"),
    microseconds=1_500_000,
)
FEEDBACK: dict[str, Json] = {"score": 0.5, "feedback": "so so", "eval_trace": None}
BASELINE = target_of(PROMPT, RULES).baseline()
Made = Callable[[GepaExample], RolloutRecord]


def record(example: GepaExample, *, fault: str = "") -> RolloutRecord:
    return RolloutRecord(
        example_id=example.id,
        inputs_repr="in",
        output_repr=f"out of {example.id}",
        tool_trace_repr="",
        feedback=None if fault else RolloutFeedback(score=0.5, feedback="so so"),
        fault=fault,
        spent=(SPENT,),
    )


def asked(
    position: str = "b",
    candidate: Candidate = BASELINE,
    examples: Sequence[GepaExample] = DATA,
) -> Rollouts:
    return Rollouts(position=position, candidate=candidate, examples=examples)


class Bench:
    """Drivers over a journal, with every call that they made."""

    def __init__(
        self,
        make: Made = record,
        *,
        journal: MemoryJournal | None = None,
        workers: Executor | None = None,
    ) -> None:
        self.journal = MemoryJournal() if journal is None else journal
        self.journal.begin({})
        self.made: list[str] = []
        self.ledger = Ledger(100)
        self.answers = Answers(self.journal, self.ledger.part())
        self._make = make
        self._workers = workers

    def mend(self) -> None:
        """Let every further call succeed."""
        self._make = record

    def _driver(self) -> Driver:
        return Driver(
            sources=AnswerSources(
                rollout=self._rollout,
                example_digests={example.id: digest_text(example.id) for example in DATA},
                reflection=ScriptedAdapter([]),
            ),
            answers=self.answers,
            calls=Calls(self.answers.journal, executor=self._workers),
            max_unscored_share=1.0,
            look=lambda _: Outlook(None),
            publish=lambda _: None,
        )

    def _rollout(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        self.made.append(example.id)
        return self._make(example)

    def run(
        self, position: str = "b", candidate: Candidate = BASELINE, count: int = 6
    ) -> tuple[RolloutRecord, ...]:
        return self._driver().run(iter(asked(position, candidate, DATA[:count])))

    def run_all(self, *batches: Rollouts) -> list[Records]:
        return self._driver().run(iter(Together(batches)))


def test_records_come_in_the_order_of_the_examples() -> None:
    bench = Bench()
    assert bench.run() == tuple(record(example) for example in DATA)
    assert list(answers(bench.journal)) == [f"b/{index}" for index in range(6)]


def test_every_answer_counts_with_its_tokens_whether_it_is_new_or_recorded() -> None:
    journal = MemoryJournal()
    for _ in range(2):
        bench = Bench(journal=journal)
        bench.run()
        assert bench.ledger.rollouts == 6
        assert bench.ledger.entries == (
            LedgerEntry(
                role=Role.TASK,
                model="m",
                calls=6,
                retries=12,
                usage=Usage(input_tokens=60, output_tokens=12),
                cost=Decimal("1.5"),
                unpriced_calls=0,
                seconds=9.0,
            ),
        )
    assert bench.made == []


def test_a_batch_that_is_recorded_in_part_is_completed() -> None:
    journal = MemoryJournal()
    Bench(journal=journal).run(count=2)
    bench = Bench(journal=journal)
    assert bench.run() == tuple(record(example) for example in DATA)
    assert bench.made == ["e2", "e3", "e4", "e5"]


@pytest.mark.parametrize("damaged", [{"a": "1"}, {"a": None}, {"a": True}, ["a"]])
def test_objectives_that_are_no_numbers_are_a_damaged_journal(damaged: Json) -> None:
    plain = record_to_json(record(DATA[0]))
    assert isinstance(plain, dict)
    with pytest.raises(JournalCorruptError, match="record `b/0` is no rollout"):
        record_from_json({**plain, "feedback": {**FEEDBACK, "objectives": damaged}}, "b/0")


def test_without_a_journal_nothing_is_remembered() -> None:
    bench = Bench()
    bench.answers = Answers(NoJournal(), bench.ledger.part())
    assert bench.run() == bench.run()
    assert len(bench.made) == 12


def test_an_answer_to_another_question_is_refused() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=RULES, body="Other words:")
    other = target_of(PROMPT, RULES, store=store).baseline()
    bench = Bench()
    bench.run()
    with pytest.raises(JournalMismatchError, match="another question under `b/0`"):
        bench.run(candidate=other)


def test_after_an_error_nothing_new_is_begun() -> None:
    def make(example: GepaExample) -> RolloutRecord:
        if example.id == "e2":
            raise FeedbackError("no label for e2")
        return record(example)

    bench = Bench(make)
    with pytest.raises(FeedbackError, match="e2"):
        bench.run()
    assert bench.made == ["e0", "e1", "e2"]
    assert list(answers(bench.journal)) == ["b/0", "b/1"]


@pytest.mark.parametrize("hasty", ["e1", "e5"])
def test_side_by_side_the_error_of_the_first_example_is_raised_and_the_rest_recorded(
    hasty: str,
) -> None:
    """All six are under way when one of them fails, and then another."""
    begun = threading.Barrier(6, timeout=60)
    failed = threading.Event()

    def make(example: GepaExample) -> RolloutRecord:
        begun.wait()
        assert example.id == hasty or failed.wait(60)
        failed.set()
        if example.id in {"e1", "e5"}:
            raise FeedbackError(f"no label for {example.id}")
        return record(example)

    with ThreadPoolExecutor(6) as workers:
        bench = Bench(make, workers=workers)
        with pytest.raises(FeedbackError, match="e1"):
            bench.run()
    assert set(answers(bench.journal)) == {"b/0", "b/2", "b/3", "b/4"}
    assert bench.ledger.rollouts == 4


def test_what_is_asked_for_together_is_made_together_and_given_back_apart() -> None:
    begun = threading.Barrier(5, timeout=60)

    def make(example: GepaExample) -> RolloutRecord:
        begun.wait()
        return record(example)

    with ThreadPoolExecutor(5) as workers:
        bench = Bench(make, workers=workers)
        one, other = bench.run_all(asked("b", examples=DATA[:2]), asked("c", examples=DATA[3:]))
    assert one == tuple(map(record, DATA[:2]))
    assert other == tuple(map(record, DATA[3:]))
    assert set(answers(bench.journal)) == {"b/0", "b/1", "c/0", "c/1", "c/2"}


class Watched(Executor):
    """One worker, which is busy until the batch is complete.

    No pool of threads, in whose place our own queue would be watched.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._left = 6
        self._complete = threading.Event()
        self.last_is_done = threading.Event()
        self._pool.submit(self._complete.wait, 60)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future = self._pool.submit(fn, *args, **kwargs)
        self._left -= 1
        if not self._left:
            future.add_done_callback(lambda _: self.last_is_done.set())
            self._complete.set()
        return future


def test_side_by_side_nothing_new_is_begun_after_an_error() -> None:
    workers = Watched()

    def make(example: GepaExample) -> RolloutRecord:
        if example.id == "e0":
            raise FeedbackError("no label for e0")
        assert workers.last_is_done.wait(60)  # so the last one was cancelled, not made
        return record(example)

    with workers:
        bench = Bench(make, workers=workers)
        with pytest.raises(FeedbackError, match="e0"):
            bench.run()
    assert bench.made in (["e0"], ["e0", "e1"])
    assert set(answers(bench.journal)) <= {"b/1"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_fault_is_an_answer_once_a_later_call_is_answered(workers: int) -> None:
    journal = MemoryJournal()
    pool = ThreadPoolExecutor(workers) if workers else None
    bench = Bench(lambda example: record(example, fault="429"), journal=journal, workers=pool)
    bench.run(count=2)
    spent = {"b/0/spent/0": "spent", "b/1/spent/0": "spent"}  # money is gone at once
    assert {found.key: found.kind for found in journal.records()} == spent
    # The run goes on, and knows nothing yet: the next call may fail like these.
    bench.run("c", count=1)
    assert {found.key: found.kind for found in journal.records()} == {
        **spent,
        "c/0/spent/0": "spent",
    }
    bench.mend()
    bench.run("d", count=1)
    assert {found.key: found.kind for found in journal.records()} == {
        **spent,
        "c/0/spent/0": "spent",
        "b/0": "fault",
        "b/1": "fault",
        "c/0": "fault",
        "d/0": "rollout",
    }
    # Before the answer, which a search may have asked for on account of them.
    assert [found.key for found in journal.records()][-2:] == ["c/0", "d/0"]
    again = Bench(journal=journal)
    assert [found.fault for found in again.run(count=2)] == ["429", "429"]
    assert again.made == []
    if pool is not None:
        pool.shutdown()


def test_a_fault_that_is_held_back_is_asked_for_again() -> None:
    journal = MemoryJournal()
    Bench(lambda example: record(example, fault="429"), journal=journal).run(count=2)
    again = Bench(journal=journal)
    assert [found.fault for found in again.run(count=2)] == ["", ""]
    assert again.made == ["e0", "e1"]


@pytest.mark.parametrize("text", ["plain", "caf\u00e9", "half a character: \ud83d"])
def test_an_answer_is_recalled_as_it_was_recorded(text: str) -> None:
    journal, asked = MemoryJournal(), digest_text("what is asked")
    journal.begin({})
    recorder = Answers(journal, Ledger(1))
    assert recorder.recall("step/1/reflect/0", asked) is None
    answer: Json = {"text": text, "spent": [1, 0.1]}
    journal.append("step/1/reflect/0", asked, "reflection", answer)
    assert recorder.recall("step/1/reflect/0", asked) == answer
