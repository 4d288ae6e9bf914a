"""``summary.md``: what came of a run, on one page."""

from __future__ import annotations

from collections.abc import Iterator

from promptgraft.algorithms.gepa.types import GepaResult
from promptgraft.overrides.diff import PartDiff, diff_override
from promptgraft.parts.descriptors import PromptLike
from promptgraft.runs.folder import RunFolder
from promptgraft.runs.pages import fenced_diff, plain_line, table_row
from promptgraft.text import counted, difference, dollars, score

_MOST_CANDIDATES = 50


def summary_page(folder: RunFolder, result: GepaResult, prompt: PromptLike, budget: int) -> str:
    """Return the page."""
    name = f"{prompt.descriptor.ns}/{prompt.descriptor.key}"
    verdict = "improved" if result.improved else "not improved"
    blocks = [
        f"# {name}: {verdict}",
        f"Run `{folder.id}`, stopped by {result.stop_reason}: {plain_line(result.stop_detail)}.",
        "\n".join(_scores(result)),
        "\n".join(_used(result, budget)),
        *_winner(diff_override(prompt, result.best_override)),
        "\n".join(_candidates(result)),
        "\n".join(_next(folder, result)),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _scores(result: GepaResult) -> Iterator[str]:
    yield table_row(["examples", "baseline", "winner", "gain"])
    yield "| --- | --- | --- | --- |"
    found = result.held_out
    if found is not None and not found.why_not:
        label = f"{len(found.ids)} held out, never seen by the search"
        before, after = found.baseline_mean, found.winner_mean
        yield table_row([label, score(before), score(after), difference(before, after)])
    label = f"{len(result.pareto_ids)} of D_pareto, which the search compares on"
    sides = 0, result.best_index
    marks = result.is_estimated(sides[0]), result.is_estimated(sides[1])
    gain = difference(*(result.means[side] for side in sides), estimated=marks)
    yield table_row([label, *(_mean(result, side) for side in sides), gain])
    if found is not None and found.why_not:
        yield f"\nNot measured on held-out examples: {plain_line(found.why_not)}."


def _mean(result: GepaResult, position: int) -> str:
    return score(result.means[position], estimated=result.is_estimated(position))


def _used(result: GepaResult, budget: int) -> Iterator[str]:
    rejected = ", ".join(f"{n} {reason}" for reason, n in result.rejected_by_reason.items())
    merged = f", {counted(result.accepted_merges, 'merge')}" if result.accepted_merges else ""
    yield f"- used: {result.total_rollouts} of {counted(budget, 'rollout')}"
    yield f"- reflections: {result.total_reflections}"
    yield f"- steps: {result.steps}"
    yield f"- cost: {dollars(result.total_cost)}"
    yield f"- accepted: {counted(result.accepted_mutations, 'mutation')}{merged}"
    yield f"- rejected: {rejected or 'none'}"


def _winner(parts: tuple[PartDiff, ...]) -> Iterator[str]:
    if parts:
        yield "## What the winner changes"
    for part in parts:
        yield f"### {plain_line(part.part)}\n\n{fenced_diff(part.text)}"


def _candidates(result: GepaResult) -> Iterator[str]:
    yield "## Candidates\n"
    yield table_row(["candidate", "parents", "changes", "mean on D_pareto"])
    yield "| --- | --- | --- | --- |"
    means = [_mean(result, position) for position in range(len(result.means))]
    for position, candidate in enumerate(result.candidates[:_MOST_CANDIDATES]):
        parents = ", ".join(map(str, candidate.parents))
        marked = f"{position} (winner)" if position == result.best_index and position else position
        yield table_row([str(marked), parents, candidate.changed, means[position]])
    if (more := len(result.candidates) - _MOST_CANDIDATES) > 0:
        yield f"\nand {more} more, in the folder `candidates`."
    if any(mean.startswith("~") for mean in means[:_MOST_CANDIDATES]):
        yield "\nA mean with ~ is an estimate: some examples have no score."


def _next(folder: RunFolder, result: GepaResult) -> Iterator[str]:
    yield "## What next\n"
    if result.improved:
        yield f"- `promptgraft apply {folder.id}` shows the change and puts it in force"
    yield f"- `promptgraft show {folder.id} --rejected` lists what was rejected, with the reasons"
    yield f"- `promptgraft resume {folder.id} --budget N` goes on with a larger budget"
