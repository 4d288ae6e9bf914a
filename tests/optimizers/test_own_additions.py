"""Additions of users that do less, or more, than they should end no run with an error of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from optimizers.worlds import config, optimize
from promptgraft.algorithms.gepa import Addition, Attempt, Changes, Proposer
from promptgraft.search import Asking, StopReason
from promptgraft.search.asks import answered


class NoIdea(Addition):
    """Chooses a part, and has no text for it."""

    name = "no idea"

    def begin(self, attempt: Attempt) -> Proposer:
        del attempt
        return self.propose

    def propose(self, attempt: Attempt) -> Asking[Changes | None]:
        attempt.modules = self.tools.kit.target.modules[:1]
        return answered(())


class Censor(Addition):
    """Takes every change out of a child."""

    name = "censor"

    def revise(self, attempt: Attempt, changes: Changes) -> Changes:
        del attempt, changes
        return ()


@pytest.mark.parametrize("addition", [NoIdea, Censor])
def test_steps_in_which_an_addition_leaves_no_change_are_idle(
    addition: Callable[[], Addition],
) -> None:
    result = optimize(config(additions=[addition()], max_idle_steps=3))
    assert result.stop_reason is StopReason.NO_PROGRESS
    assert result.stop_detail == "3 steps in a row tried nothing: no change was proposed"
    assert not result.rejections
