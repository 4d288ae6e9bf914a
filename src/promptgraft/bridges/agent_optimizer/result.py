"""The result of ``AgentOptimizer.optimize``: a run in the format of another optimizer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeGuard

import attrs
import msgspec
from msgspec.structs import replace

from promptgraft.errors import DataFormatError, JournalCorruptError
from promptgraft.evals.spending import Role, spent_from_json
from promptgraft.ground.files import write_atomically
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import reaches
from promptgraft.ground.text import change
from promptgraft.journal.records import decode_record
from promptgraft.runs import RunFolder, RunRecord, transcripts
from promptgraft.runs.event_file import read_lines
from promptgraft.search.events import (
    CandidateAdded,
    MergeAccepted,
    MergeRejected,
    MutationAccepted,
    MutationRejected,
    RunEnded,
)
from promptgraft.search.place import Phase, Place
from promptgraft.search.stopping import RequiredObjectives, Stopper, StopReason, TargetScore
from promptgraft.targets.types import names_in

_ON_VALIDATION_SET = {"baseline", "pareto", "merge", "final", "idle"}
_RoundEvent = CandidateAdded | MutationAccepted | MutationRejected | MergeAccepted | MergeRejected


class CamelCase(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A record in a JSON file with keys in camelCase; keys that users chose are not changed."""

    def dump_to(self, path: str | Path) -> None:
        """Write the record as JSON, atomically."""
        data = msgspec.json.format(msgspec.json.encode(self), indent=2)
        write_atomically(Path(path), data + b"\n")


class RoundRecord(CamelCase, frozen=True, kw_only=True):
    """One round: a reflection with its result, or a merge.

    Attributes:
        round: number of the round, from 1.
        started_at: ISO 8601.
        duration_seconds: wall time.
        optimized_field_names: names of the changed texts.
        candidate_prompts: texts of the candidate by name; empty without a candidate.
        acceptance_reason: why it was accepted or rejected, for people.
        per_field_diagnosis: why a text was refused, by name.
        validation_pass_rate: share of the validation cases that pass; 0 if none was evaluated.
        metric_breakdown: mean of each metric on them; empty if none was evaluated.
        failed_case_ids: all validation cases that do not pass.
        failed_cases_truncated: always 0, because none is left out.
        train_minibatch_size: size of the minibatch; 0 if it was not evaluated.
        train_subsample_parent_score: mean score of the parent on the minibatch.
        train_subsample_candidate_score: mean score of the candidate on the minibatch.
        skip_reason: why no candidate was evaluated.
        round_token_usage: tokens of the reflection model: prompt, completion, total.
        budget_used: rollouts used by the end of the round.
    """

    round: int
    kind: Literal["reflective", "merge"]
    started_at: str
    duration_seconds: float
    optimized_field_names: list[str] = []
    candidate_prompts: dict[str, str] = {}
    accepted: bool = False
    acceptance_reason: str = ""
    per_field_diagnosis: dict[str, str] = {}
    validation_pass_rate: float = 0.0
    metric_breakdown: dict[str, float] = {}
    failed_case_ids: list[str] = []
    failed_cases_truncated: int = 0
    train_minibatch_size: int = 0
    train_subsample_parent_score: float | None = None
    train_subsample_candidate_score: float | None = None
    skip_reason: str | None = None
    error_message: str | None = None
    reflection_lm_calls: int = 0
    round_token_usage: dict[str, int] = {}
    budget_used: int | None = None
    budget_total: int | None = None
    extras: dict[str, Any] = {}


@attrs.frozen
class ResultNames:
    """The user's names of the texts, by the identifiers that a run knows them by."""

    by_key: Mapping[str, str] = attrs.field(factory=dict, hash=False)

    def of(self, module: str) -> str:
        """Return the name of the text that is the module ``section KEY``."""
        key = module.removeprefix("section ")
        return self.by_key.get(key, key)

    def several(self, modules: str) -> list[str]:
        """Return the names of the texts in a list of modules."""
        return [self.of(module) for module in names_in(modules)]

    def texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return texts by name."""
        return {self.of(module): text for module, text in texts.items()}


def rounds_of(
    record: RunRecord, names: ResultNames | None = None, *, until: int | None = None
) -> Iterator[RoundRecord]:
    """Yield a round for each step, and another if the step ended with a merge.

    Args:
        record: the run.
        names: the user's names of the texts.
        until: the first step that is left out, because it is still in progress.
    """
    by_step: dict[int, list[_RoundEvent]] = defaultdict(list)
    for _, event in read_lines(record.folder.events):
        if isinstance(event, _RoundEvent) and event.step:
            by_step[event.step].append(event)
    rounds = _Rounds(record, names or ResultNames())
    for step in range(1, record.steps + 1 if until is None else until):
        merges = [event for event in by_step[step] if _is_merge(event)]
        yield rounds.reflection(step, [event for event in by_step[step] if event not in merges])
        if merges:
            yield rounds.merge(step, merges)


def _is_merge(event: _RoundEvent) -> bool:
    if isinstance(event, CandidateAdded):
        return len(event.parents) > 1
    return isinstance(event, MergeAccepted | MergeRejected)


class _Rounds:
    """Makes the rounds of a run in order."""

    def __init__(self, record: RunRecord, names: ResultNames) -> None:
        self._record = record
        self._names = names
        self._count = 0
        self._began = _time(record.candidates[0])
        self._usage = question_tokens(record.folder)
        self._failed: dict[int, list[str]] = defaultdict(list)
        self._tried: Counter[int] = Counter()
        self._rollouts: Counter[tuple[int, bool]] = Counter()
        self._used = 0
        for transcript in transcripts(record):
            if transcript.phase == Phase.BASELINE:
                self._used += 1
            self._rollouts[transcript.step, transcript.phase == Phase.MERGE] += 1
            verdicts = transcript.record.verdicts
            fails = not verdicts or not all(verdict.passed for verdict in verdicts)
            if transcript.phase == Phase.PARENT:
                self._tried[transcript.step] += 1
            elif (
                transcript.candidate is not None
                and transcript.phase in _ON_VALIDATION_SET
                and fails
            ):
                self._failed[transcript.candidate].append(transcript.case)

    def reflection(self, step: int, events: Sequence[_RoundEvent]) -> RoundRecord:
        usage = self._usage.get(step, [])
        round_made = replace(
            self._begun("reflective", step, events),
            train_minibatch_size=self._tried[step],
            reflection_lm_calls=len(usage),
            round_token_usage=tokens_of(usage),
        )
        accepted = [event for event in events if isinstance(event, MutationAccepted)]
        refused = [event for event in events if isinstance(event, MutationRejected)]
        if accepted:
            last = accepted[-1]
            scores = last.parent_score, last.child_score
            return replace(
                self._joined(round_made, last.candidate),
                optimized_field_names=self._names.several(last.module),
                acceptance_reason=f"better on the minibatch: {change(*scores)}",
                train_subsample_parent_score=scores[0],
                train_subsample_candidate_score=scores[1],
            )
        if not refused:
            return replace(round_made, skip_reason="subsample perfect")
        final = refused[-1]
        tried, failed = final.child_score is not None, final.reason == "reflection failed"
        parent = self._record.candidates[final.parent].texts
        return replace(
            round_made,
            optimized_field_names=self._names.several(final.module),
            candidate_prompts=self._names.texts({**parent, final.module: final.text})
            if final.text
            else {},
            acceptance_reason=f"{final.reason}: {final.detail}",
            per_field_diagnosis=dict.fromkeys(self._names.several(final.module), final.detail),
            train_subsample_parent_score=final.parent_score,
            train_subsample_candidate_score=final.child_score,
            skip_reason=None if tried else "no proposal",
            error_message=final.detail if failed else None,
        )

    def merge(self, step: int, events: Sequence[_RoundEvent]) -> RoundRecord:
        round_made, last = self._begun("merge", step, events), events[-1]
        if isinstance(last, MergeRejected):
            return replace(round_made, acceptance_reason=f"{last.reason}: {last.detail}")
        joined = next(event.candidate for event in events if isinstance(event, CandidateAdded))
        reason = "as good as the better parent"
        return replace(self._joined(round_made, joined), acceptance_reason=reason)

    def _begun(
        self, kind: Literal["reflective", "merge"], step: int, events: Sequence[_RoundEvent]
    ) -> RoundRecord:
        began = self._began
        self._began = _time(events[-1]) if events else began
        self._count += 1
        self._used += self._rollouts[step, kind == "merge"]
        return RoundRecord(
            round=self._count,
            kind=kind,
            started_at=began.isoformat(),
            duration_seconds=(self._began - began).total_seconds(),
            budget_used=self._used,
            budget_total=self._record.budget,
        )

    def _joined(self, record: RoundRecord, candidate: int) -> RoundRecord:
        candidate_record = self._record.candidates[candidate]
        return replace(
            record,
            accepted=True,
            candidate_prompts=self._names.texts(candidate_record.texts),
            validation_pass_rate=candidate_record.figures.pass_rate or 0.0,
            metric_breakdown=dict(candidate_record.figures.means),
            failed_case_ids=self._failed[candidate],
        )


def _time(event: _RoundEvent) -> datetime:
    assert isinstance(event.time, datetime)  # noqa: S101 - every line has its time
    return event.time


def question_tokens(folder: RunFolder) -> dict[int, list[tuple[int, int]]]:
    """Return the tokens that each question of a step sent and received, by step."""
    tokens_by_step: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in folder.journal.read_bytes().splitlines(keepends=True):
        try:
            record = decode_record(line)
        except JournalCorruptError:
            continue  # the header, or a line that was being written
        if record.kind != Role.REFLECTION or not isinstance(record.answer, dict):
            continue
        spent = spent_from_json(record.answer.get("spent"), record.key)
        tokens = (
            sum(spending.input_tokens for spending in spent),
            sum(spending.output_tokens for spending in spent),
        )
        tokens_by_step[Place.parse(record.key).step].append(tokens)
    return tokens_by_step


def tokens_of(pairs: Sequence[tuple[int, int]]) -> dict[str, int]:
    """Return the total tokens of several questions: sent, received and both."""
    sent, received = (
        sum(sent_tokens for sent_tokens, _ in pairs),
        sum(received_tokens for _, received_tokens in pairs),
    )
    return {"prompt": sent, "completion": received, "total": sent + received}


Status = Literal["SUCCEEDED", "FAILED", "CANCELED"]
FinishReason = Literal["completed", "perfect_pass_rate", "no_improvement", "error"]

_STOPPED = {
    StopReason.BUDGET: "budget_exhausted",
    StopReason.DEADLINE: "timeout",
    StopReason.NO_IMPROVEMENT: "no_improvement",
    StopReason.PLATEAU: "no_improvement",
    StopReason.TARGET_SCORE: "score_threshold",
    StopReason.OBJECTIVES: "required_metrics_passing",
    StopReason.PROPOSALS: "max_candidate_proposals",
    StopReason.CANDIDATES: "max_tracked_candidates",
    StopReason.STOP_FILE: "user_requested_stop",
}
_ENDED: dict[StopReason, Status] = {StopReason.CANCELLED: "CANCELED"}
_FAILED = {
    StopReason.FAILED,
    StopReason.PROVIDER_FAILED,
    StopReason.REFLECTION_FAILED,
    StopReason.UNREADABLE,
}


class OptimizeResult(CamelCase, frozen=True, kw_only=True):
    """The outcome of a run; in JSON its keys are in camelCase.

    Attributes:
        stop_reason: why the search ended; None for a failed run.
        baseline_pass_rate: share of the validation cases that the baseline passes.
        best_pass_rate: share of the validation cases that the best candidate passes.
        baseline_metric_breakdown: mean of each metric for the baseline.
        metric_thresholds: the lowest score that passes, by metric.
        per_metric_best_candidates: numbers of the candidates with the highest mean, by metric.
        best_prompts: the texts of the best candidate; those of the baseline for a failed run.
        rounds_accepted: rounds whose candidate joined the pool.
        merge_rounds_total: rounds that are merges.
        total_metric_calls: rollouts of the whole run, as is ``metric_calls_total``.
        proposals_total: rounds in which the reflection model has written a candidate.
        total_token_usage: tokens of the reflection model: prompt, completion, total.
        duration_seconds: wall time.
        started_at: ISO 8601, like ``finished_at``.
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
    rounds_accepted: int = 0
    merge_rounds_total: int = 0
    rounds: list[RoundRecord]
    total_metric_calls: int = 0
    metric_calls_total: int = 0
    proposals_total: int = 0
    total_reflection_lm_calls: int
    total_token_usage: dict[str, int]
    duration_seconds: float
    started_at: str
    finished_at: str
    schema_version: str = "v1"
    extras: dict[str, Any] = msgspec.field(default_factory=dict)

    @classmethod
    def from_file(cls, path: str | Path) -> OptimizeResult:
        """Read a file that :meth:`dump_to` has written.

        Raises:
            DataFormatError: the file holds something else.
            OSError: the file cannot be read.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except msgspec.DecodeError as error:
            raise DataFormatError(f"{path}: {error}") from None

    def format_summary(self, *, output_dir: str | Path, update_source: bool) -> str:
        """Return a summary of the run as plain text."""
        accepted = sum(round_record.accepted for round_record in self.rounds)
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
            *(f"error         : {message}" for message in [self.error_message] if message),
            *(f"best prompt   : {name}, {len(t)} chars" for name, t in self.best_prompts.items()),
            f"artifacts     : {output_dir}",
        ]
        return "\n".join(lines) + "\n"


def canceled(texts: Mapping[str, str], *, began: datetime, ended: datetime) -> OptimizeResult:
    """Return the result of a run that was stopped before its baseline had a score."""
    return OptimizeResult(
        status="CANCELED",
        finish_reason="no_improvement",
        stop_reason="completed",
        baseline_pass_rate=0.0,
        best_pass_rate=0.0,
        pass_rate_improvement=0.0,
        baseline_metric_breakdown={},
        best_metric_breakdown={},
        metric_thresholds={},
        per_metric_best_candidates={},
        baseline_prompts=dict(texts),
        best_prompts=dict(texts),
        total_rounds=0,
        rounds=[],
        total_reflection_lm_calls=0,
        total_token_usage=tokens_of([]),
        duration_seconds=(ended - began).total_seconds(),
        started_at=began.isoformat(),
        finished_at=ended.isoformat(),
    )


def best_outputs(record: RunRecord) -> dict[str, Json]:
    """Return the best answer to each validation case, the earliest among equals.

    Each has the position of its ``candidate``, its ``score`` and its ``answer``.
    """
    best: dict[str, tuple[float, Json]] = {}
    for transcript in transcripts(record):
        score = transcript.record.score
        if (
            transcript.candidate is None
            or score is None
            or transcript.phase not in _ON_VALIDATION_SET
        ):
            continue
        if transcript.case not in best or score > best[transcript.case][0]:
            answer = transcript.record.output_repr
            best_answer: Json = {
                "candidate": transcript.candidate,
                "score": score,
                "answer": answer,
            }
            best[transcript.case] = score, best_answer
    return {case: best_answer for case, (_, best_answer) in best.items()}


def result_of(
    record: RunRecord,
    *,
    stoppers: Sequence[Stopper] = (),
    labels: Mapping[str, str] = FrozenMap(),
    names: ResultNames | None = None,
    error: str = "",
) -> OptimizeResult:
    """Return the result of a run that has ended or failed.

    Args:
        record: the run.
        stoppers: those of the run.
        labels: the reasons that the user's stoppers give themselves, by the detail of their end.
        names: the user's names of the texts.
        error: the error that ended it; empty without one.
    """
    names = names or ResultNames()
    ended, baseline = record.ended, record.candidates[0]
    reason = StopReason(ended.stop_reason) if ended is not None else StopReason.FAILED
    failed = reason in _FAILED or bool(error)
    best = record.candidates[ended.best] if ended is not None and not failed else baseline
    rates = [candidate_record.figures.pass_rate or 0.0 for candidate_record in (baseline, best)]
    finish: FinishReason = "completed" if best is not baseline else "no_improvement"
    if reason is StopReason.PERFECT:
        finish = "perfect_pass_rate"
    rounds = list(rounds_of(record, names))
    usage = question_tokens(record.folder)
    times = [event.time for _, event in read_lines(record.folder.events)]
    times_known = [time for time in times if isinstance(time, datetime)]
    return OptimizeResult(
        status="FAILED" if failed else _ENDED.get(reason, "SUCCEEDED"),
        finish_reason="error" if failed else finish,
        stop_reason=None if failed or ended is None else _stopped(ended, stoppers, labels),
        error_message=error or (ended.stop_detail if failed and ended else ""),
        baseline_pass_rate=rates[0],
        best_pass_rate=rates[1],
        pass_rate_improvement=rates[1] - rates[0],
        baseline_metric_breakdown=dict(baseline.figures.means),
        best_metric_breakdown=dict(best.figures.means),
        metric_thresholds=dict(ended.passing.thresholds) if ended is not None else {},
        per_metric_best_candidates=_leaders(record.candidates),
        baseline_prompts=names.texts(baseline.texts),
        best_prompts=names.texts(best.texts),
        total_rounds=len(rounds),
        rounds_accepted=sum(round_record.accepted for round_record in rounds),
        merge_rounds_total=sum(round_record.kind == "merge" for round_record in rounds),
        rounds=rounds,
        total_metric_calls=record.rollouts,
        metric_calls_total=record.rollouts,
        proposals_total=sum(
            round_record.kind == "reflective" and bool(round_record.candidate_prompts)
            for round_record in rounds
        ),
        total_reflection_lm_calls=sum(round_record.reflection_lm_calls for round_record in rounds),
        total_token_usage=tokens_of([pair for pairs in usage.values() for pair in pairs]),
        duration_seconds=(times_known[-1] - times_known[0]).total_seconds(),
        started_at=times_known[0].isoformat(),
        finished_at=times_known[-1].isoformat(),
    )


def _stopped(ended: RunEnded, stoppers: Sequence[Stopper], labels: Mapping[str, str]) -> str:
    reason = StopReason(ended.stop_reason)
    # A run says that a candidate is perfect, not which thresholds that reaches.
    if reason is StopReason.PERFECT:
        reached = (stopper.reason for stopper in stoppers if _is_reached(stopper, ended))
        reason = next(reached, reason)
    return _STOPPED.get(reason) or labels.get(ended.stop_detail, "completed")


def _is_reached(stopper: Stopper, ended: RunEnded) -> TypeGuard[RequiredObjectives | TargetScore]:
    """Return whether a run with a perfect candidate has reached the thresholds of a stopper."""
    if isinstance(stopper, TargetScore):
        return ended.best != 0 and reaches(ended.best_mean or 0.0, stopper.score)
    return isinstance(stopper, RequiredObjectives)


def _leaders(candidates: Sequence[CandidateAdded]) -> dict[str, list[int]]:
    leaders: dict[str, list[int]] = {}
    for name in candidates[0].figures.means:
        # A candidate without a mean never leads.
        means = [candidate.figures.means.get(name, -1.0) for candidate in candidates]
        leaders[name] = [at for at, mean in enumerate(means) if mean == max(means)]
    return leaders
