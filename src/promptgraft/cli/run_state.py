"""Where a run is: gathered from its lines, whichever process writes them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.serde import Json, shown

_LEAST_FOR_A_PACE = timedelta(seconds=5)


@attrs.frozen(kw_only=True)
class Wait:
    """A call waits for long enough to look like a hang.

    Attributes:
        since: when it began.
        model: the model that is called.
        seconds: how long; None when that is not known.
        reason: why.
    """

    since: datetime
    model: str
    seconds: float | None
    reason: str

    def lasts(self, now: datetime) -> bool:
        """Return whether it may still go on; one of unknown length does until an answer comes."""
        return self.seconds is None or now < self.since + timedelta(seconds=self.seconds)


@attrs.frozen(kw_only=True)
class _Mean:
    value: float | None = None
    estimated: bool = False
    scored: int = 0


@attrs.define(kw_only=True)
class RunState:
    """What is known of a run so far.

    Attributes:
        title: what is run.
        position: what the run does now, such as ``step/3/reflect/0``; empty before it begins.
        done: answers of this that are there.
        total: answers that it waits for; 0 when that is not known.
        step: number of the step.
        rollouts: rollouts used.
        budget: rollouts that may be used; 0 when that is not known.
        cost: US dollars used; None when a price is not known.
        tokens: tokens used.
        max_cost: US dollars at which it is stopped; None here and below for no such limit.
        max_tokens: tokens at which it is stopped.
        max_seconds: wall time after which it is stopped.
        baseline: mean of the baseline on D_pareto, once there is one.
        best: mean of the best candidate on D_pareto.
        estimated: whether these two are estimates, because some examples have no score.
        scored: examples that those of the two have a score for that are estimates, the fewest.
        examples: examples of D_pareto; 0 when that is not known.
        leader: position of the best candidate.
        accepted: accepted mutations.
        rejected: rejected proposals, those that were repaired included.
        merged: accepted merges.
        wait: the latest wait of a call; None when an answer has come since.
        began: when the process began that works on it.
        ended: whether it has ended.
    """

    title: str
    position: str = ""
    done: int = 0
    total: int = 0
    step: int = 0
    rollouts: int = 0
    budget: int = 0
    cost: Decimal | None = Decimal(0)
    tokens: int = 0
    max_cost: Decimal | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    baseline: float | None = None
    best: float | None = None
    estimated: tuple[bool, bool] = (False, False)
    scored: int = 0
    examples: int = 0
    leader: int = 0
    accepted: int = 0
    rejected: int = 0
    merged: int = 0
    wait: Wait | None = None
    began: datetime | None = None
    ended: bool = False
    _paced: tuple[datetime, int] | None = None
    _means: dict[int, _Mean] = attrs.field(factory=dict)

    def fold(self, line: Mapping[str, Json]) -> None:
        """Take account of a line of the run; unknown ones are ignored."""
        match line.get("event"):
            case "started":
                self._begin()
            case "plan":
                self._plan(line)
            case "progress":
                self._progress(line)
            case "candidate":
                self._candidate(line)
            case "scored":
                self._lead(line)
            case "accepted":
                self.accepted += 1
                self.wait = None
            case "merge_accepted":
                self.merged += 1
            case "rejected":
                self.rejected += 1
                self.wait = None
            case "waiting":
                self.wait = Wait(
                    since=moment_of(line),
                    model=str(line.get("model")),
                    seconds=number(line.get("seconds")),
                    reason=str(line.get("reason")),
                )
            case "ended":
                self.ended, self.wait = True, None
                self.cost = money(line.get("cost"))
                self.rollouts = whole(line.get("rollouts"))
            case _:
                pass

    def elapsed(self, now: datetime) -> float:
        """Return the seconds since the process began that works on the run."""
        return 0.0 if self.began is None else max(0.0, (now - self.began).total_seconds())

    def left(self, now: datetime) -> float | None:
        """Return the seconds that the rollouts that are left may take at the pace so far.

        None when that cannot be said yet. A run may well end before.
        """
        if self._paced is None:
            return None
        since, rollouts = self._paced
        made, passed = self.rollouts - rollouts, now - since
        if made < 1 or passed < _LEAST_FOR_A_PACE:
            return None
        return max(0, self.budget - self.rollouts) * passed.total_seconds() / made

    def _begin(self) -> None:
        # A file of lines may hold those of a process before; this one tells everything again.
        self.accepted = self.rejected = self.merged = self.step = self.rollouts = 0
        self.position, self.done, self.total, self.wait, self._paced = "", 0, 0, None, None
        self.ended = False

    def _plan(self, line: Mapping[str, Json]) -> None:
        self.began = moment_of(line)
        self.budget = whole(line.get("budget"))
        if isinstance(plan := line.get("plan"), dict):
            self.max_cost = money(plan.get("max_cost"))
            limit = plan.get("max_tokens")
            self.max_tokens = limit if isinstance(limit, int) else None
            self.max_seconds = number(plan.get("max_seconds"))

    def _progress(self, line: Mapping[str, Json]) -> None:
        if (rollouts := whole(line.get("rollouts"))) != self.rollouts:
            self.rollouts, self.wait = rollouts, self._longer(moment_of(line))
        self.position, self.step = str(line.get("position")), whole(line.get("step"))
        self.done, self.total = whole(line.get("done")), whole(line.get("total"))
        self.cost, self.tokens = money(line.get("cost")), whole(line.get("tokens"))
        if self.total and self._paced is None:
            # From here on answers are new; those before came out of a journal.
            self._paced = moment_of(line), self.rollouts

    def _longer(self, now: datetime) -> Wait | None:
        wait = self.wait
        return wait if wait is not None and wait.seconds is not None and wait.lasts(now) else None

    def _candidate(self, line: Mapping[str, Json]) -> None:
        self._lead(line)
        rollouts = whole(line.get("rollouts"))
        if rollouts >= self.rollouts:  # else steps that are under way have used more
            self.rollouts = rollouts
            self.cost, self.tokens = money(line.get("cost")), whole(line.get("tokens"))

    def _lead(self, line: Mapping[str, Json]) -> None:
        scores = line.get("scores")
        scores = scores if isinstance(scores, list) else []
        self._means[whole(line.get("candidate"))] = _Mean(
            value=number(line.get("mean")),
            estimated=line.get("estimated") is True,
            scored=sum(score is not None for score in scores),
        )
        self.leader, self.examples = whole(line.get("best")), len(scores)
        sides = [self._means.get(position, _Mean()) for position in (0, self.leader)]
        self.baseline, self.best = (side.value for side in sides)
        self.estimated = sides[0].estimated, sides[1].estimated
        self.scored = min((side.scored for side in sides if side.estimated), default=0)


def moment_of(line: Mapping[str, Json]) -> datetime:
    """Return when a line was told.

    Raises:
        DataFormatError: it does not say.
    """
    found = None
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(str(line.get("time")))
    if found is None or found.tzinfo is None:  # it could not be compared with others
        raise DataFormatError(
            f"the line `{line.get('event')}` of a run: time: expected an ISO 8601 time with its "
            f"zone, found {shown(line.get('time'))}; `promptgraft resume` writes the file again"
        )
    return found


def whole(value: Json) -> int:
    """Return a count."""
    return value if isinstance(value, int) else 0


def number(value: Json) -> float | None:
    """Return a number that may be missing."""
    return float(value) if isinstance(value, int | float) else None


def money(value: Json) -> Decimal | None:
    """Return US dollars, which lines hold as text; what is no amount is not known."""
    try:
        amount = Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None
    return amount if amount is not None and amount.is_finite() else None
