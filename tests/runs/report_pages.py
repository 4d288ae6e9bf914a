"""Runs made by hand, for tests of their reports."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import attrs
from msgspec.structs import replace

from promptgraft.adapters.base import Usage
from promptgraft.evals.spending import Role, Spending
from promptgraft.runs import RunFolder, RunRecord, read_run
from promptgraft.runs.reading import summarize
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.page import comparison_page, history_page
from promptgraft.search.events import CandidateAdded, MergeRejected, MutationRejected
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.verdict import HeldOut, RunVerdict
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import RolloutFeedback, RolloutRecord

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><script>window.pwned = 2</script>",
    "</style><img src=x onerror='window.pwned = 3'>",
    '"><svg onload="window.pwned = 4">',
    "<iframe src='javascript:window.parent.pwned = 5'></iframe>",
    "<a href='javascript:window.pwned = 6'>javascript:window.pwned = 6</a>",
    "{{ 7 * 7 }} {% for x in y %} {# gone #}",
    "${7 * 7} `${7 * 7}` #{7 * 7}",
    "<!-- <![CDATA[ ]]> --!> -->",
    "&lt;b&gt; &amp;amp; &#60;i&#62;",
    "' onmouseover='window.pwned = 7' x='",
    "<base href='https://evil.example/'><form action='https://evil.example/'>",
    "<meta http-equiv='refresh' content='0; url=https://evil.example/'>",
    "@import url('https://evil.example/x.css'); background: url(https://evil.example/y)",
    "null \x00 bell \x07 escape \x1b[31m return \r delete \x7f next \x85",
    "admin\u202e txt.exe \u2066 isolate \u2069 \u200f mark",
    "line \u2028 paragraph \u2029 mark \ufeff",
    "half \ud800 other \udfff",
    "emoji 👩‍🔬, שלום, 日本語, e\u0301",
    "</details></summary></main></body></html> <plaintext><textarea><title>",
)
"""Texts that a page must show as text; each begins where the one before was not enough."""


def candidate(number: int, *, parents: tuple[int, ...] = (), **changes: Any) -> CandidateAdded:
    """Return a candidate that scores more the later it comes."""
    scores = (1.0, 0.5 if number else 0.0, float(number > 1), None if number == 1 else 0.0)
    known = [score for score in scores if score is not None]
    values = {
        "step": number,
        "parents": parents,
        "module": "section rules" if len(parents) == 1 else "",
        "texts": {
            "section rules": f"Answer in one word.\nThink {number} times.",
            "section tone": "Kind.",
        },
        "scores": scores,
        "mean": sum(known) / len(known),
        "rollouts": 4 + 10 * number,
        "objectives": {},
        "tokens": 0,
        "cost": Decimal(number + 1) / 10,
        **changes,
    }
    return CandidateAdded(candidate=number, best=number, reflections=0, entries={}, **values)


def small_run(**changes: Any) -> ReportData:
    """Return a run of four candidates, the last one a merge and the winner."""
    values = {
        "facts": (("Seed", "0"),),
        "held_out": HeldOut(
            ids=tuple(f"unseen-{number}" for number in range(8)),
            baseline_scores=(0.0,) * 8,
            winner_scores=(1.0,) * 7 + (None,),
        ),
        "verdict": RunVerdict.IMPROVED,
        "stopped": "too few test calls left for another step and the final test",
        "stop_detail": "1 of 60 test calls is left",
        "gains": {"section": 0.1, "merge": 0.2},
        "case_ids": ("t-1", "t-2", "t-3", "t-4"),
        "candidates": (
            candidate(0),
            candidate(1, parents=(0,)),
            candidate(2, parents=(0,)),
            candidate(3, parents=(2, 1)),
        ),
        "winner": 3,
        "frontier": (1, 3),
        "rejections": (
            MutationRejected(
                step=4,
                attempt=1,
                parent=3,
                module="section rules",
                reason=RejectionReason.NOT_BETTER,
                detail="the child has 0.250, the parent 0.500",
                before="Think 3 times.",
                text="Think never.",
                parent_score=0.5,
                child_score=0.25,
            ),
            MutationRejected(
                step=5,
                attempt=2,
                parent=3,
                module="section rules",
                reason=RejectionReason.UNPARSABLE,
                detail="there is no block",
            ),
        ),
        "merges": (
            MergeRejected(
                step=2, parents=(2, 1), reason=RejectionReason.NOT_BETTER, detail="worse"
            ),
        ),
        "ledger": (
            LedgerEntry(
                role=Role.TASK,
                model="some-model",
                calls=60,
                retries=1,
                usage=Usage(input_tokens=1_200, output_tokens=300),
                cost=Decimal("0.4"),
                unpriced_calls=0,
                seconds=12.5,
            ),
        ),
        "prompts": {
            "support/triage": {
                "baseline": "## Rules\n\nAnswer.",
                "winner": "## Rules\n\nAnswer in one word.\n\n$ticket",
            }
        },
        "rollouts": 60,
        "budget": 61,
        "reflections": 5,
        "seen": {
            (number, f"t-{case}"): RolloutRecord(
                example_id=f"t-{case}",
                inputs_repr=f"question {case}",
                output_repr=f"answer {number}.{case}",
                tool_trace_repr="looked twice",
                feedback=RolloutFeedback(score=(0.0, 1.0)[number > 0], feedback="half right"),
                spent=(
                    Spending(
                        role=Role.TASK,
                        model="some-model",
                        input_tokens=100 + 50 * number,
                        output_tokens=case,
                        cost=Decimal("0.002"),
                    ),
                ),
            )
            for number in (0, 3)
            for case in (1, 2, 3)
        },
        "unseen": {
            (number, f"unseen-{case}"): said(number, f"unseen-{case}", "red", found, tone=case / 8)
            for number, found in ((0, "blue"), (3, "red"))
            for case in range(6)
        },
        **changes,
    }
    return changed(ReportData(run_id="20260101-000000-triage", prompt="support/triage"), **values)


def changed(run: ReportData, **changes: Any) -> ReportData:
    """Return the data with other values, of whichever group each belongs to."""
    for name in ("steps", "used", "end", "answers"):
        group = getattr(run, name)
        fields = {field.name for field in attrs.fields(type(group))} & changes.keys()
        changes[name] = attrs.evolve(group, **{field: changes.pop(field) for field in fields})
    return attrs.evolve(run, **changes)


def said(number: int, case: str, expected: str, found: str, *, tone: float) -> RolloutRecord:
    """Return an answer that two metrics judge, one of them by comparing labels."""
    right = expected == found
    wrong = f"[failed] color 0: expected `{expected}`, found `{found}`"
    color = f"[passed] color 1: found `{found}`" if right else wrong
    return RolloutRecord(
        example_id=case,
        inputs_repr=json.dumps({"question": f"which color has {case}", "urgent": False}),
        output_repr=f"{found}, says {number}",
        expected_repr=expected,
        tool_trace_repr="",
        feedback=RolloutFeedback(
            score=(right + tone) / 2,
            feedback=f"{color}\n[failed] tone {tone:g}: too loud",
            objectives={"color": float(right), "tone": tone},
        ),
    )


def hostile_run(cases: int = len(HOSTILE)) -> ReportData:
    """Return a run in which every text is hostile, wherever texts come from outside."""
    run = small_run()
    everything = "\n".join(HOSTILE)
    ids = tuple(f"{text} {number}" for number, text in enumerate(HOSTILE[:cases]))
    candidates = tuple(
        replace(
            one,
            module=HOSTILE[one.candidate] if len(one.parents) == 1 else "",
            texts={everything: f"{everything} {one.candidate}", HOSTILE[one.candidate]: "same"},
            scores=(1.0,) * len(ids),
            objectives={HOSTILE[2]: 0.5, HOSTILE[3]: 0.25},
        )
        for one in run.candidates
    )
    return changed(
        run,
        run_id=HOSTILE[1],
        prompt=everything,
        facts=((HOSTILE[0], everything), (HOSTILE[3], HOSTILE[10])),
        stopped=HOSTILE[0],
        stop_detail=everything,
        gains={HOSTILE[4]: 0.5},
        prompts={everything: {"baseline": "", "winner": everything}},
        warnings=HOSTILE,
        held_out=HeldOut(
            ids=ids, baseline_scores=(0.0,) * len(ids), winner_scores=(1.0,) * len(ids)
        ),
        case_ids=ids,
        candidates=candidates,
        rejections=tuple(
            replace(one, module=HOSTILE[5], reason=HOSTILE[1], detail=everything, text=everything)
            for one in run.steps.rejections
        ),
        merges=(replace(run.steps.merges[0], reason=HOSTILE[0], detail=everything),),
        ledger=(attrs.evolve(run.end.ledger[0], model=HOSTILE[1]),),
        seen={
            (number, id_): RolloutRecord(
                example_id=id_,
                inputs_repr=everything,
                output_repr=text,
                expected_repr=everything,
                tool_trace_repr=everything,
                feedback=RolloutFeedback(score=0.5, feedback=text),
                fault=text,
            )
            for number in (0, 3)
            for id_, text in zip(ids, HOSTILE[:cases], strict=True)
        },
        unseen={
            (number, id_): RolloutRecord(
                example_id=id_,
                inputs_repr=json.dumps({text: text}),
                output_repr=text,
                tool_trace_repr=text,
                feedback=RolloutFeedback(
                    score=0.5,
                    feedback=f"[failed] {HOSTILE[0]} 0: expected `{text}`, found `{text[::-1]}`",
                    objectives={HOSTILE[0]: 0.5, HOSTILE[3]: 0.25},
                ),
            )
            for number in (0, 3)
            for id_, text in zip(ids, HOSTILE[:cases], strict=True)
        },
    )


def hostile_record(folder: RunFolder) -> RunRecord:
    """Return the record of a run in which every text is hostile."""
    record, everything = read_run(folder), "\n".join(HOSTILE)
    assert record.ended is not None
    ended = replace(
        record.ended,
        stop_reason=HOSTILE[0],
        stop_detail=everything,
        held_out=HeldOut(
            ids=HOSTILE, baseline_scores=(0.0,) * len(HOSTILE), winner_scores=(1.0,) * len(HOSTILE)
        ),
    )
    record.prompt, record.ended = everything, ended
    assert record.started is not None
    record.started = replace(record.started, pareto_ids=HOSTILE)
    record.candidates = [
        replace(one, module=everything, texts={everything: f"{everything} {one.candidate}"})
        for one in record.candidates
    ]
    return record


def overviews(folder: RunFolder) -> tuple[str, str]:
    """Return the pages over two runs, and over all of a folder, with hostile texts."""
    record, everything = hostile_record(folder), "\n".join(HOSTILE)
    other = hostile_record(folder)
    other.candidates = [
        replace(one, texts={everything: everything[::-1]}) for one in other.candidates
    ]
    summary = summarize(folder)
    assert summary.ended is not None
    ended = replace(summary.ended, stop_reason=everything)
    listed = attrs.evolve(summary, prompt=everything, ended=ended, fault=everything)
    return comparison_page(record, other), history_page(HOSTILE[1], [listed, listed])
