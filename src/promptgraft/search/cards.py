"""What plans and results of runs show of themselves in notebooks and in ``print``."""

from __future__ import annotations

from collections.abc import Iterator

from promptgraft.notebook import Card, LongText, Table, first_rows
from promptgraft.parts import in_order
from promptgraft.search.plan import RunPlan
from promptgraft.search.result import RunResult
from promptgraft.targets.parts.part import named_in
from promptgraft.text import change, counted, dollars, score


def result_line(result: RunResult) -> str:
    """Return the outcome of a run in one line."""
    verdict = "improved" if result.improved else "not improved"
    return (
        f"{_name(result)}: {verdict}, {_change(result)} on D_pareto, "
        f"{counted(result.total_rollouts, 'rollout')}, stopped by {result.stop_reason}"
    )


def result_card(result: RunResult) -> Card:
    """Return what a result shows: verdict, figures, the pool, the ledger, the new texts."""
    merged = f", {counted(result.accepted_merges, 'merge')}" if result.accepted_merges else ""
    return Card(
        title=_name(result),
        lead="improved" if result.improved else "not improved",
        fields=(
            *_held_out(result),
            ("D_pareto", _on_examples(result)),
            (
                "changed",
                ", ".join(name for name, _ in _changed(result)) or "nothing",
            ),
            ("accepted", f"{counted(result.accepted_mutations, 'mutation')}{merged}"),
            ("rejected", _rejected(result)),
            ("used", _used(result)),
            ("stopped", f"{result.stop_reason}: {result.stop_detail}"),
            ("run", result.run_id),
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


def _name(result: RunResult) -> str:
    return result.name


def _on_examples(result: RunResult) -> str:
    return f"{_change(result)} on {counted(len(result.pareto_ids), 'example')}"


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
    return (("held out", f"{means} on {counted(len(found.ids), 'example')} never seen"),)


def _rejected(result: RunResult) -> str:
    counts = result.rejected_by_reason
    return ", ".join(f"{number} {reason}" for reason, number in counts.items()) or "none"


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
        ("candidate", "D_pareto", "from", "", "changed"),
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


def plan_card(plan: RunPlan) -> Card:
    """Return what a plan shows: the most that a run can use, by role, and its warnings."""
    return Card(
        title="plan",
        lead=plan.line.removeprefix("plan: "),
        fields=tuple(("warning", warning) for warning in plan.warnings),
        blocks=(
            Table(
                head=("", "calls", "tokens", "money", "model"),
                rows=(
                    (
                        role.role,
                        "unknown" if role.calls is None else f"{role.calls:,}",
                        "unknown" if role.tokens is None else f"{role.tokens:,}",
                        dollars(role.cost),
                        role.model,
                    )
                    for role in plan.roles
                ),
            ),
        ),
    )
