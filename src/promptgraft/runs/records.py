"""What a run directory says, as values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import attrs

from promptgraft.notebook import Card, Shown
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory
from promptgraft.serde import Json
from promptgraft.text import change


class State(StrEnum):
    """Whether somebody works on a run."""

    RUNNING = "running"
    """It has not ended, and a process holds its lock."""
    ENDED = "ended"
    """It came to its end, or was stopped in order; a run that is resumed has ended until something
    new happens behind its old end."""
    INTERRUPTED = "interrupted"
    """Its process was killed, or failed; `promptgraft resume` goes on."""
    DAMAGED = "damaged"
    """A file is not what a run writes."""


@attrs.frozen(kw_only=True)
class RunSummary:
    """A run as lists show it.

    Attributes:
        folder: its files.
        state: whether somebody works on it.
        created: when its folder was made.
        prompt: the prompt, ``namespace/key``; empty when no event says.
        steps: steps begun; of a run that has not ended, as of the last line that says.
        candidates: candidates in the pool, the baseline included.
        rollouts: rollouts used.
        budget: rollouts that may be used; None when no line near the end says.
        baseline_mean: mean of the baseline on D_pareto; None when it is not known.
        best_mean: mean of the best candidate on D_pareto.
        estimated: whether these two are estimates, because some examples have no score.
        held_out: means of baseline and winner on the held-out examples; None without them.
        improved: whether the best beats the baseline; None before the end.
        stop_reason: why the run ended; empty before the end.
        cost: US dollars; None when a price is not known.
        fault: what is damaged; empty when nothing is.
    """

    folder: RunFolder
    state: State
    created: datetime
    prompt: str = ""
    steps: int = 0
    candidates: int = 0
    rollouts: int = 0
    budget: int | None = None
    baseline_mean: float | None = None
    best_mean: float | None = None
    estimated: tuple[bool, bool] = (False, False)
    held_out: tuple[float | None, float | None] | None = None
    improved: bool | None = None
    stop_reason: str = ""
    cost: Decimal | None = None
    fault: str = ""

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.id

    def __repr__(self) -> str:
        means = change(self.baseline_mean, self.best_mean, estimated=self.estimated)
        return f"<RunSummary {self.id} {self.state}: {self.prompt}, {means} on D_pareto>"


@attrs.define(kw_only=True, repr=False)
class RunRecord(RunHistory, Shown):
    """A run, whole: what its events tell, and where it is kept.

    Attributes:
        folder: its files.
        state: whether somebody works on it.
        config: what ``config.json`` holds.
        created: when its folder was made.
        prompt: the prompt, ``namespace/key``.
    """

    folder: RunFolder
    state: State
    config: Mapping[str, Json]
    created: datetime
    prompt: str

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.id

    def __repr__(self) -> str:
        from promptgraft.runs.cards import run_line

        return f"<RunRecord {run_line(self)}>"

    def _card(self) -> Card:
        from promptgraft.runs.cards import run_card

        return run_card(self)
