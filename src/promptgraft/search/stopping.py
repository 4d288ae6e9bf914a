"""Why runs end."""

from __future__ import annotations

from enum import StrEnum

from promptgraft.errors import (
    BudgetExhaustedError,
    LimitReachedError,
    PromptgraftError,
    RunCancelledError,
    StopFileFoundError,
)


class StopReason(StrEnum):
    """Why a run ended."""

    BUDGET = "budget"
    """The rollouts left do not pay for one more step."""
    PERFECT = "perfect"
    """The best candidate is perfect on every validation example."""
    NO_PROGRESS = "no progress"
    """Too many steps in a row had nothing to try."""
    REFLECTION_FAILED = "reflection failed"
    """Too many reflections in a row gave nothing usable."""
    PROVIDER_FAILED = "provider failed"
    """The provider refused, or too many of the latest rollouts stayed unscored."""
    DEADLINE = "deadline"
    """Time was up."""
    COST = "cost"
    """The money is used up, or the price of a model is not known."""
    TOKENS = "tokens"
    """The tokens are used up."""
    REFLECTIONS = "reflections"
    """The reflections are used up."""
    CANCELLED = "cancelled"
    """The run was asked to stop."""
    STOP_FILE = "stop file"
    """The stop file was found."""
    PROPOSALS = "proposals"
    """The proposals are used up."""
    NO_IMPROVEMENT = "no improvement"
    """Too many steps in a row brought no better candidate."""
    TARGET_SCORE = "target score"
    """A candidate that beats the baseline has the score that was wanted."""
    OBJECTIVES = "objectives"
    """The best candidate has what is required of each objective."""
    CANDIDATES = "candidates"
    """The pool is as large as it may be."""
    PAUSED = "paused"
    """The run was asked to pause; resuming continues it."""
    FAILED = "failed"
    """The run was ended by an error, which carries what was found."""
    DONE = "done"
    """The algorithm has nothing more to do."""
    STOPPER = "stopper"
    """A function of the caller's said so."""


# All rollouts were used, what was wanted was found, or there was no more to find.
_WENT_TO_ITS_END = {
    StopReason.BUDGET,
    StopReason.PERFECT,
    StopReason.TARGET_SCORE,
    StopReason.OBJECTIVES,
    StopReason.NO_PROGRESS,
    StopReason.NO_IMPROVEMENT,
    StopReason.PROPOSALS,
    StopReason.CANDIDATES,
    StopReason.STOPPER,
    StopReason.DONE,
}


def is_early(reason: str) -> bool:
    """Tell whether a run that ended for this reason was stopped before it had come to its end."""
    return reason not in _WENT_TO_ITS_END


_REACHED = {
    "max_cost": StopReason.COST,
    "max_tokens": StopReason.TOKENS,
    "max_reflections": StopReason.REFLECTIONS,
}


def reason_of(error: LimitReachedError) -> StopReason:
    """Return why a run ends that was ended by ``error``."""
    if isinstance(error, StopFileFoundError):
        return StopReason.STOP_FILE
    if isinstance(error, RunCancelledError):
        return StopReason.CANCELLED
    if isinstance(error, BudgetExhaustedError):
        return _REACHED.get(error.limit, StopReason.BUDGET)
    return StopReason.DEADLINE


class RunStoppedError(PromptgraftError):
    """Carries a stop reason from inside a step to the loop; users never see it."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def is_orderly(error: BaseException) -> bool:
    """Tell whether a run that ``error`` ends lets the steps end that are under way.

    That is when the answers and the settings have decided it, and not time, money or a fault.
    """
    if isinstance(error, RunStoppedError):
        return error.reason is not StopReason.PROVIDER_FAILED
    return isinstance(error, BudgetExhaustedError) and error.limit == "max_reflections"
