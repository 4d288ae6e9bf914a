"""The HTML pages: the report of a run, the comparison of two runs, and the list of runs."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from promptgraft import __version__
from promptgraft.evals.spending import Spending
from promptgraft.ground.text import (
    counted,
    dollars,
    model_in_words,
    number_or_unknown,
    score,
    visible,
)
from promptgraft.runs import comparing
from promptgraft.runs.folder import RunFolder, write_text
from promptgraft.runs.history import shown_mean
from promptgraft.runs.reading import RunRecord, RunSummary
from promptgraft.runs.report import drawings, tables, texts
from promptgraft.runs.report.data import ReportData, gather
from promptgraft.search.scores import Score, mean_score
from promptgraft.search.verdict import RunVerdict
from promptgraft.targets.base import RejectionReason

if TYPE_CHECKING:
    from jinja2 import Environment


@attrs.frozen(kw_only=True)
class Links:
    """Where links of sections lead: to other parts of the file, or to other pages of a server.

    Attributes:
        candidates: address of the page with all candidates; empty for the same page.
        cases: address of the page with all cases.
        case: address of the page of a case, to which its id is added; empty for none.
        compare: address of the page that compares candidates; empty for none.
    """

    candidates: str = ""
    cases: str = ""
    case: str = ""
    compare: str = ""


NO_LINKS = Links()

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_OBJECTIVES = 10
_MOST_CASES = 3_000
LABELS = "ABCDEFGH"
"""What compared runs are called; no more are compared at a time."""
_MOST_RUNS = 2_000


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write the report of a run, ended or not, and return its path, by default in the folder.

    Raises:
        DataFormatError, JournalCorruptError: a file of the run is invalid.
    """
    target = folder.report if out is None else out
    write_text(target, render(gather(folder)))
    return target


def render(data: ReportData, most: int = texts.TOTAL_BYTES, *, address: str = "") -> str:
    """Return the page in at most ``most`` bytes of UTF-8, by showing less of a long run.

    The fixed parts of a page take about 100 kB. It links to the ``address`` of its job on a server.
    """

    def make(limits: texts.PageLimits) -> str:
        values = section_values(data, tuple(_VALUES), limits)
        fixed = {"data": data, "verdict": verdict_of(data), "links": NO_LINKS, "address": address}
        return filled("page.html", **fixed, **values)

    return _within(most, make, texts.PageLimits())


def sections(data: ReportData, names: Sequence[str], links: Links, most: int) -> str:
    """Return sections of the page, the templates of ``names``, in at most ``most`` bytes."""

    def make(limits: texts.PageLimits) -> str:
        values = section_values(data, names, limits)
        return (
            make_environment()
            .get_template("sections.html")
            .render(names=names, data=data, verdict=verdict_of(data), links=links, **values)
        )

    return _within(most, make, texts.PageLimits().halved())


def _within(most: int, make: Callable[[texts.PageLimits], str], limits: texts.PageLimits) -> str:
    page = make(limits)
    # Sizes of texts are estimates, so that the finished page decides; 0 ends the loop.
    while len(page.encode()) > most and limits.listed:
        limits = limits.halved()
        page = make(limits)
    return page


def filled(template: str, **values: object) -> str:
    """Render a template with its values, the style and the script."""
    style, script = asset("report.css"), asset("report.js")
    # Only this style and this script are allowed, so that no text of a run can add another.
    # A page from a file has no HTTP headers, so that the policy stands in a `meta` element.
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; "
        f"script-src 'sha256-{_hash(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    page_template = make_environment().get_template(template)
    return page_template.render(
        version=__version__, style=style, script=script, policy=policy, **values
    )


def section_values(
    data: ReportData, names: Sequence[str], limits: texts.PageLimits
) -> dict[str, object]:
    """Return what the templates of ``names`` show of a run."""
    return {
        name: value
        for section in names
        for name, value in _VALUES.get(section, _nothing)(data, limits).items()
    }


def _nothing(_data: ReportData, _limits: texts.PageLimits) -> dict[str, object]:
    return {}


def _candidates(data: ReportData, _limits: texts.PageLimits) -> dict[str, object]:
    return {
        "tree": drawings.family_tree(data),
        "frontier": tables.frontier_rows(data),
        "objectives": _objectives(data),
    }


def _every(data: ReportData, limits: texts.PageLimits) -> dict[str, object]:
    reasons = Counter(rejection.reason for rejection in data.steps.rejections)
    return {
        "candidates": texts.candidate_views(data, limits),
        "line": data.line_of(data.winner) if data.candidates else (),
        "rejections": tuple(texts.rejection_views(data, limits)),
        "reasons": sorted(reasons.items(), key=lambda item: (-item[1], item[0])),
        "meanings": REASONS,
    }


def _progress(data: ReportData, _limits: texts.PageLimits) -> dict[str, object]:
    return {
        "rollouts_chart": drawings.rollouts_chart(data),
        "spending": drawings.spending_chart(data),
        "length_chart": drawings.length_chart(data),
        "steps": tuple(drawings.steps_of(data.candidates, data.winner))[:200],
    }


_VALUES: Mapping[str, Callable[[ReportData, texts.PageLimits], dict[str, object]]] = {
    "result.html": lambda data, _: {"held_out": data.end.held_out.gain},
    "changes.html": lambda data, _: {"winner_changes": texts.winner_changes(data)},
    "whole.html": lambda data, _: {
        "whole": tuple(tables.whole_prompts(data)),
        "amounts": tuple(tables.amounts(data)),
    },
    "scores.html": lambda data, _: {"breakdown": tables.breakdown(data)},
    "cases.html": lambda data, _: {"heat": tables.heat_map(data)},
    "answers.html": lambda data, limits: {"transcripts": tuple(texts.transcripts_of(data, limits))},
    "progress.html": _progress,
    "candidates.html": _candidates,
    "graph.html": lambda data, _: {"graph": drawings.graph_view(data)},
    "rounds.html": lambda data, limits: {"rounds": tuple(texts.round_views(data, limits))},
    "every.html": _every,
}
"""What each section shows of a run, by its template; others need only the data."""


@attrs.frozen
class ShownVerdict:
    """How a verdict is shown: its word, style and sign, what it means, and what to do about it."""

    word: str
    kind: str
    sign: str
    sentence: str
    next_step: str = ""


_ALL_VERDICTS = (
    ShownVerdict(
        RunVerdict.IMPROVED,
        "good",
        "✓",
        "Better on cases that the search has not seen.",
        "Read what changed before it is used.",
    ),
    ShownVerdict(
        RunVerdict.GAMED,
        "mark",
        "?",
        "Higher scores on unseen cases, but perhaps not by better answers: see the warnings.",
        "Read what changed, and compare answers under Cases, before anybody uses it.",
    ),
    # Better on the cases that chose it, which says little: so it is marked, not praised.
    ShownVerdict(
        RunVerdict.NOT_SHOWN,
        "mark",
        "!",
        "Better on the cases that chose it; on unseen cases the difference may be luck.",
        "Keep your prompt, and test again with more cases.",
    ),
    ShownVerdict(
        RunVerdict.WORSE,
        "bad",
        "✗",
        "Better on the cases that chose it, but worse on unseen cases.",
        "Keep your prompt; with more cases, a search is less often misled.",
    ),
    ShownVerdict(
        RunVerdict.LOST_CRITICAL,
        "bad",
        "✗",
        "Better on the cases that chose it, but worse on an unseen case that is critical.",
        "Keep your prompt, and look at that case under Cases.",
    ),
    ShownVerdict(
        RunVerdict.NOT_CHECKED,
        "mark",
        "!",
        "Better on the cases that chose it; it was not tested on unseen cases.",
        "Keep your prompt, or repeat the search with cases to test on.",
    ),
    ShownVerdict(
        RunVerdict.NOT_IMPROVED,
        "plain",
        "=",
        "No new text was better: the prompt stays as it is.",
        "Allow more test calls, or add cases that your prompt gets wrong.",
    ),
)
VERDICTS: Mapping[str, ShownVerdict] = {verdict.word: verdict for verdict in _ALL_VERDICTS}
REASONS: Mapping[str, str] = {
    RejectionReason.UNPARSABLE: "the reply did not have the required form",
    RejectionReason.EMPTY: "the new text is empty",
    RejectionReason.UNUSABLE_TEXT: "it has characters that a prompt cannot have",
    RejectionReason.LOST_PLACEHOLDER: "it lacks a place that an input fills",
    RejectionReason.INVENTED_PLACEHOLDER: "it has a place that no input fills",
    RejectionReason.TOO_LONG: "it is longer than the limit allows",
    RejectionReason.UNCHANGED: "it is the old text again",
    RejectionReason.DUPLICATE: "the same text was tried before",
    RejectionReason.CONFLICT: "it contradicts another change",
    RejectionReason.DOES_NOT_FIT: "it is of another kind than the part that it replaces",
    RejectionReason.DOES_NOT_RENDER: "the prompt cannot be filled in with it",
    RejectionReason.REFLECTION_FAILED: "the model that writes new texts gave no answer",
    RejectionReason.NOT_BETTER: "it scored no higher than the old text on the same cases",
    RejectionReason.TOO_DEAR: "its answers cost too much",
    RejectionReason.COPIED_ANSWER: "it gives the answer to a case away",
    RejectionReason.UNSCORED: "too few of its answers could be scored",
}
"""What reasons of dropped rewrites mean."""
_RUNNING = "The run was in progress when this report was written."


def verdict_of(data: ReportData) -> ShownVerdict:
    """Return the verdict on the run, or what is known before there is one."""
    if data.state == "running":
        return ShownVerdict("running", "mark", "…", _RUNNING)
    if data.state not in ("ended", "stopped") or data.end.verdict is None:
        return ShownVerdict("interrupted", "mark", "!", "The run did not come to its end.")
    return VERDICTS[data.end.verdict]


def _objectives(data: ReportData) -> tuple[str, ...]:
    names = {name for candidate in data.candidates[:1] for name in candidate.objectives}
    return tuple(sorted(names))[:_MOST_OBJECTIVES] if len(names) > 1 else ()


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def asset(name: str) -> str:
    """Return the style or the script of the report."""
    return (_TEMPLATES / name).read_text("utf-8")


@cache
def make_environment(*folders: Path) -> Environment:
    """Return the environment for the templates of reports, and of ``folders``, which come first.

    Every text is escaped, and its control characters are spelled out.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        """Spell out control characters wherever a text is put into the page."""
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": score,
        "average": mean_score,
        "mean": shown_mean,
        "changed": lambda one: one.changed if one.candidate else "your prompt",
        "minus": lambda one, other: None if None in (one, other) else one - other,
        "signed": lambda value: f"{value:+.3f}",
        "counted": lambda number, noun: counted(number, noun).replace(
            str(number), f"{number:,}", 1
        ),
        "dollars": dollars,
        "tokens": number_or_unknown,
        "crop": lambda text: texts.cropped(text, 2_000),
        "name": texts.short_name,
        "model": model_in_words,
        "across": tables.across,
        "reach": lambda gain: tables.reach_of([gain]),
        "span": tables.mean_interval,
        "query": lambda text: quote(text, safe="", errors="replace"),
        "spending": _spending,
        "sentence": _sentence,
    }
    return environment


def _spending(spent: Sequence[Spending]) -> str:
    seconds = sum(spending.microseconds for spending in spent) / 1_000_000
    costs = [spending.cost for spending in spent]
    known = None if None in costs else sum((cost for cost in costs if cost), Decimal(0))
    return f"{seconds:.1f} s, {dollars(known)}"


def _sentence(text: str) -> str:
    text = text.strip()
    closed = text if text.endswith((".", "!", "?")) else f"{text}."
    # Names of files and settings stay as they are.
    is_word = re.match(r"[a-z]+[,:;.]*( |$)", text) is not None
    return closed[:1].upper() + closed[1:] if is_word else closed


def comparison_page(*sides: RunRecord) -> str:
    """Return the page that compares two runs or more: figures, texts, scores case by case."""
    return filled("compare.html", **comparison(sides))


def comparison(
    sides: Sequence[RunRecord], *, verdicts: Sequence[str] = (), ends: Sequence[str] = ()
) -> dict[str, object]:
    """Return what pages show of two runs or more side by side; the first is compared with each.

    Args:
        sides: the runs.
        verdicts: the verdict on each run, by default its own; a job that failed has none.
        ends: how each ended, by default what the run says.
    """
    first, *others = sides
    labels = LABELS[: len(sides)]
    pairs = [
        (label, other, comparing.incomparable(first, other, labels=(labels[0], label)))
        for label, other in zip(labels[1:], others, strict=True)
    ]
    winners = [record.sides[1].texts if record.sides else {} for record in sides]
    cases = tuple(_differing_cases(sides))
    rows = _columns(first, [(other, differing) for _, other, differing in pairs])
    if verdicts:
        rows = [
            (name, *verdicts, *cells[len(sides) :]) if name == comparing.VERDICT else (name, *cells)
            for name, *cells in rows
        ]
    ends = ends or [
        f"stopped: {side.stopped}" if side.stopped else "has not ended" for side in sides
    ]
    return {
        "sides": sides,
        "labels": labels,
        "ends": ends,
        "reasons": list(dict.fromkeys(why for *_, differing in pairs for why in differing.reasons)),
        "rows": rows,
        "untested": [
            label
            for label, record in zip(labels, sides, strict=True)
            if not comparing.tested(record)
        ],
        "gains": [
            (
                label,
                comparing.gain_between(first, other, differing),
                comparing.means_in_common(first, other, differing),
            )
            for label, other, differing in pairs
        ],
        "changes": [
            (label, tuple(texts.changes_between(winners[0], winner)))
            for label, winner in zip(labels[1:], winners[1:], strict=True)
        ],
        "curves": drawings.curves_chart(sides, labels),
        "cases": cases[:_MOST_CASES],
        "left_out": len(cases[_MOST_CASES:]),
    }


def _columns(
    first: RunRecord, others: Sequence[tuple[RunRecord, comparing.Incomparable]]
) -> list[tuple[str, ...]]:
    """Return rows of figures, a column for each run; of two runs also with their difference."""
    pairs = [
        {row[0]: row[1:] for row in comparing.figure_rows(first, other, differing)}
        for other, differing in others
    ]
    names = dict.fromkeys(name for rows in pairs for name in rows)
    if len(pairs) == 1:
        return [(name, *pairs[0][name]) for name in names]
    firsts = {name: row[0] for rows in pairs for name, row in rows.items()}
    empty = ("none", "none", "")
    return [(name, firsts[name], *(rows.get(name, empty)[1] for rows in pairs)) for name in names]


def history_page(folder: str, runs: Sequence[RunSummary]) -> str:
    """Return the page that lists the runs of a folder with their gains."""
    gains = [run.held_out for run in runs if run.held_out and run.held_out.cases]
    return filled(
        "history.html",
        folder=folder,
        runs=runs[:_MOST_RUNS],
        left_out=len(runs[_MOST_RUNS:]),
        reach=tables.reach_of(gains),
    )


def _differing_cases(
    sides: Sequence[RunRecord],
) -> Iterator[tuple[str, str, tuple[Score, ...], str]]:
    """Yield set, case, the score of each run, and how the last compares with the first.

    Unseen cases come first; cases that only one run has are left out.
    """
    for name, scores_of in (
        ("unseen", comparing.unseen_scores),
        ("validation", comparing.seen_scores),
    ):
        scores = [scores_of(record) for record in sides]
        for case in dict.fromkeys(case for by_case in scores for case in by_case):
            if sum(case in by_case for by_case in scores) > 1:
                row = tuple(by_case.get(case) for by_case in scores)
                yield name, case, row, difference(row)


def difference(scores: Sequence[Score]) -> str:
    """Compare scores on a case: two as `texts.outcome` does, more as ``changed`` or ``same``."""
    if len(scores) == 2:
        return texts.outcome(*scores)
    scored = {score for score in scores if score is not None}
    return "changed" if len(scored) > 1 else "same"
