"""What a run directory says, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import attrs

from promptgraft.notebook import Card, Shown
from promptgraft.runs.folder import RunFolder
from promptgraft.search.scores import is_estimate
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


@attrs.frozen(kw_only=True)
class CandidateRecord:
    """A member of the pool.

    Attributes:
        n: its position; 0 is the baseline.
        step: the step that it joined in; 0 for the baseline.
        parents: positions of its parents; two for a merge, the better one first.
        module: name of what was changed; None for the baseline and for merges.
        texts: its text of each module, by the module's name.
        entries: its overrides as :func:`~promptgraft.overrides.documents.plain_entries` writes
            them.
        scores: its scores, in the order of ``RunRecord.pareto_ids``; None for unscored. Empty
            when the run was stopped while it was evaluated.
        objectives: its mean in each objective.
        mean: its mean on D_pareto; None when nothing was scored.
        rollouts: how many the run had used when it joined.
        reflections: how many the run had used then.
        cost: US dollars that the run had used then; None when a price is not known.
        tokens: how many the run had used then.
        time: when it joined.
    """

    n: int
    step: int
    parents: tuple[int, ...]
    module: str | None
    texts: Mapping[str, str]
    entries: Mapping[str, Json]
    scores: Sequence[float | None]
    objectives: Mapping[str, float]
    mean: float | None
    rollouts: int
    reflections: int
    cost: Decimal | None
    tokens: int
    time: datetime

    @property
    def is_estimated(self) -> bool:
        """Whether the mean is an estimate, because some examples have no score."""
        return is_estimate(self.mean, self.scores)

    @property
    def changed(self) -> str:
        """What was changed: the name of a module, ``merge`` or ``baseline``."""
        return self.module or ("merge" if self.parents else "baseline")


@attrs.frozen(kw_only=True)
class RejectionRecord:
    """A rejected proposal.

    Attributes:
        step: the step.
        attempt: which rejection of the step it is, from 1.
        parent: position of the candidate that it was to change.
        module: name of what was to be changed.
        reason: the kind of reason.
        detail: the reason in one line.
        text: what was proposed; empty when there was nothing to read.
        before: the parent's text of the module.
        final: whether the step ended here.
        parent_score: mean of the parent on the minibatch; None when the child was not tried.
        child_score: mean of the child on the minibatch.
        time: when it was rejected.
    """

    step: int
    attempt: int
    parent: int
    module: str
    reason: str
    detail: str
    text: str
    before: str
    final: bool
    parent_score: float | None
    child_score: float | None
    time: datetime


@attrs.frozen(kw_only=True)
class MergeRecord:
    """A merge that was tried.

    Attributes:
        step: the step after which it was tried.
        ancestor: position of the ancestor that both parents share.
        parents: positions of the two, the better one first.
        candidate: position of the merge; None when it was not kept.
        reason: why it was not kept; empty when it was.
        detail: the same in one line.
        time: when that was known.
    """

    step: int
    ancestor: int
    parents: tuple[int, ...]
    candidate: int | None
    reason: str
    detail: str
    time: datetime


@attrs.frozen(kw_only=True)
class WaitRecord:
    """A call that waited for long enough to look like a hang.

    Attributes:
        time: when that was said.
        model: the model that was called.
        seconds: how long, if that was known.
        reason: why.
    """

    time: datetime
    model: str
    seconds: float | None
    reason: str


@attrs.frozen(kw_only=True)
class RunRecord(Shown):
    """A run, whole.

    Attributes:
        folder: its files.
        state: whether somebody works on it.
        config: what ``config.json`` holds.
        created: when its folder was made.
        started: when its first event was told; None when none was.
        run_id: identity of the run; empty before the first event.
        prompt: the prompt, ``namespace/key``.
        seed: what decides every random choice; None before the first event.
        budget: rollouts that may be used; None before the first event.
        modules: names of what may be changed.
        texts: the baseline's text of each module; there before the first call.
        pareto_ids: the examples that candidates are compared on: the columns of scores.
        candidates: the pool, in order.
        rejections: every rejected proposal.
        merges: every merge that was tried.
        waits: what calls waited for.
        steps: the last step that an event tells of.
        rollouts: rollouts used, as of the last line that says.
        leader: position of the best candidate, as of the last line that says; in a race not the
            highest mean, because means may be estimates.
        result: what ``result.json`` holds; None while the run has not ended.
    """

    folder: RunFolder
    state: State
    config: Mapping[str, Json]
    created: datetime
    started: datetime | None
    run_id: str
    prompt: str
    seed: int | None
    budget: int | None
    modules: tuple[str, ...]
    texts: Mapping[str, str]
    pareto_ids: tuple[str, ...]
    candidates: tuple[CandidateRecord, ...]
    rejections: tuple[RejectionRecord, ...]
    merges: tuple[MergeRecord, ...]
    waits: tuple[WaitRecord, ...]
    steps: int
    rollouts: int
    result: Mapping[str, Json] | None
    leader: int = 0

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.folder.id

    @property
    def ranked(self) -> tuple[CandidateRecord, ...]:
        """The candidates, those with the highest mean first, the elder one of equals."""
        return tuple(
            sorted(self.candidates, key=lambda one: (one.mean is None, -(one.mean or 0.0), one.n))
        )

    def __repr__(self) -> str:
        from promptgraft.runs.cards import run_line

        return f"<RunRecord {run_line(self)}>"

    def _card(self) -> Card:
        from promptgraft.runs.cards import run_card

        return run_card(self)
