"""What a report tells, as plain values: made from a run directory, or by hand in tests."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import attrs

from promptgraft.search.events import CandidateAdded, MergeRejected, MutationRejected
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.outcomes import HeldOut
from promptgraft.search.scores import Score
from promptgraft.text import score


def shown_mean(one: CandidateAdded) -> str:
    """Return the mean of a candidate as the page shows it, with a mark where it is an estimate."""
    return score(one.mean, estimated=one.estimated)


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


_NO_HELD_OUT = HeldOut(ids=(), why_not="the job has no held-out cases")


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
    held_out: HeldOut = _NO_HELD_OUT
    improved: bool | None = None
    stop_reason: str = ""
    stop_detail: str = ""
    confirmation: str = ""
    gains: Mapping[str, float] = attrs.field(factory=dict)
    case_ids: tuple[str, ...] = ()
    candidates: tuple[CandidateAdded, ...] = ()
    winner: int = 0
    frontier: tuple[int, ...] = ()
    rejections: tuple[MutationRejected, ...] = ()
    merges: tuple[MergeRejected, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
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
        return sum(row.usage.input_tokens + row.usage.output_tokens for row in self.ledger)

    def line_of(self, number: int) -> tuple[int, ...]:
        """Return the candidate and its first parents, up to the baseline."""
        line = [number]
        while parents := self.candidates[line[-1]].parents:
            line.append(parents[0])
        return tuple(line)
