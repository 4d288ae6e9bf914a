"""What is wrong with an answer, as its metrics say it."""

from __future__ import annotations

import re

from msgspec.structs import replace

from promptgraft.evals.types import Case, TaughtCase, Verdict
from promptgraft.search.round_events import Loss, Severity
from promptgraft.search.scores import Scorer
from promptgraft.targets.types import GepaExample, RolloutRecord

_HINT = re.compile(r"(P[0-3]):\s*(.*)", re.DOTALL)
_WRONG, _IN_PART = 1 / 3, 2 / 3


def losses_of(
    record: RolloutRecord, example: GepaExample, *, scorer: Scorer, perfect: float
) -> tuple[Loss, ...]:
    """Return what failed on one answer; nothing for an unscored one.

    Args:
        record: the rollout.
        example: its example, whose hints are added where a metric failed.
        scorer: gives it its score, where there are no verdicts of metrics.
        perfect: a score that leaves nothing to improve.
    """
    score = scorer.score(record)
    if record.feedback is None or score is None:
        return ()
    if record.fault:
        return (_loss(example, "", record.fault, Severity.P0),)
    if record.verdicts:
        failed = [one for one in record.verdicts if one.passed is False]
        return tuple(
            replace(_loss(example, one.metric, one.reason, _severity(one)), node=one.node)
            for one in failed
        )
    if score >= perfect:
        return ()
    said = record.feedback.feedback, record.feedback.eval_trace
    return (_loss(example, "", "\n".join(filter(None, said)), Severity.P1),)


def _severity(verdict: Verdict) -> Severity:
    score = verdict.score or 0.0
    if score < _WRONG:
        return Severity.P1
    return Severity.P2 if score < _IN_PART else Severity.P3


def _loss(example: GepaExample, metric: str, reason: str, severity: Severity) -> Loss:
    """Return a loss with the hints for its metric.

    A hint such as ``P1: too long`` decides the severity, too. Feedback that is no metric's holds
    the hints of a case already.
    """
    said = [reason]
    case = example.label
    hints = case.hints if isinstance(case, Case) and metric else {}
    for name in dict.fromkeys((metric, "")):
        if hint := hints.get(name):
            found = _HINT.fullmatch(hint)
            severity = Severity(found[1]) if found else severity
            said.append(found[2] if found else hint)
    if isinstance(case, TaughtCase) and metric:
        said.append(case.remark)
    return Loss(
        case=example.id,
        metric=metric,
        severity=severity,
        reason="\n".join(filter(None, said)) or "no reason is given",
    )
