"""The display of a result: verdict, figures, the pool, the ledger, the new texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from promptgraft.ground.notebook import Card, LongText, Table, first_rows
from promptgraft.ground.text import change, counted, dollars, fewer_tokens, score
from promptgraft.overrides.parts import in_order
from promptgraft.search.stopping import stop_sentence
from promptgraft.targets.part import named_in

if TYPE_CHECKING:
    from promptgraft.search.result import RunResult


def line_of(result: RunResult) -> str:
    """Return the outcome of a run in one line."""
    return (
        f"{result.name}: {result.ended.verdict}, {_change(result)} in validation, "
        f"{counted(result.total_rollouts, 'test call')}; "
        f"stopped: {stop_sentence(result.stop_reason, result.stop_detail)}"
    )


def card_of(result: RunResult) -> Card:
    """Return the card of a result: verdict, figures, the pool, the ledger, the new texts."""
    return Card(
        title=result.name,
        lead=result.ended.verdict,
        fields=(
            *_held_out(result),
            ("validation", f"{_change(result)} on {counted(len(result.pareto_ids), 'case')}"),
            ("changed", ", ".join(name for name, _ in _changed(result)) or "nothing"),
            *([("trimmed", fewer_tokens(result.shortened))] if result.shortened else []),
            ("cost", _cost(result)),
            ("rewrites", rewrites_of(result)),
            ("stopped", stop_sentence(result.stop_reason, result.stop_detail)),
            ("stored", f"tag `{result.tag}`" if result.persisted else "no"),
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
    for address, address_changes in changes.items():
        if isinstance(address_changes, str):
            if address_changes != source[address]:
                yield address, address_changes
            continue
        for entry in in_order(address_changes.entries()):
            name = entry.part if len(changes) == 1 else named_in(address, entry.part)
            yield name, entry.show()


def rewrites_of(result: RunResult) -> str:
    """Return in words what became of the rewrites."""
    combined = [f"{result.accepted_merges} combined"] if result.accepted_merges else []
    dropped = [f"{number} {reason}" for reason, number in result.rejected_by_reason.items()]
    return ", ".join([f"{result.ended.accepted} kept", *combined, *dropped])


def _cost(result: RunResult) -> str:
    calls = counted(result.total_rollouts, "test call")
    rewrites = counted(result.total_reflections, "rewrite")
    return f"{dollars(result.total_cost)}, {calls}, {rewrites}"


def _change(result: RunResult) -> str:
    return change(
        result.baseline_pareto_mean,
        result.best_pareto_mean,
        estimated=(result.is_estimated(0), result.is_estimated(result.best_index)),
    )


def _held_out(result: RunResult) -> tuple[tuple[str, str], ...]:
    test = result.held_out
    if test is None:
        return ()
    if test.why_not:
        return (("test", f"not measured: {test.why_not}"),)
    means = change(test.baseline_mean, test.winner_mean)
    test_line = ("test", f"{means} on {counted(len(test.ids), 'case')} never seen before")
    rows = test_line, ("cases", test.gain.details if test.gain else "")
    lengths = (("answers", test.answer_length),) if test.answer_length else ()
    worn = (("test set", result.wear.line),) if result.wear and not result.wear.is_worn else ()
    return (*rows, *lengths, *worn)


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
