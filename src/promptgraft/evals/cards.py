"""What cases and their figures show of themselves in notebooks and in ``print``."""

from __future__ import annotations

import json

from promptgraft.evals.aggregate import CaseOutcome, EvaluationReport
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.evaluate import Evaluation
from promptgraft.evals.splits import Splits
from promptgraft.evals.statistics import Gain
from promptgraft.evals.types import Case
from promptgraft.notebook import Card, Table, first_rows
from promptgraft.serde import Json
from promptgraft.text import counted, score

_CELL_CHARS = 80


def report_card(report: EvaluationReport) -> Card:
    """Return what the figures of an evaluation show: metrics, and the worst cases first."""
    return Card(
        title=counted(len(report.cases), "case"),
        lead=f"pass rate {score(report.pass_rate)}, mean score {score(report.mean_score)}",
        fields=(("cases", _counts(report)),),
        blocks=(_metrics(report), _worst(report)),
    )


def _counts(report: EvaluationReport) -> str:
    crashed, unscored = len(report.crashed), len(report.unscored)
    return f"{report.passed} passed, {report.failed} failed, {crashed} crashed, {unscored} unscored"


def _metrics(report: EvaluationReport) -> Table:
    return Table(
        head=("metric", "mean", "passed", "failed", "unscored", "threshold", ""),
        rows=(
            (
                metric.name,
                score(metric.mean_score),
                f"{metric.passed}",
                f"{metric.failed}",
                f"{metric.unscored}",
                f"{metric.threshold:g}",
                "required" if metric.required else "",
            )
            for metric in report.metrics
        ),
    )


def _worst(report: EvaluationReport) -> Table:
    cases = sorted(report.cases, key=lambda case: (case.score is not None, case.score or 0.0))
    return first_rows(
        ((case.case_id, score(case.score), case.status, _why(case)) for case in cases),
        ("worst cases first", "score", "status", "why"),
    )


def _why(case: CaseOutcome) -> str:
    failed = [verdict for verdict in case.verdicts if not verdict.passed]
    return _short(case.error or "; ".join(f"{one.metric}: {one.reason}" for one in failed))


def evaluation_card(evaluation: Evaluation) -> Card:
    """Return what an evaluation shows: its figures, and their spread over several runs."""
    card = report_card(evaluation.report)
    fields = list(card.fields)
    if len(evaluation.runs) > 1:
        mean, deviation = evaluation.score.mean, evaluation.score.deviation
        fields.append(("runs", f"{len(evaluation.runs)}, of which the first is shown"))
        fields.append(("mean of all", f"{score(mean)}, standard deviation {score(deviation)}"))
    if evaluation.stopped:
        fields.append(("stopped", evaluation.stopped))
    return Card(title=card.title, lead=card.lead, fields=tuple(fields), blocks=card.blocks)


def gain_card(gain: Gain) -> Card:
    """Return what a gain shows: its line, and the cases that changed."""
    return Card(
        title=str(gain.verdict),
        lead=gain.line(),
        fields=(
            ("mean", f"{score(gain.mean_before)} -> {score(gain.mean_after)}"),
            ("p-value", f"{gain.p_value:.3g}"),
            ("won", _ids(gain.won)),
            ("lost", _ids(gain.lost)),
            ("unscored", _ids(gain.unscored)),
        ),
    )


def _ids(ids: tuple[str, ...]) -> str:
    shown = ", ".join(ids[:10]) or "none"
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown


def dataset_card(dataset: Dataset) -> Card:
    """Return what a data set shows: its first cases."""
    critical = sum(case.critical for case in dataset)
    return Card(
        title=dataset.name,
        lead=counted(len(dataset), "case") + (f", {critical} of them critical" if critical else ""),
        blocks=(first_rows((_case(case) for case in dataset), ("id", "input", "expected")),),
    )


def _case(case: Case) -> tuple[str, ...]:
    asked: Json = case.input if not case.turns else [turn.user for turn in case.turns]
    return case.id, _plain(asked), _plain(case.expected)


def splits_card(splits: Splits) -> Card:
    """Return what three sets show: their names and sizes."""
    parts = splits.parts()
    whole = sum(len(part) for part in parts.values())
    return Card(
        title="splits",
        lead=f"{counted(whole, 'case')} that stand in one set each",
        blocks=(
            Table(
                head=("set", "cases", "share", "from"),
                rows=(
                    (name, f"{len(part)}", f"{len(part) / whole:.0%}", part.name)
                    for name, part in parts.items()
                ),
            ),
        ),
    )


def _plain(value: Json) -> str:
    if value is None:
        return ""
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    return text if len(text) <= _CELL_CHARS else f"{text[: _CELL_CHARS - 1]}…"
