"""What a run leaves at its end, as plain data: result, frontier, ledger."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.overrides.diff import diff_override, parts_json
from promptgraft.overrides.documents import plain_entries
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.descriptors import PromptLike
from promptgraft.runs.history import RunHistory
from promptgraft.search.events import RunEnded
from promptgraft.search.ledger import LedgerEntry, money
from promptgraft.search.scores import Score
from promptgraft.serde import Json, unstructure


def result_document(
    ended: RunEnded,
    prompt: PromptLike,
    winner: PromptOverride,
    *,
    seed: int,
    budget: int,
    examples: int,
) -> dict[str, Json]:
    """Return what came of a run; a function of what the run is a function of, but for seconds.

    Args:
        ended: how it ended.
        prompt: the source that the winner is compared with.
        winner: the overrides of the best candidate.
        seed: that of the run.
        budget: rollouts that it might have used.
        examples: size of the validation set.
    """
    descriptor = prompt.descriptor
    return {
        "prompt": f"{descriptor.ns}/{descriptor.key}",
        "seed": seed,
        **figures_json(ended, budget),
        "best": ended.best,
        "scores": {
            "pareto": pareto_means_json(ended, examples),
            "held_out": _held_out_means(ended),
        },
        "candidates": ended.candidates,
        "means": list(ended.means),
        "merges": ended.merges,
        "gains": dict(ended.gains),
        "confirmation": _plain(ended.confirmation),
        "held_out": _plain(ended.held_out),
        "cost": money(ended.cost),
        "ledger": ledger_rows(ended.ledger),
        "winner": {
            "candidate": ended.best,
            "tag": winner.tag,
            "entries": {**plain_entries(winner)},
        },
        "parts": parts_json(diff_override(prompt, winner), checked=True),
    }


def figures_json(ended: RunEnded, budget: int) -> dict[str, Json]:
    """Return what a run used, why it stopped, and what became of its proposals."""
    return {
        "run_id": ended.run_id,
        "improved": ended.improved,
        "stop": {"reason": ended.stop_reason, "detail": ended.stop_detail},
        "rollouts": {"used": ended.rollouts, "budget": budget, "unscored": ended.unscored},
        "reflections": ended.reflections,
        "steps": ended.steps,
        "mutations": {"accepted": ended.accepted, "rejected": {**ended.rejected}},
    }


def frontier_document(history: RunHistory, ended: RunEnded) -> dict[str, Json]:
    """Return the candidates that lead somewhere and that nobody dominates."""
    columns = zip(*(one.scores for one in history.candidates), strict=True)
    heights = [_highest(column) for column in columns]
    leaders = [history.candidates[position] for position in ended.frontier]
    return {
        "pareto_ids": list(history.pareto_ids),
        "best": ended.best,
        "frontier": [
            {
                "candidate": one.candidate,
                "mean": one.mean,
                "estimated": one.estimated,
                "objectives": dict(one.objectives),
                "leads_on": [
                    name
                    for name, score, height in zip(
                        history.pareto_ids, one.scores, heights, strict=True
                    )
                    if score is not None and score == height
                ],
            }
            for one in leaders
        ],
    }


def ledger_document(ended: RunEnded) -> dict[str, Json]:
    """Return calls, tokens, money and time by role and model, and the sums."""
    entries = ended.ledger
    return {
        "rollouts": ended.rollouts,
        "reflections": ended.reflections,
        "entries": ledger_rows(entries),
        "total": {
            "calls": sum(entry.calls for entry in entries),
            "tokens": sum(
                entry.usage.input_tokens + entry.usage.output_tokens for entry in entries
            ),
            "cost": money(ended.cost),
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


def pareto_means_json(ended: RunEnded, examples: int) -> dict[str, Json]:
    """Return the means of baseline and winner on the validation set, and which are estimates."""
    return {
        **means_json(ended.baseline_mean, ended.best_mean, examples),
        "baseline_estimated": ended.baseline_estimated,
        "best_estimated": ended.best_estimated,
    }


def means_json(before: Score, after: Score, examples: int) -> dict[str, Json]:
    """Return two means and their difference."""
    gain = None if before is None or after is None else after - before
    return {"baseline": before, "best": after, "gain": gain, "examples": examples}


def _held_out_means(ended: RunEnded) -> Json:
    found = ended.held_out
    if found is None or found.why_not:
        return None
    return means_json(found.baseline_mean, found.winner_mean, len(found.ids))


def _plain(found: attrs.AttrsInstance | None) -> Json:
    return None if found is None else unstructure(found)


def _highest(scores: Sequence[Score]) -> Score:
    return max((score for score in scores if score is not None), default=None)
