"""The scores of baseline and winner by metric and by label, and which labels were confused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.evals.metrics.values import labels_in
from promptgraft.runs.report.data import Answers, ReportData
from promptgraft.search.scores import Score, mean_score
from promptgraft.targets.types import RolloutRecord

OTHER = "no known label"
_MOST_LABELS = 15
_MOST_METRICS = 40

_Sides = tuple[RolloutRecord, RolloutRecord]
"""The answers of baseline and winner to one case."""


@attrs.frozen
class Row:
    """The means of baseline and winner in one metric, or on the cases with one label."""

    name: str
    cases: int
    before: Score
    after: Score


@attrs.frozen
class Confusion:
    """How often which label was found: for each label that was expected, a row of counts."""

    who: str
    rows: tuple[tuple[str, tuple[int, ...]], ...]


@attrs.frozen(kw_only=True)
class Labels:
    """What a metric that compares labels says.

    Attributes:
        metric: its name.
        rows: the scores on the cases with each label.
        found: the labels that answers had, the columns of the confusions.
        confusions: of the baseline, and of the winner when there is one.
    """

    metric: str
    rows: tuple[Row, ...]
    found: tuple[str, ...]
    confusions: tuple[Confusion, ...]


@attrs.frozen(kw_only=True)
class Breakdown:
    """What baseline and winner scored, taken apart.

    Attributes:
        cases: on which cases, in words.
        metrics: a row for each metric; none where there is only one.
        labels: an entry for each metric that compares labels.
    """

    cases: str
    metrics: tuple[Row, ...]
    labels: tuple[Labels, ...]


def breakdown(data: ReportData) -> Breakdown | None:
    """Return the scores on the held-out cases, or else on the validation set; None without any."""
    for name, answers in (("held-out cases", data.unseen), ("validation set", data.answers)):
        if sides := tuple(_sides(answers, data.winner)):
            metrics = _metrics(sides)
            names = ("Baseline", "Winner") if data.winner else ("Baseline",)
            labels = tuple(_labels(metric.name, sides, names) for metric in metrics)
            return Breakdown(
                cases=f"{len(sides):,} of the {name}",
                metrics=metrics if len(metrics) > 1 else (),
                labels=tuple(found for found in labels if found.rows),
            )
    return None


def _sides(answers: Answers, winner: int) -> Iterator[_Sides]:
    for number, case in answers:
        if number == 0 and (winner, case) in answers:
            yield answers[0, case], answers[winner, case]


def _metrics(sides: Sequence[_Sides]) -> tuple[Row, ...]:
    names = dict.fromkeys(name for one, _ in sides for name in _scores(one))
    return tuple(
        _row(name, ((_scores(one).get(name), _scores(other).get(name)) for one, other in sides))
        for name in list(names)[:_MOST_METRICS]
    )


def _scores(record: RolloutRecord) -> Mapping[str, float]:
    return record.feedback.objectives if record.feedback else {}


def _row(name: str, scores: Iterable[tuple[Score, Score]]) -> Row:
    known = [pair for pair in scores if None not in pair]
    means = [mean_score([pair[side] for pair in known]) for side in (0, 1)]
    return Row(name, len(known), *means)


def _labels(metric: str, sides: Sequence[_Sides], names: Sequence[str]) -> Labels:
    """Return what was expected and found; a case of which no answer says it is left out."""
    told: list[tuple[str, _Sides, tuple[str, str]]] = []
    for pair in sides:
        said = [labels_in(one.feedback.feedback if one.feedback else "", metric) for one in pair]
        expected = next((found[0] for found in said if found), None)
        if expected is not None:
            before, after = (found[1] if found else OTHER for found in said)
            told.append((expected, pair, (before, after)))
    wanted = [name for name, _ in Counter(one for one, _, _ in told).most_common(_MOST_LABELS)]
    known = Counter(label for _, _, found in told for label in found)
    found = [*wanted, *(name for name, _ in known.most_common(_MOST_LABELS) if name not in wanted)]
    return Labels(
        metric=metric,
        rows=tuple(
            _row(label, ((one.score, two.score) for want, (one, two), _ in told if want == label))
            for label in wanted
        ),
        found=tuple(found),
        confusions=tuple(
            Confusion(name, _counts(wanted, found, [(want, got[side]) for want, _, got in told]))
            for side, name in enumerate(names)
        ),
    )


def _counts(
    wanted: Sequence[str], found: Sequence[str], told: Sequence[tuple[str, str]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    counts = Counter(told)
    return tuple((want, tuple(counts[want, got] for got in found)) for want in wanted)
