"""What a process tells of a run that a replay does not tell again, and what all events share.

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
    """What every event has once it is a line.

    Attributes:
        number: counts, from 1, the lines that every replay of the journal tells again.
        time: when it was told.
    """

    number: int | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="n")
    time: Moment | msgspec.UnsetType = msgspec.UNSET


class Unknown(Event, frozen=True, kw_only=True):
    """A line of a kind that this version does not know."""


class RunPlanned(Event, frozen=True, kw_only=True, tag="plan"):
    """What this process lets the run use; a resumed run may have other limits.

    Attributes:
        budget: rollouts that may be used.
        line: the plan in one line.
        warnings: what makes the plan a bad one, a line each.
        max_cost: US dollars at which the run is stopped; None here and below for no such limit.
        max_tokens: tokens at which it is stopped.
        max_seconds: wall time after which it is stopped.
        expected_cost: US dollars that the run is expected to use in all; None when not known.
    """

    budget: int
    line: str
    warnings: tuple[str, ...] = ()
    expected_cost: Decimal | None = None
    max_cost: Decimal | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None


class StopFileRemoved(Event, frozen=True, kw_only=True, tag="stop_file_removed"):
    """A stop file was there when the run began, left behind by an earlier one.

    Attributes:
        path: where it was.
    """

    path: str


class _AtWork(Event, frozen=True, kw_only=True):
    """Where a run is, and what it has used by then.

    Attributes:
        position: the :class:`~promptgraft.search.place.Place` in the run, as text.
        done: answers of this that are there.
        total: answers that are wanted.
        rollouts: how many the run has used.
        reflections: how many the run has used.
        tokens: how many the run has used.
        cost: US dollars that the run has used; None when a price is not known.
        expected_cost: US dollars that it is expected to use in all, by what it has used so far.
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
    """A notice: what the run does now, and what it has used so far.

    Only the bus is told, and how often depends on the machine. What a journal answers is not told.
    No line: :class:`RunProgress` is, about once a second.
    """


class RunProgress(_AtWork, frozen=True, kw_only=True, tag="progress"):
    """Where a run stands: the end of a file of events is enough to know it.

    ``position`` is empty before the run begins, and ``total`` 0 when it is not known.

    Attributes:
        step: number of the latest step.
        budget: rollouts that may be used.
        candidates: candidates in the pool.
        accepted: accepted mutations and merges.
        rejected: rejected proposals and merges.
        best: position of the best candidate.
        baseline_mean: mean of the baseline; None when it is not known.
        best_mean: mean of the best candidate.
        baseline_estimated: whether the baseline's mean is an estimate.
        best_estimated: the same of the best candidate's.
        in_flight: rollouts and reflections that are being answered at the moment.
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
    """A notice: the reflection model is asked a question, or a journal answers for it.

    Only the bus is told, before the call; a run directory has a file for each.

    Attributes:
        position: where in the run, as text.
        question: the question, bound.
    """

    position: str
    question: Prompt[object] = attrs.field(repr=False)

    @property
    def text(self) -> str:
        """The question as the model is sent it."""
        return self.question.render().text


class CallWaits(Event, frozen=True, kw_only=True, tag="waiting"):
    """A call waits for long enough to look like a hang.

    Attributes:
        model: the model that is called.
        seconds: how long; None when that is not known.
        reason: why, in a few words.
    """

    model: str
    seconds: float | None
    reason: str
