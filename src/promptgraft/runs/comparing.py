"""Two runs side by side, and whether their scores can be compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

import attrs

from promptgraft.errors import JournalError
from promptgraft.evals.gains import Gain, gain
from promptgraft.ground.files import opened
from promptgraft.ground.frames import frame_of
from promptgraft.ground.serde import Json, shown
from promptgraft.ground.text import difference, score
from promptgraft.journal.base import FUNCTIONS
from promptgraft.journal.records import decode_header, header_contents
from promptgraft.runs.documents import gain_json
from promptgraft.runs.reading import RunRecord
from promptgraft.search.ledger import money
from promptgraft.search.verdict import NO_SIDES, PassingSides

T = TypeVar("T")

VERDICT = "verdict"
"""The name of the row of figures that says what each run has shown."""

_DIGEST = re.compile(r" [0-9a-f]{12,64}$")
_NO_FUNCTION = "builtins.NoneType "
_JUDGED_BY = {
    "metrics": "metrics",
    "objectives.weights": "weights of the objectives",
    "objectives.on_error": "scores of failed rollouts (`on_error`)",
}


def figures_json(record: RunRecord) -> dict[str, Json]:
    """Return the figures of a run that comparisons show, as plain data."""
    ended, (baseline, best) = record.ended, record.means
    gained = held_out_gain(record)
    return {
        "run": record.id,
        "state": str(record.state),
        "prompt": record.prompt,
        "seed": record.seed,
        "baseline": baseline,
        "baseline_estimated": record.estimated[0],
        "best": best,
        "best_estimated": record.estimated[1],
        "held_out": None if gained is None else gain_json(gained),
        "verdict": None if ended is None else str(ended.verdict),
        "passing": _passing(record).to_json(),
        "stop_reason": "" if ended is None else str(ended.stop_reason),
        "stop_detail": "" if ended is None else ended.stop_detail,
        "steps": record.steps,
        "candidates": len(record.candidates),
        "rejected": len(record.rejections),
        "rollouts": record.rollouts,
        "cost": _cost(record),
        "path": [
            [point.candidate, point.changed, point.mean, point.estimated] for point in record.line
        ],
    }


def _passing(record: RunRecord) -> PassingSides:
    return NO_SIDES if record.ended is None else record.ended.passing


def _cost(record: RunRecord) -> str | None:
    """Return US dollars as text; None if a price is unknown, or before the first candidate."""
    return money(record.cost) if record.candidates else None


def held_out_gain(record: RunRecord) -> Gain | None:
    """Return the gain on the held-out examples; None if it was not measured."""
    return record.held_out.gain if record.held_out else None


@attrs.frozen(kw_only=True)
class Incomparable:
    """Why scores of two runs, A and B, cannot be compared.

    Attributes:
        pareto: reasons for the validation set; empty if its scores can be compared.
        held_out: reasons for the held-out examples.
    """

    pareto: tuple[str, ...]
    held_out: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason once, with the scores that it is about."""
        both = {*self.pareto} & {*self.held_out}
        kinds = ((" of validation cases", self.pareto), (" of unseen cases", self.held_out))
        return tuple(
            dict.fromkeys(
                f"scores{'' if reason in both else kind} cannot be compared: {reason}"
                for kind, reasons in kinds
                for reason in reasons
            )
        )


def incomparable(
    first: RunRecord, second: RunRecord, *, labels: tuple[str, str] = ("A", "B")
) -> Incomparable:
    """Return why scores of two runs, which messages call by ``labels``, cannot be compared.

    Data and metrics are taken from the headers of the journals. Held-out examples are compared
    by their ids, because nothing else about them is recorded.
    """
    prints = fingerprint_of(first), fingerprint_of(second)
    judged = tuple(_judged_differently(first, second, prints, labels))
    pareto = _other_cases(
        "examples of the validation set", first.pareto_ids, second.pareto_ids, labels
    )
    # The digest covers training and validation cases; ids alone cannot show changed contents.
    data_sets = {shown(fingerprint.get("dataset")) for fingerprint in prints if fingerprint}
    if len(data_sets) > 1 and set(first.pareto_ids) == set(second.pareto_ids):
        pareto = ("the training examples differ, and those of the validation set may too",)
    held_out = _other_cases("tested unseen cases", tested(first), tested(second), labels)
    return Incomparable(pareto=(*judged, *pareto), held_out=(*judged, *held_out))


def tested(record: RunRecord) -> tuple[str, ...]:
    """Return the ids of the held-out cases; none if there was no winner to be tested on them."""
    is_tested = any(score is not None for score in unseen_scores(record).values())
    return record.held_out.ids if record.held_out and is_tested else ()


def seen_scores(record: RunRecord) -> Mapping[str, float | None]:
    """Return the scores of the best candidate on the validation set, by case."""
    best = record.sides[1] if record.sides else None
    # Without any scores if the run was stopped while it evaluated the candidate.
    return dict(zip(record.pareto_ids, best.scores, strict=False)) if best else {}


def unseen_scores(record: RunRecord) -> Mapping[str, float | None]:
    """Return the scores of the winner on held-out cases; empty if it was not measured."""
    held_out = record.held_out
    return dict(zip(held_out.ids, held_out.winner_scores, strict=False)) if held_out else {}


def cases_frame(first: RunRecord, second: RunRecord, library: str = "pandas") -> Any:
    """Return the scores of the best candidates of two runs as a data frame.

    Each row has the ``set``, ``validation`` or ``held-out``, the ``case``, and the scores ``a``
    and ``b``.

    Args:
        first: run A.
        second: run B.
        library: the library of the data frame: ``pandas``, ``polars`` or ``pyarrow``.

    Raises:
        ConfigError: the library is unknown or not installed.
    """
    sets = (("validation", seen_scores), ("held-out", unseen_scores))
    rows = [
        {"set": name, "case": case, "a": first_scores.get(case), "b": second_scores.get(case)}
        for name, scores_of in sets
        for first_scores, second_scores in [(scores_of(first), scores_of(second))]
        for case in {**first_scores, **second_scores}
    ]
    return frame_of(rows, library)


def gain_between(first: RunRecord, second: RunRecord, differing: Incomparable) -> Gain | None:
    """Return the gain of B's winner over A's on held-out cases; None if it is not comparable."""
    before, after = first.held_out, second.held_out
    if differing.held_out or before is None or after is None or before.why_not or after.why_not:
        return None
    return after.gain_over(before)


def means_in_common(
    first: RunRecord, second: RunRecord, differing: Incomparable
) -> tuple[int, float, float] | None:
    """Return on how many held-out cases both winners have scores, and their means there.

    None if there are none, or if they were judged differently.
    """
    if {*differing.held_out} & {*differing.pareto}:
        return None
    ours, theirs = unseen_scores(first), unseen_scores(second)
    pairs = [
        (score_a, score_b)
        for case, score_a in ours.items()
        if score_a is not None and (score_b := theirs.get(case)) is not None
    ]
    if not pairs:
        return None
    mean_a, mean_b = map(fmean, zip(*pairs, strict=True))
    return len(pairs), mean_a, mean_b


def figure_rows(
    first: RunRecord, second: RunRecord, differing: Incomparable
) -> list[tuple[str, ...]]:
    """Return rows of name, figures of A and B, and their difference if it is meaningful."""
    comparable, sides = not differing.pareto, (first, second)
    verdicts = (
        "not yet" if record.ended is None else str(record.ended.verdict) for record in sides
    )
    rows: list[tuple[str, ...]] = [(VERDICT, *verdicts, "")]
    for side, name in enumerate(("your prompt", "best candidate")):
        before, after = first.means[side], second.means[side]
        marks = first.estimated[side], second.estimated[side]
        more = difference(before, after, estimated=(any(marks),) * 2) if comparable else ""
        a, b = score(before, estimated=marks[0]), score(after, estimated=marks[1])
        rows.append((name, a, b, more))
    gains = held_out_gain(first), held_out_gain(second)
    if any(gains):
        first_gain, second_gain = (gain_found or gain({}, {}) for gain_found in gains)
        for name, *means in (
            ("your prompt", first_gain.mean_before, second_gain.mean_before),
            ("winner", first_gain.mean_after, second_gain.mean_after),
        ):
            # A difference between means of other cases would mean nothing.
            more = "" if differing.held_out else difference(*means)
            rows.append((f"unseen cases, {name}", *map(score, means), more))
        shorts = (side.short or "none" for side in (first_gain, second_gain))
        rows.append(("unseen cases, gain", *shorts, ""))
        counts = (side.short_counts if side else "none" for side in gains)
        rows.append(("better, worse, same", *counts, ""))
    rows += _passing_rows(_passing(first), _passing(second), differing)
    for name, count, other_count in (
        ("test calls", first.rollouts, second.rollouts),
        ("steps", first.steps, second.steps),
        ("rewrites kept", first.rewrites.kept, second.rewrites.kept),
        ("rewrites dropped", len(first.rejections), len(second.rejections)),
    ):
        rows.append((name, str(count), str(other_count), f"{other_count - count:+d}"))
    rows.append(("dollars", *(_cost(record) or "unknown" for record in sides), ""))
    seeds = ("unknown" if record.seed is None else str(record.seed) for record in sides)
    rows.append(("seed", *seeds, ""))
    return rows


def _passing_rows(
    first: PassingSides, second: PassingSides, differing: Incomparable
) -> Iterator[tuple[str, ...]]:
    """Yield rows with the pass rates and metric means of the best candidates."""
    first_rates, second_rates = ({row[0]: row[3] for row in side.rows} for side in (first, second))
    for what in {**first_rates, **second_rates}:
        before, after = first_rates.get(what), second_rates.get(what)
        reasons = differing.held_out if what.endswith("unseen cases") else differing.pareto
        more = "" if reasons else difference(before, after)
        yield what, score(before), score(after), more


def fingerprint_of(record: RunRecord) -> Mapping[str, Json] | None:
    """Return the fingerprint in the header of the journal; None if there is none."""
    return _header_of(record, decode_header)


def _header_of(record: RunRecord, decode: Callable[[bytes], T]) -> T | None:
    try:
        # Without the lock: the header is written first and never changes.
        with opened(record.folder.journal) as file:
            return decode(file.readline())
    except (FileNotFoundError, JournalError):
        return None


def _judged_differently(
    first: RunRecord,
    second: RunRecord,
    prints: tuple[Mapping[str, Json] | None, Mapping[str, Json] | None],
    labels: tuple[str, str],
) -> Iterator[str]:
    (one, other), (a, b) = prints, labels
    if first.prompt != second.prompt:
        yield f"the prompts differ: {first.prompt} in {a}, {second.prompt} in {b}"
    for name, print_of_side in ((a, one), (b, other)):
        if print_of_side is None:
            yield f"the data and metrics of {name} are unknown: its journal has no header"
    if one is None or other is None:
        return
    first_judges, second_judges = _judges(one), _judges(other)
    for what in {**first_judges, **second_judges}:
        here, there = first_judges.get(what), second_judges.get(what)
        if here == there:
            continue
        in_words = _judge(here), _judge(there)
        if in_words[0] != in_words[1]:
            yield f"the {what} differ: {in_words[0]} in {a}, {in_words[1]} in {b}"
        elif items := _differing_items(first, second, what):
            yield f"the {what} differ: {items}"
        else:
            yield f"the {what} differ: {in_words[0]} was edited between {a} and {b}"


def _judge(judge: Json) -> str:
    """Return what judged in words, without digests, which say nothing to people."""
    if isinstance(judge, str):
        return shown(_DIGEST.sub("", judge))
    return "none" if judge is None else shown(judge)


def _differing_items(first: RunRecord, second: RunRecord, what: str) -> str:
    """Return the names of what differs inside of two digests, as far as the journals name it."""
    first_items, second_items = (
        (_header_of(record, header_contents) or {}).get(what, {}) for record in (first, second)
    )
    names = {**first_items, **second_items}
    return ", ".join(name for name in names if first_items.get(name) != second_items.get(name))


def _judges(fingerprint: Mapping[str, Json]) -> dict[str, Json]:
    """Return everything that determined the scores of a run, by its name in messages."""
    functions = fingerprint.get(FUNCTIONS)
    return {what: fingerprint.get(key) for key, what in _JUDGED_BY.items()} | {
        f"functions of `{name}`": identity
        for name, identity in (functions.items() if isinstance(functions, dict) else ())
        if (name in {"feedback_fn", "aggregation"} or name.startswith("metric "))
        and not str(identity).startswith(_NO_FUNCTION)
    }


def _other_cases(
    name: str, first: Sequence[str], second: Sequence[str], labels: tuple[str, str]
) -> tuple[str, ...]:
    if not first or not second or {*first} == {*second}:
        return ()
    a, b = labels
    sizes = f"{len(first)} in {a}, {len(second)} in {b}, {len({*first} & {*second})} in both"
    return (f"the {name} differ: {sizes}",)
