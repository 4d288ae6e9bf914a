"""The feedback on an answer that reflectors see."""

from __future__ import annotations

import attrs

from promptgraft.evals.metrics.judging import LONGEST_FEEDBACK, feedback_text
from promptgraft.evals.types import Case, Verdict
from promptgraft.ground.serde import Json

CASE = Case(
    id="c1",
    input="secret input",
    expected="secret reference",
    hints={"": "Mind the year.", "tone": "Customers are upset.", "length": "Not asked."},
)
VERDICTS = (
    Verdict(metric="exact", score=1.0, passed=True, reason="found the expected text"),
    Verdict(metric="judge", score=None, passed=None, reason="the judge's provider failed: 503"),
    Verdict(metric="tone", score=0.25, passed=False, reason="1 of 2\nrubric `kind` not met: rude"),
)


def test_what_a_simulated_user_had_in_mind_is_told() -> None:
    plan: Json = {"starting_prompt": "Refund!", "conversation_plan": "Your order is A17."}
    case = attrs.evolve(CASE, fields={"conversation_scenario": plan})
    assert feedback_text(case, VERDICTS).endswith("\nwhat the user had in mind: Your order is A17.")


def test_failed_metrics_come_first_with_their_whole_reasons_and_hints() -> None:
    assert feedback_text(CASE, VERDICTS).split("\n") == [
        "[failed] tone 0.25: 1 of 2",
        "  rubric `kind` not met: rude",
        "  hint: Customers are upset.",
        "[unscored] judge: the judge's provider failed: 503",
        "[passed] exact 1: found the expected text",
        "hint: Mind the year.",
    ]


def test_hints_are_shown_without_their_severities() -> None:
    hints = {"": "p3: Mind the year.", "tone": "P1: Customers: upset."}
    feedback = feedback_text(attrs.evolve(CASE, hints=hints), VERDICTS)
    assert "\n  hint: Customers: upset.\n" in feedback
    assert feedback.endswith("\nhint: Mind the year.")


def test_long_reasons_arrive_whole_within_the_stated_limit() -> None:
    reason = "x" * 30_000
    verdict = Verdict(metric="tone", score=0.0, passed=False, reason=reason)
    assert reason in feedback_text(CASE, [verdict])
    longer = feedback_text(CASE, [verdict, verdict])
    assert len(longer) <= LONGEST_FEEDBACK
    assert "characters left out" in longer
