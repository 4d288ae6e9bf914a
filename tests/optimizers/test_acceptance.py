"""When a child is better than its parent, and when a winner may be called one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.worlds import NOTES, PROMPT, REFUSED, RULES, Run, answer, config, numbered, optimize
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaConfig, GepaExample, RolloutFeedback
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.runtime import SessionProtocol
from promptgraft.search import RejectionReason, StopReason
from promptgraft.search.acceptance import (
    AcceptancePolicy,
    Decision,
    MinGain,
    Paired,
    Strict,
)

one = st.sampled_from([0.0, 0.5, 1.0])
scores = st.lists(st.tuples(one, one), min_size=1, max_size=12)


@given(scores, st.sampled_from([Strict(), MinGain(0.1), Paired()]))
def test_nobody_is_accepted_who_is_not_better_on_average(
    pairs: list[tuple[float, float]], policy: AcceptancePolicy
) -> None:
    before, after = [one for one, _ in pairs], [other for _, other in pairs]
    decision = policy.decide(before, after)
    if sum(after) <= sum(before):
        assert decision is Decision.REFUSE
    if decision is Decision.ACCEPT:
        assert policy.decide(after, before) is Decision.REFUSE


@pytest.mark.parametrize(
    ("policy", "before", "after", "decision"),
    [
        (Strict(), [0.5], [0.5], Decision.REFUSE),
        (Strict(), [0.5], [0.51], Decision.ACCEPT),
        (Strict(), [None, 0.5], [1.0, 0.4], Decision.REFUSE),  # the unscored one does not count
        (MinGain(0.1), [0.5, 0.5], [0.6, 0.5], Decision.REFUSE),
        (MinGain(0.1), [0.5, 0.5], [0.75, 0.5], Decision.ACCEPT),
        (Paired(), [0.0, 1.0], [1.0, 1.0], Decision.UNDECIDED),
        (Paired(), [0.0] * 6, [1.0] * 6, Decision.ACCEPT),  # 1 of 64 by chance
        (Paired(level=0.01), [0.0] * 6, [1.0] * 6, Decision.UNDECIDED),
        (Paired(), [0.0] * 6, [0.0] * 6, Decision.REFUSE),
    ],
)
def test_each_policy_decides_as_it_says(
    policy: AcceptancePolicy, before: list[float], after: list[float], decision: Decision
) -> None:
    assert policy.decide(before, after) is decision


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinGain(0), "MinGain: gain: expected a number above 0, found 0"),
        (lambda: MinGain(True), "MinGain: gain: expected a number above 0, found True"),
        (lambda: Paired(level=0), "Paired: level: expected a number above 0 and below 1, found 0"),
        (lambda: Paired(level=1), "Paired: level: expected a number above 0 and below 1, found 1"),
        (lambda: Paired(max_repeats=-1), "Paired: max_repeats: expected an integer of at least 0"),
        (lambda: Paired(confirmations=0), "Paired: confirmations: expected an integer of at least"),
    ],
)
def test_policies_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        make()


def test_a_test_that_no_comparison_can_pass_is_refused() -> None:
    message = (
        r"^acceptance: with 3 answers a comparison cannot reach level 0.05: the least p is 0.12"
    )
    with pytest.raises(ConfigError, match=message):
        config(acceptance=Paired(max_repeats=0))
    config(acceptance=Paired(max_repeats=1))


def test_a_gain_below_the_least_one_is_refused() -> None:
    assert not optimize(config(acceptance=MinGain(0.99))).improved
    assert optimize(config(acceptance=MinGain(0.3))).improved


def paired(**changes: Any) -> GepaConfig:
    settings: dict[str, Any] = {
        "acceptance": Paired(level=0.2, max_repeats=2),
        "rollout_budget": 600,
        "target_section_paths": (RULES, NOTES),
    }
    return config(**(settings | changes))


def test_undecided_comparisons_are_repeated_with_fresh_answers_of_both() -> None:
    journal = MemoryJournal()
    optimize(paired(), journal=journal)
    keys = [record.key for record in journal.records()]
    assert any("/again/1/parent/" in key for key in keys)
    assert any("/again/2/child/" in key for key in keys)
    assert not any("/again/3/" in key for key in keys)


def test_a_winner_is_confirmed_on_fresh_answers_before_it_is_persisted() -> None:
    store, journal = InMemoryPromptOverridesStore(), MemoryJournal()
    run = Run(paired(), overrides_store=store, journal=journal)
    result = run.start()
    assert result.improved
    assert result.persisted
    found = result.confirmation
    assert found is not None
    assert found.confirmed
    assert found.candidate == result.best_index
    assert found.p_value <= 0.2
    assert (found.baseline_mean, found.winner_mean) == (0.0, result.best_pareto_mean)
    asked_again = [record.key for record in journal.records() if record.key.startswith("confirm/")]
    assert len(asked_again) == 2 * 6
    assert result.total_rollouts == run.task.calls <= 600


def lucky(seed: int) -> Any:
    """Score by chance alone, and say that a word is missing, so that there is always a child."""
    chance = random.Random(seed)

    def give(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=chance.random(), feedback=f"missing x{chance.randrange(999)}")

    return give


def test_a_winner_by_luck_is_not_persisted() -> None:
    store = InMemoryPromptOverridesStore()
    strict = optimize(config(feedback_fn=lucky(3), rollout_budget=400))
    assert strict.improved  # that is what luck does
    policy = Paired(level=0.05, max_repeats=0)
    result = optimize(
        paired(feedback_fn=lucky(3), acceptance=policy, minibatch_size=6), overrides_store=store
    )
    assert not result.improved
    assert not result.persisted
    assert result.best_index == 0
    assert store.resolve(PROMPT.descriptor) is None


@pytest.mark.parametrize("budget", [60, 61, 75, 90, 133, 250])
def test_confirming_is_paid_from_the_budget(budget: int) -> None:
    run = Run(paired(rollout_budget=budget))
    result = run.start()
    assert run.task.calls == result.total_rollouts <= budget
    assert (result.confirmation is not None) == (len(result.candidates) > 1 or result.improved)


def test_a_budget_that_cannot_confirm_is_refused_before_the_first_call() -> None:
    message = r"^rollout_budget: expected at least 42 \(.*, confirming the winner 12\), found 41"
    with pytest.raises(ConfigError, match=message):
        paired(rollout_budget=41)
    assert paired(rollout_budget=42).rollout_budget == 42


def test_a_run_that_was_stopped_confirms_when_it_is_resumed() -> None:
    journal, whole = MemoryJournal(), optimize(paired())
    first = Run(paired(max_tokens=None), journal=journal, task=_dies_after(80)).start()
    assert first.stop_reason is StopReason.PROVIDER_FAILED
    assert not first.improved
    assert first.confirmation is None
    second = Run(paired(), journal=journal).start()
    assert second.confirmation == whole.confirmation
    assert second.best_override == whole.best_override


def _dies_after(calls: int) -> Any:

    def reply(number: int, rendered: Any) -> str:
        if number >= calls:
            raise REFUSED
        return answer(rendered)

    return numbered(reply)


def test_a_finished_run_confirms_anew_when_a_larger_budget_finds_another_winner() -> None:
    journal = MemoryJournal()
    small = Run(paired(rollout_budget=120), journal=journal).start()
    large = Run(paired(rollout_budget=600), journal=journal).start()
    assert small.confirmation is not None
    assert large.confirmation is not None
    assert large == optimize(paired(rollout_budget=600))


def test_an_undecided_comparison_says_so() -> None:
    result = optimize(paired(acceptance=Paired(level=0.02, max_repeats=1)))
    reasons = [found for found in result.rejections if found.reason is RejectionReason.NOT_BETTER]
    assert any(found.detail.endswith("that may be chance") for found in reasons)
