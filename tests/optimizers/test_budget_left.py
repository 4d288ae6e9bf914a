"""A search that its budget ends has used it, but for less than another step."""

from __future__ import annotations

import random

import pytest

from further import thorough
from optimizers.worlds import config, examples, optimize, twins
from promptgraft.search import StopReason


@pytest.mark.parametrize("seed", [0, 4, *thorough([1, 2, 3, 5])])
def test_less_than_a_step_of_the_budget_is_left_over(seed: int) -> None:
    drawn = random.Random(f"budget/{seed}")
    budget, size = drawn.choice((200, 300, 400)), drawn.choice((40, 60))
    proposals, minibatch = drawn.choice((1, 1, 2, 4)), drawn.choice((3, 4, 6))
    held_out = drawn.choice((0, 0, 8, 20))
    settings = config(
        preset=drawn.choice(("lean", "lean", "paper")),
        rollout_budget=budget,
        minibatch_size=minibatch,
        training_examples=twins(size),
        pareto_set_size=size,
        held_out=examples(held_out, first=300),
        seed=seed,
        proposals_per_step=proposals,
        steps_at_once=drawn.choice((1, 1, 2)),
        enable_merge=drawn.random() < 0.3,
    )
    result = optimize(settings)
    assert result.stop_reason is StopReason.BUDGET, result.stop_detail
    # Minibatches of parents and children, and all of the validation set.
    step = proposals * 2 * minibatch + size
    assert 0 <= budget - result.total_rollouts < step
