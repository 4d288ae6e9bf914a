"""What a gradient search returns."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.search.result import RunResult
from promptgraft.search.round_events import (
    GradientsMerged,
    PatchWritten,
    QuestionUnanswered,
    RoundEnded,
    RoundEvent,
    RoundTrained,
    StepBlamed,
)


@attrs.frozen(kw_only=True)
class Round:
    """One round of a search, stage by stage.

    Attributes:
        trained: the current candidate, the training cases, their scores and losses.
        blamed: what models said of each step that they were asked about.
        merged: what is to be mended, for each part that is blamed.
        patches: the new texts, with their reasons and the failures that they came from.
        unanswered: questions without a usable reply.
        ended: the decision, with scores and gain; None if the run ended within the round.
    """

    trained: RoundTrained
    blamed: tuple[StepBlamed, ...] = ()
    merged: tuple[GradientsMerged, ...] = ()
    patches: tuple[PatchWritten, ...] = ()
    unanswered: tuple[QuestionUnanswered, ...] = ()
    ended: RoundEnded | None = None

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return self.trained.step

    @classmethod
    def of(cls, trained: RoundTrained, events: Sequence[RoundEvent]) -> Round:
        """Return a round out of what it has told first, and then."""
        return cls(
            trained=trained,
            blamed=tuple(one for one in events if isinstance(one, StepBlamed)),
            merged=tuple(one for one in events if isinstance(one, GradientsMerged)),
            patches=tuple(one for one in events if isinstance(one, PatchWritten)),
            unanswered=tuple(one for one in events if isinstance(one, QuestionUnanswered)),
            ended=next((one for one in events if isinstance(one, RoundEnded)), None),
        )


@attrs.frozen(kw_only=True, repr=False)
class GradientResult(RunResult):
    """The outcome of a gradient search.

    Attributes:
        rounds: what happened in each round.
    """

    rounds: tuple[Round, ...] = ()

    @classmethod
    def of(cls, core: RunResult, rounds: Sequence[Round]) -> GradientResult:
        """Return ``core`` with rounds."""
        return cls(**attrs.asdict(core, recurse=False), rounds=tuple(rounds))
