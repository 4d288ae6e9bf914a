"""How far a GEPA run is: followed through its events, told in plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import attrs

from promptgraft.adapters.base import CallWaiting
from promptgraft.cli.output import is_plain_terminal
from promptgraft.cli.text import counted, difference, echo, score, visible_line
from promptgraft.optimizers.gepa import (
    GepaMutationAccepted,
    GepaMutationRejected,
    GepaOptimizationStarted,
    GepaRolloutCompleted,
)
from promptgraft.optimizers.gepa.scores import mean_score

_ROLLOUTS_PER_LINE = 250


@attrs.define(kw_only=True)
class RunState:
    """What is known of a run so far.

    Attributes:
        title: what is run.
        budget: rollouts that may be used.
        rollouts: rollouts used.
        step: number of the step.
        baseline: mean of the baseline on D_pareto, once it is complete.
        best: mean of the best candidate on D_pareto.
        accepted: accepted mutations.
        rejected: refused proposals.
        last: the last thing that happened, in words.
    """

    title: str
    budget: int = 0
    rollouts: int = 0
    step: int = 0
    baseline: float | None = None
    best: float | None = None
    accepted: int = 0
    rejected: int = 0
    last: str = ""
    _pareto_size: int = 0
    _baseline_scores: list[float | None] = attrs.field(factory=list)

    def update(self, event: object) -> None:
        """Take account of an event of the run; others are ignored."""
        match event:
            case GepaOptimizationStarted():
                self.budget = event.rollout_budget
                self._pareto_size = event.pareto_size
                self.last = f"evaluating the baseline on {counted(event.pareto_size, 'example')}"
            case CallWaiting():
                self.last = waiting_line(event)
            case GepaRolloutCompleted():
                self._count_rollout(event)
            case GepaMutationAccepted():
                self.accepted += 1
                self.best = event.best_pareto_mean
                self.last = f"accepted {event.module}: {score(event.pareto_mean)} on D_pareto"
            case GepaMutationRejected():
                self.rejected += 1
                self.last = f"rejected {event.module}: {event.reason}"
            case _:
                pass

    @property
    def gain(self) -> str:
        """How far the best candidate is above the baseline; empty when that is unknown."""
        return difference(self.baseline, self.best)

    def _count_rollout(self, event: GepaRolloutCompleted) -> None:
        self.rollouts = event.total_rollouts
        phase, _, place = event.position.partition("/")
        if phase == "step":
            self.step = int(place.partition("/")[0])
            return
        self._baseline_scores.append(event.record.score)
        if len(self._baseline_scores) == self._pareto_size:
            self.baseline = self.best = mean_score(self._baseline_scores)
            self.last = f"the baseline has {score(self.baseline)} on D_pareto"


def waiting_line(notice: CallWaiting) -> str:
    """Return what a call waits for, and how long."""
    seconds = "" if notice.seconds is None else f" {notice.seconds:.0f} s"
    return f"waiting{seconds} for {notice.model}: {notice.reason}"


def plan_lines(event: object) -> tuple[str, ...]:
    """Return the plan of a run with its warnings when ``event`` begins one; else nothing."""
    if not isinstance(event, GepaOptimizationStarted):
        return ()
    return (event.plan.line, *(f"warning: {warning}" for warning in event.plan.warnings))


class Progress(Protocol):
    """Shows how far a run is, on standard error; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def on_event(self, event: object) -> None:
        """Take account of an event of the run."""
        ...

    def say(self, what: str) -> None:
        """Tell what happens outside the run itself."""
        ...


class SilentProgress:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def on_event(self, event: object) -> None:
        del event

    def say(self, what: str) -> None:
        del what


class PlainProgress:
    """Writes a line now and then; for pipes, logs and plain terminals."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._told = 0
        self._broken = False

    def __enter__(self) -> Self:
        self.say(self._state.title)
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def on_event(self, event: object) -> None:
        state = self._state
        knew_baseline = state.baseline is not None
        state.update(event)
        for line in plan_lines(event):
            self.say(line)
        if isinstance(event, CallWaiting):
            self.say(waiting_line(event))
        elif state.baseline is not None and not knew_baseline:
            self.say(f"baseline {score(state.baseline)} on D_pareto, {self._rollouts()}")
        elif isinstance(event, GepaMutationAccepted):
            self.say(
                f"step {event.step}: accepted {event.module}, "
                f"best {score(state.best)} ({state.gain}), {self._rollouts()}"
            )
        elif state.rollouts - self._told >= _ROLLOUTS_PER_LINE:
            self.say(f"step {state.step}: best {score(state.best)}, {self._rollouts()}")

    def say(self, what: str) -> None:
        if self._broken:
            return
        try:
            echo(visible_line(what), error=True)
        except OSError:
            # Whoever read the progress has left; the run itself goes on.
            self._broken = True

    def _rollouts(self) -> str:
        self._told = self._state.rollouts
        return f"{self._state.rollouts} of {self._state.budget} rollouts"


def progress_for(
    title: str, *, quiet: bool, environment: Mapping[str, str] = os.environ
) -> Progress:
    """Return a panel on a terminal, plain lines elsewhere, nothing when ``quiet``."""
    if quiet:
        return SilentProgress()
    state = RunState(title=title)
    if sys.stderr is None or not sys.stderr.isatty() or is_plain_terminal(environment):
        return PlainProgress(state)
    from promptgraft.cli.panel import PanelProgress

    return PanelProgress(state)
