"""The gate: decides whether a prompt passes, by rules and by comparison with a baseline."""

from promptgraft.evals.aggregate import metrics_identity
from promptgraft.evals.dataset import cases_digest
from promptgraft.evals.gate.baseline import (
    Baseline,
    Change,
    Comparison,
    Standing,
    compare,
    confirm,
    read_baseline,
    write_baseline,
)
from promptgraft.evals.gate.decision import (
    GateDecision,
    GateOutcome,
    GateRules,
    Ruling,
    decide,
    junit_xml,
)
from promptgraft.evals.gate.report import Answered, CaseResult, GateReport, Subject, case_results

__all__ = [
    "Answered",
    "Baseline",
    "CaseResult",
    "Change",
    "Comparison",
    "GateDecision",
    "GateOutcome",
    "GateReport",
    "GateRules",
    "Ruling",
    "Standing",
    "Subject",
    "case_results",
    "cases_digest",
    "compare",
    "confirm",
    "decide",
    "junit_xml",
    "metrics_identity",
    "read_baseline",
    "write_baseline",
]
