"""The events of a search by rounds: failures, blame, patches, decisions."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from promptgraft.search.events import Event
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
    """Something to be fixed, in words.

    Attributes:
        severity: how bad it is.
        text: what is wrong.
    """

    severity: Severity
    text: str


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that failed on the answer to a training case, or a missing answer.

    Attributes:
        metric: the metric; empty for the score as a whole, and for a crash.
        severity: how bad it is.
        reason: the metric's reason, with the hints of the case.
        node: the node of a graph whose output was judged; empty for the final answer.
    """

    case: str
    metric: str
    severity: Severity
    reason: str
    node: str = ""


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that a model attributes to a part, or passes back to an earlier step.

    Attributes:
        to: name of the part, or id of the step.
        severity: how bad the problem is.
        text: what is wrong.
    """

    to: str
    severity: Severity
    text: str


class _OfRound(Event, frozen=True, kw_only=True):
    """Base class of the events of a round.

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
        losses: the failures.
    """

    current: int
    cases: tuple[str, ...]
    scores: tuple[Score, ...]
    losses: tuple[Loss, ...]


class StepBlamed(_OfRound, frozen=True, kw_only=True, tag="blamed"):
    """A model has attributed a failure to parts of a step, or to earlier steps.

    Attributes:
        at: id of the step; empty if one question was asked about all steps.
        node: the node of the step.
        blamed: the blamed parts.
        handed_on: the earlier steps to which problems are passed back.
    """

    case: str
    at: str = ""
    node: str = ""
    blamed: tuple[Blame, ...] = ()
    handed_on: tuple[Blame, ...] = ()


class QuestionUnanswered(_OfRound, frozen=True, kw_only=True, tag="unanswered"):
    """A question has no usable reply, even after a repair if there was one.

    Attributes:
        position: where in the run it was asked.
        detail: why, in one line.
    """

    position: str
    detail: str


class GradientsMerged(_OfRound, frozen=True, kw_only=True, tag="merged"):
    """The gradients of a part are merged into a list of problems.

    Attributes:
        module: the part.
        cases: ids of the cases whose failures blame it.
        problems: what is to be fixed.
    """

    module: str
    cases: tuple[str, ...]
    problems: tuple[Problem, ...]


class PatchWritten(_OfRound, frozen=True, kw_only=True, tag="patched"):
    """A part has a new text, which is about to be evaluated.

    Attributes:
        module: the part.
        before: its text in the current candidate.
        text: the new text.
        why: the model's reason.
        cases: ids of the cases whose failures led to it.
    """

    module: str
    before: str
    text: str
    why: str
    cases: tuple[str, ...]


class Decided(StrEnum):
    """The outcome of a round."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOTHING = "nothing to try"


class RoundEnded(_OfRound, frozen=True, kw_only=True, tag="round_ended"):
    """A round is over.

    Attributes:
        current: position of the candidate that it began with.
        decided: the outcome.
        detail: why, in one line.
        tried: means of the current and the new candidate on the cases that the patches came from;
            None if they were not evaluated there.
        validated: their means on the validation set; None if the new one was not validated.
        candidate: position of the new candidate; None if it was not accepted.
        stop: why no further round begins, in words; empty if one does.
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
        """Gain of the new candidate over the current one on the validation set."""
        before, after = self.validated or (None, None)
        return None if before is None or after is None else after - before


RoundEvent = (
    RoundTrained | StepBlamed | QuestionUnanswered | GradientsMerged | PatchWritten | RoundEnded
)
"""Every kind of event that occurs only in rounds."""
