"""The page: templates filled in, as one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from promptgraft import __version__
from promptgraft.runs.history import shown_mean
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.drawings import family_tree, rollouts_chart, spending_chart, steps_of
from promptgraft.runs.report.scores import amounts, breakdown, whole_prompts
from promptgraft.runs.report.tables import across, frontier_rows, heat_map, reach_of
from promptgraft.runs.report.texts import (
    TOTAL_BYTES,
    Limits,
    candidate_views,
    cropped,
    rejection_views,
    short_name,
    transcripts_of,
    winner_changes,
)
from promptgraft.text import counted, dollars, score, visible

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"
_MOST_OBJECTIVES = 10


def render(data: ReportData, most: int = TOTAL_BYTES) -> str:
    """Return the page in at most about ``most`` bytes of UTF-8: of a long run less is shown.

    What every page has takes about 100 kB.
    """
    limits = Limits()
    page = _filled(data, limits)
    while len(page.encode()) > most and limits.listed:
        limits = limits.halved()
        page = _filled(data, limits)
    return page


def filled(template: str, **values: object) -> str:
    """Return a page: a template with its values, style and script."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; "
        f"script-src 'sha256-{_hash(script)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    found = _environment().get_template(template)
    return found.render(version=__version__, style=style, script=script, policy=policy, **values)


def _filled(data: ReportData, limits: Limits) -> str:
    return filled(
        "page.html",
        data=data,
        verdict=_verdict(data),
        held_out=data.held_out.gain,
        rollouts_chart=rollouts_chart(data),
        spending=spending_chart(data),
        steps=tuple(steps_of(data.candidates, data.winner))[:200],
        tree=family_tree(data),
        objectives=_objectives(data),
        frontier=frontier_rows(data),
        heat=heat_map(data),
        winner_changes=winner_changes(data),
        candidates=candidate_views(data, limits),
        rejections=rejection_views(data, limits),
        reasons=_reasons(data),
        whole=tuple(whole_prompts(data)),
        amounts=tuple(amounts(data)),
        transcripts=transcripts_of(data, limits),
        breakdown=breakdown(data),
    )


def _verdict(data: ReportData) -> dict[str, str]:
    """Return what came of the run: one word with its kind and sign, and a sentence."""
    if data.state == "running":
        told = "mark", "…", "running", "The run was in progress when this report was written."
    elif data.state not in ("ended", "stopped") or data.improved is None:
        told = "mark", "!", "interrupted", "The run did not come to its end."
    elif data.improved:
        sentence = f"Candidate #{data.winner} beats the baseline on the validation set."
        gain = data.held_out.gain
        doubt = gain.doubt if gain else ""
        told = "mark" if doubt else "good", "!" if doubt else "✓", f"improved{doubt}", sentence
    else:
        told = "plain", "=", "not improved", "No candidate beats the baseline."
    return dict(zip(("kind", "sign", "word", "sentence"), told, strict=True))


def _reasons(data: ReportData) -> list[tuple[str, int]]:
    """Return how many proposals were rejected for each reason, the most frequent first."""
    counts = Counter(found.reason for found in data.rejections)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _objectives(data: ReportData) -> tuple[str, ...]:
    names = {name for one in data.candidates[:1] for name in one.objectives}
    return tuple(sorted(names))[:_MOST_OBJECTIVES] if len(names) > 1 else ()


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        """Spell out what a browser would obey, wherever a text is put into the page."""
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": score,
        "mean": shown_mean,
        "signed": lambda value: f"{value:+.3f}",
        "counted": lambda number, noun: counted(number, noun).replace(
            str(number), f"{number:,}", 1
        ),
        "dollars": dollars,
        "crop": lambda text: cropped(text, 2_000),
        "name": short_name,
        "across": across,
        "reach": lambda gain: reach_of([gain]),
        "sentence": _sentence,
    }
    return environment


def _sentence(text: str) -> str:
    text = text.strip()
    closed = text if text.endswith((".", "!", "?")) else f"{text}."
    return closed[:1].upper() + closed[1:]
