"""``summary.md``: what came of a run, on one page."""

from __future__ import annotations

from collections.abc import Iterator

from promptgraft.overrides.diff import PartDiff
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.history import RunHistory
from promptgraft.runs.pages import fenced_diff, plain_line, table_row
from promptgraft.search.events import CandidateAdded, RunEnded
from promptgraft.text import counted, difference, dollars, score

_MOST_CANDIDATES = 50


def summary_page(
    folder: RunFolder, history: RunHistory, ended: RunEnded, changes: tuple[PartDiff, ...]
) -> str:
    """Return the page; ``changes`` are what the winner changes in the source."""
    name = history.started.prompt if history.started else folder.id
    verdict = "improved" if ended.improved else "not improved"
    blocks = [
        f"# {name}: {verdict}",
        f"Run `{folder.id}`, stopped by {ended.stop_reason}: {plain_line(ended.stop_detail)}.",
        "\n".join(_scores(history, ended)),
        "\n".join(_used(ended, history.budget or 0)),
        *_winner(changes),
        "\n".join(_candidates(history, ended)),
        "\n".join(_next(folder, ended)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _scores(history: RunHistory, ended: RunEnded) -> Iterator[str]:
    yield table_row(["examples", "baseline", "winner", "gain"])
    yield "| --- | --- | --- | --- |"
    found = ended.held_out
    if found is not None and not found.why_not:
        label = f"{len(found.ids)} held out, never seen by the search"
        before, after = found.baseline_mean, found.winner_mean
        yield table_row([label, score(before), score(after), difference(before, after)])
    label = f"{len(history.pareto_ids)} of D_pareto, which the search compares on"
    gain = difference(*history.means, estimated=history.estimated)
    yield table_row([label, *(_mean(side) for side in history.sides or ()), gain])
    if found is not None and found.why_not:
        yield f"\nNot measured on held-out examples: {plain_line(found.why_not)}."


def _mean(one: CandidateAdded) -> str:
    return score(one.mean, estimated=one.estimated)


def _used(ended: RunEnded, budget: int) -> Iterator[str]:
    rejected = ", ".join(f"{n} {reason}" for reason, n in ended.rejected.items())
    merged = f", {counted(ended.merges, 'merge')}" if ended.merges else ""
    yield f"- used: {ended.rollouts} of {counted(budget, 'rollout')}"
    yield f"- reflections: {ended.reflections}"
    yield f"- steps: {ended.steps}"
    yield f"- cost: {dollars(ended.cost)}"
    yield f"- accepted: {counted(ended.accepted, 'mutation')}{merged}"
    yield f"- rejected: {rejected or 'none'}"


def _winner(parts: tuple[PartDiff, ...]) -> Iterator[str]:
    if parts:
        yield "## What the winner changes"
    for part in parts:
        yield f"### {plain_line(part.part)}\n\n{fenced_diff(part.text)}"


def _candidates(history: RunHistory, ended: RunEnded) -> Iterator[str]:
    yield "## Candidates\n"
    yield table_row(["candidate", "parents", "changes", "mean on D_pareto"])
    yield "| --- | --- | --- | --- |"
    listed = history.candidates[:_MOST_CANDIDATES]
    for one in listed:
        parents = ", ".join(map(str, one.parents))
        winner = " (winner)" if one.candidate == ended.best and one.candidate else ""
        yield table_row([f"{one.candidate}{winner}", parents, one.changed, _mean(one)])
    if (more := len(history.candidates) - _MOST_CANDIDATES) > 0:
        yield f"\nand {more} more, in the folder `candidates`."
    if any(one.estimated for one in listed):
        yield "\nA mean with ~ is an estimate: some examples have no score."


def _next(folder: RunFolder, ended: RunEnded) -> Iterator[str]:
    yield "## What next\n"
    if ended.improved:
        yield f"- `promptgraft apply {folder.id}` shows the change and puts it in force"
    yield f"- `promptgraft show {folder.id} --rejected` lists what was rejected, with the reasons"
    yield f"- `promptgraft resume {folder.id} --budget N` goes on with a larger budget"
