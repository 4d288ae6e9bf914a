"""The JSON documents of a run: result, frontier and ledger."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from operator import eq

import attrs

from promptgraft.evals.gains import Gain
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.text import score
from promptgraft.overrides import differences
from promptgraft.overrides.base_store import InMemoryPromptOverridesStore
from promptgraft.overrides.overlay import overlaid
from promptgraft.overrides.parts.descriptors import PromptLike
from promptgraft.overrides.types import PromptOverride
from promptgraft.prompt.template import Prompt
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.runs.history import RunHistory
from promptgraft.search.events import CandidateAdded, RunEnded
from promptgraft.search.ledger import LedgerEntry, money
from promptgraft.search.scores import UNSCORED, Score, packed
from promptgraft.targets.part_names import name_among
from promptgraft.targets.types import Change, plain_changes

_MUCH_LONGER = 10
"""A winner that is longer than the source by this factor gets a warning."""


def result_document(
    ended: RunEnded,
    name: str,
    winner: Mapping[str, Change],
    parts: Sequence[differences.PartDiff],
    *,
    warnings: Sequence[str],
    seed: int,
    budget: int,
    kept_rewrites: int,
    examples: int,
    taught: Sequence[str] = (),
) -> dict[str, Json]:
    """Return the result of a run. Equal runs give equal documents, except for seconds.

    Args:
        ended: the last event of the run.
        name: the name of the prompt or target.
        winner: the changes of the winner by address.
        parts: what the winner changes, from :func:`changed_parts`.
        warnings: the lines of :func:`warnings_of`.
        seed: the seed of the run.
        budget: rollouts that the run was allowed.
        kept_rewrites: new texts whose candidate joined the pool.
        examples: size of the validation set.
        taught: ids of cases whose ``expected`` came from a teacher.
    """
    held_out = ended.held_out
    return {
        "prompt": name,
        "seed": seed,
        **figures_json(ended, budget, kept_rewrites),
        "best": ended.best,
        "scores": {
            "pareto": pareto_means_json(ended, examples),
            "held_out": gain_json(held_out.gain) if held_out and held_out.gain else None,
        },
        "candidates": ended.candidates,
        "means": list(ended.means),
        "merges": ended.merges,
        "shortened": ended.shortened,
        "gains": dict(ended.gains),
        "held_out": unstructure(held_out),
        "metrics": ended.passing.to_json(),
        "cost": money(ended.cost),
        "ledger": ledger_rows(ended.ledger),
        "winner": {"candidate": ended.best, "tag": ended.tag, "entries": plain_changes(winner)},
        "parts": differences.parts_json(parts, checked=True),
        "warnings": list(warnings),
        **({"wear": {**attrs.asdict(ended.wear), "line": ended.wear.line}} if ended.wear else {}),
        **({"taught": list(taught)} if taught else {}),
    }


def changed_parts(
    prompts: Mapping[str, PromptLike],
    baseline: Mapping[str, Change],
    winner: Mapping[str, Change],
    names: Collection[str],
) -> tuple[differences.PartDiff, ...]:
    """Return how a winner differs from the source.

    ``prompts`` are the sources by address; without a source, the baseline is compared instead.
    ``names`` are those of the parts of the run.
    """
    diffs: list[differences.PartDiff] = []
    for address, change in winner.items():
        before = baseline.get(address)
        if isinstance(change, str):
            old = before if isinstance(before, str) else ""
            # The winner holds every text of its address, also those that it leaves as they are.
            if change != old:
                diffs.append(
                    differences.PartDiff(kind="text", part=address, before=old, after=change)
                )
        else:
            source = prompts.get(address)
            parts = differences.diff_revisions(change.holding(()), change)
            parts = parts if source is None else differences.diff_override(source, change)
            diffs += [
                attrs.evolve(part, part=name_among(names, address, part.part)) for part in parts
            ]
    return tuple(diffs)


def warnings_of(
    remarks: Sequence[str], prompts: Mapping[str, PromptLike], parts: Sequence[differences.PartDiff]
) -> tuple[str, ...]:
    """Return the warnings about a run, one line each: its remarks, and that its winner is long.

    Without sources in ``prompts``, only the changed parts are compared.
    """
    bodies = (
        len(prompt.section_body(section.path))
        for prompt in prompts.values()
        for section in prompt.descriptor.sections
    )
    # Without sources, a rough measure: the texts that changed, compared with themselves.
    before = sum(bodies) or sum(len(part.before or "") for part in parts)
    after = before + sum(len(part.after or "") - len(part.before or "") for part in parts)
    if after < _MUCH_LONGER * max(before, 1):
        return tuple(remarks)
    message = f"the winner has {after:,} characters where the source has {before:,}"
    long = f"{message}, and every call pays for them; `guards.max_part_chars` bounds each part"
    return (*remarks, long)


def source_of(prompt: TextsPrompt, added: CandidateAdded) -> str:
    """Return a candidate as one source file, below comments on its origin and its score."""
    if prompt.as_file is None:
        return ""
    objectives = ", ".join(f"{name}={value:.4g}" for name, value in added.objectives.items())
    estimated = "; estimated" if added.estimated else ""
    head = (
        f"Candidate {added.candidate}",
        f"Iteration: {added.step}",
        f"Parent candidates: {list(added.parents)}",
        f"Score when it was accepted: {score(added.mean)} ({objectives}{estimated})",
    )
    comments = "".join(f"{prompt.comment} {' '.join(line.split())}\n" for line in head)
    texts = {name.removeprefix("section "): text for name, text in added.texts.items()}
    return f"{comments}\n{prompt.as_file(texts)}"


def whole_prompt(prompt: Prompt[object], base: PromptOverride, changes: PromptOverride) -> str:
    """Return the text of a prompt, with its placeholders, after ``base`` and then ``changes``."""
    store = InMemoryPromptOverridesStore([overlaid(prompt.descriptor, base, changes)])
    present = attrs.evolve(prompt, overrides_store=store, overrides_tag=base.tag)
    return present.with_placeholders().text


def figures_json(ended: RunEnded, budget: int, kept_rewrites: int) -> dict[str, Json]:
    """Return what a run used, why it stopped, and how many rewrites it kept."""
    return {
        "run_id": ended.run_id,
        "improved": ended.improved,
        "verdict": str(ended.verdict),
        "stop": {"reason": ended.stop_reason, "detail": ended.stop_detail},
        "rollouts": {"used": ended.rollouts, "budget": budget, "unscored": ended.unscored},
        "reflections": ended.reflections,
        "steps": ended.steps,
        "mutations": {
            "accepted": ended.accepted,
            "kept_rewrites": kept_rewrites,
            "rejected": {**ended.rejected},
        },
    }


def frontier_document(history: RunHistory, ended: RunEnded) -> dict[str, Json]:
    """Return the frontier: undominated candidates that lead on at least one example."""
    highest = highest_scores([candidate.scores for candidate in history.candidates])
    return {
        "pareto_ids": list(history.pareto_ids),
        "best": ended.best,
        "frontier": [
            {
                "candidate": candidate.candidate,
                "mean": candidate.mean,
                "estimated": candidate.estimated,
                "objectives": dict(candidate.objectives),
                "leads_on": [
                    *compress(history.pareto_ids, map(eq, packed(candidate.scores), highest))
                ],
            }
            for candidate in map(history.candidates.__getitem__, ended.frontier)
        ],
    }


def highest_scores(scores: Sequence[Sequence[Score]]) -> list[float]:
    """Return the highest score on each example; NaN, which equals no score, if there is none."""
    highest = [UNSCORED] * max(map(len, scores), default=0)
    # Whole rows at a time, because a large run has millions of scores.
    for point in scores:
        highest[: len(point)] = map(max, packed(point), highest)
    return [math.nan if top == UNSCORED else top for top in highest]


def ledger_document(ended: RunEnded) -> dict[str, Json]:
    """Return calls, tokens, money and time by role and model, with totals."""
    is_counted = not any(entry.is_uncounted for entry in ended.ledger)
    tokens = sum(entry.usage.input_tokens + entry.usage.output_tokens for entry in ended.ledger)
    calls = sum(spending.calls for spending in ended.ledger)
    return {
        "rollouts": ended.rollouts,
        "reflections": ended.reflections,
        "entries": ledger_rows(ended.ledger),
        "total": {
            "calls": calls,
            "tokens": tokens if is_counted else None,
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
            "input_tokens": entry.tokens[0],
            "cached_tokens": entry.usage.cached_tokens,
            "output_tokens": entry.tokens[1],
            "reasoning_tokens": entry.usage.reasoning_tokens,
            "cost": money(entry.cost),
            "unpriced_calls": entry.unpriced_calls,
            "seconds": entry.seconds,
        }
        for entry in entries
    ]


def pareto_means_json(ended: RunEnded, examples: int) -> dict[str, Json]:
    """Return the means of baseline and winner on the validation set, marked if estimated."""
    return {
        **means_json(ended.baseline_mean, ended.best_mean, examples),
        "baseline_estimated": ended.baseline_estimated,
        "best_estimated": ended.best_estimated,
    }


def gain_json(gain: Gain) -> dict[str, Json]:
    """Return a gain on held-out cases as plain data."""
    examples = gain.cases + len(gain.unscored)
    return {**means_json(gain.mean_before, gain.mean_after, examples), **gain.to_json()}


def means_json(before: Score, after: Score, examples: int) -> dict[str, Json]:
    """Return two means and their difference."""
    gain = None if before is None or after is None else after - before
    return {"baseline": before, "best": after, "gain": gain, "examples": examples}
