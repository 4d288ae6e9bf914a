"""Baseline and winner side by side: scores by metric and label, whole prompts, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

import attrs

from promptgraft.evals.metrics.values import labels_in
from promptgraft.evals.spending import Role
from promptgraft.runs.report.data import Answers, ReportData
from promptgraft.runs.report.texts import cropped
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


@attrs.frozen(kw_only=True)
class Labels:
    """What a metric that compares labels says.

    Attributes:
        rows: the scores on the cases with each label.
        found: the labels that answers had, the columns of the confusions.
        confusions: of the baseline, and of the winner when there is one: for each label that was
            expected, how often each label was found.
    """

    metric: str
    rows: tuple[Row, ...]
    found: tuple[str, ...]
    confusions: tuple[tuple[str, Mapping[str, Sequence[int]]], ...]


@attrs.frozen(kw_only=True)
class Breakdown:
    """What baseline and winner scored on ``cases``, taken apart by metric and by label."""

    cases: str
    metrics: tuple[Row, ...]
    labels: tuple[Labels, ...]


def breakdown(data: ReportData) -> Breakdown | None:
    """Return the scores on the held-out cases, or else on the validation set; None without any."""
    for name, answers in (("held-out cases", data.unseen), ("validation set", data.answers)):
        if sides := _sides(answers, data.winner):
            metrics = list(dict.fromkeys(metric for one, _ in sides for metric in _scores(one)))
            names = ("Baseline", "Winner") if data.winner else ("Baseline",)
            labels = [_labels(metric, sides, names) for metric in metrics]
            return Breakdown(
                cases=f"{len(sides):,} of the {name}",
                metrics=tuple(_metric(metric, sides) for metric in metrics[:_MOST_METRICS]),
                labels=tuple(found for found in labels if found.rows),
            )
    return None


def _sides(answers: Answers, winner: int) -> list[_Sides]:
    return [
        (one, answers[winner, case])
        for (number, case), one in answers.items()
        if number == 0 and (winner, case) in answers
    ]


def _scores(record: RolloutRecord) -> Mapping[str, float]:
    return record.feedback.objectives if record.feedback else {}


def _metric(name: str, sides: Iterable[_Sides]) -> Row:
    return _row(name, [(_scores(one).get(name), _scores(other).get(name)) for one, other in sides])


def _row(name: str, scores: Iterable[tuple[Score, Score]]) -> Row:
    known = [pair for pair in scores if None not in pair]
    before, after = (mean_score([pair[side] for pair in known]) for side in (0, 1))
    return Row(name, len(known), before, after)


def _labels(metric: str, sides: Sequence[_Sides], names: Sequence[str]) -> Labels:
    """Return what was expected and found; a case of which no answer says it is left out."""
    told: list[tuple[str, _Sides, list[str]]] = []
    for pair in sides:
        said = [labels_in(one.feedback.feedback if one.feedback else "", metric) for one in pair]
        expected = next((found[0] for found in said if found), None)
        if expected is not None:
            told.append((expected, pair, [found[1] if found else OTHER for found in said]))
    wanted = [name for name, _ in Counter(one for one, _, _ in told).most_common(_MOST_LABELS)]
    known = Counter(label for _, _, found in told for label in found).most_common(_MOST_LABELS)
    found = list(dict.fromkeys([*wanted, *(name for name, _ in known)]))
    confusions = []
    for side, who in enumerate(names):
        counts = Counter((expected, got[side]) for expected, _, got in told)
        confusions.append((who, {one: [counts[one, other] for other in found] for one in wanted}))
    return Labels(
        metric=metric,
        rows=tuple(
            _row(label, [(one.score, two.score) for want, (one, two), _ in told if want == label])
            for label in wanted
        ),
        found=tuple(found),
        confusions=tuple(confusions),
    )


_LONGEST = 300_000
_MOST_PROMPTS = 10


def whole_prompts(data: ReportData) -> Iterator[tuple[str, str, bool]]:
    """Yield ten prompts at most as the run leaves them: name, text, and whether that is cut."""
    for name, texts in list(data.prompts.items())[:_MOST_PROMPTS]:
        text = texts["winner" if data.winner else "baseline"]
        shown = cropped(text, _LONGEST)
        yield name, shown, shown != text


def amounts(data: ReportData) -> Iterator[tuple[str, str, float, float]]:
    """Yield what a prompt takes where it is known: name, format, of the baseline, of the winner."""
    if data.prompts:
        texts = data.prompts.values()
        after = sum(len(one["winner" if data.winner else "baseline"]) for one in texts)
        yield "characters", "{:,.0f}", sum(len(one["baseline"]) for one in texts), after
    sides = [*_sides(data.answers, data.winner), *_sides(data.unseen, data.winner)]
    pairs = [(_taken(one), _taken(other)) for one, other in sides]
    for place, name, shape in (
        (0, "tokens sent for an answer", "{:,.1f}"),
        (1, "tokens received for an answer", "{:,.1f}"),
        (2, "dollars for an answer", "${:,.6f}"),
    ):
        one, other = (sum((pair[side][place] for pair in pairs), Decimal(0)) for side in (0, 1))
        if one and other and (one + other).is_finite():
            yield name, shape, float(one / len(pairs)), float(other / len(pairs))


def _taken(answer: RolloutRecord) -> tuple[Decimal, Decimal, Decimal]:
    """Return the tokens sent and received, and the dollars; NaN when a price is not known."""
    spent = [one for one in answer.spent if one.role is Role.TASK]
    costs = (Decimal("NaN") if one.cost is None else one.cost for one in spent)
    tokens = sum(one.input_tokens for one in spent), sum(one.output_tokens for one in spent)
    return Decimal(tokens[0]), Decimal(tokens[1]), sum(costs, Decimal(0))
