"""The display of a result: verdict, figures, the pool, the ledger, the new texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from promptgraft.notebook import Card, LongText, Table, first_rows
from promptgraft.parts import in_order
from promptgraft.targets.part import named_in
from promptgraft.text import change, counted, dollars, fewer_tokens, score

if TYPE_CHECKING:
    from promptgraft.search.result import RunResult


def line_of(result: RunResult) -> str:
    """Return the outcome of a run in one line."""
    return (
        f"{result.name}: {result.ended.verdict}, {_change(result)} on the validation set, "
        f"{counted(result.total_rollouts, 'rollout')}, stopped by {result.stop_reason}"
    )


def card_of(result: RunResult) -> Card:
    """Return the card of a result: verdict, figures, the pool, the ledger, the new texts."""
    merged = f", {counted(result.accepted_merges, 'merge')}" if result.accepted_merges else ""
    rejected = (f"{number} {reason}" for reason, number in result.rejected_by_reason.items())
    return Card(
        title=result.name,
        lead=result.ended.verdict,
        fields=(
            *_held_out(result),
            ("validation", f"{_change(result)} on {counted(len(result.pareto_ids), 'example')}"),
            *([("shortened", fewer_tokens(result.shortened))] if result.shortened else []),
            ("changed", ", ".join(name for name, _ in _changed(result)) or "nothing"),
            ("accepted", f"{counted(result.ended.accepted, 'mutation')}{merged}"),
            ("rejected", ", ".join(rejected) or "none"),
            ("used", _used(result)),
            ("stopped", f"{result.stop_reason}: {result.stop_detail}"),
            ("run", result.run_id),
            *(("remark", remark) for remark in result.remarks),
        ),
        blocks=(
            _pool(result),
            *([_ledger(result)] if result.ledger else []),
            *(LongText(title=name, text=text) for name, text in _changed(result)),
        ),
    )


def _changed(result: RunResult) -> Iterator[tuple[str, str]]:
    """Yield name and text of each part that the winner changes."""
    changes, source = result.best.changes, result.candidates[0].changes
    for address, said in changes.items():
        if isinstance(said, str):
            if said != source[address]:
                yield address, said
            continue
        for entry in in_order(said.entries()):
            name = entry.part if len(changes) == 1 else named_in(address, entry.part)
            yield name, entry.show()


def _used(result: RunResult) -> str:
    rollouts = counted(result.total_rollouts, "rollout")
    reflections = counted(result.total_reflections, "reflection")
    return f"{rollouts}, {reflections}, {dollars(result.total_cost)}"


def _change(result: RunResult) -> str:
    return change(
        result.baseline_pareto_mean,
        result.best_pareto_mean,
        estimated=(result.is_estimated(0), result.is_estimated(result.best_index)),
    )


def _held_out(result: RunResult) -> tuple[tuple[str, str], ...]:
    found = result.held_out
    if found is None:
        return ()
    if found.why_not:
        return (("held out", f"not measured: {found.why_not}"),)
    means = change(found.baseline_mean, found.winner_mean)
    seen = ("held out", f"{means} on {counted(len(found.ids), 'example')} never seen")
    rows = seen, ("cases", found.gain.details if found.gain else "")
    return (*rows, ("answers", found.answer_length)) if found.answer_length else rows


def _pool(result: RunResult) -> Table:
    means = result.means
    ranked = sorted(
        range(len(means)), key=lambda place: (means[place] is None, -(means[place] or 0.0))
    )
    return first_rows(
        (
            (
                f"{place}",
                score(means[place], estimated=result.is_estimated(place)),
                *_of_candidate(result, place),
            )
            for place in ranked
        ),
        ("candidate", "validation", "from", "", "changed"),
    )


def _of_candidate(result: RunResult, place: int) -> tuple[str, ...]:
    candidate = result.candidates[place]
    marks = ["best"] if place == result.best_index else []
    marks += ["frontier"] if place in result.frontier else []
    return " + ".join(map(str, candidate.parents)), ", ".join(marks), candidate.changed


def _ledger(result: RunResult) -> Table:
    return Table(
        head=("", "calls", "tokens in", "out", "money", "seconds", "model"),
        rows=(
            (
                entry.role,
                f"{entry.calls:,}",
                f"{entry.usage.input_tokens:,}",
                f"{entry.usage.output_tokens:,}",
                dollars(None if entry.unpriced_calls else entry.cost),
                f"{entry.seconds:,.1f}",
                entry.model,
            )
            for entry in result.ledger
        ),
    )
