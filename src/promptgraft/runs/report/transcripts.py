"""Which answers a report shows: as many as fit, case by case."""

from __future__ import annotations

import attrs

from promptgraft.runs.report.allowance import Allowance, Limits, cropped, short_name, size
from promptgraft.runs.report.data import AnswerData, ReportData

_LONGEST = 12_000
_CASE_BYTES = 900


@attrs.frozen(kw_only=True)
class CaseView:
    """The answers of baseline and winner to one case.

    Attributes:
        case: the case.
        input: what was asked.
        answers: who answered, and the answer; one or two.
        outcome: ``better``, ``worse``, ``same``, ``unscored``, or empty without a winner.
    """

    case: str
    input: str
    answers: tuple[tuple[str, AnswerData], ...]
    outcome: str


@attrs.frozen(kw_only=True)
class Transcripts:
    """The answers that a report shows.

    Attributes:
        cases: those that it shows, the changed ones first.
        left_out: how many did not fit.
    """

    cases: tuple[CaseView, ...]
    left_out: int


def choose(data: ReportData, limits: Limits) -> Transcripts:
    """Return the answers of baseline and winner to each case of D_pareto, as far as they fit."""
    allowance = Allowance(limits.answers)
    found = [view for case in data.case_ids if (view := _case(data, case)) is not None]
    ranked = sorted(found, key=lambda view: _ORDER.get(view.outcome, len(_ORDER)))
    cases = tuple(view for view in ranked if allowance.takes(_size(view)))
    return Transcripts(cases=cases, left_out=len(found) - len(cases))


_ORDER = {"worse": 0, "better": 1, "unscored": 2, "same": 3}


def _case(data: ReportData, case: str) -> CaseView | None:
    who = {0: "Baseline", data.winner: f"Winner, #{data.winner}"}
    who[0] = "Baseline"
    answers = tuple(
        (name, _shortened(answer))
        for number, name in who.items()
        if (answer := data.answers.get((number, case))) is not None
    )
    if not answers:
        return None
    return CaseView(
        case=short_name(case),
        input=answers[0][1].input,
        answers=answers,
        outcome=_outcome(answers[0][1], answers[1][1]) if len(answers) == 2 else "",
    )


def _outcome(before: AnswerData, after: AnswerData) -> str:
    if before.score is None or after.score is None:
        return "unscored"
    if before.score == after.score:
        return "same"
    return "better" if after.score > before.score else "worse"


def _shortened(answer: AnswerData) -> AnswerData:
    return attrs.evolve(
        answer,
        input=cropped(answer.input, _LONGEST),
        output=cropped(answer.output, _LONGEST),
        trace=cropped(answer.trace, _LONGEST),
        feedback=cropped(answer.feedback, _LONGEST),
        fault=cropped(answer.fault, _LONGEST),
    )


def _size(view: CaseView) -> int:
    texts = (
        size(text)
        for _, answer in view.answers
        for text in (answer.output, answer.trace, answer.feedback, answer.fault)
    )
    return size(view.input) + sum(texts) + _CASE_BYTES
