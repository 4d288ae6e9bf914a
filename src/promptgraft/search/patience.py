"""How long a run goes on without anything to try."""

from __future__ import annotations

from promptgraft.search.stopping import RunStoppedError, StopReason
from promptgraft.targets.base import RejectionReason

_NOTHING_NEW = {RejectionReason.UNCHANGED, RejectionReason.DUPLICATE}


class Patience:
    """Counts steps that tried nothing, until a child is tried.

    Args:
        max_idle_steps: steps in a row with nothing to try, at least 1.
        max_failed_reflections: steps in a row without a usable reply, at least 1.
    """

    def __init__(self, *, max_idle_steps: int, max_failed_reflections: int) -> None:
        self._max_idle_steps = max_idle_steps
        self._max_failed_reflections = max_failed_reflections
        self._idle = 0
        self._failed = 0

    def renew(self) -> None:
        """Begin to count anew: a child is tried."""
        self._idle = self._failed = 0

    def idle(self, why: str) -> None:
        """Count a step with nothing to try.

        Raises:
            RunStoppedError: it was one too many.
        """
        self._idle += 1
        if self._idle >= self._max_idle_steps:
            raise RunStoppedError(
                StopReason.NO_PROGRESS, f"{self._idle} steps in a row tried nothing: {why}"
            )

    def refused(self, reason: RejectionReason, detail: str) -> None:
        """Count a step whose last reply was refused.

        Raises:
            RunStoppedError: it was one too many.
        """
        if reason in _NOTHING_NEW:
            self.idle(f"the last proposal was no new text: {detail}")
            return
        self._failed += 1
        if self._failed >= self._max_failed_reflections:
            raise RunStoppedError(
                StopReason.REFLECTION_FAILED,
                f"{self._failed} steps gave no usable proposal; the last: {detail}",
            )
