"""Events that a replay does not repeat, and the base class of all events.

See :mod:`promptgraft.search.events`.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

import attrs
import msgspec

from promptgraft.prompt.template import Prompt
from promptgraft.search.scores import Score

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base class of events; the attributes are set when the event is written as a line.

    Attributes:
        number: number of the line, from 1, among those that every replay of the journal repeats.
        time: when the event was published.
    """

    number: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="n")
    time: Moment | msgspec.UnsetType = msgspec.UNSET


class Unknown(Event, frozen=True, kw_only=True):
    """A line of a kind that is unknown to this version."""


class RunPlanned(Event, frozen=True, kw_only=True, tag="plan"):
    """The plan of this process; a resumed run may have other limits.

    Attributes:
        budget: rollouts that may be used.
        line: the plan in one line.
        warnings: problems of the plan, a line each.
        max_cost: US dollars at which the run is stopped; None, here and below, for no limit.
        max_tokens: tokens at which it is stopped.
        max_seconds: wall time after which it is stopped.
        expected_cost: US dollars that the run is expected to use in all; None if unknown.
        proposals: proposals that it may try, at most.
    """

    budget: int
    line: str
    warnings: tuple[str, ...] = ()
    expected_cost: Decimal | None = None
    max_cost: Decimal | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    proposals: int | None = None


class RoundStarted(Event, frozen=True, kw_only=True, tag="round_started"):
    """A step of GEPA, or a round of a gradient search, begins.

    Attributes:
        step: its number, from 1.
        current: position of the candidate that it begins with; the next free one for a candidate
            that is being validated.
    """

    step: int
    current: int


class NewBest(Event, frozen=True, kw_only=True, tag="new_best"):
    """Another candidate leads on the validation set.

    Attributes:
        step: number of the step.
        candidate: its position.
        mean: its mean on the validation set; None if nothing was scored.
        estimated: whether the mean is an estimate, because some examples have no score.
    """

    step: int
    candidate: int
    mean: Score
    estimated: bool


class StopFileRemoved(Event, frozen=True, kw_only=True, tag="stop_file_removed"):
    """A stop file of an earlier run was removed at the start.

    Attributes:
        path: the file.
    """

    path: str


class _AtWork(Event, frozen=True, kw_only=True):
    """The position of a run, and what it has used so far.

    Attributes:
        position: the :class:`~promptgraft.search.place.Place` in the run, as text.
        done: answers that have arrived at this position.
        total: answers that are wanted there.
        rollouts: rollouts used so far.
        reflections: reflections used so far.
        tokens: tokens used so far.
        cost: US dollars used so far; None if a price is not known.
        expected_cost: expected cost of the whole run in US dollars, given what it has used so far.
    """

    position: str
    done: int
    total: int
    rollouts: int
    reflections: int
    tokens: int
    cost: Decimal | None
    expected_cost: Decimal | None = None


class Working(_AtWork, frozen=True, kw_only=True, tag="working"):
    """A notice: what the run is doing, and what it has used so far.

    Published on the bus only, at a rate that depends on the machine, and not for answers from a
    journal. It is not written as a line; :class:`RunProgress` is, about once a second.
    """


class RunProgress(_AtWork, frozen=True, kw_only=True, tag="progress"):
    """The state of a run, so that the end of an event file is enough to know it.

    ``position`` is empty before the run begins, and ``total`` is 0 if it is not known.

    Attributes:
        step: number of the latest step.
        budget: rollouts that may be used.
        candidates: candidates in the pool.
        accepted: accepted mutations and merges.
        rejected: rejected proposals and merges.
        best: position of the best candidate.
        baseline_mean: mean of the baseline; None if it is not known.
        best_mean: mean of the best candidate.
        baseline_estimated: whether the baseline's mean is an estimate.
        best_estimated: whether the best candidate's mean is an estimate.
        in_flight: rollouts and reflections in progress.
    """

    step: int
    budget: int
    candidates: int
    accepted: int
    rejected: int
    best: int
    baseline_mean: Score
    best_mean: Score
    baseline_estimated: bool
    best_estimated: bool
    in_flight: int = 0


@attrs.frozen(kw_only=True)
class QuestionAsked:
    """A notice: a question to the reflection model, which the journal may already answer.

    Published on the bus only, before the call; a run directory has a file for each.

    Attributes:
        position: where in the run, as text.
        question: the question, with its parameters bound.
    """

    position: str
    question: Prompt[object] = attrs.field(repr=False)

    @property
    def text(self) -> str:
        """The question as it is sent to the model."""
        return self.question.render().text


class CallWaits(Event, frozen=True, kw_only=True, tag="waiting"):
    """A call waits so long that it could be mistaken for a hang.

    Attributes:
        model: the model that is called.
        seconds: how long it waits; None if that is not known.
        reason: why, in a few words.
    """

    model: str
    seconds: float | None
    reason: str
