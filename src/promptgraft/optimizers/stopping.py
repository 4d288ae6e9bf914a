"""Why runs end."""

from __future__ import annotations

from enum import StrEnum

from promptgraft.errors import PromptgraftError


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
    """The provider refused, or too many rollouts of a batch stayed unscored."""
    DEADLINE = "deadline"
    """Time was up."""


class RunStoppedError(PromptgraftError):
    """Carries a stop reason from inside a step to the loop; users never see it."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
