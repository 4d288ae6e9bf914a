"""The report of a very long run: its size, and the time until a browser has opened it.

``python benchmarks/report.py`` makes the report of 2,000 candidates on 300 cases; ends with 1
when a limit is not kept. The times are those of the machine, so they are no part of ``make bench``.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from figures import Figure, shown
from promptgraft.adapters.base import Usage
from promptgraft.evals.spending import Role
from promptgraft.runs.report.data import (
    ReportAnswers,
    ReportData,
    ReportEnd,
    ReportSteps,
    RunUse,
)
from promptgraft.runs.report.page import render
from promptgraft.runs.report.texts import TOTAL_BYTES
from promptgraft.search.events import CandidateAdded, MutationRejected
from promptgraft.search.ledger import LedgerEntry
from promptgraft.search.scores import Scores
from promptgraft.search.verdict import HeldOut, RunVerdict
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import RolloutFeedback, RolloutRecord

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CANDIDATES = 2_000
CASES = 300
REJECTIONS = 2_000
CHROMIUM = Path("/usr/bin/chromium")
MOST_SECONDS = 3.0

_WORDS = tuple(f"{first}{last}" for first in ("ta", "mer", "quo", "lin") for last in "aeiours")


def main() -> int:
    """Measure, print, and return the exit code."""
    started = time.perf_counter()
    page = render(long_run(CANDIDATES, CASES, REJECTIONS))
    written = time.perf_counter() - started
    size = len(page.encode())
    figures = [
        Figure("report of 2,000 candidates, 300 cases", size / 1e6, "MB", TOTAL_BYTES / 1e6),
        Figure("  made in", written, "s", None),
    ]
    if CHROMIUM.exists():
        seconds, busy = _opened(page)
        figures.append(Figure("  opened in Chromium", seconds, "s", MOST_SECONDS))
        figures.append(Figure("  of which its main thread was busy", busy, "s", None))
    else:
        print(f"no {CHROMIUM}: the time to open it is not measured")
    return shown(figures)


def long_run(candidates: int, cases: int, rejections: int, *, seed: int = 0) -> ReportData:
    """Return a run with that many candidates, validation cases and rejected proposals."""
    chance = random.Random(seed)
    first = [_text(chance, 260) for _ in range(3)]
    pool = [
        CandidateAdded(
            step=0,
            candidate=0,
            parents=(),
            module=None,
            best=0,
            objectives={},
            reflections=0,
            tokens=0,
            entries={},
            texts=_named(first),
            scores=_scores(chance, cases, 0.4),
            mean=0.4,
            rollouts=cases,
            cost=Decimal("0.3"),
        )
    ]
    for number in range(1, candidates):
        pool.append(_child(chance, pool, number, cases))
    best = max(pool, key=lambda one: one.mean or 0.0).candidate
    frontier = sorted(range(candidates), key=lambda number: -(pool[number].mean or 0.0))[:150]
    ids = tuple(f"case-{number:04}" for number in range(cases))
    held_out = tuple(float(chance.random() < 0.5) for _ in range(200))
    return ReportData(
        run_id="20260101-000000-triage",
        prompt="support/triage",
        facts=(("Seed", str(seed)), ("Made by", "benchmarks/report.py")),
        end=ReportEnd(
            held_out=HeldOut(
                ids=tuple(f"unseen-{number}" for number in range(200)),
                baseline_scores=held_out,
                winner_scores=tuple(max(one, float(chance.random() < 0.3)) for one in held_out),
            ),
            verdict=RunVerdict.IMPROVED,
            stopped="too few test calls left for another step",
            stop_detail="12 of 900000 rollouts are left; one more step may take 308",
            ledger=(
                LedgerEntry(
                    role=Role.TASK,
                    model="some-model",
                    calls=candidates * cases,
                    retries=12,
                    usage=Usage(input_tokens=90_000_000, output_tokens=9_000_000),
                    cost=pool[-1].cost or Decimal(0),
                    unpriced_calls=0,
                    seconds=123_456.0,
                ),
            ),
        ),
        case_ids=ids,
        candidates=tuple(pool),
        winner=best,
        frontier=tuple(sorted(frontier)),
        steps=ReportSteps(
            rejections=tuple(_rejection(chance, pool, step) for step in range(rejections))
        ),
        used=RunUse(
            rollouts=candidates * cases, budget=900_000, reflections=candidates + rejections
        ),
        answers=ReportAnswers(
            seen={
                (number, id_): RolloutRecord(
                    example_id=id_,
                    inputs_repr=_text(chance, 180),
                    output_repr=_text(chance, 120),
                    tool_trace_repr=_text(chance, 60),
                    feedback=RolloutFeedback(
                        score=pool[number].scores[at] or 0.0, feedback=_text(chance, 60)
                    ),
                )
                for number in (0, best)
                for at, id_ in enumerate(ids)
            },
        ),
    )


def _child(
    chance: random.Random, pool: list[CandidateAdded], number: int, cases: int
) -> CandidateAdded:
    parent = chance.choice(pool[-40:])
    texts = [*parent.texts.values()]
    at = chance.randrange(len(texts))
    texts[at] = _mutated(chance, texts[at])
    scores = _scores(chance, cases, 0.4 + 0.4 * chance.random() * number / (number + 300))
    second = chance.choice(pool)
    is_merge = number % 20 == 0 and second.candidate != parent.candidate
    return CandidateAdded(
        candidate=number,
        best=number,
        objectives={},
        reflections=number,
        tokens=0,
        entries={},
        step=2 * number,
        parents=(parent.candidate, second.candidate) if is_merge else (parent.candidate,),
        module=None if is_merge else [*parent.texts][at],
        texts=_named(texts),
        scores=scores,
        mean=sum(score or 0.0 for score in scores) / cases,
        rollouts=(number + 1) * cases,
        cost=Decimal(number) / 100,
    )


def _rejection(chance: random.Random, pool: list[CandidateAdded], step: int) -> MutationRejected:
    parent = chance.choice(pool)
    module, before = chance.choice([*parent.texts.items()])
    return MutationRejected(
        step=2 * step + 1,
        attempt=1,
        parent=parent.candidate,
        module=module,
        reason=RejectionReason.NOT_BETTER,
        detail="the child has 0.375 on the minibatch, the parent 0.500",
        before=before,
        text=_mutated(chance, before),
        parent_score=0.5,
        child_score=0.375,
    )


def _named(texts: list[str]) -> dict[str, str]:
    return {f"section part-{at}": text for at, text in enumerate(texts)}


def _scores(chance: random.Random, cases: int, rate: float) -> Scores:
    return Scores(
        None if chance.random() < 0.01 else float(chance.random() < rate) for _ in range(cases)
    )


def _text(chance: random.Random, words: int) -> str:
    chosen = [chance.choice(_WORDS) for _ in range(words)]
    return "\n".join(" ".join(chosen[at : at + 14]) for at in range(0, words, 14))


def _mutated(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    for _ in range(2):
        lines[chance.randrange(len(lines))] = _text(chance, 14)
    return "\n".join([*lines, _text(chance, 14)] if len(lines) < 30 else lines)


def _opened(page: str) -> tuple[float, float]:
    """Return seconds until the page is laid out and answers, and those of work in them."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder, "report.html")
        path.write_text(page, "utf-8")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        # The best of a few, as with every time here: others use the machine too.
        best = min(_times_to_open(browser, path.as_uri()) for _ in range(3))
        browser.close()
    return best


def _times_to_open(browser: Browser, address: str) -> tuple[float, float]:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tools = tab.context.new_cdp_session(tab)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    started = time.perf_counter()
    tab.goto(address, wait_until="load")
    tab.evaluate("document.documentElement.scrollHeight")
    seconds = time.perf_counter() - started
    found = tools.send("Performance.getMetrics")["metrics"]
    tab.close()
    return seconds, next(one["value"] for one in found if one["name"] == "TaskDuration")


if __name__ == "__main__":
    sys.exit(main())
