"""The HTML pages: the report of a run, the comparison of two runs, and the list of runs."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from promptgraft import __version__
from promptgraft.ground.text import counted, dollars, model_in_words, score, visible
from promptgraft.runs.comparing import (
    Incomparable,
    figure_rows,
    gain_between,
    incomparable,
    seen_scores,
    unseen_scores,
)
from promptgraft.runs.folder import RunFolder, write_text
from promptgraft.runs.history import shown_mean
from promptgraft.runs.reading import RunRecord, RunSummary
from promptgraft.runs.report import texts
from promptgraft.runs.report.data import ReportData, gather
from promptgraft.runs.report.drawings import (
    family_tree,
    graph_view,
    rollouts_chart,
    spending_chart,
    steps_of,
)
from promptgraft.runs.report.tables import (
    across,
    amounts,
    breakdown,
    frontier_rows,
    heat_map,
    reach_of,
    whole_prompts,
)
from promptgraft.search.scores import Score
from promptgraft.search.verdict import RunVerdict

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_OBJECTIVES = 10
_MOST_CASES = 3_000
_MOST_RUNS = 2_000


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Write the report of a run, ended or not, and return its path, by default in the folder.

    Raises:
        DataFormatError, JournalCorruptError: a file of the run is invalid.
    """
    target = folder.report if out is None else out
    write_text(target, render(gather(folder)))
    return target


def render(data: ReportData, most: int = texts.TOTAL_BYTES) -> str:
    """Return the page in at most ``most`` bytes of UTF-8, by showing less of a long run.

    The fixed parts of a page take about 100 kB.
    """
    limits = texts.PageLimits()
    page = _filled(data, limits)
    # Sizes of texts are estimates, so that the finished page decides; 0 ends the loop.
    while len(page.encode()) > most and limits.listed:
        limits = limits.halved()
        page = _filled(data, limits)
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


def _filled(data: ReportData, limits: texts.PageLimits) -> str:
    return filled(
        "page.html",
        data=data,
        verdict=_verdict(data),
        held_out=data.held_out.gain,
        rollouts_chart=rollouts_chart(data),
        spending=spending_chart(data),
        steps=tuple(steps_of(data.candidates, data.winner))[:200],
        tree=family_tree(data),
        graph=graph_view(data),
        objectives=_objectives(data),
        frontier=frontier_rows(data),
        heat=heat_map(data),
        winner_changes=texts.winner_changes(data),
        candidates=texts.candidate_views(data, limits),
        line=data.line_of(data.winner) if data.candidates else (),
        rejections=tuple(texts.rejection_views(data, limits)),
        reasons=sorted(
            Counter(rejection.reason for rejection in data.rejections).items(),
            key=lambda item: (-item[1], item[0]),
        ),
        whole=tuple(whole_prompts(data)),
        amounts=tuple(amounts(data)),
        transcripts=tuple(texts.transcripts_of(data, limits)),
        breakdown=breakdown(data),
    )


def _verdict(data: ReportData) -> dict[str, str]:
    """Return the verdict on the run: a word with its style and sign, and a sentence."""
    if data.state == "running":
        mark_parts = "mark", "…", "running", "The run was in progress when this report was written."
    elif data.state not in ("ended", "stopped") or data.verdict is None:
        mark_parts = "mark", "!", "interrupted", "The run did not come to its end."
    elif data.verdict is RunVerdict.IMPROVED:
        sentence = f"Candidate #{data.winner} beats the baseline on held-out cases."
        mark_parts = "good", "✓", str(data.verdict), sentence
    elif data.verdict is RunVerdict.GAMED:
        sentence = (
            f"Candidate #{data.winner} scores more on held-out cases, but perhaps not by better "
            "answers: see the warnings."
        )
        mark_parts = "mark", "?", str(data.verdict), sentence
    elif data.winner:
        sentence = f"Candidate #{data.winner} beats the baseline on the validation set."
        # Better on the cases that chose it, which says little: so it is marked, not praised.
        mark_parts = "mark", "!", str(data.verdict), sentence
    else:
        mark_parts = "plain", "=", "not improved", "No candidate beats the baseline."
    return dict(zip(("kind", "sign", "word", "sentence"), mark_parts, strict=True))


def _objectives(data: ReportData) -> tuple[str, ...]:
    names = {
        name for candidate_record in data.candidates[:1] for name in candidate_record.objectives
    }
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
        "mean": shown_mean,
        "minus": lambda one, other: None if None in (one, other) else one - other,
        "signed": lambda value: f"{value:+.3f}",
        "counted": lambda number, noun: counted(number, noun).replace(
            str(number), f"{number:,}", 1
        ),
        "dollars": dollars,
        "crop": lambda text: texts.cropped(text, 2_000),
        "name": texts.short_name,
        "model": model_in_words,
        "across": across,
        "reach": lambda gain: reach_of([gain]),
        "sentence": _sentence,
    }
    return environment


def _sentence(text: str) -> str:
    text = text.strip()
    closed = text if text.endswith((".", "!", "?")) else f"{text}."
    return closed[:1].upper() + closed[1:]


def comparison_page(first: RunRecord, second: RunRecord) -> str:
    """Return the page that compares two runs: figures, texts, scores case by case."""
    differing, sides = incomparable(first, second), (first, second)
    winners = [record.sides[1].texts if record.sides else {} for record in sides]
    cases = tuple(_cases(first, second, differing))
    return filled(
        "compare.html",
        sides=sides,
        reasons=differing.reasons,
        rows=figure_rows(*sides, differing),
        gain=gain_between(first, second, differing),
        changes=tuple(texts.changes_between(*winners)),
        cases=cases[:_MOST_CASES],
        left_out=len(cases[_MOST_CASES:]),
    )


def history_page(folder: str, runs: Sequence[RunSummary]) -> str:
    """Return the page that lists the runs of a folder with their gains."""
    gains = [run.held_out for run in runs if run.held_out and run.held_out.cases]
    return filled(
        "history.html",
        folder=folder,
        runs=runs[:_MOST_RUNS],
        left_out=len(runs[_MOST_RUNS:]),
        reach=reach_of(gains),
    )


def _cases(
    first: RunRecord, second: RunRecord, differing: Incomparable
) -> Iterator[tuple[str, str, Score, Score, str]]:
    """Yield set, case, the scores of the two best candidates, and how they compare."""
    for name, reasons, first_scores, second_scores in (
        ("held out", differing.held_out, unseen_scores(first), unseen_scores(second)),
        ("validation", differing.pareto, seen_scores(first), seen_scores(second)),
    ):
        for case in first_scores if not reasons else ():
            if case in second_scores:
                before, after = first_scores[case], second_scores[case]
                yield name, case, before, after, texts.outcome(before, after)
