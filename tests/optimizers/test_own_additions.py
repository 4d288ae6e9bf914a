"""Additions of users that do less, or more, than they should end no run with an error of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from optimizers.worlds import Run, config, optimize
from promptgraft.algorithms.gepa import Addition, Attempt, Changes, Proposer
from promptgraft.errors import CallerError, ConfigError
from promptgraft.search import Asking, RunResult, StopReason
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


class Miser(Addition):
    """Reserves everything that a budget has beyond the least one."""

    name = "miser"

    def reserve(self, rollouts: int, *, least: int, validation: int) -> int:
        del validation
        return max(0, rollouts - least)


def test_a_plan_refuses_additions_that_reserve_all_of_a_larger_budget() -> None:
    settings = config(additions=[Miser()])
    assert settings.pays_for(settings.budget).if_accepted == 1
    with pytest.raises(ConfigError, match="additions: what they reserve"):
        Run(settings).plan()


class Clumsy(Addition):
    """Fails when it learns of the first attempt."""

    name = "clumsy"

    def learn(self, attempt: Attempt) -> None:
        raise ValueError(f"attempt {attempt.number} is too much")


def test_an_error_of_an_addition_names_it_and_leaves_the_result_so_far() -> None:
    with pytest.raises(
        CallerError, match="addition `clumsy` raised ValueError: attempt 1 is"
    ) as at:
        optimize(config(additions=["lines", Clumsy()]))
    assert isinstance(at.value.__cause__, ValueError)
    assert isinstance(at.value.result, RunResult)
    assert at.value.result.stop_reason is StopReason.FAILED
