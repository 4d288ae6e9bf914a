"""One ledger of calls, tokens, money and time, whatever became of the calls."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from further import thorough
from optimizers.paid import CENT, TOKENS, PaidAdapter, spendings
from optimizers.worlds import (
    NOTES,
    OVERLOADED,
    PROMPT,
    REFUSED,
    RULES,
    OutputT,
    PlainAdapter,
    Run,
    about,
    answer,
    config,
    failing,
    judge,
    numbered,
    propose,
)
from promptgraft import Deadline, Prompt, Texts
from promptgraft.adapters.base import PromptResponse, answered
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.errors import JournalCorruptError
from promptgraft.evals.spending import Role, Spending, spent_from_json, spent_to_json
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.search.ledger import Ledger, LedgerEntry


def paid_run(
    task: PaidAdapter,
    settings: GepaConfig | None = None,
    *,
    reflection: PaidAdapter | None = None,
    journal: MemoryJournal | None = None,
) -> GepaResult:
    context = OptimizationContext(
        task,
        reflection_adapter=reflection or PaidAdapter(reply=propose, identity="thinker"),
        journal=journal,
    )
    return GepaOptimizer(context, settings or config()).optimize(PROMPT)


def entry_of(result: GepaResult, role: Role) -> LedgerEntry:
    return next(entry for entry in result.ledger if entry.role is role)


def test_every_call_is_in_the_ledger_with_its_retries_tokens_money_and_time() -> None:
    task, thinker = PaidAdapter(), PaidAdapter(reply=propose, identity="thinker", cost=2 * CENT)
    result = paid_run(task, reflection=thinker)
    assert [(entry.role, entry.model) for entry in result.ledger] == [
        (Role.TASK, "paid"),
        (Role.REFLECTION, "thinker"),
    ]
    entry = entry_of(result, Role.TASK)
    assert entry.calls == entry.retries == task.calls == result.total_rollouts
    assert entry.usage.input_tokens == task.calls * TOKENS.input_tokens
    assert entry.usage.cached_tokens == task.calls * TOKENS.cached_tokens
    assert entry.cost == task.calls * CENT
    assert entry.seconds == task.calls * 0.5
    assert entry_of(result, Role.REFLECTION).calls == thinker.calls == result.total_reflections
    assert result.total_cost == task.calls * CENT + thinker.calls * 2 * CENT


def test_a_judge_has_a_line_of_its_own() -> None:
    examiner = PaidAdapter(identity="examiner", reply=lambda rendered: "fine")

    def examine(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        examiner.evaluate(PROMPT.bind(*example.params), session=session)
        return judge(example, response, session)

    task = PaidAdapter()
    result = paid_run(task, config(feedback_fn=examine))
    assert entry_of(result, Role.JUDGE).calls == examiner.calls == task.calls
    assert entry_of(result, Role.JUDGE).model == "examiner"
    assert entry_of(result, Role.TASK).calls == task.calls


def test_an_adapter_that_tells_of_no_calls_has_an_unknown_cost_and_never_none() -> None:
    context = OptimizationContext(
        PlainAdapter(), reflection_adapter=PaidAdapter(reply=propose, identity="thinker")
    )
    result = GepaOptimizer(context, config()).optimize(PROMPT)
    entry = entry_of(result, Role.TASK)
    assert (entry.model, entry.calls) == ("task", result.total_rollouts)
    assert entry.unpriced_calls == result.total_rollouts
    assert entry.usage.output_tokens == result.total_rollouts
    assert result.total_cost is None


class AtTimes:
    """A provider that fails every third time, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    def fail(self) -> None:
        self.asked += 1
        if self.asked % 3 == 0:
            raise OVERLOADED


class SilentAdapter:
    """Tells of no calls, whether they fail or not."""

    identity = "silent"

    def __init__(self, provider: AtTimes) -> None:
        self._provider = provider

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        del deadline
        rendered = prompt.render(session)
        self._provider.fail()
        return answered(rendered, answer(rendered), session=session)


@pytest.mark.parametrize("kind", ["adapter", "function"])
def test_calls_that_fail_without_telling_of_themselves_are_counted(kind: str) -> None:
    provider = AtTimes()

    def program(texts: Mapping[str, str], *params: object) -> str:
        del params
        provider.fail()
        return texts["rules"]

    subject, adapter, paths = (
        (PROMPT, SilentAdapter(provider), (RULES, NOTES))
        if kind == "adapter"
        else (Texts({"rules": "Known: a."}, run=program), None, ())
    )
    context = OptimizationContext(
        adapter, reflection_adapter=PaidAdapter(reply=propose, identity="thinker")
    )
    settings = config(max_unscored_share=1.0, target_section_paths=paths)
    result = GepaOptimizer(context, settings).optimize(subject)
    assert result.unscored_rollouts == provider.asked // 3 > 0
    entry = entry_of(result, Role.TASK)
    assert entry.calls + entry.retries == provider.asked
    assert entry.unpriced_calls == provider.asked - result.unscored_rollouts


def test_the_embedded_models_cost_nothing() -> None:
    result = Run().start()
    assert result.total_cost == 0
    assert entry_of(result, Role.TASK).calls == result.total_rollouts


def test_calls_that_the_provider_failed_are_paid_for_all_the_same() -> None:
    task = PaidAdapter(reply=failing(OVERLOADED, about("w2")))
    result = paid_run(task, config(max_unscored_share=1.0))
    assert result.unscored_rollouts > 0
    assert entry_of(result, Role.TASK).calls == task.calls


def test_calls_of_a_rollout_that_ends_the_run_are_paid_for() -> None:
    task = PaidAdapter(reply=failing(REFUSED, about("w4")))
    result = paid_run(task)
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert entry_of(result, Role.TASK).calls == task.calls == 5


@pytest.mark.parametrize("error", [OVERLOADED, REFUSED])
@pytest.mark.parametrize("dies_at", [1, 20, *thorough([2, 5])])
def test_a_run_in_pieces_has_paid_for_every_call_of_every_piece(
    error: Exception, dies_at: int
) -> None:
    """Whatever stops a run, a resumed one knows of all money that was ever spent."""
    journal = MemoryJournal()
    calls = 0
    settings = config(max_unscored_share=0.0)
    for lives in (dies_at, dies_at + 3, 10_000):

        def mortal(number: int, rendered: RenderedPrompt[object], lives: int = lives) -> str:
            if number >= lives:
                raise error
            return answer(rendered)

        task = PaidAdapter(reply=numbered(mortal))
        thinker = PaidAdapter(reply=propose, identity="thinker")
        result = paid_run(task, settings, reflection=thinker, journal=journal)
        calls += task.calls + thinker.calls
        assert sum(entry.calls for entry in result.ledger) == calls
        assert result.total_cost == calls * CENT
    whole = paid_run(PaidAdapter(), settings)
    assert result.scores_matrix == whole.scores_matrix
    assert result.total_rollouts == whole.total_rollouts


def test_a_finished_run_that_is_replayed_has_the_same_ledger_and_calls_nobody() -> None:
    journal = MemoryJournal()
    settings = config(max_unscored_share=1.0)
    first = paid_run(PaidAdapter(reply=failing(OVERLOADED, about("w2"))), settings, journal=journal)
    silent = PaidAdapter(), PaidAdapter(identity="thinker")
    again = paid_run(silent[0], settings, reflection=silent[1], journal=journal)
    assert again.ledger == first.ledger
    assert again.scores_matrix == first.scores_matrix
    assert [adapter.calls for adapter in silent] == [0, 0]


def test_reflections_that_fail_are_paid_for() -> None:
    def down(rendered: RenderedPrompt[object]) -> str:
        raise OVERLOADED

    thinker = PaidAdapter(reply=down, identity="thinker")
    result = paid_run(PaidAdapter(), reflection=thinker)
    assert result.stop_reason is StopReason.REFLECTION_FAILED
    assert entry_of(result, Role.REFLECTION).calls == thinker.calls == 5


@given(st.lists(spendings, max_size=3))
def test_what_was_spent_is_read_back_as_it_was(spent: list[Spending]) -> None:
    assert spent_from_json(spent_to_json(spent), "k") == tuple(spent)


def test_thoughts_are_written_where_there_are_any_and_journals_from_before_are_read() -> None:
    before: Json = [["task", "m", 1, 1, 8, 9, 4, "0.01", 5]]
    [plain] = spent_from_json(before, "k")
    assert plain.reasoning_tokens == 0
    assert spent_to_json([plain]) == before
    thought = Spending(role=Role.TASK, model="m", cost=None, output_tokens=9, reasoning_tokens=7)
    assert spent_to_json([thought]) == [["task", "m", 1, 1, 0, 9, 0, None, 0, 7]]
    ledger = Ledger(1)
    ledger.count([plain, thought, thought])
    [entry] = ledger.entries
    assert (entry.usage.output_tokens, entry.usage.reasoning_tokens) == (27, 14)


@given(st.lists(spendings, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_answers_arrive_does_not_show(
    spent: list[Spending], chance: Any
) -> None:
    ledgers = Ledger(1), Ledger(1)
    ledgers[0].count(spent)
    chance.shuffle(spent)
    ledgers[1].count(spent)
    assert ledgers[0].entries == ledgers[1].entries
    assert ledgers[0].charge == ledgers[1].charge


@pytest.mark.parametrize(
    "broken",
    [
        None,
        "x",
        [1],
        [[]],
        [["boss", "m", 1, 1, 0, 0, 0, None, 0]],
        [["task", "m", 1, 1, 0, 0, 0, "much", 0]],
        [["task", "m", 1, 1, 0, 0, 0, 0.5, 0]],
        [["task", "m", 1, 1, 0, 0, "0", None, 0]],
        [["task", 7, 1, 1, 0, 0, 0, None, 0]],
        [["task", "m", 1, 1, 0, 0, 0, None, 0, "9"]],
    ],
)
def test_a_record_that_holds_no_calls_is_a_damaged_journal(broken: Json) -> None:
    with pytest.raises(JournalCorruptError, match="record `step/1/child/0` holds no calls"):
        spent_from_json(broken, "step/1/child/0")


def test_money_is_added_exactly() -> None:
    ledger = Ledger(1)
    tenth = Spending(role=Role.TASK, model="m", cost=Decimal("0.1"))
    ledger.count([tenth] * 3)
    assert ledger.charge.cost == Decimal("0.3")
