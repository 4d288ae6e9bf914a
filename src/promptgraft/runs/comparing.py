"""Two runs side by side, and whether their scores can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from promptgraft.errors import JournalError
from promptgraft.evals.statistics import Gain, gain
from promptgraft.frames import frame_of
from promptgraft.journal.base import FUNCTIONS
from promptgraft.journal.records import decode_header
from promptgraft.runs.documents import gain_json
from promptgraft.runs.records import RunRecord
from promptgraft.search.fresh import RunVerdict
from promptgraft.search.ledger import money
from promptgraft.search.passing import NO_SIDES, PassingSides
from promptgraft.serde import Json, shown, unstructure
from promptgraft.text import difference, score

_JUDGED_BY = {
    "metrics": "metrics",
    "objectives.weights": "weights of the objectives",
    "objectives.on_error": "scores of failed rollouts (`on_error`)",
}
Ancestry = tuple[tuple[int, str, float | None, bool], ...]
"""Number, what was changed, mean, and whether the mean is an estimate."""


@attrs.frozen(kw_only=True)
class RunFigures:
    """What two runs are compared in.

    Attributes:
        baseline: mean of the baseline on the validation set.
        best: mean of the best candidate there.
        held_out: what was gained on the held-out examples; None when that was not measured.
        verdict: what may be said of the best candidate; None before the end.
        passing: how many answers of baseline and best candidate pass, and the means of metrics.
        cost: US dollars as text; None when a price is not known, or before the first candidate.
        path: the line from the baseline to the best candidate.
    """

    run: str
    state: str
    prompt: str
    seed: int | None
    baseline: float | None
    baseline_estimated: bool
    best: float | None
    best_estimated: bool
    held_out: Gain | None
    verdict: RunVerdict | None
    passing: PassingSides
    stop_reason: str
    stop_detail: str
    steps: int
    candidates: int
    rejected: int
    rollouts: int
    cost: str | None
    path: Ancestry

    def to_json(self) -> dict[str, Json]:
        """Return the figures as plain data."""
        plain = {
            name: unstructure(value) for name, value in attrs.asdict(self, recurse=False).items()
        }
        held_out = None if self.held_out is None else gain_json(self.held_out)
        return {**plain, "held_out": held_out, "passing": self.passing.to_json()}


def figures_of(record: RunRecord) -> RunFigures:
    """Return what a run is compared in."""
    ended = record.ended
    return RunFigures(
        run=record.id,
        state=str(record.state),
        prompt=record.prompt,
        seed=record.seed,
        baseline=record.means[0],
        baseline_estimated=record.estimated[0],
        best=record.means[1],
        best_estimated=record.estimated[1],
        held_out=held_out_gain(record),
        verdict=None if ended is None else ended.verdict,
        passing=NO_SIDES if ended is None else ended.passing,
        stop_reason="" if ended is None else ended.stop_reason,
        stop_detail="" if ended is None else ended.stop_detail,
        steps=record.steps,
        candidates=len(record.candidates),
        rejected=len(record.rejections),
        rollouts=record.rollouts,
        cost=money(record.cost) if record.candidates else None,
        path=_path(record),
    )


def held_out_gain(record: RunRecord) -> Gain | None:
    """Return what was gained on the held-out examples; None when that was not measured."""
    found = record.ended.held_out if record.ended else None
    return found.gain if found else None


def _path(record: RunRecord) -> Ancestry:
    line = []
    position: int | None = record.best if record.candidates else None
    while position is not None:
        found = record.candidates[position]
        line.append((position, found.changed, found.mean, found.estimated))
        position = found.parents[0] if found.parents else None
    return tuple(reversed(line))


@attrs.frozen(kw_only=True)
class Incomparable:
    """Why scores of two runs, A and B, cannot be compared on a set; empty where they can."""

    pareto: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason once."""
        return tuple(dict.fromkeys((*self.pareto, *self.held_out)))


def incomparable(first: RunRecord, second: RunRecord) -> Incomparable:
    """Return why scores of two runs cannot be compared.

    The first line of the journals says what data and metrics were. Of held-out examples only the
    ids are kept.
    """
    one, other = fingerprint_of(first), fingerprint_of(second)
    judged = tuple(_judged_differently(first, second, one, other))
    pareto = _other_cases("validation", first.pareto_ids, second.pareto_ids)
    same_data = one is None or other is None or one.get("dataset") == other.get("dataset")
    if not same_data and set(first.pareto_ids) == set(second.pareto_ids):
        pareto = ("the training examples differ, and those of the validation set may too",)
    held_out = _other_cases("held-out", _held_out_ids(first), _held_out_ids(second))
    return Incomparable(pareto=(*judged, *pareto), held_out=(*judged, *held_out))


def seen_scores(record: RunRecord) -> Mapping[str, float | None]:
    """Return what the best candidate scored on the validation set, by case."""
    best = record.sides[1] if record.sides else None
    return dict(zip(record.pareto_ids, best.scores, strict=False)) if best else {}


def unseen_scores(record: RunRecord) -> Mapping[str, float | None]:
    """Return what the winner scored on held-out cases; nothing when it was not measured."""
    found = record.ended.held_out if record.ended else None
    return dict(zip(found.ids, found.winner_scores, strict=False)) if found else {}


def cases_frame(first: RunRecord, second: RunRecord, library: str = "pandas") -> Any:
    """Return what the best candidates of two runs scored, case by case.

    Args:
        first: A.
        second: B.
        library: ``pandas``, ``polars`` or ``pyarrow``, of which the table is made. A row has the
            ``set``, ``validation`` or ``held-out``, the ``case``, and the scores ``a`` and ``b``.

    Raises:
        ConfigError: the library is another one, or not installed.
    """
    sets = (("validation", seen_scores), ("held-out", unseen_scores))
    rows = [
        {"set": name, "case": case, "a": one.get(case), "b": other.get(case)}
        for name, scores_of in sets
        for one, other in [(scores_of(first), scores_of(second))]
        for case in {**one, **other}
    ]
    return frame_of(rows, library)


def gain_between(first: RunRecord, second: RunRecord, differing: Incomparable) -> Gain | None:
    """Return what the winner of B gains over that of A on held-out cases; None without any."""
    one, other = unseen_scores(first), unseen_scores(second)
    if differing.held_out or not one or not other:
        return None
    return gain({id_: (one[id_],) for id_ in one}, {id_: (other[id_],) for id_ in other})


def figure_rows(
    first: RunFigures, second: RunFigures, differing: Incomparable
) -> list[tuple[str, ...]]:
    """Return name, figure of A, figure of B and their difference, where they can be compared."""
    comparable = not differing.pareto
    rows: list[tuple[str, ...]] = [
        ("baseline", *_means(first, second, 0, comparable=comparable)),
        ("best", *_means(first, second, -1, comparable=comparable)),
    ]
    if first.held_out is not None or second.held_out is not None:
        one, other = first.held_out or gain({}, {}), second.held_out or gain({}, {})
        for name, *means in (
            ("baseline", one.mean_before, other.mean_before),
            ("winner", one.mean_after, other.mean_after),
        ):
            more = "" if differing.held_out else difference(*means)
            rows.append((f"held out, {name}", *map(score, means), more))
        rows.append(("held out, gain", one.short, other.short, ""))
        rows.append(("held out, cases", one.counts, other.counts, ""))
    rows += _passing_rows(first.passing, second.passing, differing)
    verdicts = (str(one.verdict or "not yet") for one in (first, second))
    rows.append(("verdict", *verdicts, ""))
    for name in ("rollouts", "steps", "candidates", "rejected"):
        before, after = getattr(first, name), getattr(second, name)
        rows.append((name, str(before), str(after), f"{after - before:+d}"))
    rows.append(("dollars", first.cost or "unknown", second.cost or "unknown", ""))
    seeds = ("unknown" if side.seed is None else str(side.seed) for side in (first, second))
    rows.append(("seed", *seeds, ""))
    return rows


def _passing_rows(
    first: PassingSides, second: PassingSides, differing: Incomparable
) -> Iterator[tuple[str, ...]]:
    """Yield the pass rates and the means of metrics that the best candidates have."""
    one, other = ({row[0]: row[3] for row in side.rows} for side in (first, second))
    for what in {**one, **other}:
        before, after = one.get(what), other.get(what)
        reasons = differing.held_out if what.endswith("held out") else differing.pareto
        more = "" if reasons else difference(before, after)
        yield what, score(before), score(after), more


def _means(
    first: RunFigures, second: RunFigures, place: int, *, comparable: bool
) -> tuple[str, str, str]:
    (before, one), (after, other) = (
        side.path[place][2:] if side.path else (None, False) for side in (first, second)
    )
    marked = one or other
    more = difference(before, after, estimated=(marked, marked)) if comparable else ""
    return score(before, estimated=one), score(after, estimated=other), more


def fingerprint_of(record: RunRecord) -> Mapping[str, Json] | None:
    """Return what decides the path of a run; None when its journal does not say."""
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
        yield f"the prompts differ: {first.prompt} in A, {second.prompt} in B"
    for name, found in (("A", one), ("B", other)):
        if found is None:
            yield f"which data and metrics {name} had is not known: its journal has no header"
    if one is None or other is None:
        return
    first_judges, second_judges = _judges(one), _judges(other)
    for what in {**first_judges, **second_judges}:
        here, there = first_judges.get(what), second_judges.get(what)
        if here != there:
            yield f"the {what} differ: {shown(here)} in A, {shown(there)} in B"


def _judges(fingerprint: Mapping[str, Json]) -> dict[str, Json]:
    """Return what decided the scores of a run, by what messages call it."""
    functions = fingerprint.get(FUNCTIONS)
    return {what: fingerprint.get(key) for key, what in _JUDGED_BY.items()} | {
        f"functions of `{name}`": identity
        for name, identity in (functions.items() if isinstance(functions, dict) else ())
        if name in {"feedback_fn", "aggregation"} or name.startswith("metric ")
    }


def _other_cases(name: str, first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    if not first or not second or {*first} == {*second}:
        return ()
    sizes = f"{len(first)} in A, {len(second)} in B, {len({*first} & {*second})} in both"
    return (f"the examples of the {name} set differ: {sizes}",)


def _held_out_ids(record: RunRecord) -> Sequence[str]:
    found = record.ended.held_out if record.ended else None
    return found.ids if found else ()
