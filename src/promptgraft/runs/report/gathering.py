"""From a run directory to what its report tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from promptgraft.overrides.documents import read_entries
from promptgraft.overrides.types import PromptOverride
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.reading import read_run
from promptgraft.runs.records import RunRecord
from promptgraft.runs.report.data import AnswerData, ReportData
from promptgraft.runs.transcripts import Transcript, transcripts
from promptgraft.search.events import CandidateAdded, MergeRejected, RunEnded
from promptgraft.search.frontier import Frontier
from promptgraft.search.outcomes import HeldOut
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
    ended = record.ended
    winner = ended.best if ended and ended.improved else 0
    return ReportData(
        run_id=record.id,
        prompt=record.prompt,
        state=str(record.state),
        facts=tuple(_facts(record)),
        held_out=_held_out(ended),
        improved=ended.improved if ended else None,
        stop_reason=ended.stop_reason if ended else "",
        stop_detail=ended.stop_detail if ended else "",
        confirmation=_confirmation(ended),
        gains=ended.gains if ended else {},
        case_ids=record.pareto_ids,
        candidates=tuple(_candidate(one, record) for one in record.candidates),
        winner=winner,
        frontier=ended.frontier if ended else _frontier(record),
        rejections=tuple(record.rejections),
        merges=tuple(one for one in record.merges if isinstance(one, MergeRejected)),
        ledger=ended.ledger if ended else (),
        rollouts=record.rollouts,
        rollout_budget=record.budget,
        reflections=record.reflections,
        answers=_answers(record, winner),
    )


def _held_out(ended: RunEnded | None) -> HeldOut:
    if ended is None:
        return HeldOut(ids=(), why_not="the run has not ended")
    return ended.held_out or HeldOut(ids=(), why_not="the job has no held-out cases")


def _confirmation(ended: RunEnded | None) -> str:
    found = ended.confirmation if ended else None
    if found is None:
        return ""
    outcome = "confirmed" if found.confirmed else "did not confirm"
    return (
        f"A second round of answers {outcome} candidate #{found.candidate}: "
        f"baseline {score(found.baseline_mean)}, winner {score(found.winner_mean)}, "
        f"p = {score(found.p_value)}."
    )


def _facts(record: RunRecord) -> Iterator[tuple[str, str]]:
    yield "Started", moment(record.began or record.created)
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


def _candidate(one: CandidateAdded, record: RunRecord) -> CandidateAdded:
    """Return a candidate with the texts of the task examples that it adds, too."""
    if _ADDED not in one.entries:
        return one
    ns, _, key = record.prompt.rpartition("/")
    address = PromptOverride(ns=ns, prompt_key=key, tag="latest")
    found = read_entries({_ADDED: one.entries[_ADDED]}, address, where="entries")
    added = {entry.part: entry.show() for entry in found.entries()}
    return replace(one, texts={**one.texts, **added})


def _frontier(record: RunRecord) -> tuple[int, ...]:
    """Return the frontier of the cases, of a run that has not left its own."""
    if not record.candidates:
        return ()
    frontier = Frontier()
    for one in record.candidates:
        frontier.add(one.scores or (None,) * len(record.pareto_ids))
    return tuple(frontier.members())


def _answers(record: RunRecord, winner: int) -> Mapping[tuple[int, str], AnswerData]:
    """Return the answers of baseline and winner on D_pareto."""
    wanted = set(record.pareto_ids)
    return {
        (found.candidate, found.case): _answer(found)
        for found in transcripts(record, candidates={0, winner})
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
