"""What a run leaves at its end, as plain data: result, frontier, ledger."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.algorithms.gepa.types import GepaResult
from promptgraft.overrides.diff import diff_override, parts_json
from promptgraft.overrides.documents import plain_entries
from promptgraft.parts.descriptors import PromptLike
from promptgraft.search.ledger import LedgerEntry, money
from promptgraft.search.scores import Score
from promptgraft.serde import Json


def result_document(
    result: GepaResult, prompt: PromptLike, *, seed: int, budget: int
) -> dict[str, Json]:
    """Return what came of a run; a function of what the run is a function of, but for seconds.

    Args:
        result: the result.
        prompt: the source that it is compared with.
        seed: that of the run.
        budget: rollouts that it might have used.
    """
    descriptor = prompt.descriptor
    return {
        "prompt": f"{descriptor.ns}/{descriptor.key}",
        "seed": seed,
        **figures_json(result, budget),
        "best": result.best_index,
        "scores": {
            "pareto": pareto_means_json(result),
            "held_out": _held_out_means(result),
        },
        "candidates": len(result.candidates),
        "means": list(result.means),
        "merges": result.accepted_merges,
        "gains": dict(result.gains),
        "confirmation": _confirmation(result),
        "held_out": _held_out(result),
        "cost": money(result.total_cost),
        "ledger": ledger_rows(result.ledger),
        "winner": {
            "candidate": result.best_index,
            "tag": result.best_override.tag,
            "entries": {**plain_entries(result.best_override)},
        },
        "parts": parts_json(diff_override(prompt, result.best_override), checked=True),
    }


def figures_json(result: GepaResult, budget: int) -> dict[str, Json]:
    """Return what a run used, why it stopped, and what became of its proposals."""
    return {
        "run_id": result.run_id,
        "improved": result.improved,
        "stop": {"reason": str(result.stop_reason), "detail": result.stop_detail},
        "rollouts": {
            "used": result.total_rollouts,
            "budget": budget,
            "unscored": result.unscored_rollouts,
        },
        "reflections": result.total_reflections,
        "steps": result.steps,
        "mutations": {
            "accepted": result.accepted_mutations,
            "rejected": {**result.rejected_by_reason},
        },
    }


def frontier_document(result: GepaResult) -> dict[str, Json]:
    """Return the candidates that lead somewhere and that nobody dominates."""
    heights = [_highest(column) for column in zip(*result.scores_matrix, strict=True)]
    return {
        "pareto_ids": list(result.pareto_ids),
        "best": result.best_index,
        "frontier": [
            {
                "candidate": position,
                "mean": result.means[position],
                "estimated": result.is_estimated(position),
                "objectives": dict(result.objectives[position]),
                "leads_on": [
                    name
                    for name, score, height in zip(
                        result.pareto_ids, result.scores_matrix[position], heights, strict=True
                    )
                    if score is not None and score == height
                ],
            }
            for position in result.frontier
        ],
    }


def ledger_document(result: GepaResult) -> dict[str, Json]:
    """Return calls, tokens, money and time by role and model, and the sums."""
    entries = result.ledger
    return {
        "rollouts": result.total_rollouts,
        "reflections": result.total_reflections,
        "entries": ledger_rows(entries),
        "total": {
            "calls": sum(entry.calls for entry in entries),
            "tokens": sum(
                entry.usage.input_tokens + entry.usage.output_tokens for entry in entries
            ),
            "cost": money(result.total_cost),
        },
    }


def ledger_rows(entries: Sequence[LedgerEntry]) -> list[Json]:
    """Return a ledger as plain data; money is a decimal number as text."""
    return [
        {
            "role": str(entry.role),
            "model": entry.model,
            "calls": entry.calls,
            "retries": entry.retries,
            "input_tokens": entry.usage.input_tokens,
            "cached_tokens": entry.usage.cached_tokens,
            "output_tokens": entry.usage.output_tokens,
            "cost": money(entry.cost),
            "unpriced_calls": entry.unpriced_calls,
            "seconds": entry.seconds,
        }
        for entry in entries
    ]


def pareto_means_json(result: GepaResult) -> dict[str, Json]:
    """Return the means of baseline and winner on D_pareto, and which are estimates."""
    means = result.baseline_pareto_mean, result.best_pareto_mean
    return {
        **means_json(*means, len(result.pareto_ids)),
        "baseline_estimated": result.is_estimated(0),
        "best_estimated": result.is_estimated(result.best_index),
    }


def means_json(before: Score, after: Score, examples: int) -> dict[str, Json]:
    """Return two means and their difference."""
    gain = None if before is None or after is None else after - before
    return {"baseline": before, "best": after, "gain": gain, "examples": examples}


def _held_out_means(result: GepaResult) -> Json:
    found = result.held_out
    if found is None or found.why_not:
        return None
    return means_json(found.baseline_mean, found.winner_mean, len(found.ids))


def _held_out(result: GepaResult) -> Json:
    found = result.held_out
    if found is None:
        return None
    return {
        "ids": list(found.ids),
        "baseline_scores": list(found.baseline_scores),
        "winner_scores": list(found.winner_scores),
        "why_not": found.why_not,
    }


def _confirmation(result: GepaResult) -> Json:
    found = result.confirmation
    if found is None:
        return None
    return {
        "candidate": found.candidate,
        "baseline_mean": found.baseline_mean,
        "winner_mean": found.winner_mean,
        "p_value": found.p_value,
        "confirmed": found.confirmed,
    }


def _highest(scores: Sequence[Score]) -> Score:
    return max((score for score in scores if score is not None), default=None)
