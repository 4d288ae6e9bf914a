"""What a report tells, as plain values: made from a run directory, or by hand in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import attrs

from promptgraft.search.scores import is_estimate
from promptgraft.text import score

Score = float | None
"""A score, or a mean of scores; None for unscored."""


@attrs.frozen(kw_only=True)
class CandidateData:
    """One candidate of the pool.

    Attributes:
        number: its position; 0 is the baseline.
        step: the step that made it; 0 for the baseline.
        parents: positions of its parents, the better one first; two for a merge.
        module: what was changed; empty for the baseline and for merges.
        texts: its text of each part that may change, by the part's name.
        scores: its scores on D_pareto, in the order of ``ReportData.case_ids``.
        objectives: its mean in each objective.
        mean: its mean on D_pareto.
        rollouts: how many the run had used when it came.
        tokens: how many the run had used then.
        cost: US dollars that the run had used then; None when a price is not known.
    """

    number: int
    step: int = 0
    parents: tuple[int, ...] = ()
    module: str = ""
    texts: Mapping[str, str]
    scores: Sequence[Score]
    objectives: Mapping[str, float] = attrs.field(factory=dict)
    mean: Score
    rollouts: int
    tokens: int = 0
    cost: Decimal | None = None

    @property
    def shown_mean(self) -> str:
        """The mean as the page shows it, with a mark where it is an estimate."""
        return f"{'~' if is_estimate(self.mean, self.scores) else ''}{score(self.mean)}"


@attrs.frozen(kw_only=True)
class RejectionData:
    """One rejected proposal.

    Attributes:
        step: the step that made it.
        attempt: which proposal of the step it was, from 1.
        parent: position of the candidate that it was to change.
        module: the part that it was to replace.
        reason: the kind of reason.
        detail: the same in one line.
        before: what it was to replace.
        text: what was proposed; empty when there was nothing to read.
        parent_score: mean of the parent on the minibatch; None when it was not tried.
        child_score: mean of the child on the minibatch.
    """

    step: int
    attempt: int
    parent: int
    module: str
    reason: str
    detail: str
    before: str = ""
    text: str = ""
    parent_score: Score = None
    child_score: Score = None


@attrs.frozen(kw_only=True)
class MergeData:
    """One merge that was tried and not kept.

    Attributes:
        step: the step that tried it.
        parents: positions of the two, the better one first.
        reason: the kind of reason.
        detail: the same in one line.
    """

    step: int
    parents: tuple[int, ...]
    reason: str
    detail: str


@attrs.frozen(kw_only=True)
class HeldOutData:
    """Baseline and winner on cases that the search never saw.

    Attributes:
        ids: the cases; empty when there were none.
        baseline_scores: the baseline's, by case.
        winner_scores: the winner's, by case.
        why_not: why nothing was measured; empty when it was.
    """

    ids: tuple[str, ...] = ()
    baseline_scores: Sequence[Score] = ()
    winner_scores: Sequence[Score] = ()
    why_not: str = ""


@attrs.frozen(kw_only=True)
class LedgerRow:
    """What one model took for one role.

    Attributes:
        cost: US dollars of the calls whose price is known.
        unpriced_calls: calls whose price is not known.
        seconds: wall time of all calls together.
    """

    role: str
    model: str
    calls: int
    retries: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: Decimal
    unpriced_calls: int
    seconds: float


@attrs.frozen(kw_only=True)
class AnswerData:
    """One answer of one candidate to one case.

    Attributes:
        input: the case as the reflector sees it.
        output: the answer.
        trace: what happened on the way.
        feedback: why it has its score.
        score: its score; None when it is unscored.
        fault: what failed; empty when nothing did.
    """

    input: str
    output: str
    trace: str = ""
    feedback: str = ""
    score: Score = None
    fault: str = ""


@attrs.frozen(kw_only=True)
class ReportData:
    """Everything that the report of one run tells.

    Attributes:
        run_id: name of the run's folder, as the command line takes it.
        prompt: the prompt, ``namespace/key``.
        state: ``ended``, ``interrupted`` or ``running``.
        facts: names and values for the head of the page, such as the seed.
        held_out: baseline and winner on cases that the search never saw.
        improved: whether the winner beats the baseline; None when the run has not ended.
        stop_reason: why the run ended; empty when it has not.
        stop_detail: the same in words.
        confirmation: what came of trying the winner again, in words; empty without.
        gains: what each kind of change along the winner's line did to the mean.
        case_ids: the cases of D_pareto.
        candidates: the pool, the baseline first.
        winner: position of the winner; 0 when nothing beat the baseline.
        frontier: positions of the candidates that lead somewhere and that nobody dominates.
        rejections: every rejected proposal.
        merges: every merge that was not kept.
        ledger: calls, tokens, money and time by role and model.
        rollouts: how many were used.
        rollout_budget: how many might have been used; None when that is not known.
        reflections: how many were used.
        answers: answers by position of the candidate and case.
    """

    run_id: str
    prompt: str
    state: str = "ended"
    facts: tuple[tuple[str, str], ...] = ()
    held_out: HeldOutData = HeldOutData(why_not="the job has no held-out cases")
    improved: bool | None = None
    stop_reason: str = ""
    stop_detail: str = ""
    confirmation: str = ""
    gains: Mapping[str, float] = attrs.field(factory=dict)
    case_ids: tuple[str, ...] = ()
    candidates: tuple[CandidateData, ...] = ()
    winner: int = 0
    frontier: tuple[int, ...] = ()
    rejections: tuple[RejectionData, ...] = ()
    merges: tuple[MergeData, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    rollouts: int = 0
    rollout_budget: int | None = None
    reflections: int = 0
    answers: Mapping[tuple[int, str], AnswerData] = attrs.field(factory=dict)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all calls; None when the price of a model is not known.

        Before the end, when there is no ledger yet, those until the last candidate came.
        """
        if not self.ledger and self.candidates:
            return self.candidates[-1].cost
        if any(row.unpriced_calls for row in self.ledger):
            return None
        return sum((row.cost for row in self.ledger), Decimal(0))

    @property
    def tokens(self) -> int:
        """Tokens of all calls."""
        return sum(row.input_tokens + row.output_tokens for row in self.ledger)

    def line_of(self, number: int) -> tuple[int, ...]:
        """Return the candidate and its first parents, up to the baseline."""
        line = [number]
        while parents := self.candidates[line[-1]].parents:
            line.append(parents[0])
        return tuple(line)
