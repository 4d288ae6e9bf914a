"""The rollout budget of a search is used up to the last rollout, and never beyond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.search.ledger import Ledger, RolloutBudget
from promptgraft.search.stopping import RunStoppedError

COUNTS = st.integers(0, 50)


@given(budget=COUNTS, reserve=COUNTS, in_flight=COUNTS, wanted=COUNTS)
def test_a_budget_affords_what_is_left_and_not_one_more(
    budget: int, reserve: int, in_flight: int, wanted: int
) -> None:
    rollouts = RolloutBudget(Ledger(budget), reserve=reserve)
    rollouts.in_flight = in_flight
    left = budget - reserve - in_flight
    assert rollouts.left == left
    assert rollouts.affords(left)
    assert not rollouts.affords(left + 1)
    assert rollouts.affords(wanted) == (wanted <= left)
    if wanted <= left:
        rollouts.require(wanted, "a step")
    else:
        with pytest.raises(RunStoppedError, match=f"a step, which takes {wanted} rollouts"):
            rollouts.require(wanted, "a step")
