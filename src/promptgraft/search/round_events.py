"""What a search by rounds tells: failures, who is blamed for them, patches, decisions."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from promptgraft.search.notices import Event
from promptgraft.search.scores import Score


class Severity(StrEnum):
    """How bad a problem is."""

    P0 = "P0"
    """There was no answer at all."""
    P1 = "P1"
    """The answer is wrong."""
    P2 = "P2"
    """A part of the answer is wrong."""
    P3 = "P3"
    """The answer could be better."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is to be mended, in words.

    Attributes:
        severity: how bad it is.
        text: what is wrong.
    """

    severity: Severity
    text: str


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that failed on the answer to a training case, or an answer that there is not.

    Attributes:
        case: the case.
        metric: the metric; empty for the score as a whole, and for a crash.
        severity: how bad it is.
        reason: what the metric said, with the hints of the case.
        node: the node of a graph whose output was judged; empty for the answer.
    """

    case: str
    metric: str
    severity: Severity
    reason: str
    node: str = ""


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """What a model said of a part, or hands on to an earlier step.

    Attributes:
        to: name of the part, or id of the step.
        severity: how bad the problem is.
        text: what is wrong.
    """

    to: str
    severity: Severity
    text: str


class _OfRound(Event, frozen=True, kw_only=True):
    """Something that happened in a round.

    Attributes:
        step: number of the round, from 1.
    """

    step: int


class RoundTrained(_OfRound, frozen=True, kw_only=True, tag="trained"):
    """The current candidate was evaluated on the training cases of a round.

    Attributes:
        current: position of the candidate.
        cases: ids of the cases.
        scores: its scores, by case; None for unscored.
        losses: what failed.
    """

    current: int
    cases: tuple[str, ...]
    scores: tuple[Score, ...]
    losses: tuple[Loss, ...]


class StepBlamed(_OfRound, frozen=True, kw_only=True, tag="blamed"):
    """A model has said what one step of a rollout has to do with a failure.

    Attributes:
        case: the case.
        at: id of the step; empty where all steps were asked about at once.
        node: the node of the step.
        blamed: the parts that it blames.
        handed_on: the earlier steps that it hands problems on to.
    """

    case: str
    at: str = ""
    node: str = ""
    blamed: tuple[Blame, ...] = ()
    handed_on: tuple[Blame, ...] = ()


class QuestionUnanswered(_OfRound, frozen=True, kw_only=True, tag="unanswered"):
    """A question has no usable reply, after a repair where there was one.

    Attributes:
        position: where in the run it was asked.
        detail: why, in one line.
    """

    position: str
    detail: str


class GradientsMerged(_OfRound, frozen=True, kw_only=True, tag="merged"):
    """What was said of one part is merged.

    Attributes:
        module: the part.
        cases: ids of the cases whose failures blame it.
        problems: what is to be mended.
    """

    module: str
    cases: tuple[str, ...]
    problems: tuple[Problem, ...]


class PatchWritten(_OfRound, frozen=True, kw_only=True, tag="patched"):
    """A part has a new text, which is about to be tried.

    Attributes:
        module: the part.
        before: its text in the current candidate.
        text: the new text.
        why: the model's reason.
        cases: ids of the cases whose failures it came from.
    """

    module: str
    before: str
    text: str
    why: str
    cases: tuple[str, ...]


class Decided(StrEnum):
    """What became of a round."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOTHING = "nothing to try"


class RoundEnded(_OfRound, frozen=True, kw_only=True, tag="round_ended"):
    """A round is over.

    Attributes:
        current: position of the candidate that it began with.
        decided: what became of it.
        detail: why, in one line.
        tried: mean of the current and of the new candidate on the cases that the patches came
            from; None where they were not tried there.
        validated: their means on the validation set; None where the new one was not validated.
        candidate: position of the new candidate; None when it was not accepted.
        stop: why no further round begins, in words; empty when one does.
    """

    current: int
    decided: Decided
    detail: str
    tried: tuple[Score, Score] | None = None
    validated: tuple[Score, Score] | None = None
    candidate: int | None = None
    stop: str = ""

    @property
    def gain(self) -> float | None:
        """How far the new candidate is above the current one on the validation set."""
        before, after = self.validated or (None, None)
        return None if before is None or after is None else after - before


RoundEvent = (
    RoundTrained | StepBlamed | QuestionUnanswered | GradientsMerged | PatchWritten | RoundEnded
)
"""Every kind of event that only rounds have."""
