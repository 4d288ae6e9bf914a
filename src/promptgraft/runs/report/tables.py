"""The tables of a report: frontier, scores by case, metric and label, whole prompts, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import compress
from operator import eq

import attrs

from promptgraft.evals.gains import Gain, interval
from promptgraft.evals.metrics.values import labels_in
from promptgraft.evals.spending import Role
from promptgraft.runs.documents import highest_scores
from promptgraft.runs.history import shown_mean
from promptgraft.runs.report.data import Answers, ReportData
from promptgraft.runs.report.texts import UNSEEN, VALIDATION, brief, cropped, outcome
from promptgraft.search.events import CandidateAdded
from promptgraft.search.scores import Score, mean_score, packed
from promptgraft.search.verdict import LEVEL
from promptgraft.targets.types import RolloutRecord

Cell = tuple[int, str]
"""A score in a table: its shade from 0 to ``LEVELS``, or ``UNSCORED``, and its text."""

LEVELS = 10
UNSCORED = LEVELS + 1
"""The level of a cell without a score."""

_MOST_ROWS = 100
_MOST_COLUMNS = 60
_MOST_CELLS = 6_000
# The size of a map that would exceed these limits.
_FEWER_COLUMNS = 20
_FEWER_ROWS = 400


def reach_of(gains: Iterable[Gain]) -> float:
    """Return how far a drawing of gains must extend to either side of 0."""
    ends = (abs(end) for gain in gains for end in (gain.low, gain.high) if end is not None)
    return max(ends, default=0.0) or 1.0


def across(value: float, reach: float, width: int) -> float:
    """Return the horizontal position of a gain in a drawing that is centred at 0."""
    return round(width / 2 + value / reach * (width / 2 - 8), 1)


def frontier_rows(data: ReportData) -> list[tuple[CandidateAdded, int, int]]:
    """Return the frontier, at most 100 candidates: by descending mean, estimates last.

    Each comes with the number of cases on which no other candidate scores higher, and the number
    of those on which none scores as high.
    """
    scores = [candidate.scores for candidate in data.candidates]
    highest = highest_scores(scores)
    holders = [0] * len(highest)
    for row in scores:
        for case in compress(range(len(highest)), map(eq, packed(row), highest)):
            holders[case] += 1
    rows = []
    # Means of all cases come before estimates, which are the higher the fewer cases they are of.
    leaders = sorted(data.leaders, key=lambda number: data.candidates[number].estimated)
    for number in leaders[:_MOST_ROWS]:
        candidate = data.candidates[number]
        led = [*compress(holders, map(eq, packed(candidate.scores), highest))]
        rows.append((candidate, len(led), led.count(1)))
    return rows


def mean_interval(candidate: CandidateAdded, perfect: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a candidate's mean as shares of a perfect score.

    None without a score, and for scores outside of 0 to ``perfect``.
    """
    # Rounded: the interval takes time for every different score, and it is only drawn.
    shares = [round(score / perfect, 2) for score in candidate.scores if score is not None]
    if not shares or min(shares) < 0 or max(shares) > 1:
        return None
    low, high = interval([2 * share - 1 for share in shares], LEVEL)
    return (low + 1) / 2, (high + 1) / 2


@attrs.frozen(kw_only=True)
class CaseRow:
    """The scores on one case.

    Attributes:
        case: the id of the case.
        input: the beginning of its input; empty if no answer to it is available.
        outcome: the winner against the baseline: ``better``, ``worse``, ``same``, ``unscored``.
        failed: whether the winner's answer is not perfect.
        cells: the scores of the candidates in the columns.
    """

    case: str
    input: str
    outcome: str
    failed: bool
    cells: tuple[Cell, ...]


def scores_on(data: ReportData, case: str) -> Iterator[tuple[str, Score, Score]]:
    """Yield the sets that a case is in, each with the scores of baseline and winner on it."""
    held_out = data.end.held_out
    if case in held_out.ids and held_out.baseline_scores:
        at = held_out.ids.index(case)
        yield UNSEEN, held_out.baseline_scores[at], held_out.winner_scores[at]
    if case in data.case_ids and data.candidates:
        at = data.case_ids.index(case)
        yield VALIDATION, _score(data.candidates[0], at), _score(data.candidates[data.winner], at)


@attrs.frozen(kw_only=True)
class HeatMap:
    """Scores by case and candidate; for a large run, of the leaders on the first cases.

    Attributes:
        candidates: positions of the candidates in the columns.
        rows: the cases.
        means: the means of the candidates in the columns.
        legend: shades with the scores that they represent.
        has_unscored: whether some shown candidate has no score on some case.
    """

    candidates: tuple[int, ...]
    rows: tuple[CaseRow, ...]
    means: tuple[str, ...]
    legend: tuple[Cell, ...]
    has_unscored: bool


def heat_map(data: ReportData) -> HeatMap | None:
    """Return the map of a run; None without candidates or cases."""
    if not data.candidates or not data.case_ids:
        return None
    columns, cases = list(range(len(data.candidates))), data.case_ids
    if len(columns) > _MOST_COLUMNS or len(columns) * len(cases) > _MOST_CELLS:
        columns = [*dict.fromkeys((0, data.winner, *data.leaders))][:_FEWER_COLUMNS]
        cases = cases[:_FEWER_ROWS]
    low, high = _scale(candidate.scores for candidate in data.candidates)

    def cell(score: Score) -> Cell:
        if score is None:
            return UNSCORED, "–"
        return round((score - low) / (high - low) * LEVELS), f"{round(score, 2):g}"

    shown_candidates = [data.candidates[number] for number in columns]
    return HeatMap(
        candidates=tuple(columns),
        rows=tuple(
            _case_row(
                data, at, case, tuple(cell(_score(candidate, at)) for candidate in shown_candidates)
            )
            for at, case in enumerate(cases)
        ),
        means=tuple(map(shown_mean, shown_candidates)),
        legend=tuple(
            cell(low + (high - low) * level / LEVELS) for level in range(0, LEVELS + 1, 2)
        ),
        has_unscored=any(None in candidate.scores for candidate in shown_candidates),
    )


def _case_row(data: ReportData, at: int, case: str, cells: tuple[Cell, ...]) -> CaseRow:
    answer = data.answers.seen.get((0, case)) or data.answers.seen.get((data.winner, case))
    before, after = (_score(data.candidates[number], at) for number in (0, data.winner))
    return CaseRow(
        case=case,
        input=brief(answer.inputs_repr) if answer else "",
        outcome=outcome(before, after),
        failed=after is None or after < data.perfect,
        cells=cells,
    )


def _score(candidate: CandidateAdded, at: int) -> Score:
    return candidate.scores[at] if at < len(candidate.scores) else None


def _scale(scores: Iterable[Sequence[Score]]) -> tuple[float, float]:
    """Return the ends of the scale: 0 and 1, or the lowest and highest score if they exceed it."""
    # Row by row, because all scores of a long run together take hundreds of megabytes.
    rows = (
        packed(row) if None not in row else [score for score in row if score is not None]
        for row in scores
    )
    ends = [(min(row), max(row)) for row in rows if row]
    low = min((least for least, _ in ends), default=0.0)
    high = max((most for _, most in ends), default=1.0)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return low, high if high > low else low + 1


OTHER = "no known label"
_MOST_LABELS = 15
_MOST_METRICS = 40

_Sides = tuple[RolloutRecord, RolloutRecord]
"""The answers of baseline and winner to one case."""


@attrs.frozen
class TableRow:
    """The means of baseline and winner in one metric, or on the cases with one label."""

    name: str
    cases: int
    before: Score
    after: Score


@attrs.frozen(kw_only=True)
class Labels:
    """The scores and confusion matrices of a metric that compares labels.

    Attributes:
        metric: the name of the metric.
        rows: the mean scores on the cases of each expected label.
        found: the labels of the answers, the columns of the matrices.
        confusions: for the baseline, and the winner if there is one: by expected label, how often
            each label was found.
    """

    metric: str
    rows: tuple[TableRow, ...]
    found: tuple[str, ...]
    confusions: tuple[tuple[str, Mapping[str, Sequence[int]]], ...]


@attrs.frozen(kw_only=True)
class Breakdown:
    """The scores of baseline and winner on ``cases``, by metric and by label."""

    cases: str
    metrics: tuple[TableRow, ...]
    labels: tuple[Labels, ...]


def breakdown(data: ReportData) -> Breakdown | None:
    """Return the breakdown of the unseen cases, else the validation set; None without answers."""
    for cases, answers in (
        (UNSEEN, data.answers.unseen),
        ("validation set", data.answers.seen),
    ):
        if sides := _sides(answers, data.winner):
            metrics = list(dict.fromkeys(metric for side, _ in sides for metric in _scores(side)))
            names = ("Your prompt", "Winner") if data.winner else ("Your prompt",)
            labels = [_labels(metric, sides, names) for metric in metrics]
            return Breakdown(
                cases=f"{len(sides):,} of the {cases}",
                metrics=tuple(
                    _row(name, [(_scores(a).get(name), _scores(b).get(name)) for a, b in sides])
                    for name in metrics[:_MOST_METRICS]
                ),
                labels=tuple(table for table in labels if table.rows),
            )
    return None


def _sides(answers: Answers, winner: int) -> list[_Sides]:
    return [
        (answer, answers[winner, case])
        for (number, case), answer in answers.items()
        if number == 0 and (winner, case) in answers
    ]


def _scores(record: RolloutRecord) -> Mapping[str, float]:
    return record.feedback.objectives if record.feedback else {}


def _row(name: str, scores: Iterable[tuple[Score, Score]]) -> TableRow:
    known_pairs = [pair for pair in scores if None not in pair]
    before, after = (mean_score([pair[side] for pair in known_pairs]) for side in (0, 1))
    return TableRow(name, len(known_pairs), before, after)


def _labels(metric: str, sides: Sequence[_Sides], names: Sequence[str]) -> Labels:
    """Return the labels that were expected and found, without cases whose feedback has none."""
    labelled: list[tuple[str, _Sides, list[str]]] = []
    for pair in sides:
        pair_labels = [
            labels_in(answer.feedback.feedback if answer.feedback else "", metric)
            for answer in pair
        ]
        expected = next((names_found[0] for names_found in pair_labels if names_found), None)
        if expected is not None:
            labelled.append(
                (
                    expected,
                    pair,
                    [names_found[1] if names_found else OTHER for names_found in pair_labels],
                )
            )
    expected_labels = [
        name
        for name, _ in Counter(expected_label for expected_label, _, _ in labelled).most_common(
            _MOST_LABELS
        )
    ]
    answered_labels = Counter(
        label for _, _, labels_of_pair in labelled for label in labels_of_pair
    ).most_common(_MOST_LABELS)
    columns = list(dict.fromkeys([*expected_labels, *(name for name, _ in answered_labels)]))
    confusions = []
    for side, who in enumerate(names):
        counts = Counter((expected, got[side]) for expected, _, got in labelled)
        confusions.append(
            (
                who,
                {
                    row_label: [counts[row_label, column] for column in columns]
                    for row_label in expected_labels
                },
            )
        )
    return Labels(
        metric=metric,
        rows=tuple(
            _row(
                label,
                [(answer.score, two.score) for want, (answer, two), _ in labelled if want == label],
            )
            for label in expected_labels
        ),
        found=tuple(columns),
        confusions=tuple(confusions),
    )


_LONGEST = 300_000
_MOST_PROMPTS = 10


def whole_prompts(data: ReportData) -> Iterator[tuple[str, str, bool]]:
    """Yield the resulting prompts, at most ten: name, text, and whether the text was cut."""
    for name, texts in list(data.end.prompts.items())[:_MOST_PROMPTS]:
        text = texts["winner" if data.winner else "baseline"]
        text_shown = cropped(text, _LONGEST)
        yield name, text_shown, text_shown != text


def amounts(data: ReportData) -> Iterator[tuple[str, str, float, float]]:
    """Yield the known amounts of a prompt: name, format, and the values of baseline and winner."""
    if data.end.prompts:
        texts = data.end.prompts.values()
        after = sum(
            len(prompt_text["winner" if data.winner else "baseline"]) for prompt_text in texts
        )
        yield (
            "characters",
            "{:,.0f}",
            sum(len(prompt_text["baseline"]) for prompt_text in texts),
            after,
        )
    sides = [*_sides(data.answers.seen, data.winner), *_sides(data.answers.unseen, data.winner)]
    pairs = [(_taken(first_answer), _taken(second_answer)) for first_answer, second_answer in sides]
    for place, name, shape in (
        (0, "tokens sent for an answer", "{:,.1f}"),
        (1, "tokens received for an answer", "{:,.1f}"),
        (2, "dollars for an answer", "${:,.6f}"),
    ):
        first_sum, second_sum = (
            sum((pair[side][place] for pair in pairs), Decimal(0)) for side in (0, 1)
        )
        if first_sum and second_sum and (first_sum + second_sum).is_finite():
            yield name, shape, float(first_sum / len(pairs)), float(second_sum / len(pairs))


def _taken(answer: RolloutRecord) -> tuple[Decimal, Decimal, Decimal]:
    """Return tokens sent, tokens received, and dollars; NaN dollars if a price is unknown."""
    spent = [spending for spending in answer.spent if spending.role is Role.TASK]
    costs = (Decimal("NaN") if spending.cost is None else spending.cost for spending in spent)
    tokens = (
        sum(spending.input_tokens for spending in spent),
        sum(spending.output_tokens for spending in spent),
    )
    return Decimal(tokens[0]), Decimal(tokens[1]), sum(costs, Decimal(0))
