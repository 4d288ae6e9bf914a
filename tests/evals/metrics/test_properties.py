"""Properties of metrics that hold for all texts, numbers, values and calls."""

from __future__ import annotations

import itertools
import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft.evals import metrics
from promptgraft.evals.metrics.base import LONGEST_REASON, verdict_of
from promptgraft.evals.metrics.json_values import chain, pair
from promptgraft.evals.metrics.reading import parse_path, spelled
from promptgraft.evals.types import Answer, Case, Metric, ToolUse, Verdict
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import reaches

FEW = settings(max_examples=20)

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
words = st.lists(st.sampled_from(["cat", "dog", "sat", "the"]), min_size=1, max_size=8).map(
    " ".join
)
numbers = st.integers(-1000, 1000) | st.decimals(-1000, 1000, places=3).map(float)
values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | numbers | st.sampled_from(["a", "b", "A"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
present = values.filter(lambda value: value is not None)
edges = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=5)
)


def judged(metric: Metric, expected: Json, answer: str) -> Verdict:
    return verdict_of(metric, Case(id="c", input="", expected=expected), Answer(text=answer))


def scored(metric: Metric, expected: Json, answer: str) -> float:
    score = judged(metric, expected, answer).score
    assert score is not None
    return score


TEXT_METRICS = (
    metrics.exact(),
    metrics.exact(ignore_case=True, ignore_space=True),
    metrics.contains(),
    metrics.edit_similarity(threshold=0.0),
    metrics.classification(labels=("yes", "no"), within_text=True),
    metrics.number(),
    metrics.json_match(),
    metrics.rouge(),
)


@FEW
@given(answer=st.text(max_size=300), threshold=st.floats(0, 1))
def test_any_answer_gets_a_score_a_pass_or_fail_and_a_reason_of_one_paragraph(
    answer: str, threshold: float
) -> None:
    references: list[Json] = ["yes", "yes", "yes", "yes", "yes", 5, {"a": 1}, "yes"]
    for metric, expected in zip(TEXT_METRICS, references, strict=True):
        verdict = judged(metric, expected, answer)
        assert verdict.score is not None
        assert verdict.passed is reaches(verdict.score, metric.threshold)
        assert 0 < len(verdict.reason) <= LONGEST_REASON
        assert len(verdict.reason.splitlines()) == 1
        verdict.reason.encode("utf-8")
    strict = metrics.edit_similarity(threshold=threshold)
    verdict = judged(strict, "yes", answer)
    assert verdict.score is not None
    assert verdict.passed is reaches(verdict.score, threshold)


@FEW
@given(text=texts)
def test_a_text_is_exactly_itself_and_like_itself(text: str) -> None:
    assert scored(metrics.exact(), text, text) == 1
    assert scored(metrics.contains(ignore_case=True), text, f"x{text}y") == 1
    assert scored(metrics.edit_similarity(), text, text) == 1


@FEW
@given(one=texts, other=texts)
def test_likeness_does_not_depend_on_which_text_is_the_expected_one(one: str, other: str) -> None:
    metric = metrics.edit_similarity()
    assert scored(metric, one, other) == scored(metric, other, one)
    folded = metrics.exact(ignore_case=True)
    assert scored(folded, one, other) == scored(folded, other, one)


@FEW
@given(one=words, other=words, variant=st.sampled_from(["rouge1", "rougeL"]))
def test_rouge_recall_is_precision_the_other_way_and_f1_lies_between(
    one: str, other: str, variant: str
) -> None:
    of = {
        measure: metrics.load_metrics([{"name": "rouge", "variant": variant, "measure": measure}])[
            0
        ]
        for measure in ("f1", "precision", "recall")
    }
    recall, precision = scored(of["recall"], one, other), scored(of["precision"], one, other)
    assert recall == scored(of["precision"], other, one)
    assert scored(of["f1"], one, other) == scored(of["f1"], other, one)
    low, high = sorted([recall, precision])
    assert low - 1e-12 <= scored(of["f1"], one, other) <= high + 1e-12


@FEW
@given(one=numbers, other=numbers, small=st.floats(0, 50), more=st.floats(0, 50))
def test_a_wider_tolerance_never_fails_a_number_that_passed(
    one: float, other: float, small: float, more: float
) -> None:
    narrow, wide = metrics.number(tolerance=small), metrics.number(tolerance=small + more)
    share, wider = (
        metrics.number(relative_tolerance=small / 100),
        metrics.number(relative_tolerance=(small + more) / 100),
    )
    assert scored(narrow, one, str(other)) <= scored(wide, one, str(other))
    assert scored(share, one, str(other)) <= scored(wider, one, str(other))
    assert scored(narrow, one, str(other)) == scored(narrow, other, str(one))


@FEW
@given(one=present, other=present, ignore_order=st.booleans())
def test_json_is_itself_and_compares_alike_from_both_sides(
    one: Json, other: Json, ignore_order: bool
) -> None:
    metric = metrics.json_match(ignore_order=ignore_order)
    one, other = {"v": one}, {"v": other}
    assert scored(metric, one, json.dumps(one)) == 1
    assert scored(metric, one, json.dumps(other)) == scored(metric, other, json.dumps(one))


@FEW
@given(one=present, other=present, tolerance=st.floats(0, 100))
def test_more_tolerance_and_freedom_never_lower_a_json_score(
    one: Json, other: Json, tolerance: float
) -> None:
    strict, loose = metrics.json_match(), metrics.json_match(tolerance=tolerance)
    free = metrics.json_match(tolerance=tolerance, ignore_case=True)
    scores = [
        scored(metric, {"v": one}, json.dumps({"v": other})) for metric in (strict, loose, free)
    ]
    assert scores == sorted(scores)


@FEW
@given(fits=edges)
def test_an_assignment_has_as_many_pairs_as_the_best_of_all(fits: list[list[bool]]) -> None:
    rows, columns = range(len(fits)), range(len(fits[0]))
    pairs = pair(rows, columns, lambda a, b: fits[a][b])
    assert all(fits[a][b] for a, b in pairs.items())
    assert len(set(pairs.values())) == len(pairs)
    width = max(len(rows), len(columns))
    best = max(
        sum(a < len(rows) and b < len(columns) and fits[a][b] for a, b in enumerate(order))
        for order in itertools.permutations(range(width))
    )
    assert len(pairs) == best


@FEW
@given(fits=edges)
def test_a_chain_keeps_both_orders_and_none_is_longer(fits: list[list[bool]]) -> None:
    rows, columns = range(len(fits)), range(len(fits[0]))
    links = list(chain(rows, columns, lambda a, b: fits[a][b]).items())
    assert all(fits[a][b] for a, b in links)
    assert all(a < c and b < d for (a, b), (c, d) in itertools.pairwise(links))
    cells = [(a, b) for a in rows for b in columns if fits[a][b]]
    longest = dict.fromkeys(cells, 1)
    for a, b in cells:
        before = [longest[c, d] for c, d in cells if c < a and d < b]
        longest[a, b] = 1 + max(before, default=0)
    assert len(links) == max(longest.values(), default=0)


calls = st.lists(
    st.builds(
        ToolUse,
        name=st.sampled_from("ab"),
        arguments=st.fixed_dictionaries({"n": st.integers(0, 2)}),
    ),
    max_size=4,
).map(tuple)


@FEW
@given(expected=calls, called=calls)
def test_freer_rules_for_tools_never_lower_the_score(
    expected: tuple[ToolUse, ...], called: tuple[ToolUse, ...]
) -> None:
    case = Case(id="c", input="", tools=expected)
    free = metrics.ToolRule(arguments="ignore")
    scores = [
        metric.judge(case, Answer(text="", tools=called)).score or 0.0
        for metric in (
            metrics.tool_trajectory(ordered=True),
            metrics.tool_trajectory(),
            metrics.tool_trajectory(rule=free),
            metrics.tool_trajectory(rule=free, subset=True),
        )
    ]
    assert scores == sorted(scores)
    same = metrics.tool_trajectory(ordered=True).judge(case, Answer(text="", tools=expected))
    assert same.score == 1


@FEW
@given(
    steps=st.lists(
        st.integers(0, 9)
        | st.none()
        | st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
        min_size=1,
        max_size=4,
    )
)
def test_a_path_that_is_spelled_is_read_back(steps: list[str | int | None]) -> None:
    assert parse_path(spelled(tuple(steps))) == tuple(steps)


@FEW
@given(limit=st.floats(0.01, 100), amounts=st.tuples(st.floats(0, 1000), st.floats(0, 1000)))
def test_who_takes_more_never_scores_more(limit: float, amounts: tuple[float, float]) -> None:
    metric, case = metrics.latency(limit=limit), Case(id="c", input="")
    less, more = (metric.judge(case, Answer(text="", seconds=s)) for s in sorted(amounts))
    assert less.score is not None
    assert more.score is not None
    assert 0 <= more.score <= less.score <= 1
    assert more.amount == max(amounts)
    # Beside the limit both are right: scores are compared up to rounding.
    assert more.passed == (max(amounts) <= limit) or math.isclose(max(amounts), limit, rel_tol=1e-8)
