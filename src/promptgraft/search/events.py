"""Everything that a run tells, declared once: on the bus, in ``events.jsonl``, with ``--json``.

An event is the line that it is written as: the names of its fields are the keys, but where ``name``
says another. Candidates are named by their positions; the baseline is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import msgspec

from promptgraft.parts.descriptors import SectionPath
from promptgraft.search.fresh import (
    NO_FIGURES,
    NO_SIDES,
    Figures,
    HeldOut,
    PassingSides,
    RunVerdict,
)
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.notices import (
    CallWaits,
    Event,
    RunPlanned,
    RunProgress,
    StopFileRemoved,
    Working,
)
from promptgraft.search.round_events import RoundEvent
from promptgraft.search.scores import UNSCORED, Score, Scores
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import RolloutRecord

Emit = Callable[[object], None]
"""Takes an event of a run."""


class RunStarted(Event, frozen=True, kw_only=True, tag="started"):
    """A run begins, or begins again on its journal.

    Attributes:
        run_id: identity of the run; equal for equal configuration, data and prompt.
        prompt: what is improved: the prompt, ``namespace/key``, or the name of a target.
        seed: what decides every random choice.
        modules: names of what may be mutated.
        texts: the baseline's text of each module; those that write new examples have none.
        pareto_ids: ids of the validation set, in the order of every list of scores.
        settings: what decides the path of the run, by the paths of settings, as plain data:
            functions and models by name, data by digest. Limits are not in it.
    """

    run_id: str
    prompt: str
    seed: int
    settings: Mapping[str, object]
    modules: tuple[str, ...]
    texts: Mapping[str, str]
    pareto_ids: tuple[str, ...]


class CaseTaught(Event, frozen=True, kw_only=True, tag="taught"):
    """A case that had no ``expected`` is judged by what a teacher answered.

    Attributes:
        case: id of the case.
        teacher: the prompt or graph, and what answered it.
        expected: the answer as text, its beginning if it is long.
    """

    case: str
    teacher: str
    expected: str


class RolloutCompleted(Event, frozen=True, kw_only=True, tag="rollout"):
    """A rollout was used. No line: the journal has it.

    Attributes:
        position: where in the run, as text: a place, and the place of the example behind it.
        record: what came of it.
        total_rollouts: how many were used so far, this one included.
    """

    position: str
    record: RolloutRecord
    total_rollouts: int


class _Scored(Event, frozen=True, kw_only=True):
    """The scores of a candidate.

    Attributes:
        step: number of the step.
        candidate: its position.
        mean: its mean over the scored examples; None when nothing was scored.
        best: position of the best candidate so far.
        scores: all its scores on the validation set; None for unscored or not tried. Empty when
            the run was stopped while it was evaluated.
        objectives: its mean in each objective.
        estimated: whether the mean is an estimate, because some examples have no score.
        figures: what metrics say of its answers.
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
        # In 8 bytes each: a large run has millions of them.
        scores = self.scores if isinstance(self.scores, Scores) else Scores(self.scores)
        msgspec.structs.force_setattr(self, "scores", scores)
        estimated = self.mean is not None and UNSCORED in scores.row
        msgspec.structs.force_setattr(self, "estimated", estimated)


class CandidateScored(_Scored, frozen=True, kw_only=True, tag="scored"):
    """A member of the pool was tried on more of the validation set."""


class CandidateAdded(_Scored, frozen=True, kw_only=True, tag="candidate"):
    """The baseline (step 0), an accepted child or a merge is in the pool.

    Told before the acceptance.

    Attributes:
        parents: positions of its parents; two for a merge, the better one first.
        module: names of what was mutated; None for the baseline and for merges.
        shortened: share of its parent's tokens that it does without, about; 0 unless it was made
            to be shorter.
        rollouts: how many the run has used so far.
        reflections: how many the run has used so far.
        tokens: how many the run has used so far.
        cost: US dollars that the run has used so far; None when a price is not known.
        texts: its text of each module, as ``RunStarted.texts``.
        entries: what it changes, by address, as
            :func:`~promptgraft.targets.types.plain_changes` has it.
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
        """What was changed: names of modules, ``merge`` or ``baseline``."""
        if self.shortened:
            return f"{self.module}, shortened"
        return self.module or ("merge" if self.parents else "baseline")


class MutationProposed(Event, frozen=True, kw_only=True, tag="proposed"):
    """A usable proposal is about to be tried.

    Attributes:
        step: number of the step, from 1.
        parent: position of the parent.
        module: name of what is changed.
        before: its text in the parent.
        after: the proposed text.
        reason: why, in one line, where the model that proposed it said so.
    """

    step: int
    parent: int
    module: str
    before: str
    after: str
    reason: str = ""


class MutationAccepted(Event, frozen=True, kw_only=True, tag="accepted"):
    """A proposal is in the pool, alone or with others of its step.

    Attributes:
        step: number of the step.
        candidate: position of the candidate that it is in.
        parent: position of its parent.
        module: what was changed; several names where a proposal has changed several.
        parent_score: mean of the parent on the minibatch.
        child_score: mean of the child on the minibatch.
        pareto_mean: mean of the candidate on the validation set; None when nothing was scored.
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


class MutationRejected(Event, frozen=True, kw_only=True, tag="rejected"):
    """A proposal was rejected.

    Attributes:
        step: number of the step.
        parent: position of the parent.
        module: what was to be changed.
        reason: the kind of reason.
        detail: one line for people.
        before: the parent's text of the module.
        text: what was proposed; empty when there was nothing to read.
        parent_score: mean of the parent on the minibatch; None when the child was not tried.
        child_score: mean of the child on the minibatch.
        final: whether the step ends here; otherwise the reflector is asked to mend it, or the
            step continues with other modules of the same child.
        attempt: of a line, which rejection of its step it is, from 1.
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
    """A merge was tried and not kept.

    Attributes:
        step: number of the step.
        parents: positions of the two, the better one first.
        reason: the kind of reason.
        detail: one line for people.
    """

    step: int
    parents: tuple[int, int]
    reason: RejectionReason
    detail: str


class RunEnded(Event, frozen=True, kw_only=True, tag="ended"):
    """A run ended; when the store refused the winner, too.

    Attributes:
        run_id: identity of the run.
        stop_reason: why it ended.
        stop_detail: the same in words.
        verdict: what may be said of the best candidate.
        best: position of the candidate that the run ends with.
        baseline_mean: mean of the baseline on the validation set.
        best_mean: mean of the best candidate.
        baseline_estimated: whether the baseline's mean is an estimate.
        best_estimated: the same of the best candidate's.
        means: of every candidate, as the end has them: what was an estimate may be another now.
        frontier: positions of the candidates that lead somewhere and are not dominated.
        shortened: share of its tokens that the winner was found to do without, about.
        gains: what each kind of change along the winner's line did to the mean.
        held_out: what both did on the held-out examples; None without.
        passing: how many answers of both pass, and the means of metrics.
        remarks: what users should know before they trust the scores, a line each.
        tag: the tag that the overrides of the run are kept under.
        accepted: accepted mutations.
        merges: accepted merges.
        rejected: rejected proposals by reason, the most frequent first.
        candidates: candidates in the pool.
        steps: steps begun.
        rollouts: rollouts used, unscored ones included.
        unscored: rollouts that the provider failed.
        reflections: reflections used.
        ledger: calls, tokens, money and time by role and model.
        cost: US dollars; None when a price is not known.
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

    @property
    def improved(self) -> bool:
        """Whether held-out examples show that the best candidate is better than the baseline."""
        return self.verdict is RunVerdict.IMPROVED


RunEvent = (
    RunStarted
    | CaseTaught
    | RunPlanned
    | StopFileRemoved
    | Working
    | RolloutCompleted
    | CandidateAdded
    | CandidateScored
    | MutationProposed
    | MutationAccepted
    | MutationRejected
    | ExampleGenerated
    | MergeAttempted
    | MergeAccepted
    | MergeRejected
    | RoundEvent
    | CallWaits
    | RunProgress
    | RunEnded
)
"""Every kind of event."""
