"""Why runs end, and the stoppers that can end a run between two steps.

A plateau is where a search is unlikely to gain more, by what its leaders scored. Learning is
assumed to slow down: the gain that is still to come at ``t`` rollouts is the whole gain times
``(1 + t / 3p) ** -3``. The scores of the leaders decide which gains and which paces ``p`` are
probable, and the chance of more is averaged over them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from statistics import NormalDist, fmean
from typing import ClassVar

import attrs

from promptgraft import errors
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import COUNT, FINITE, SHARE, integer, reaches
from promptgraft.ground.text import counted
from promptgraft.runtime.deadline import found_at
from promptgraft.search.scores import total_of
from promptgraft.targets.types import named_numbers_fault

_PACES = 24
"""Paces that are tried, equally probable before the run, from the fastest to the whole search."""
_FASTEST = 1 / 64
"""The fastest pace, as a share of the search."""
_TOTAL_GAIN = 0.5
"""Standard deviation of the whole gain before the run, around 0."""
_LEVEL_PRECISION = 0.01
"""Precision of the final score before the run, around 0.5: next to nothing is known of it."""
_PRIOR_SQUARES = 0.5
"""Squared deviations of scores before the run; with two more degrees of freedom, a variance."""
_LEAST_VARIANCE = 0.02
"""Of a score: leaders whose scores are all equal are still not certain."""


@attrs.frozen
class Leader:
    """A candidate that was or is the best one.

    Attributes:
        rollouts: what the run had used when it took the lead.
        scores: its scores on the validation set; None for examples without one.
    """

    rollouts: int
    scores: Sequence[float | None]


def chance_of_first(failed: int, remaining: float) -> float:
    """Return the chance that a prompt which nothing has improved yet will be improved.

    Before the run it is even odds that the prompt can be improved at all, and if so, every share
    of successful proposals is equally probable.

    Args:
        failed: proposals that were not better, at least 1.
        remaining: proposals that are still to come, as a multiple of those.
    """
    can_be_improved = 1 / (failed + 2)
    return can_be_improved * failed * remaining / (failed * (1 + remaining) + 1)


def chance_of_more(leaders: Sequence[Leader], now: int, end: int, gain: float) -> float:
    """Return the chance that the score rises by another ``gain``.

    Args:
        leaders: the candidates that led, in order.
        now: rollouts so far.
        end: rollouts at the end of the search.
        gain: a gain in mean score.
    """
    points = _points(leaders, now)
    weights: list[float] = []
    chances: list[float] = []
    for index in range(_PACES):
        pace = end * math.pow(_FASTEST, 1 - index / (_PACES - 1))
        evidence, total, error = _fit(points, pace)
        share = _to_come(now / pace) - _to_come(end / pace)
        chances.append(1 - NormalDist(share * total, share * error).cdf(gain))
        weights.append(evidence)
    most = max(weights)
    weights = [math.exp(weight - most) for weight in weights]
    pairs = zip(weights, chances, strict=True)
    return total_of(weight * chance for weight, chance in pairs) / total_of(weights)


def _to_come(time: float) -> float:
    """Return the share of the whole gain that is still to come; ``time`` is in paces."""
    return (1 + time / 3) ** -3


def _points(leaders: Sequence[Leader], now: int) -> list[tuple[float, float, float]]:
    """Return when a leader took the lead, its mean, and the precision of that."""
    scores = [[score for score in leader.scores if score is not None] for leader in leaders]
    rows = zip(leaders, scores, strict=True)
    scored = [(leader.rollouts, fmean(row), row) for leader, row in rows if row]
    squares = total_of([0.0, *((score - mean) ** 2 for _, mean, row in scored for score in row)])
    degrees_of_freedom = sum(len(row) - 1 for _, _, row in scored)
    # The prior keeps a few equal scores from looking certain.
    variance = max((squares + _PRIOR_SQUARES) / (degrees_of_freedom + 2), _LEAST_VARIANCE)
    points = [(rollouts, mean, len(row) / variance) for rollouts, mean, row in scored]
    # The last leader still leads, so nothing has been gained since.
    return [*points, *((float(now), mean, precision) for _, mean, precision in points[-1:])]


def _fit(points: Sequence[tuple[float, float, float]], pace: float) -> tuple[float, float, float]:
    """Return how well a pace explains the points, and the whole gain with its standard error.

    Weighted least squares of the final score and the whole gain, with weak normal priors.
    """
    finals, mixed, gains = _LEVEL_PRECISION, 0.0, _TOTAL_GAIN**-2
    to_final, to_gain, squares = _LEVEL_PRECISION / 2, 0.0, _LEVEL_PRECISION / 4
    for time, score, precision in points:
        missing = -_to_come(time / pace)
        finals += precision
        mixed += precision * missing
        gains += precision * missing * missing
        to_final += precision * score
        to_gain += precision * missing * score
        squares += precision * score * score
    determinant = finals * gains - mixed * mixed
    final = (gains * to_final - mixed * to_gain) / determinant
    total = (finals * to_gain - mixed * to_final) / determinant
    misfit = squares - final * to_final - total * to_gain
    evidence = -(misfit + math.log(determinant)) / 2
    return evidence, total, math.sqrt(finals / determinant)


class StopReason(StrEnum):
    """Why a run ended."""

    BUDGET = "budget"
    """The remaining rollouts do not cover another step."""
    PERFECT = "perfect"
    """The best candidate is perfect on every validation example."""
    NO_PROGRESS = "no progress"
    """Too many steps in a row had nothing to evaluate."""
    REFLECTION_FAILED = "reflection failed"
    """Too many reflections in a row had no usable reply."""
    PROVIDER_FAILED = "provider failed"
    """The provider failed permanently, or too many of the latest rollouts stayed unscored."""
    UNREADABLE = "unreadable answers"
    """None of the baseline's answers could be used."""
    DEADLINE = "deadline"
    """The time is up."""
    COST = "cost"
    """The money is used up, or the price of a model is not known."""
    TOKENS = "tokens"
    """The tokens are used up."""
    REFLECTIONS = "reflections"
    """The reflections are used up."""
    CANCELLED = "cancelled"
    """The run was asked to stop."""
    STOP_FILE = "stop file"
    """A stop file was found."""
    PROPOSALS = "proposals"
    """The proposals are used up."""
    NO_IMPROVEMENT = "no improvement"
    """Too many steps in a row found no better candidate."""
    PLATEAU = "plateau"
    """Another gain has become improbable."""
    TARGET_SCORE = "target score"
    """A candidate that beats the baseline has reached the target."""
    OBJECTIVES = "objectives"
    """The best candidate meets the threshold of every objective."""
    CANDIDATES = "candidates"
    """The pool is full."""
    PAUSED = "paused"
    """The run was asked to pause, and can be resumed."""
    FAILED = "failed"
    """An error ended the run; it carries the result so far."""
    DONE = "done"
    """The algorithm has nothing more to do."""
    STOPPER = "stopper"
    """A stopper of the caller ended the run."""


# The rollouts are used up, the goal is reached, or there is nothing left to find.
_WENT_TO_ITS_END = {
    StopReason.BUDGET,
    StopReason.PERFECT,
    StopReason.TARGET_SCORE,
    StopReason.OBJECTIVES,
    StopReason.NO_PROGRESS,
    StopReason.NO_IMPROVEMENT,
    StopReason.PLATEAU,
    StopReason.PROPOSALS,
    StopReason.CANDIDATES,
    StopReason.STOPPER,
    StopReason.DONE,
}


def is_early(reason: str) -> bool:
    """Return whether a run that ended for this reason was stopped early."""
    return reason not in _WENT_TO_ITS_END


def may_be_resumed(reason: str) -> bool:
    """Return whether a run that was stopped early for this reason can continue if resumed."""
    # Its answers are recorded, and would be found unreadable again.
    return reason != StopReason.UNREADABLE


_SENTENCES: Mapping[str, str] = {
    StopReason.BUDGET: "too few test calls left for another step and the final test",
    StopReason.PERFECT: "nothing left to improve, every validation case is right",
}


def stop_sentence(reason: str, detail: str) -> str:
    """Say in one sentence why a run ended, without the arithmetic of budgets in ``detail``."""
    detail = stop_detail(reason, detail)
    return f"{reason}: {detail}" if is_early(reason) else detail


def stop_detail(reason: str, detail: str) -> str:
    """Return ``detail`` as users read it beside the reason."""
    return _SENTENCES.get(reason, detail)


_REACHED = {
    "max_cost": StopReason.COST,
    "max_tokens": StopReason.TOKENS,
    "max_reflections": StopReason.REFLECTIONS,
}


def reason_of(error: errors.LimitReachedError) -> StopReason:
    """Return the stop reason of a run that ``error`` ended."""
    # First, because it is a kind of `RunCancelledError`.
    if isinstance(error, errors.StopFileFoundError):
        return StopReason.STOP_FILE
    if isinstance(error, errors.RunCancelledError):
        return StopReason.CANCELLED
    if isinstance(error, errors.RunPausedError):
        return StopReason.PAUSED
    if isinstance(error, errors.BudgetExhaustedError):
        return _REACHED.get(error.limit, StopReason.BUDGET)
    return StopReason.DEADLINE


class RunStoppedError(errors.PromptgraftError):
    """Carries a stop reason from a step to the main loop; users never see it."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def is_orderly(error: BaseException) -> bool:
    """Return whether a run that ``error`` ends lets the running steps finish.

    It does if answers and settings decided the end, rather than time, money or a fault.
    """
    if isinstance(error, RunStoppedError):
        return error.reason is not StopReason.PROVIDER_FAILED
    return isinstance(error, errors.BudgetExhaustedError) and error.limit == "max_reflections"


@attrs.frozen(kw_only=True)
class RunState:
    """The state of a run between two steps. Everything but ``seconds`` is equal in every replay.

    If steps overlap, it is the committed state; steps that are still running do not count.

    Attributes:
        steps: steps made.
        proposals: proposals evaluated, not counting merges.
        rollouts: rollouts used, unscored ones included.
        reflections: reflections used, repairs included.
        candidates: size of the pool, including the baseline.
        steps_since_improvement: steps since the one that found the best candidate, or since the
            beginning.
        best: position of the best candidate in the pool; 0 is the baseline.
        baseline_mean: mean of the baseline on the validation set; None if nothing was scored.
        best_mean: mean of the best candidate.
        best_objectives: its mean in each objective.
        best_is_estimated: whether it has not been evaluated on the whole validation set yet, so
            that its means may change; a race evaluates some candidates on a few examples only.
        cost: US dollars used so far; None if the price of a call is not known.
        tokens: tokens used so far, sent and received.
        seconds: time since this process began the run. Not replayed: a resumed run begins at 0.
        left: rollouts that are left for steps.
        leaders: the baseline and every candidate that was the best one after a step, in order.
    """

    steps: int
    proposals: int
    rollouts: int
    reflections: int
    candidates: int
    steps_since_improvement: int
    best: int
    baseline_mean: float | None
    best_mean: float | None
    best_objectives: Mapping[str, float]
    best_is_estimated: bool
    cost: Decimal | None
    tokens: int
    seconds: float
    left: int = 0
    leaders: Sequence[Leader] = ()


Stopper = Callable[[RunState], str | None]
"""Returns a reason to stop in words, or None; called between steps.

It should depend on nothing but the state: a resumed run calls it again, from the first step on.
"""


@attrs.frozen
class MaxProposals:
    """Stops when this many proposals have been evaluated.

    Attributes:
        proposals: at least 1.
    """

    proposals: int = attrs.field(validator=COUNT)
    reason: ClassVar[StopReason] = StopReason.PROPOSALS

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if the proposals are used up, or None."""
        if state.proposals < self.proposals:
            return None
        return f"{state.proposals} of {self.proposals} proposals were tried"


@attrs.frozen
class NoImprovement:
    """Stops after this many steps in a row, including idle ones, without a better candidate.

    Attributes:
        steps: at least 1.
    """

    steps: int = attrs.field(validator=COUNT)
    reason: ClassVar[StopReason] = StopReason.NO_IMPROVEMENT

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if nothing has improved for long enough, or None."""
        if state.steps_since_improvement < self.steps:
            return None
        return f"no better candidate in {counted(state.steps_since_improvement, 'step')}"


@attrs.frozen
class Plateau:
    """Stops when a further gain that would be worth the remaining rollouts has become improbable.

    The chance comes from the scores of the candidates that took the lead, or while none has, from
    the number of proposals that failed. Only in its first half can a search be cut short:
    later, too little is saved for any risk. A run whose ``rollout_budget`` is a size has this
    stopper unless it names one.

    Attributes:
        gain: a gain in mean score, 0 to 1.
        risk: the chance of such a gain below which the run stops, 0 to 1; 0 never stops.
    """

    gain: float = attrs.field(default=0.02, validator=SHARE)
    risk: float = attrs.field(default=0.05, validator=SHARE)
    reason: ClassVar[StopReason] = StopReason.PLATEAU

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if another gain is improbable, or None."""
        if not self.risk or not state.proposals or state.rollouts > state.left:
            return None
        failed = ""
        if state.best:
            end = state.rollouts + state.left
            chance = chance_of_more(state.leaders, state.rollouts, end, self.gain)
        else:
            chance = chance_of_first(state.proposals, state.left / state.rollouts)
            failed = f"none of {state.proposals} new texts was better; "
        if chance >= self.risk:
            return None
        return (
            f"{failed}less than {self.risk:.0%} chance of another +{self.gain:g}, so "
            f"{state.left} calls are not used"
        )


@attrs.frozen
class TargetScore:
    """Stops when a candidate that beats the baseline reaches this mean on the validation set.

    Estimated means do not count.

    Attributes:
        score: a finite number.
    """

    score: float = attrs.field(validator=FINITE)
    reason: ClassVar[StopReason] = StopReason.TARGET_SCORE

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if the target is reached, or None."""
        return None if state.best_is_estimated else self.reached(state)

    def reached(self, state: RunState) -> str | None:
        """Return a reason if the target is reached, even by an estimate, or None."""
        mean = state.best_mean
        if state.best == 0 or mean is None or not reaches(mean, self.score):
            return None
        return f"the best candidate has {mean:.3f}; the target is {self.score:g}"


def _as_thresholds(thresholds: Mapping[str, float]) -> Mapping[str, float]:
    if fault := named_numbers_fault(thresholds):
        raise errors.ConfigError(f"RequiredObjectives: thresholds: {fault}")
    if not thresholds:
        raise errors.ConfigError(
            "RequiredObjectives: thresholds: expected at least one, found none"
        )
    return FrozenMap(thresholds)


@attrs.frozen
class RequiredObjectives:
    """Stops when the best candidate meets the threshold of every named objective.

    Only means on the whole validation set count. The baseline counts too: if it meets all
    thresholds, there is nothing to do. An objective that no feedback has is reported when the
    baseline is evaluated.

    Attributes:
        thresholds: the lowest mean on the validation set, by objective; at least one.
    """

    thresholds: Mapping[str, float] = attrs.field(converter=_as_thresholds)
    reason: ClassVar[StopReason] = StopReason.OBJECTIVES

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if every threshold is met, or None."""
        return None if state.best_is_estimated else self.reached(state)

    def reached(self, state: RunState) -> str | None:
        """Return a reason if every threshold is met, even by estimates, or None."""
        best, least = state.best_objectives, self.thresholds
        if not all(name in best and reaches(best[name], least[name]) for name in least):
            return None
        reached = (f"{name} {best[name]:.3f} of {least[name]:g}" for name in least)
        return f"the best candidate has what is required: {', '.join(reached)}"


@attrs.frozen
class MaxCandidates:
    """Stops when the pool has this many candidates.

    Attributes:
        candidates: including the baseline; at least 2.
    """

    candidates: int = attrs.field(validator=integer(2))
    reason: ClassVar[StopReason] = StopReason.CANDIDATES

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if the pool is full, or None."""
        if state.candidates < self.candidates:
            return None
        return f"{state.candidates} of {self.candidates} candidates are in the pool"


def _as_path(path: str | os.PathLike[str]) -> Path:
    source: object = path
    if isinstance(source, (str, os.PathLike)) and str(source):
        return Path(source)
    raise errors.ConfigError(f"StopFile: path: expected the path of a file, found {shown(path)}")


@attrs.frozen
class StopFile:
    """Stops when a file exists, whatever its content; give each run a file of its own.

    A file that exists when the run begins is left over from an earlier run: it is removed with a
    warning. The file is checked between steps, between rollouts, and while waiting for calls.

    Attributes:
        path: the file.
    """

    path: Path = attrs.field(converter=_as_path)
    reason: ClassVar[StopReason] = StopReason.STOP_FILE

    def __call__(self, state: RunState) -> str | None:
        """Return a reason if the file exists, or None."""
        return found_at(self.path)


BuiltIn = (
    MaxProposals
    | NoImprovement
    | Plateau
    | TargetScore
    | RequiredObjectives
    | MaxCandidates
    | StopFile
)
