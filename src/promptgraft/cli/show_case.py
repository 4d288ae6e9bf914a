"""What a run has answered to one case, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from promptgraft.cli.output import Screen
from promptgraft.errors import ConfigError
from promptgraft.runs import RunRecord, Transcript, transcripts
from promptgraft.serde import Json, did_you_mean
from promptgraft.text import change, score


@attrs.frozen(kw_only=True)
class HeldOutCase:
    """A case that no part of the search has seen.

    Attributes:
        baseline: the score of the baseline; None when it has none.
        winner: the score of the winner.
        why_not: why nothing was measured; empty when it was.
    """

    baseline: float | None = None
    winner: float | None = None
    why_not: str = ""


@attrs.frozen(kw_only=True)
class ShownCase:
    """A case with every rollout on it.

    Attributes:
        run: the run.
        case: the id of the case.
        found: the rollouts that were asked for; at least one.
        held_out: what is known of it when it is held out; None of another case, and before the
            run has ended.
    """

    run: str
    case: str
    found: Sequence[Transcript]
    held_out: HeldOutCase | None


def case_of(record: RunRecord, case: str, *, candidate: int | None) -> ShownCase:
    """Return what ``candidate``, or everybody, has answered to a case.

    Raises:
        ConfigError: the run has tried nothing on such a case.
        PromptgraftError: a file of the run is not what a run writes.
    """
    only = None if candidate is None else {candidate}
    found = list(transcripts(record, candidates=only, case=case))
    held_out = _held_out(record)
    shown = ShownCase(run=record.id, case=case, found=found, held_out=held_out.get(case))
    if found:
        return shown
    raise ConfigError(
        f"--case: {_who(record, candidate)} has no answer to a case `{case}`"
        f"{_why(record, shown, held_out)}"
    )


def _held_out(record: RunRecord) -> Mapping[str, HeldOutCase]:
    found = record.ended.held_out if record.ended else None
    if found is None:
        return {}
    if found.why_not:
        return dict.fromkeys(found.ids, HeldOutCase(why_not=found.why_not))
    pairs = zip(found.ids, found.baseline_scores, found.winner_scores, strict=True)
    return {case: HeldOutCase(baseline=before, winner=after) for case, before, after in pairs}


def _who(record: RunRecord, candidate: int | None) -> str:
    return f"run {record.id}" if candidate is None else f"candidate {candidate} of run {record.id}"


def _why(record: RunRecord, shown: ShownCase, held_out: Mapping[str, HeldOutCase]) -> str:
    if shown.held_out is not None and shown.held_out.why_not:
        return f": it is held out, and was not measured: {shown.held_out.why_not}"
    if shown.held_out is not None:
        return ": it is held out; only baseline and winner are tried on it"
    if shown.case in record.pareto_ids:
        return "; it was not tried on it"
    near = did_you_mean(shown.case, [*record.pareto_ids, *held_out])
    return f"{near}; the candidates' pages list the cases of D_pareto"


def show_case(screen: Screen, shown: ShownCase) -> None:
    """Print what was asked, answered and said of it, for each rollout."""
    screen.line(f"case {shown.case}", bold=True)
    if shown.held_out is not None:
        means = change(shown.held_out.baseline, shown.held_out.winner)
        screen.line(f"held out, never seen by the search: {shown.held_out.why_not or means}")
    told = ""
    for one in shown.found:
        record = one.record
        if record.inputs_repr != told:
            told = record.inputs_repr
            screen.body(told)
        screen.line()
        who = "a candidate that was not kept" if one.candidate is None else one.candidate
        screen.line(f"candidate {who}, {one.position}: {score(record.score)}", bold=True)
        texts = {
            "answer": record.output_repr,
            "trace": record.tool_trace_repr,
            "feedback": "" if record.feedback is None else record.feedback.feedback,
            "fault": record.fault,
        }
        _print_texts(screen, texts)


def _print_texts(screen: Screen, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        if text:
            screen.line(f"  {name}:")
            screen.body(text, wrapped=True)


def case_json(shown: ShownCase) -> dict[str, Json]:
    """Return the rollouts on a case for machines."""
    held_out = shown.held_out
    return {
        "run": shown.run,
        "held_out": None if held_out is None else attrs.asdict(held_out),
        "rollouts": [_rollout(one) for one in shown.found],
    }


def _rollout(one: Transcript) -> Json:
    return {
        "position": one.position,
        "phase": one.phase,
        "step": one.step,
        "candidate": one.candidate,
        "case": one.case,
        "score": one.record.score,
        "input": one.record.inputs_repr,
        "answer": one.record.output_repr,
        "trace": one.record.tool_trace_repr,
        "feedback": None if one.record.feedback is None else one.record.feedback.feedback,
        "fault": one.record.fault,
    }
