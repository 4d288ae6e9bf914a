"""The events of a run, declared once for the bus, ``events.jsonl`` and ``--json``.

An event is written as one line; its keys are the names of the fields, unless a field has a
``name``. Candidates are identified by position; the baseline is 0. The first ones are those that a
replay does not repeat. A search by rounds has further ones (``round_events.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import attrs
import msgspec

from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.prompt.template import Prompt
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.scores import UNSCORED, Score, Scores
from promptgraft.search.verdict import (
    NO_FIGURES,
    NO_SIDES,
    Figures,
    HeldOut,
    PassingSides,
    RunVerdict,
)
from promptgraft.search.wear import Wear
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import RolloutRecord, names_in

Emit = Callable[[object], None]
"""Receives an event of a run."""

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


class RunStarted(Event, frozen=True, kw_only=True, tag="started"):
    """A run begins, or is resumed on its journal.

    Attributes:
        run_id: identity of the run; equal for equal configuration, data and prompt.
        prompt: what is improved: a prompt, ``namespace/key``, or the name of a target.
        seed: seed of every random choice.
        modules: names of the parts that may change.
        texts: the baseline's text of each module; modules that write new examples have none.
        pareto_ids: ids of the validation set, in the order of every list of scores.
        settings: everything that decides the path of the run, by setting, as plain data:
            functions and models by name, data by digest. Limits are not included.
    """

    run_id: str
    prompt: str
    seed: int
    settings: Mapping[str, object]
    modules: tuple[str, ...]
    texts: Mapping[str, str]
    pareto_ids: tuple[str, ...]


class CaseTaught(Event, frozen=True, kw_only=True, tag="taught"):
    """A case that had no ``expected`` is judged by a teacher's answer.

    Attributes:
        case: id of the case.
        teacher: the prompt or graph, and its adapter.
        expected: the answer as text, clipped if it is long.
    """

    case: str
    teacher: str
    expected: str


class RolloutCompleted(Event, frozen=True, kw_only=True, tag="rollout"):
    """A rollout is complete. It is not written as a line, because the journal has it.

    Attributes:
        position: where in the run, as text: a place, followed by the place of the example.
        record: the rollout.
        total_rollouts: rollouts used so far, including this one.
    """

    position: str
    record: RolloutRecord
    total_rollouts: int


class _Scored(Event, frozen=True, kw_only=True):
    """The scores of a candidate.

    Attributes:
        step: number of the step.
        candidate: its position.
        mean: its mean over the scored examples; None if nothing was scored.
        best: position of the best candidate so far.
        scores: all its scores on the validation set; None for unscored or not evaluated. Empty if
            the run was stopped during its evaluation.
        objectives: its mean in each objective.
        estimated: whether the mean is an estimate, because some examples have no score.
        figures: its pass rate and the means of metrics.
    """

    step: int
    candidate: int
    mean: Score
    best: int
    scores: Sequence[Score]
    objectives: Mapping[str, float]
    estimated: bool = False
    figures: Figures = NO_FIGURES

    def __post_init__(self) -> None:
        # Packed into 8 bytes each, because a large run has millions of scores.
        scores = self.scores if isinstance(self.scores, Scores) else Scores(self.scores)
        msgspec.structs.force_setattr(self, "scores", scores)
        estimated = self.mean is not None and UNSCORED in scores.row
        msgspec.structs.force_setattr(self, "estimated", estimated)


class CandidateScored(_Scored, frozen=True, kw_only=True, tag="scored"):
    """A member of the pool was evaluated on more of the validation set."""


class CandidateAdded(_Scored, frozen=True, kw_only=True, tag="candidate"):
    """The baseline (step 0), an accepted child or a merge has joined the pool.

    Published before the event of its acceptance.

    Attributes:
        parents: positions of its parents; two for a merge, the better one first.
        module: names of the changed modules; None for the baseline and for merges.
        shortened: approximate share of its parent's tokens that it saves; 0 unless it was made to
            be shorter.
        rollouts: rollouts that the run has used so far.
        reflections: reflections that the run has used so far.
        tokens: tokens that the run has used so far.
        cost: US dollars that the run has used so far; None if a price is not known.
        texts: its text of each module, as in ``RunStarted.texts``.
        entries: its changes by address, in the form of
            :func:`~promptgraft.targets.types.plain_changes`.
    """

    parents: tuple[int, ...]
    module: str | None
    rollouts: int
    reflections: int
    tokens: int
    cost: Decimal | None
    texts: Mapping[str, str]
    entries: Mapping[str, object]
    shortened: float = 0.0

    @property
    def changed(self) -> str:
        """Names of the changed modules, ``merge`` or ``baseline``."""
        if self.shortened:
            return f"{self.module}, shortened"
        return self.module or ("merge" if self.parents else "baseline")


class MutationProposed(Event, frozen=True, kw_only=True, tag="proposed"):
    """A usable proposal is about to be evaluated.

    Attributes:
        step: number of the step, from 1.
        parent: position of the parent.
        module: name of the module.
        before: its text in the parent.
        after: the proposed text.
        reason: the model's reason in one line, if it gave one.
    """

    step: int
    parent: int
    module: str
    before: str
    after: str
    reason: str = ""


class MutationAccepted(Event, frozen=True, kw_only=True, tag="accepted"):
    """A proposal has joined the pool, alone or combined with others of its step.

    Attributes:
        step: number of the step.
        candidate: position of the candidate that contains it.
        parent: position of its parent.
        module: name of the changed module, or names if there are several.
        parent_score: mean of the parent on the minibatch.
        child_score: mean of the child on the minibatch.
        pareto_mean: mean of the candidate on the validation set; None if nothing was scored.
        best_pareto_mean: mean of the best candidate so far.
    """

    step: int
    candidate: int
    parent: int
    module: str
    parent_score: Score
    child_score: Score
    pareto_mean: Score
    best_pareto_mean: Score

    @property
    def rewrites(self) -> int:
        """How many texts it changed: one for each part."""
        return len(names_in(self.module))


class MutationRejected(Event, frozen=True, kw_only=True, tag="rejected"):
    """A proposal was rejected.

    Attributes:
        step: number of the step.
        parent: position of the parent.
        module: the module that was to change.
        reason: the kind of reason.
        detail: the reason in one line, for people.
        before: the parent's text of the module.
        text: the proposed text; empty if there was no readable one.
        parent_score: mean of the parent on the minibatch; None if the child was not evaluated.
        child_score: mean of the child on the minibatch.
        final: whether the step ends here; otherwise the model is asked to repair its reply, or
            the step continues with other modules of the same child.
        attempt: number of the rejection in its step, from 1; set when an event file is read.
    """

    step: int
    parent: int
    module: str
    reason: RejectionReason
    detail: str
    before: str = ""
    text: str = ""
    parent_score: Score = None
    child_score: Score = None
    final: bool = True
    attempt: int = 0


class ExampleGenerated(Event, frozen=True, kw_only=True, tag="example_generated"):
    """A candidate with a new task example joined the pool.

    Attributes:
        step: number of the step.
        candidate: position of the candidate.
        container_path: the section that holds the example.
        key: its key there.
        objective: what it asks.
    """

    step: int
    candidate: int
    container_path: SectionPath
    key: str
    objective: str


class MergeAttempted(Event, frozen=True, kw_only=True, tag="merge_attempted"):
    """Two candidates are about to be merged.

    Attributes:
        step: number of the step.
        ancestor: position of the ancestor that they share.
        better: position of the one with the higher mean.
        other: position of the other.
    """

    step: int
    ancestor: int
    better: int
    other: int


class MergeAccepted(Event, frozen=True, kw_only=True, tag="merge_accepted"):
    """A merge joined the pool.

    Attributes:
        step: number of the step.
        candidate: its position.
        parents: positions of its parents, the better one first.
        pareto_mean: its mean on the validation set.
        best_pareto_mean: mean of the best candidate so far.
    """

    step: int
    candidate: int
    parents: tuple[int, int]
    pareto_mean: Score
    best_pareto_mean: Score


class MergeRejected(Event, frozen=True, kw_only=True, tag="merge_rejected"):
    """A merge was evaluated and not kept.

    Attributes:
        step: number of the step.
        parents: positions of the two, the better one first.
        reason: the kind of reason.
        detail: the reason in one line, for people.
    """

    step: int
    parents: tuple[int, int]
    reason: RejectionReason
    detail: str


@attrs.frozen(kw_only=True)
class Rewrites:
    """The rewrites of a run: new texts, each for one part, by what became of them.

    A reply with texts for three parts is three rewrites, and an unusable reply is a dropped one.
    What joins other candidates or trims the winner writes nothing new, and is none.

    Attributes:
        kept: those whose candidate joined the pool.
        combined: candidates that joined others of the pool, which are no rewrites.
        dropped: the others, by the reason.
    """

    kept: int
    combined: int
    dropped: Mapping[str, int]

    def __str__(self) -> str:
        """Return them in words, the most frequent reason first."""
        reasons = sorted(self.dropped.items(), key=lambda reason: (-reason[1], reason[0]))
        dropped = [f"{number:,} {reason}" for reason, number in reasons]
        return ", ".join([f"{self.kept:,} kept", *dropped, *self._combined])

    @property
    def short(self) -> str:
        """The same without the reasons."""
        return ", ".join(
            [f"{self.kept:,} kept", f"{sum(self.dropped.values()):,} dropped", *self._combined]
        )

    @property
    def _combined(self) -> list[str]:
        return [f"{self.combined:,} combined"] if self.combined else []


class RunEnded(Event, frozen=True, kw_only=True, tag="ended"):
    """A run has ended, even if the store refused the winner.

    Attributes:
        run_id: identity of the run.
        stop_reason: why it ended.
        stop_detail: the same in words.
        verdict: what may be claimed about the best candidate.
        best: position of the candidate that the run ends with.
        baseline_mean: mean of the baseline on the validation set.
        best_mean: mean of the best candidate.
        baseline_estimated: whether the baseline's mean is an estimate.
        best_estimated: whether the best candidate's mean is an estimate.
        means: final mean of every candidate; estimates may have changed.
        frontier: positions of the candidates that lead somewhere and are not dominated.
        shortened: approximate share of the winner's tokens that could be left out.
        gains: gain in mean of each kind of change, over the winner's ancestry.
        held_out: baseline and winner on the held-out examples; None without any.
        passing: pass rates of both, and the means of metrics.
        remarks: what users should know before they trust the scores, a line each.
        wear: how often the held-out examples have judged runs; None if they are new.
        tag: the tag under which the overrides of the run are kept.
        accepted: accepted proposals.
        merges: accepted merges.
        rejected: dropped rewrites by reason, the most frequent first.
        candidates: candidates in the pool.
        steps: steps begun.
        rollouts: rollouts used, unscored ones included.
        unscored: rollouts without a score, because the provider failed.
        reflections: reflections used.
        ledger: calls, tokens, money and time by role and model.
        cost: US dollars; None if a price is not known.
    """

    run_id: str
    stop_reason: str
    stop_detail: str
    verdict: RunVerdict
    best: int
    baseline_mean: Score
    best_mean: Score
    baseline_estimated: bool
    best_estimated: bool
    means: tuple[Score, ...]
    frontier: tuple[int, ...]
    shortened: float
    gains: Mapping[str, float]
    held_out: HeldOut | None
    passing: PassingSides = NO_SIDES
    tag: str
    accepted: int
    merges: int
    rejected: Mapping[str, int]
    candidates: int
    steps: int
    rollouts: int
    unscored: int
    reflections: int
    ledger: tuple[LedgerEntry, ...]
    cost: Decimal | None
    remarks: tuple[str, ...] = ()
    wear: Wear | None = None

    @property
    def improved(self) -> bool:
        """Whether held-out examples show that the best candidate is better than the baseline."""
        return self.verdict is RunVerdict.IMPROVED
