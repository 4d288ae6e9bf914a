"""The state of a run and its rounds, accumulated from its events, live or read from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

import attrs
import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from promptgraft.errors import DataFormatError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.text import score
from promptgraft.search import events, round_events
from promptgraft.search.events import CallWaits, Event, RunPlanned, RunProgress, Working
from promptgraft.search.place import Place
from promptgraft.search.scores import Score, mean_score

OfRound = (
    round_events.RoundTrained
    | round_events.StepBlamed
    | round_events.QuestionUnanswered
    | round_events.GradientsMerged
    | round_events.PatchWritten
    | round_events.RoundEnded
    | events.MutationProposed
    | events.MutationAccepted
    | events.MutationRejected
)
"""Events that rounds are made of."""


@attrs.frozen(kw_only=True)
class RoundPatch:
    """A new text of a part, and the model's reason for it, which may be empty."""

    module: str
    text: str
    why: str


@attrs.frozen(kw_only=True)
class RoundSummary:
    """A round, or a step of a search that has steps.

    Attributes:
        number: its number, from 1.
        current: position of the candidate that it began with; None while unknown.
        decided: the outcome; None while it lasts.
        detail: why, in one line.
        tried: means of the current and the new candidate on the cases that the patches came from;
            None if they were not evaluated there.
        validated: their means on the validation set; None if the new one was not validated.
        candidate: position of the new candidate; None if it was not accepted.
        cases: training cases that were evaluated.
        trained: mean of the current candidate on them.
        losses: failures.
        blamed: parts and steps that models blamed, with the case.
        problems: what is to be fixed, by part.
        patches: new texts.
        unanswered: why questions have no usable reply, one line each.
        stop: why no further round begins; empty if one does.
    """

    number: int
    current: int | None = None
    decided: round_events.Decided | None = None
    detail: str = ""
    tried: tuple[Score, Score] | None = None
    validated: tuple[Score, Score] | None = None
    candidate: int | None = None
    cases: int = 0
    trained: Score = None
    losses: tuple[round_events.Loss, ...] = ()
    blamed: tuple[tuple[str, round_events.Blame], ...] = ()
    problems: Mapping[str, tuple[round_events.Problem, ...]] = FrozenMap()
    patches: tuple[RoundPatch, ...] = ()
    unanswered: tuple[str, ...] = ()
    stop: str = ""

    def after(self, event: Event) -> RoundSummary:
        """Return the round as it is after an event of it."""
        match event:
            case round_events.RoundTrained():
                return attrs.evolve(
                    self,
                    current=event.current,
                    cases=len(event.cases),
                    trained=mean_score(event.scores),
                    losses=event.losses,
                )
            case round_events.StepBlamed():
                blamed = ((event.case, blame) for blame in event.blamed)
                return attrs.evolve(self, blamed=(*self.blamed, *blamed))
            case round_events.QuestionUnanswered():
                return attrs.evolve(self, unanswered=(*self.unanswered, event.detail))
            case round_events.GradientsMerged():
                return attrs.evolve(self, problems={**self.problems, event.module: event.problems})
            case round_events.PatchWritten():
                return self._patched(
                    RoundPatch(module=event.module, text=event.text, why=event.why)
                )
            case round_events.RoundEnded():
                names = (
                    "current",
                    "candidate",
                    "decided",
                    "detail",
                    "tried",
                    "validated",
                    "stop",
                )
                return attrs.evolve(self, **{name: getattr(event, name) for name in names})
            case _:
                return self._mutated(event)

    def _mutated(self, event: Event) -> RoundSummary:
        match event:
            case events.MutationProposed():
                patch = RoundPatch(module=event.module, text=event.after, why=event.reason)
                return attrs.evolve(self._patched(patch), current=event.parent)
            case events.MutationRejected() if self.candidate is None:
                return attrs.evolve(
                    self,
                    current=event.parent,
                    decided=round_events.Decided.REFUSED,
                    detail=event.detail,
                    tried=(event.parent_score, event.child_score),
                )
            case events.MutationAccepted():
                return attrs.evolve(
                    self,
                    current=event.parent,
                    decided=round_events.Decided.ACCEPTED,
                    detail="",
                    tried=(event.parent_score, event.child_score),
                    candidate=event.candidate,
                )
        return self

    def _patched(self, patch: RoundPatch) -> RoundSummary:
        # A search in rounds tells of the same text twice: as it is written, and as it is tried.
        texts = [(earlier.module, earlier.text) for earlier in self.patches]
        is_new = (patch.module, patch.text) not in texts
        return attrs.evolve(self, patches=(*self.patches, patch)) if is_new else self

    def as_json(self) -> dict[str, Json]:
        """Return it as plain data."""
        plain: Any = unstructure(msgspec.to_builtins(self, enc_hook=dict))
        blamed = [{"case": case, **blame} for case, blame in plain["blamed"]]
        return {"round": plain.pop("number"), **plain, "blamed": blamed}


# The first few answers of concurrent calls arrive at once and would make the estimate jump.
_LEAST_FOR_A_PACE = timedelta(seconds=5)


def shown_mean(candidate: events.CandidateAdded) -> str:
    """Return the mean of a candidate, with ``~`` if it is an estimate."""
    return score(candidate.mean, estimated=candidate.estimated)


@attrs.define
class StepCandidates:
    """The candidates that were evaluated in a step, by position.

    Attributes:
        parent: the parent of the proposals.
        child: the child that joined the pool; None if none did.
        is_child_as_tried: whether that child is exactly the one that was evaluated on the
            minibatch, so that ``parent`` is its only parent.
        merge: the merge that joined the pool.
        best_of_child: the best candidate, against which the child raced.
        best_of_merge: the best candidate, against which the merge raced.
        scored: the candidate that was evaluated on more examples since the last one joined.
        reasons: the reflection model's reasons for its changes, by module; empty if it gave none.
    """

    parent: int | None = None
    child: int | None = None
    is_child_as_tried: bool = False
    merge: int | None = None
    best_of_child: int | None = None
    best_of_merge: int | None = None
    scored: int | None = None
    reasons: dict[str, str] = attrs.field(factory=dict)

    def add(self, event: events.CandidateAdded | events.CandidateScored) -> None:
        """Record a candidate that joined the pool or was evaluated on more examples."""
        if isinstance(event, events.CandidateScored):
            self.scored = event.candidate if self.scored is None else self.scored
            return
        if len(event.parents) > 1:
            self.merge, self.best_of_merge = event.candidate, self.scored
        elif not event.shortened:
            self.is_child_as_tried = event.parents == (self.parent,)
            self.child, self.best_of_child = event.candidate, self.scored
        self.scored = None


@attrs.define(kw_only=True)
class RunActivity:
    """What a run is doing, what it has used, and what it waits for.

    Attributes:
        plan: the limits of the process that works on the run, or worked on it last.
        steps: the latest step of any event; after the end, the number of steps begun.
        rollouts: rollouts used, like ``reflections`` and ``tokens``.
        cost: US dollars used; like ``expected_cost``, None if a price is unknown.
        expected_cost: US dollars that the run is expected to use in total.
        place: the current place in the run; None before the first, or if this version does not
            know it.
        done: answers at this place so far, out of ``total``, which is 0 if unknown.
        in_flight: calls in flight.
        wait: the latest wait of a call; None once an answer has arrived.
    """

    plan: RunPlanned | None = None
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
    wait: CallWaits | None = None
    _position: str = ""
    _paced: tuple[datetime, int] | None = None

    def _restart(self) -> None:
        # A resumed run repeats all events from the start, except for the plan, which follows.
        self.wait, self.place, self._position, self._paced = None, None, "", None
        self.steps = self.done = self.total = self.in_flight = 0
        self.rollouts = self.reflections = self.tokens = 0
        self.cost = Decimal(0)

    def _act(self, event: Event) -> None:
        """Add an event about what the run is doing."""
        match event:
            case events.RolloutCompleted():
                # Published one by one after the batch is complete, so the count must not drop.
                self.rollouts = max(self.rollouts, event.total_rollouts)
                position = event.position.rpartition("/")[0]
                # If steps overlap, rollouts of a step arrive while later steps are in progress.
                if position != self._position and Place.parse(position).step >= self.steps:
                    self._go_to(position)
            case Working() | RunProgress():
                self._work(event)
            case RunPlanned():
                self.plan, self.expected_cost = event, event.expected_cost
            case CallWaits():
                self.wait = event

    def _work(self, event: Working | RunProgress) -> None:
        before = self.rollouts
        self._go_to(event.position)
        # After `_go_to`, which resets them at a new place.
        self.done, self.total, self.expected_cost = event.done, event.total, event.expected_cost
        if isinstance(event, RunProgress):
            self.in_flight = event.in_flight
        self._use(event)
        if isinstance(event.time, UnsetType):
            return
        is_known = self.wait is not None and self.wait.seconds is not None
        if self.rollouts != before and not (is_known and self.is_waiting(event.time)):
            # An answer arrived; only a wait of known length may still apply to other calls.
            self.wait = None
        if self.total and self._paced is None:
            # Earlier answers came from the journal and would distort the pace.
            self._paced = event.time, self.rollouts

    def _use(self, event: events.CandidateAdded | Working | RunProgress) -> None:
        if event.rollouts >= self.rollouts:  # overlapping steps may have used more already
            self.rollouts, self.reflections = event.rollouts, event.reflections
            self.cost, self.tokens = event.cost, event.tokens

    def _go_to(self, position: str) -> None:
        if position != self._position:
            self._position, self.done, self.total = position, 0, 0
            self.place = Place.parse(position) if position else None
            self.steps = max(self.steps, self.place.step if self.place else 0)

    @property
    def budget(self) -> int | None:
        """Rollouts that may be used; None if unknown."""
        return self.plan.budget if self.plan else None

    def is_waiting(self, now: datetime) -> bool:
        """Return whether a call may still be waiting; without a known length, until an answer."""
        wait = self.wait
        if wait is None or wait.seconds is None or isinstance(wait.time, UnsetType):
            return wait is not None
        return now < wait.time + timedelta(seconds=wait.seconds)

    def elapsed(self, now: datetime) -> float:
        """Return the seconds since the current process started to work on the run."""
        began = self.plan.time if self.plan else None
        return max(0.0, (now - began).total_seconds()) if isinstance(began, datetime) else 0.0

    def left(self, now: datetime) -> float | None:
        """Return the seconds that the rest of the budget takes at this pace; None if unknown."""
        if self._paced is None:
            return None
        since, rollouts = self._paced
        progress, passed = self.rollouts - rollouts, now - since
        if progress < 1 or passed < _LEAST_FOR_A_PACE:
            return None
        return max(0, (self.budget or 0) - self.rollouts) * passed.total_seconds() / progress


@attrs.define(kw_only=True)
class RunHistory(RunActivity):
    """The state of a run: its :class:`RunActivity`, and what has become of it.

    The cost of adding an event does not grow with the run.

    Attributes:
        started: the first event; None before it.
        candidates: the pool, in order, with current scores and means.
        rejections: every rejected proposal, including those that were repaired.
        merges: every merge that was tried.
        ended: the last event; None while the run has not ended.
        best: position of the best candidate. Estimates of other candidates may be higher.
        accepted: kept rewrites; ``merged`` counts accepted merges.
        curve: the successive means of the best candidate.
        tried: the candidates that were evaluated in each step.
        taught: cases whose ``expected`` came from a teacher, by id.
        rounds: its rounds or steps, by number.
    """

    started: events.RunStarted | None = None
    candidates: list[events.CandidateAdded] = attrs.field(factory=list)
    rejections: list[events.MutationRejected] = attrs.field(factory=list)
    merges: list[events.MergeAccepted | events.MergeRejected] = attrs.field(factory=list)
    ended: events.RunEnded | None = None
    best: int = 0
    accepted: int = 0
    merged: int = 0
    curve: list[float] = attrs.field(factory=list)
    tried: dict[int, StepCandidates] = attrs.field(factory=dict)
    taught: dict[str, events.CaseTaught] = attrs.field(factory=dict)
    rounds: dict[int, RoundSummary] = attrs.field(factory=dict)
    _number: int = 0
    _is_cut: bool = False

    def add(self, event: Event) -> None:
        """Add an event. Kinds of events that carry no state are ignored.

        Raises:
            DataFormatError: the event contradicts earlier ones.
        """
        if not isinstance(event.number, UnsetType):
            # A resumed run may truncate its file and write other events under the same numbers.
            self._is_cut = self._is_cut or event.number <= self._number
            self._number = event.number
        if isinstance(event, OfRound):
            before = self.rounds.get(event.step, RoundSummary(number=event.step))
            self.rounds[event.step] = before.after(event)
        match event:
            case events.RunStarted():
                self._begin(event)
            case events.RunEnded():
                self._end(event)
            case _:
                self._act(event)
                self._change(event)

    def _begin(self, event: events.RunStarted) -> None:
        self._restart()
        self.started, self.ended = event, None
        self.candidates, self.rejections, self.merges, self.curve = [], [], [], []
        self.tried, self.taught, self.rounds = {}, {}, {}
        self.best = self.accepted = self.merged = 0

    def _change(self, event: Event) -> None:
        """Add an event about candidates or proposals."""
        match event:
            case events.CandidateAdded():
                self._join(event)
            case events.CandidateScored():
                self._score(event)
            case events.MutationProposed():
                tried = self._step(event.step)
                tried.parent, tried.reasons[event.module] = event.parent, event.reason
            case events.MutationAccepted():
                self._step(event.step)
                self.accepted, self.wait = self.accepted + event.rewrites, None
            case events.MutationRejected():
                self._reject(event)
            case events.MergeAccepted() | events.MergeRejected():
                self._check("parents", *event.parents)
                self._step(event.step)
                self.merged += isinstance(event, events.MergeAccepted)
                self.merges.append(event)
            case events.CaseTaught():
                self.taught[event.case] = event
            case _:
                return
        self.ended = None

    def _step(self, step: int) -> StepCandidates:
        self.steps = max(self.steps, step)
        return self.tried.setdefault(step, StepCandidates())

    def _join(self, event: events.CandidateAdded) -> None:
        if self._is_cut:
            # After a cut, those from here on are retracted; without one, the number is a fault.
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

    def _score(self, event: events.CandidateScored) -> None:
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

    def _reject(self, event: events.MutationRejected) -> None:
        self._check("parent", event.parent)
        self._step(event.step).parent = event.parent
        last = self.rejections[-1] if self.rejections else None
        attempt = last.attempt + 1 if last is not None and last.step == event.step else 1
        self.rejections.append(replace(event, attempt=attempt))
        self.wait = None

    def _end(self, event: events.RunEnded) -> None:
        if len(event.means) != len(self.candidates):
            _refuse("means", f"{len(self.candidates)}", len(event.means))
        # Estimates may have changed: the baseline has been evaluated on more examples since.
        self.candidates = [
            candidate if candidate.mean == mean else replace(candidate, mean=mean)
            for candidate, mean in zip(self.candidates, event.means, strict=True)
        ]
        self._lead(event.best)
        self.ended, self.wait, self.steps = event, None, event.steps
        self.expected_cost, self.in_flight = None, 0
        self.rollouts, self.reflections, self.cost = event.rollouts, event.reflections, event.cost

    def _lead(self, best: int) -> None:
        self._check("best", best)
        self.best, mean = best, self.candidates[best].mean
        if mean is not None and self.curve[-1:] != [mean]:
            self.curve.append(mean)

    def _check(self, name: str, *positions: int) -> None:
        for at in positions:
            if not 0 <= at < len(self.candidates):
                _refuse(name, f"one of the {len(self.candidates)} candidates so far", at)

    def _check_scores(self, event: events.CandidateAdded | events.CandidateScored) -> None:
        """Refuse scores that do not match the validation set: they would belong to other cases."""
        if len(event.scores) not in (0, len(self.pareto_ids)):
            _refuse("scores", f"{len(self.pareto_ids)} or none", len(event.scores))

    @property
    def pareto_ids(self) -> tuple[str, ...]:
        """Ids of the validation set, in the order of scores."""
        return self.started.pareto_ids if self.started else ()

    @property
    def seed(self) -> int | None:
        """The seed of every random choice; None before the first event."""
        return self.started.seed if self.started else None

    @property
    def sides(self) -> tuple[events.CandidateAdded, events.CandidateAdded] | None:
        """The baseline and the best candidate; None before the baseline is evaluated."""
        return (self.candidates[0], self.candidates[self.best]) if self.candidates else None

    @property
    def rewrites(self) -> events.Rewrites:
        """What became of the rewrites so far."""
        reasons = Counter(str(rejection.reason) for rejection in self.rejections)
        return events.Rewrites(kept=self.accepted, combined=self.merged, dropped=reasons)

    @property
    def means(self) -> tuple[Score, Score]:
        """Means of the baseline and of the best candidate; None while unknown."""
        sides = self.sides
        return (sides[0].mean, sides[1].mean) if sides else (None, None)

    @property
    def estimated(self) -> tuple[bool, bool]:
        """Whether these means are estimates, because some examples have no score."""
        sides = self.sides
        return (sides[0].estimated, sides[1].estimated) if sides else (False, False)

    @property
    def ranked(self) -> list[events.CandidateAdded]:
        """The candidates by descending mean; ties keep the older candidate first."""
        return sorted(self.candidates, key=lambda one: (one.mean is None, -(one.mean or 0.0)))

    @property
    def began(self) -> datetime | None:
        """The time of the first event; None before it."""
        began = self.started.time if self.started else None
        return began if isinstance(began, datetime) else None

    def progress(self) -> RunProgress:
        """Return the state of the run as a progress event."""
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


def _refuse(name: str, expected: str, value: object) -> NoReturn:
    raise DataFormatError(f"{name}: expected {expected}, found {value}")
