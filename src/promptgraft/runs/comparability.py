"""Whether the scores of two runs can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from promptgraft.errors import JournalError
from promptgraft.journal.records import decode_header
from promptgraft.runs.records import RunRecord
from promptgraft.serde import Json, shown

_JUDGED_BY = {
    "feedback_fn": "metrics",
    "weights": "weights of the objectives",
    "on_error": "scores of failed rollouts (`on_error`)",
}


@attrs.frozen(kw_only=True)
class Incomparable:
    """Why scores of two runs, A and B, cannot be compared.

    Attributes:
        pareto: of the means on D_pareto; empty when they can.
        held_out: of the means on the held-out examples; empty when they can.
    """

    pareto: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason once."""
        return tuple(dict.fromkeys((*self.pareto, *self.held_out)))


def incomparable(first: RunRecord, second: RunRecord) -> Incomparable:
    """Return why scores of two runs cannot be compared.

    What data and metrics were is read from the first line of the journals. Of held-out examples
    only the ids are kept.

    Raises:
        OSError: a file cannot be read.
    """
    one, other = _fingerprint(first), _fingerprint(second)
    judged = tuple(_judged_differently(first, second, one, other))
    return Incomparable(
        pareto=(*judged, *_other_pareto(first, second, one, other)),
        held_out=(
            *judged,
            *_other_cases("the held-out set has", _held_out_ids(first), _held_out_ids(second)),
        ),
    )


def _fingerprint(record: RunRecord) -> Mapping[str, Json] | None:
    try:
        with record.folder.journal.open("rb") as file:
            return decode_header(file.readline())
    except (FileNotFoundError, JournalError):
        return None


def _judged_differently(
    first: RunRecord,
    second: RunRecord,
    one: Mapping[str, Json] | None,
    other: Mapping[str, Json] | None,
) -> Iterator[str]:
    if first.prompt != second.prompt:
        yield f"the prompts are others: {first.prompt} in A, {second.prompt} in B"
    for name, found in (("A", one), ("B", other)):
        if found is None:
            yield f"which data and metrics {name} had is not known: its journal has no header"
    if one is None or other is None:
        return
    for key, what in _JUDGED_BY.items():
        if one.get(key) != other.get(key):
            yield f"the {what} are others: {shown(one.get(key))} in A, {shown(other.get(key))} in B"


def _other_pareto(
    first: RunRecord,
    second: RunRecord,
    one: Mapping[str, Json] | None,
    other: Mapping[str, Json] | None,
) -> Iterator[str]:
    if set(first.pareto_ids) != set(second.pareto_ids):
        yield from _other_cases("D_pareto has", first.pareto_ids, second.pareto_ids)
    elif one is not None and other is not None and one.get("dataset") != other.get("dataset"):
        yield "the training examples are others, and those of D_pareto may be"


def _other_cases(where: str, first: Sequence[str], second: Sequence[str]) -> Iterator[str]:
    both = len({*first} & {*second})
    if first and second and {*first} != {*second}:
        yield f"{where} other examples: {len(first)} in A, {len(second)} in B, {both} in both"


def _held_out_ids(record: RunRecord) -> Sequence[str]:
    found = record.ended.held_out if record.ended else None
    return () if found is None else found.ids
