"""When a child is better than its parent, and when a winner may be called one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizers.worlds import NOTES, RULES, config, optimize
from promptgraft.algorithms.gepa import GepaConfig
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal
from promptgraft.search import RejectionReason
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
        (MinGain(0), [0.5, 0.5], [0.5, 0.5], Decision.ACCEPT),
        (MinGain(0), [0.5, 0.5], [0.5, 0.25], Decision.REFUSE),
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
        (lambda: MinGain(-0.1), "MinGain: gain: expected a number of at least 0, found -0.1"),
        (lambda: MinGain(True), "MinGain: gain: expected a number of at least 0, found True"),
        (lambda: Paired(level=0), "Paired: level: expected a number above 0 and below 1, found 0"),
        (lambda: Paired(level=1), "Paired: level: expected a number above 0 and below 1, found 1"),
        (lambda: Paired(max_repeats=-1), "Paired: max_repeats: expected an integer of at least 0"),
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
    assert not optimize(config(acceptance=MinGain(0.99))).found_better
    assert optimize(config(acceptance=MinGain(0.3))).found_better


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


def test_an_undecided_comparison_says_so() -> None:
    result = optimize(paired(acceptance=Paired(level=0.02, max_repeats=1)))
    reasons = [found for found in result.rejections if found.reason is RejectionReason.NOT_BETTER]
    assert any(found.detail.endswith("that may be chance") for found in reasons)
