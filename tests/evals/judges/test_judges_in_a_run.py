"""Judges inside a run of GEPA: in the ledger, in the journal, within its limits."""

from __future__ import annotations

from decimal import Decimal

import pytest

from evals.judging import always, category, failing
from optimizers.paid import CENT, PaidAdapter
from optimizers.worlds import PROMPT, Question, config, propose
from promptgraft.adapters.base import PromptResponse, ProviderAdapter
from promptgraft.algorithms.gepa import (
    FeedbackFn,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.errors import PermanentProviderError
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Answer, Case
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Cancellation, SessionProtocol
from promptgraft.search import OptimizationContext, StopReason


def strict(rendered: RenderedPrompt[object]) -> str:
    """Reply as a judge does that wants the answer `ok`."""
    asked, _, answered = (block.strip("`\n ") for block in _blocks(rendered))
    good = answered == "ok"
    return category("correct" if good else "wrong", "fine" if good else f"missing {asked}")


def _blocks(rendered: RenderedPrompt[object]) -> list[str]:
    by_key = {section.path[-1]: section.text for section in rendered.sections}
    return [by_key[key].partition("```")[2] for key in ("question", "reference", "answer")]


def feedback_by(judge: ProviderAdapter) -> FeedbackFn:
    metric = LlmFinalResponse(judges=[judge])

    def feedback(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        (question,) = example.params
        assert isinstance(question, Question)
        case = Case(id=example.id, input=question.word, expected="ok")
        verdict = metric.judge(case, Answer(text=response.text), session=session)
        assert verdict.score is not None
        return RolloutFeedback(score=verdict.score, feedback=verdict.reason)

    return feedback


def run(
    judge: ProviderAdapter,
    *,
    task: PaidAdapter | None = None,
    journal: MemoryJournal | None = None,
    cancellation: Cancellation | None = None,
    max_cost: Decimal | None = None,
) -> GepaResult:
    context = OptimizationContext(
        task or PaidAdapter(),
        reflection_adapter=PaidAdapter(reply=propose, identity="thinker"),
        journal=journal,
        cancellation=cancellation,
    )
    settings = config(feedback_fn=feedback_by(judge), max_cost=max_cost)
    return GepaOptimizer(context, settings).optimize(PROMPT)


def test_judges_have_their_own_line_in_the_ledger_and_do_not_disturb_the_search() -> None:
    judge = PaidAdapter(reply=strict, identity="examiner", cost=3 * CENT)
    result = run(judge)
    (entry,) = [entry for entry in result.ledger if entry.role is Role.JUDGE]
    assert (entry.model, entry.calls, entry.cost) == (
        "examiner",
        judge.calls,
        judge.calls * 3 * CENT,
    )
    assert judge.calls == result.total_rollouts
    assert result.best_pareto_mean == 1.0


def test_a_repeated_run_asks_no_judge_again() -> None:
    journal = MemoryJournal()
    first = run(PaidAdapter(reply=strict, identity="examiner"), journal=journal)
    again = PaidAdapter(reply=strict, identity="examiner")
    assert run(again, journal=journal).ledger == first.ledger
    assert again.calls == 0


def test_judges_are_paid_from_the_money_of_the_run() -> None:
    judge = PaidAdapter(reply=strict, identity="examiner", cost=10 * CENT)
    result = run(judge, max_cost=Decimal(1))
    assert result.stop_reason is StopReason.COST
    assert judge.calls < 11


def test_no_judge_is_asked_once_the_run_is_cancelled() -> None:
    stop = Cancellation()
    judge = PaidAdapter(reply=strict, identity="examiner")
    task = PaidAdapter(before=lambda deadline: stop.set("enough"))
    result = run(judge, task=task, cancellation=stop)
    assert result.stop_reason is StopReason.CANCELLED
    assert (task.calls, judge.calls) == (1, 0)


def test_a_dead_judge_ends_the_run_with_that_reason() -> None:
    result = run(failing(PermanentProviderError("401: no key")))
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert "judge `failing`: 401: no key" in result.stop_detail


@pytest.mark.parametrize("reply", ["correct", "wrong"])
def test_what_a_judge_always_says_is_the_score(reply: str) -> None:
    result = run(PaidAdapter(reply=always(category(reply)), identity="examiner"))
    assert result.baseline_pareto_mean == (1.0 if reply == "correct" else 0.0)
