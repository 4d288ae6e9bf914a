"""What a run directory says, as values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import attrs

from promptgraft.evals.statistics import Gain
from promptgraft.notebook import Card, LongText, Shown, first_rows
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory, shown_mean
from promptgraft.search.events import CandidateAdded
from promptgraft.search.fresh import HeldOut, RunVerdict
from promptgraft.serde import Json
from promptgraft.text import change, counted, dollars, moment


class State(StrEnum):
    """Whether a run is active, ended, stopped, interrupted or damaged."""

    RUNNING = "running"
    """It has not ended, and a process holds its lock."""
    ENDED = "ended"
    """It came to its end; a run that is resumed has ended until something new happens behind its
    old end."""
    STOPPED = "stopped"
    """It was stopped before that, by Ctrl+C or a limit; `promptgraft resume` continues it."""
    INTERRUPTED = "interrupted"
    """Its process was killed, or failed; `promptgraft resume` continues it."""
    DAMAGED = "damaged"
    """A file is not what a run writes."""


@attrs.frozen(kw_only=True)
class RunSummary:
    """A run as lists show it.

    Attributes:
        folder: its files.
        state: whether it is running, ended, stopped, interrupted or damaged.
        created: when its folder was made.
        prompt: the prompt, ``namespace/key``; empty when no event says.
        steps: steps begun; of a run that has not ended, as of the last line that says.
        candidates: candidates in the pool, the baseline included.
        rollouts: rollouts used.
        budget: rollouts that may be used; None when no line near the end says.
        baseline_mean: mean of the baseline on the validation set; None when it is not known.
        best_mean: mean of the best candidate on the validation set.
        estimated: whether these two are estimates, because some examples have no score.
        held_out: what was gained on the held-out examples; None when that was not measured.
        verdict: what may be said of the best candidate; None before the end.
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
    held_out: Gain | None = None
    verdict: RunVerdict | None = None
    stop_reason: str = ""
    cost: Decimal | None = None
    fault: str = ""

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.id

    def __repr__(self) -> str:
        means = change(self.baseline_mean, self.best_mean, estimated=self.estimated)
        return f"<RunSummary {self.id} {self.state}: {self.prompt}, {means} on the validation set>"


@attrs.define(kw_only=True, repr=False)
class RunRecord(RunHistory, Shown):
    """A run, whole: what its events tell, and where it is kept.

    Attributes:
        folder: its files.
        state: whether it is running, ended, stopped, interrupted or damaged.
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

    @property
    def held_out(self) -> HeldOut | None:
        """Baseline and winner on the held-out examples; None before the end, and without any."""
        return self.ended.held_out if self.ended else None

    @property
    def line(self) -> list[CandidateAdded]:
        """The best candidate and its first parents, the baseline first."""
        found: list[CandidateAdded] = []
        at = self.best if self.candidates else None
        while at is not None:
            found.insert(0, self.candidates[at])
            at = found[0].parents[0] if found[0].parents else None
        return found

    @property
    def stopped(self) -> str:
        """Why the run ended, and in detail; empty before the end."""
        ended = self.ended
        return "" if ended is None else f"{ended.stop_reason}: {ended.stop_detail}"

    def __repr__(self) -> str:
        means = self._means()
        return (
            f"<RunRecord {self.id} {self.state}: {self.prompt or 'no prompt yet'}, {means} on the "
            f"validation set, {counted(len(self.candidates), 'candidate')}, "
            f"{counted(self.rollouts, 'rollout')}>"
        )

    def _card(self) -> Card:
        used = f"{self.rollouts}" if self.budget is None else f"{self.rollouts} of {self.budget}"
        best = self.sides[1] if self.sides else None
        texts = best.texts.items() if best else ()
        return Card(
            title=self.id,
            lead=f"{self.state}, {self.prompt}" if self.prompt else str(self.state),
            fields=(
                ("validation", f"{self._means()} on {counted(len(self.pareto_ids), 'example')}"),
                ("used", f"{used} rollouts, {dollars(self.cost if best else None)}"),
                ("steps", f"{self.steps}"),
                ("rejected", counted(len(self.rejections), "proposal")),
                ("created", moment(self.created)),
                ("folder", str(self.folder.path)),
            ),
            blocks=(
                first_rows(
                    map(_row, self.ranked), ("candidate", "validation", "from", "step", "changed")
                ),
                *(
                    LongText(title=f"{name} of candidate {self.best}", text=text)
                    for name, text in texts
                ),
            ),
        )

    def _means(self) -> str:
        known = bool(self.candidates)
        return change(*self.means, estimated=self.estimated) if known else "nothing known"


def _row(candidate: CandidateAdded) -> tuple[str, ...]:
    parents = " + ".join(map(str, candidate.parents))
    mean = shown_mean(candidate)
    return f"{candidate.candidate}", mean, parents, f"{candidate.step}", candidate.changed
