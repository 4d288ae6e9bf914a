"""Reports to decide on, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.evals.aggregate import CaseOutcome, CaseStatus
from promptgraft.evals.gate import CaseResult, GateReport
from promptgraft.evals.types import Verdict
from promptgraft.ground.serde import HexDigest, digest

Given = float | str | None
"""A score; a text for an answer that crashed with it; None for an unscored one."""


def outcome(case_id: str, answer: Given, reason: str = "not as expected") -> CaseOutcome:
    """One answer; 0.5 and more passes."""
    if answer is None:
        return CaseOutcome(
            case_id=case_id, status=CaseStatus.UNSCORED, score=None, error="the provider is ill"
        )
    if isinstance(answer, str):
        return CaseOutcome(case_id=case_id, status=CaseStatus.CRASHED, score=0.0, error=answer)
    passed = answer >= 0.5
    return CaseOutcome(
        case_id=case_id,
        status=CaseStatus.PASSED if passed else CaseStatus.FAILED,
        score=answer,
        verdicts=(Verdict(metric="exact", score=answer, passed=passed, reason=reason),),
    )


def report(
    cases: Mapping[str, list[Given] | float | None],
    *,
    critical: Sequence[str] = (),
    stopped: str = "",
    prompt: str = "support/triage",
    dataset: HexDigest | None = None,
    metrics: str = "metrics exact 0123456789abcdef",
    reason: str = "not as expected",
    family: str = "",
) -> GateReport:
    """A report of cases by their ids: one score each, or a list for several runs.

    Those whose ids begin with ``family`` are one.
    """
    answers: dict[str, list[Given]] = {
        id_: found if isinstance(found, list) else [found] for id_, found in cases.items()
    }
    return GateReport(
        prompt=prompt,
        tried="the source",
        split="test",
        model="scripted",
        dataset=dataset or digest(sorted(cases)),
        metrics=metrics,
        num_runs=max(map(len, answers.values())),
        cases=tuple(
            CaseResult(
                id=id_,
                critical=id_ in critical,
                family=family if family and id_.startswith(family) else "",
                outcomes=tuple(outcome(id_, one, reason) for one in found),
                seconds=(0.25,) * len(found),
            )
            for id_, found in answers.items()
        ),
        stopped=stopped,
    )
