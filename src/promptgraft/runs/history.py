"""A run as its events tell it, whichever process tells them: one value that all pages show."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import NoReturn

import attrs
from msgspec import UnsetType
from msgspec.structs import replace

from promptgraft.errors import DataFormatError
from promptgraft.search.events import (
    CandidateAdded,
    CandidateScored,
    CaseTaught,
    MergeAccepted,
    MergeRejected,
    MutationAccepted,
    MutationProposed,
    MutationRejected,
    RolloutCompleted,
    RunEnded,
    RunStarted,
)
from promptgraft.search.notices import CallWaits, Event, RunPlanned, RunProgress, Working
from promptgraft.search.place import Place
from promptgraft.search.scores import Score
from promptgraft.text import score

_LEAST_FOR_A_PACE = timedelta(seconds=5)


def shown_mean(one: CandidateAdded) -> str:
    """Return the mean of a candidate, with ``~`` where it is an estimate."""
    return score(one.mean, estimated=one.estimated)


@attrs.define
class StepCandidates:
    """Candidates tried in a step; in races also the best one, before a candidate joins.

    Attributes:
        parent: the parent of its proposals.
        child: what joined; None when nothing did.
        is_child_as_tried: whether that is the child as it was tried, of the parent alone.
        merge: the merge that joined.
        best_of_child: the best candidate that the child raced.
        best_of_merge: the one that the merge raced.
        scored: the candidate that was tried on more since one joined.
        reasons: why the reflection model changed parts, by their names; empty where it did not say.
    """

    parent: int | None = None
    child: int | None = None
    is_child_as_tried: bool = False
    merge: int | None = None
    best_of_child: int | None = None
    best_of_merge: int | None = None
    scored: int | None = None
    reasons: dict[str, str] = attrs.field(factory=dict)

    def add(self, event: CandidateAdded | CandidateScored) -> None:
        """Take account of a candidate that joined, or was tried on more."""
        if isinstance(event, CandidateScored):
            self.scored = event.candidate if self.scored is None else self.scored
            return
        if len(event.parents) > 1:
            self.merge, self.best_of_merge = event.candidate, self.scored
        elif not event.shortened:
            self.is_child_as_tried = event.parents == (self.parent,)
            self.child, self.best_of_child = event.candidate, self.scored
        self.scored = None


@attrs.define(kw_only=True)
class RunHistory:
    """What is known of a run so far. The cost of an event does not grow with the run.

    Attributes:
        started: how it began; None before its first event.
        plan: what the process lets it use that works on it, or worked on it last.
        candidates: the pool, in order, with the scores and means of now.
        rejections: every rejected proposal, those that were repaired included.
        merges: every merge that was tried.
        ended: how it ended; None while it has not.
        best: position of the best candidate; not the highest mean where means are estimates.
        accepted: accepted mutations; ``merged`` accepted merges.
        steps: the latest step that an event tells of; of a run that has ended, steps begun.
        rollouts: rollouts used; ``reflections`` and ``tokens`` in the same way.
        cost: US dollars used; None, also below, when a price is not known.
        expected_cost: US dollars that it is expected to use in all.
        place: where in the run; None before it begins, and where this version does not know it.
        done: answers of this that are there; of ``total``, 0 when that is not known.
        in_flight: calls that are in flight.
        curve: the means that the best candidate has had, one after the other.
        wait: the latest wait of a call; None when an answer has come since.
        tried: who was tried in each step.
        taught: cases whose ``expected`` is what a teacher answered, by id.
    """

    started: RunStarted | None = None
    plan: RunPlanned | None = None
    candidates: list[CandidateAdded] = attrs.field(factory=list)
    rejections: list[MutationRejected] = attrs.field(factory=list)
    merges: list[MergeAccepted | MergeRejected] = attrs.field(factory=list)
    ended: RunEnded | None = None
    best: int = 0
    accepted: int = 0
    merged: int = 0
    steps: int = 0
    rollouts: int = 0
    reflections: int = 0
    tokens: int = 0
    cost: Decimal | None = Decimal(0)
    expected_cost: Decimal | None = None
    place: Place | None = None
    done: int = 0
    total: int = 0
    in_flight: int = 0
    curve: list[float] = attrs.field(factory=list)
    wait: CallWaits | None = None
    tried: dict[int, StepCandidates] = attrs.field(factory=dict)
    taught: dict[str, CaseTaught] = attrs.field(factory=dict)
    _position: str = ""
    _number: int = 0
    _is_cut: bool = False
    _paced: tuple[datetime, int] | None = None

    def add(self, event: Event) -> None:
        """Take account of an event; one that tells nothing new is left alone.

        Raises:
            DataFormatError: it does not fit what was told before.
        """
        if not isinstance(event.number, UnsetType):
            # A run that is resumed may cut its file, and tell anew what it continues with.
            self._is_cut = self._is_cut or event.number <= self._number
            self._number = event.number
        match event:
            case RolloutCompleted():
                # Told once the batch is complete, one by one: never back to fewer.
                self.rollouts = max(self.rollouts, event.total_rollouts)
                position = event.position.rpartition("/")[0]
                # Where steps overlap, those of one are told when later ones are under way.
                if position != self._position and Place.parse(position).step >= self.steps:
                    self._go_to(position)
            case Working() | RunProgress():
                self._work(event)
            case RunPlanned():
                self.plan, self.expected_cost = event, event.expected_cost
            case CallWaits():
                self.wait = event
            case RunStarted():
                self._begin(event)
            case RunEnded():
                self._end(event)
            case _:
                self._change(event)

    def _begin(self, event: RunStarted) -> None:
        # A process that begins again tells everything again; its limits are told next.
        self.started, self.ended, self.wait, self.place = event, None, None, None
        self.candidates, self.rejections, self.merges, self.curve = [], [], [], []
        self.tried, self.taught = {}, {}
        self.best = self.accepted = self.merged = self.steps = self.done = self.total = 0
        self.rollouts = self.reflections = self.tokens = 0
        self._position, self._paced = "", None

    def _change(self, event: Event) -> None:
        """Take account of what becomes of candidates and proposals."""
        match event:
            case CandidateAdded():
                self._join(event)
            case CandidateScored():
                self._score(event)
            case MutationProposed():
                tried = self._step(event.step)
                tried.parent, tried.reasons[event.module] = event.parent, event.reason
            case MutationAccepted():
                self._step(event.step)
                self.accepted, self.wait = self.accepted + 1, None
            case MutationRejected():
                self._reject(event)
            case MergeAccepted() | MergeRejected():
                self._check("parents", *event.parents)
                self._step(event.step)
                self.merged += isinstance(event, MergeAccepted)
                self.merges.append(event)
            case CaseTaught():
                self.taught[event.case] = event
            case _:
                return
        self.ended = None

    def _step(self, step: int) -> StepCandidates:
        self.steps = max(self.steps, step)
        return self.tried.setdefault(step, StepCandidates())

    def _join(self, event: CandidateAdded) -> None:
        if self._is_cut:
            del self.candidates[event.candidate :]
        if event.candidate != len(self.candidates):
            _refuse("candidate", f"{len(self.candidates)}", event.candidate)
        self._check("parents", *event.parents)
        self._check_scores(event)
        if event.cost is not None and not event.cost.is_finite():
            _refuse("cost", "a finite number", event.cost)
        self._step(event.step).add(event)
        self.candidates.append(event)
        self._lead(event.best)
        self._use(event)

    def _score(self, event: CandidateScored) -> None:
        self._check("candidate", event.candidate)
        self._check_scores(event)
        self._step(event.step).add(event)
        self.candidates[event.candidate] = replace(
            self.candidates[event.candidate],
            scores=event.scores,
            objectives=event.objectives,
            figures=event.figures,
            mean=event.mean,
        )
        self._lead(event.best)

    def _reject(self, event: MutationRejected) -> None:
        self._check("parent", event.parent)
        self._step(event.step).parent = event.parent
        last = self.rejections[-1] if self.rejections else None
        attempt = last.attempt + 1 if last is not None and last.step == event.step else 1
        self.rejections.append(replace(event, attempt=attempt))
        self.wait = None

    def _end(self, event: RunEnded) -> None:
        if len(event.means) != len(self.candidates):
            _refuse("means", f"{len(self.candidates)}", len(event.means))
        # What was an estimate may be another by now: the baseline was tried on more since.
        self.candidates = [
            one if one.mean == mean else replace(one, mean=mean)
            for one, mean in zip(self.candidates, event.means, strict=True)
        ]
        self._lead(event.best)
        self.ended, self.wait, self.steps = event, None, event.steps
        self.expected_cost, self.in_flight = None, 0
        self.rollouts, self.reflections, self.cost = event.rollouts, event.reflections, event.cost

    def _work(self, event: Working | RunProgress) -> None:
        before = self.rollouts
        self._go_to(event.position)
        self.done, self.total, self.expected_cost = event.done, event.total, event.expected_cost
        if isinstance(event, RunProgress):
            self.in_flight = event.in_flight
        self._use(event)
        if isinstance(event.time, UnsetType):
            return
        is_known = self.wait is not None and self.wait.seconds is not None
        if self.rollouts != before and not (is_known and self.is_waiting(event.time)):
            # An answer has come; only a wait of known length may still hold for other calls.
            self.wait = None
        if self.total and self._paced is None:
            # From here on answers are new; those before came out of a journal.
            self._paced = event.time, self.rollouts

    def _use(self, event: CandidateAdded | Working | RunProgress) -> None:
        if event.rollouts >= self.rollouts:  # else steps that are under way have used more
            self.rollouts, self.reflections = event.rollouts, event.reflections
            self.cost, self.tokens = event.cost, event.tokens

    def _go_to(self, position: str) -> None:
        if position != self._position:
            self._position, self.done, self.total = position, 0, 0
            self.place = Place.parse(position) if position else None
            self.steps = max(self.steps, self.place.step if self.place else 0)

    def _lead(self, best: int) -> None:
        self._check("best", best)
        self.best, mean = best, self.candidates[best].mean
        if mean is not None and self.curve[-1:] != [mean]:
            self.curve.append(mean)

    def _check(self, name: str, *positions: int) -> None:
        for at in positions:
            if not 0 <= at < len(self.candidates):
                _refuse(name, f"one of the {len(self.candidates)} candidates so far", at)

    def _check_scores(self, event: CandidateAdded | CandidateScored) -> None:
        """Refuse scores that belong to other columns: they would be read as those of others."""
        if len(event.scores) not in (0, len(self.pareto_ids)):
            _refuse("scores", f"{len(self.pareto_ids)} or none", len(event.scores))

    @property
    def pareto_ids(self) -> tuple[str, ...]:
        """Ids of the validation set: the columns of scores."""
        return self.started.pareto_ids if self.started else ()

    @property
    def budget(self) -> int | None:
        """Rollouts that may be used; None when that is not known."""
        return self.plan.budget if self.plan else None

    @property
    def seed(self) -> int | None:
        """What decides every random choice; None before the first event."""
        return self.started.seed if self.started else None

    @property
    def sides(self) -> tuple[CandidateAdded, CandidateAdded] | None:
        """The baseline and the best candidate; None before the baseline is evaluated."""
        return (self.candidates[0], self.candidates[self.best]) if self.candidates else None

    @property
    def means(self) -> tuple[Score, Score]:
        """Means of the baseline and of the best candidate; None while they are not known."""
        sides = self.sides
        return (sides[0].mean, sides[1].mean) if sides else (None, None)

    @property
    def estimated(self) -> tuple[bool, bool]:
        """Whether these are estimates, because some examples have no score."""
        sides = self.sides
        return (sides[0].estimated, sides[1].estimated) if sides else (False, False)

    @property
    def ranked(self) -> list[CandidateAdded]:
        """The candidates, those with the highest mean first, the elder one of equals."""
        return sorted(self.candidates, key=lambda one: (one.mean is None, -(one.mean or 0.0)))

    def is_waiting(self, now: datetime) -> bool:
        """Return whether a call may still wait; without a known length until an answer comes."""
        wait = self.wait
        if wait is None or wait.seconds is None or isinstance(wait.time, UnsetType):
            return wait is not None
        return now < wait.time + timedelta(seconds=wait.seconds)

    @property
    def began(self) -> datetime | None:
        """When its first event was told; None when none was."""
        began = self.started.time if self.started else None
        return began if isinstance(began, datetime) else None

    def elapsed(self, now: datetime) -> float:
        """Return the seconds since the process began that works on the run."""
        began = self.plan.time if self.plan else None
        return max(0.0, (now - began).total_seconds()) if isinstance(began, datetime) else 0.0

    def left(self, now: datetime) -> float | None:
        """Return the seconds that the rest of the budget takes at this pace; None if not known."""
        if self._paced is None:
            return None
        since, rollouts = self._paced
        made, passed = self.rollouts - rollouts, now - since
        if made < 1 or passed < _LEAST_FOR_A_PACE:
            return None
        return max(0, (self.budget or 0) - self.rollouts) * passed.total_seconds() / made

    def progress(self) -> RunProgress:
        """Return where the run stands as an event."""
        means, estimated = self.means, self.estimated
        return RunProgress(
            position=self._position,
            done=self.done,
            total=self.total,
            step=self.steps,
            rollouts=self.rollouts,
            reflections=self.reflections,
            tokens=self.tokens,
            cost=self.cost,
            expected_cost=self.expected_cost,
            budget=self.budget or 0,
            candidates=len(self.candidates),
            accepted=self.accepted + self.merged,
            rejected=len(self.rejections) + len(self.merges) - self.merged,
            best=self.best,
            baseline_mean=means[0],
            best_mean=means[1],
            baseline_estimated=estimated[0],
            best_estimated=estimated[1],
            in_flight=self.in_flight,
        )


def _refuse(name: str, expected: str, found: object) -> NoReturn:
    raise DataFormatError(f"{name}: expected {expected}, found {found}")
