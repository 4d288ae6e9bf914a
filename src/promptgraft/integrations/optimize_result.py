"""What ``AgentOptimizer.optimize`` returns: a run in the words of another optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from promptgraft.errors import DataFormatError
from promptgraft.integrations.optimize_rounds import (
    Kept,
    RoundRecord,
    named,
    question_tokens,
    rounds_of,
    tokens_of,
)
from promptgraft.runs import RunRecord
from promptgraft.runs.event_file import read_lines
from promptgraft.search.events import CandidateAdded
from promptgraft.search.stopping import StopReason
from promptgraft.text import change

Status = Literal["SUCCEEDED", "FAILED", "CANCELED"]
FinishReason = Literal["completed", "perfect_pass_rate", "no_improvement", "error"]

_STOPPED = {
    StopReason.BUDGET: "budget_exhausted",
    StopReason.DEADLINE: "timeout",
    StopReason.NO_IMPROVEMENT: "no_improvement",
    StopReason.TARGET_SCORE: "score_threshold",
    StopReason.OBJECTIVES: "required_metrics_passing",
    StopReason.PROPOSALS: "max_candidate_proposals",
    StopReason.CANDIDATES: "max_tracked_candidates",
    StopReason.STOP_FILE: "user_requested_stop",
}
_ENDED: dict[StopReason, Status] = {StopReason.CANCELLED: "CANCELED"}
_FAILED = {StopReason.FAILED, StopReason.PROVIDER_FAILED, StopReason.REFLECTION_FAILED}


class OptimizeResult(Kept, frozen=True, kw_only=True):
    """The outcome of a run; in JSON its keys are in camelCase.

    Attributes:
        stop_reason: what ended the search; None for a run that failed.
        baseline_pass_rate: share of the validation cases that pass before.
        best_pass_rate: the same of the best candidate.
        baseline_metric_breakdown: mean of each metric before.
        metric_thresholds: the least score that passes, by metric.
        per_metric_best_candidates: positions of the candidates with the highest mean, by metric.
        best_prompts: the texts of the best candidate; the baseline's for a run that failed.
        total_token_usage: of the reflection model: prompt, completion, total.
        duration_seconds: seconds of wall time.
        started_at: ISO 8601, as ``finished_at``.
    """

    status: Status
    finish_reason: FinishReason
    stop_reason: str | None
    error_message: str = ""
    algorithm: str = "gepa_reflective"
    baseline_pass_rate: float
    best_pass_rate: float
    pass_rate_improvement: float
    baseline_metric_breakdown: dict[str, float]
    best_metric_breakdown: dict[str, float]
    metric_thresholds: dict[str, float]
    per_metric_best_candidates: dict[str, list[int]]
    baseline_prompts: dict[str, str]
    best_prompts: dict[str, str]
    total_rounds: int
    rounds: list[RoundRecord]
    total_reflection_lm_calls: int
    total_token_usage: dict[str, int]
    duration_seconds: float
    started_at: str
    finished_at: str
    schema_version: str = "v1"
    extras: dict[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def from_file(cls, path: str | Path) -> OptimizeResult:
        """Return what :meth:`dump_to` has written.

        Raises:
            DataFormatError: the file holds something else.
            OSError: it cannot be read.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except msgspec.DecodeError as error:
            raise DataFormatError(f"{path}: {error}") from None

    def format_summary(self, *, output_dir: str | Path, update_source: bool) -> str:
        """Return the run on one page of plain text."""
        accepted = sum(one.accepted for one in self.rounds)
        gained = "improved" if self.pass_rate_improvement > 0 else "not improved"
        rates = change(self.baseline_pass_rate, self.best_pass_rate)
        lines = [
            f"Optimization complete | status={self.status} | algorithm={self.algorithm}",
            f"pass_rate     : {rates}, {gained}",
            *(
                f"  {name:12}: {change(self.baseline_metric_breakdown.get(name), mean)}, passes "
                f"from {self.metric_thresholds.get(name, 0):g}"
                for name, mean in self.best_metric_breakdown.items()
            ),
            f"rounds        : {accepted} accepted / {self.total_rounds} total",
            f"duration      : {self.duration_seconds:.2f}s",
            f"stop_reason   : {self.stop_reason or self.finish_reason}",
            f"update_source : {str(update_source).lower()}",
            *(f"error         : {one}" for one in [self.error_message] if one),
            *(f"best prompt   : {name}, {len(t)} chars" for name, t in self.best_prompts.items()),
            f"artifacts     : {output_dir}",
        ]
        return "\n".join(lines) + "\n"


def result_of(record: RunRecord, *, requires: bool, error: str = "") -> OptimizeResult:
    """Return what a run that has ended, or failed, came to.

    Args:
        record: the run.
        requires: whether it ends when metrics reach their thresholds.
        error: what ended it; empty when nothing did.
    """
    ended, baseline = record.ended, record.candidates[0]
    reason = StopReason(ended.stop_reason) if ended is not None else StopReason.FAILED
    failed = reason in _FAILED or bool(error)
    best = record.candidates[ended.best] if ended is not None and not failed else baseline
    rates = [one.figures.pass_rate or 0.0 for one in (baseline, best)]
    finish: FinishReason = "completed" if best is not baseline else "no_improvement"
    if reason is StopReason.PERFECT:
        finish = "perfect_pass_rate"
    rounds = list(rounds_of(record))
    usage = question_tokens(record.folder)
    times = [event.time for _, event in read_lines(record.folder.events)]
    known = [time for time in times if isinstance(time, datetime)]
    return OptimizeResult(
        status="FAILED" if failed else _ENDED.get(reason, "SUCCEEDED"),
        finish_reason="error" if failed else finish,
        stop_reason=None if failed else _stopped(reason, requires=requires),
        error_message=error or (ended.stop_detail if failed and ended else ""),
        baseline_pass_rate=rates[0],
        best_pass_rate=rates[1],
        pass_rate_improvement=rates[1] - rates[0],
        baseline_metric_breakdown=dict(baseline.figures.means),
        best_metric_breakdown=dict(best.figures.means),
        metric_thresholds=dict(ended.passing.thresholds) if ended is not None else {},
        per_metric_best_candidates=_leaders(record.candidates),
        baseline_prompts=named(baseline.texts),
        best_prompts=named(best.texts),
        total_rounds=len(rounds),
        rounds=rounds,
        total_reflection_lm_calls=sum(one.reflection_lm_calls for one in rounds),
        total_token_usage=tokens_of([pair for pairs in usage.values() for pair in pairs]),
        duration_seconds=(known[-1] - known[0]).total_seconds(),
        started_at=known[0].isoformat(),
        finished_at=known[-1].isoformat(),
    )


def _stopped(reason: StopReason, *, requires: bool) -> str:
    # What is perfect has all that is required.
    reason = StopReason.OBJECTIVES if requires and reason is StopReason.PERFECT else reason
    return _STOPPED.get(reason, "completed")


def _leaders(candidates: Sequence[CandidateAdded]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in candidates[0].figures.means:
        means = [one.figures.means.get(name, -1.0) for one in candidates]
        found[name] = [at for at, mean in enumerate(means) if mean == max(means)]
    return found
