"""From a run directory to what its report tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal

from promptgraft.errors import DataFormatError
from promptgraft.overrides.documents import read_entries
from promptgraft.overrides.types import PromptOverride
from promptgraft.runs.fields import Fields
from promptgraft.runs.files import read_document
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.reading import read_run
from promptgraft.runs.records import CandidateRecord, RejectionRecord, RunRecord
from promptgraft.runs.report.data import (
    AnswerData,
    CandidateData,
    HeldOutData,
    LedgerRow,
    MergeData,
    RejectionData,
    ReportData,
)
from promptgraft.runs.transcripts import Transcript, transcripts
from promptgraft.search.frontier import Frontier
from promptgraft.serde import Json
from promptgraft.text import moment, score

_ADDED = "added_task_examples"
_ON_PARETO = {"baseline", "pareto", "merge", "final"}


def gather(folder: RunFolder) -> ReportData:
    """Return what the report of a run tells, ended or not.

    Raises:
        OSError: a file cannot be read.
        DataFormatError, JournalCorruptError: a file is not what a run writes.
    """
    record = read_run(folder)
    result = _Result(record)
    return ReportData(
        run_id=record.id,
        prompt=record.prompt,
        state=str(record.state),
        facts=tuple(_facts(record)),
        held_out=result.held_out(),
        improved=result.improved,
        stop_reason=result.stop("reason"),
        stop_detail=result.stop("detail"),
        confirmation=result.confirmation(),
        gains=result.gains(),
        case_ids=record.pareto_ids,
        candidates=tuple(_candidate(one, record) for one in record.candidates),
        winner=result.winner,
        frontier=_frontier(record),
        rejections=tuple(map(_rejection, record.rejections)),
        merges=tuple(
            MergeData(step=one.step, parents=one.parents, reason=one.reason, detail=one.detail)
            for one in record.merges
            if one.candidate is None
        ),
        ledger=result.ledger(),
        rollouts=record.rollouts,
        rollout_budget=record.budget,
        reflections=result.reflections,
        answers=_answers(folder, result.winner, record.pareto_ids),
    )


class _Result:
    """What ``result.json`` says; of a run without one, that it has not ended."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        plain = record.result
        self._fields = None if plain is None else Fields(plain, str(record.folder.result))

    @property
    def winner(self) -> int:
        """Position of the winner; 0 when nothing beat the baseline, or the run has not ended."""
        return self._fields.integer("best") if self._fields and self.improved else 0

    @property
    def improved(self) -> bool | None:
        return self._fields.flag("improved") if self._fields else None

    @property
    def reflections(self) -> int:
        if self._fields:
            return self._fields.integer("reflections")
        return self._record.candidates[-1].reflections if self._record.candidates else 0

    def stop(self, name: str) -> str:
        return self._fields.inside("stop").text(name) if self._fields else ""

    def held_out(self) -> HeldOutData:
        if self._fields is None:
            return HeldOutData(why_not="the run has not ended")
        if self._fields.is_null("held_out"):
            return HeldOutData(why_not="the job has no held-out cases")
        found = self._fields.inside("held_out")
        return HeldOutData(
            ids=found.names("ids"),
            baseline_scores=found.scores("baseline_scores"),
            winner_scores=found.scores("winner_scores"),
            why_not=found.text("why_not"),
        )

    def confirmation(self) -> str:
        if self._fields is None or self._fields.is_null("confirmation"):
            return ""
        found = self._fields.inside("confirmation")
        outcome = "confirmed" if found.flag("confirmed") else "did not confirm"
        return (
            f"A second round of answers {outcome} candidate #{found.integer('candidate')}: "
            f"baseline {score(found.number('baseline_mean'))}, winner "
            f"{score(found.number('winner_mean'))}, p = {score(found.number('p_value'))}."
        )

    def gains(self) -> Mapping[str, float]:
        return self._fields.numbers("gains") if self._fields else {}

    def ledger(self) -> tuple[LedgerRow, ...]:
        rows = self._record.result.get("ledger") if self._record.result else None
        where = f"{self._record.folder.result}: ledger"
        return tuple(
            _ledger_row(Fields(row, where))
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, dict)
        )


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "Started", moment(record.started or record.created)
    if record.seed is not None:
        yield "Seed", str(record.seed)
    if record.budget is not None:
        yield "Budget", f"{record.budget:,} rollouts"
    if record.pareto_ids:
        yield "D_pareto", f"{len(record.pareto_ids):,} cases"
    models = _inside(record.config, "settings", "models")
    for role, model in (models if isinstance(models, dict) else {}).items():
        if isinstance(model, str):
            yield f"{role.capitalize()} model", model
    for name, key in (("promptgraft", "promptgraft"), ("Python", "python")):
        version = record.config.get(key)
        if isinstance(version, str):
            yield name, version


def _inside(plain: Mapping[str, Json], *names: str) -> Json:
    value: Json = dict(plain)
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _candidate(one: CandidateRecord, record: RunRecord) -> CandidateData:
    return CandidateData(
        number=one.n,
        step=one.step,
        parents=one.parents,
        module=one.module or "",
        texts={**one.texts, **_added(one.entries, record.prompt)},
        scores=one.scores,
        objectives=one.objectives,
        mean=one.mean,
        rollouts=one.rollouts,
        tokens=one.tokens,
        cost=one.cost,
    )


def _added(entries: Mapping[str, Json], prompt: str) -> Mapping[str, str]:
    """Return the task examples that a candidate adds: no text of the source stands for them."""
    if _ADDED not in entries:
        return {}
    ns, _, key = prompt.rpartition("/")
    address = PromptOverride(ns=ns, prompt_key=key, tag="latest")
    found = read_entries({_ADDED: entries[_ADDED]}, address, where="entries")
    return {entry.part: entry.show() for entry in found.entries()}


def _rejection(one: RejectionRecord) -> RejectionData:
    return RejectionData(
        step=one.step,
        attempt=one.attempt,
        parent=one.parent,
        module=one.module,
        reason=one.reason,
        detail=one.detail,
        before=one.before,
        text=one.text,
        parent_score=one.parent_score,
        child_score=one.child_score,
    )


def _frontier(record: RunRecord) -> tuple[int, ...]:
    """Return the frontier as the run left it; of one that goes on, that of the cases."""
    if record.result is not None:
        with suppress(FileNotFoundError):
            rows = read_document(record.folder.frontier).get("frontier")
            where = str(record.folder.frontier)
            kept = (
                Fields(row, where).integer("candidate")
                for row in (rows if isinstance(rows, list) else ())
                if isinstance(row, dict)
            )
            return tuple(_member(number, record, where) for number in kept)
    if not record.candidates:
        return ()
    frontier = Frontier()
    for one in record.candidates:
        frontier.add(one.scores or (None,) * len(record.pareto_ids))
    return tuple(frontier.members())


def _member(number: int, record: RunRecord, where: str) -> int:
    if 0 <= number < len(record.candidates):
        return number
    raise DataFormatError(
        f"{where}: candidate: expected one of the run's {len(record.candidates)}, found {number}; "
        "`promptgraft resume` writes it again"
    )


def _ledger_row(fields: Fields) -> LedgerRow:
    return LedgerRow(
        role=fields.text("role"),
        model=fields.text("model"),
        calls=fields.integer("calls"),
        retries=fields.integer("retries"),
        input_tokens=fields.integer("input_tokens"),
        cached_tokens=fields.integer("cached_tokens"),
        output_tokens=fields.integer("output_tokens"),
        cost=fields.money("cost") or Decimal(0),
        unpriced_calls=fields.integer("unpriced_calls"),
        seconds=fields.number("seconds") or 0.0,
    )


def _answers(
    folder: RunFolder, winner: int, cases: Iterable[str]
) -> Mapping[tuple[int, str], AnswerData]:
    """Return the answers of baseline and winner on D_pareto."""
    wanted = set(cases)
    return {
        (found.candidate, found.case): _answer(found)
        for found in transcripts(folder, candidates={0, winner})
        if found.candidate is not None and found.phase in _ON_PARETO and found.case in wanted
    }


def _answer(found: Transcript) -> AnswerData:
    record = found.record
    return AnswerData(
        input=record.inputs_repr,
        output=record.output_repr,
        trace=record.tool_trace_repr,
        feedback=record.feedback.feedback if record.feedback else "",
        score=record.score,
        fault=record.fault,
    )
