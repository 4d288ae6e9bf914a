"""Cases that cannot be judged, cases that end, users' functions, and what reasons look like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from email.message import Message
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import attrs
import pytest

from promptgraft.adapters.base import Usage
from promptgraft.errors import ConfigError, FeedbackError, TransientProviderError
from promptgraft.evals import metrics
from promptgraft.evals.metrics import check_cases, check_metrics, judge_case
from promptgraft.evals.metrics.base import verdict_on
from promptgraft.evals.rows import CaseFaults
from promptgraft.evals.types import Answer, Case, Metric, ToolUse, Verdict
from promptgraft.ground.serde import Json


def case(expected: Json = None) -> Case:
    return Case(id="a", input="question", expected=expected, origin="cases.jsonl:4")


LABELS = metrics.classification(labels=("yes", "no"))
Team = Literal["queue", "desk"]


@attrs.frozen
class Ticket:
    team: Team
    others: tuple[Team | None, ...]
    near: Team | str
    note: str


WHOLE = {"team": "queu", "others": ["desk"], "near": "x", "note": "y"}


@pytest.mark.parametrize(
    ("metric", "expected", "fault"),
    [
        (metrics.exact(), None, "needs `expected`, found none"),
        (metrics.exact(), "", "none of them empty, found ''"),
        (metrics.exact(), {"a": 1}, r"needs a text or a list of texts as `expected`"),
        (metrics.exact(expected_path="b"), {"a": 1}, "needs one value at `b` of `expected`"),
        (metrics.contains(), [], r"none of them empty, found \[\]"),
        (metrics.contains(), None, "needs `expected`, found none"),
        (metrics.regex(), "([", r"found '\(\[': unterminated character set"),
        (metrics.number(), "seven", "needs one number as `expected`, found 'seven'"),
        (metrics.number(), True, "needs one number as `expected`, found True"),
        (metrics.number(), "2*3\n#### 6", r"found '2\*3.*; `which: last` takes the last one"),
        (metrics.number(which="last"), "12,50", "found '12,50'; write a point before decimals"),
        (metrics.number(which="last"), "2 of 3,5,7.", "write a point before decimals"),
        (metrics.number(which="first"), "1,5 or 2", "write a point before decimals"),
        (metrics.json_match(), "not JSON", "needs JSON as `expected`"),
        (metrics.json_match(paths=("b",)), {"a": 1}, "compares `b`, which `expected` lacks"),
        (metrics.rouge(), "?!", "needs words for rougeL"),
        (metrics.rouge(variant="rouge2"), "one", "needs words for rouge2"),
        (metrics.edit_similarity(), None, "needs `expected`, found none"),
        (LABELS, "maybe", "has an unknown label as `expected`"),
        (LABELS, ["yes", "no"], "needs one label as `expected`"),
        (metrics.tool_trajectory(), "x", "needs the expected `tools`, found none"),
        (metrics.all_of(metrics=(metrics.exact(),)), None, "needs `expected`, found none"),
    ],
)
def test_a_case_without_a_usable_reference_is_refused_and_never_passes(
    metric: metrics.BaseMetric, expected: Json, fault: str
) -> None:
    judge: list[Callable[[], object]] = [
        lambda: check_cases([metric], [case(expected)]),
        lambda: metric.judge(case(expected), Answer(text="")),
        lambda: metric.judge(case(expected), Answer(text="not JSON")),
    ]
    for attempt in judge:
        with pytest.raises(ConfigError, match=rf"^cases.jsonl:4: case `a`: metric `\w+` .*{fault}"):
            attempt()


def test_the_solution_of_a_benchmark_is_a_reference_whose_last_number_counts() -> None:
    solution = "48 of ages 3,5,7: she sold 48/2 = <<48/2=24>>24 clips.\n#### 1,024"
    metric = metrics.number(which="last")
    check_cases([metric], [case(solution)])
    verdict = metric.judge(case(solution), Answer(text="24 and 1000 are 1024."))
    assert (verdict.score, verdict.reason) == (1.0, "expected 1024, found 1024")
    assert metrics.number(which="first").judge(case(solution), Answer(text="48")).passed


def test_a_missing_reference_names_what_the_caller_writes(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    file.touch()
    in_call, in_file = (
        Case(id="a", input={"question": "?", "calls": []}, origin=origin)
        for origin in ("cases:1", f"{file}:1")
    )
    for metric, field, label in (
        (metrics.exact(), "expected", "label=COLUMN"),
        (metrics.tool_trajectory(), "tools", 'fields={"tools": COLUMN}'),
    ):
        noted = CaseFaults()
        check_cases([metric], [in_file], noted=noted)
        assert f"name its column with `fields: {{{field}: COLUMN}}`, the" in noted.lines[0]
        with pytest.raises(ConfigError) as caught:
            check_cases([metric], [in_call])
        assert str(caught.value).endswith(
            f"name its column with `Dataset.of(CASES, {label})`, the input has `question`, `calls`"
        )
        with pytest.raises(ConfigError) as caught:
            check_cases([metric], [in_file])
        assert f'`Dataset.load(FILE, fields={{"{field}": COLUMN}})`' in str(caught.value)


@pytest.mark.parametrize("score", [77, -0.5, (77, "long")])
def test_a_score_on_another_scale_is_told_how_to_mend_it(score: object) -> None:
    with pytest.raises(FeedbackError, match=r"found .*; map your scale to 0 to 1, such as"):
        metrics.python(function=lambda *_: score).judge(case(), Answer(text=""))  # type: ignore[arg-type]


def test_a_fault_of_many_cases_is_reported_once_with_their_number() -> None:
    cases = [Case(id=str(number), input="") for number in range(1_025)]
    with pytest.raises(ConfigError) as caught:
        check_cases([metrics.exact()], cases)
    assert str(caught.value) == (
        "case `0`: metric `exact` needs `expected`, found none; the same in 1,024 more: `1`, `2`, …"
    )
    with pytest.raises(ConfigError) as caught:
        check_cases([metrics.exact()], cases[:3])
    assert str(caught.value).count("needs `expected`") == 3


def test_faults_of_many_cases_are_one_line_that_counts_the_rest() -> None:
    cases = [Case(id="long" * 20, input="")]
    several = [metrics.exact(name=f"m{number}") for number in range(25)]
    with pytest.raises(ConfigError) as caught:
        check_cases(several, cases)
    told = str(caught.value).count("needs `expected`")
    assert 1 < told < 10
    assert str(caught.value).endswith(f"; and {25 - told} more")
    assert len(str(caught.value)) <= 500


def test_an_expected_text_is_no_reply() -> None:
    verdict = metrics.exact().judge(case("<think>b</think>a"), Answer(text="a", output="a"))
    assert verdict.score == 0


def test_texts_may_come_from_any_collection() -> None:
    labels = {"yes": 1, "no": 0}
    for texts in (labels, labels.keys(), iter(labels), ["yes", "no"]):
        assert list(metrics.classification(labels=texts).labels) == ["yes", "no"]
    # Its identity, of which this is a part, is the same in every process.
    assert "labels=('no', 'yes')" in repr(metrics.classification(labels={"yes", "no"}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: metrics.exact(threshold=1.1),
        lambda: metrics.exact(threshold=float("nan")),
        lambda: metrics.exact(name=" "),
        lambda: metrics.contains(texts="abc"),
        lambda: metrics.contains(texts=("",)),
        lambda: metrics.regex(pattern="("),
        metrics.length,
        lambda: metrics.length(max=-1),
        lambda: metrics.length(min=1, unit="letters"),  # type: ignore[arg-type]
        lambda: metrics.number(tolerance=float("inf")),
        lambda: metrics.json_match(paths=("a[",)),
        lambda: metrics.json_schema(schema={"type": "objekt"}),
        lambda: metrics.classification(labels=("a", " A ")),
        lambda: metrics.assertion(expressions=()),
        lambda: metrics.check(expression="this >"),
        lambda: metrics.check(expression="answer == 1"),
        lambda: metrics.python(function="nowhere:f"),
        lambda: metrics.cost(limit=0),
        lambda: metrics.all_of(metrics=()),
        lambda: check_metrics([]),
        lambda: check_metrics([metrics.exact(), metrics.exact()]),
    ],
)
def test_unusable_options_are_refused_when_the_metric_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()


@pytest.mark.parametrize(
    ("source", "reason"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("def (", "SyntaxError: invalid syntax")],
)
def test_a_module_of_a_metric_that_fails_is_named_in_one_line(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_metrics.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=f"cannot import 'failing_metrics:f': {reason}"):
        metrics.python(function="failing_metrics:f")


def test_a_failed_assertion_ends_the_case_before_any_other_metric_is_asked() -> None:
    asked: list[str] = []

    def judge(case: Case, answer: Answer) -> float:
        asked.append(case.id)
        return 1.0

    chosen = (
        metrics.python(function=judge),
        metrics.assertion(name="positive", expressions=("this.total > 0",)),
    )
    failed = judge_case(chosen, case(), Answer(text="", output={"total": -1}))
    assert asked == []
    assert [(v.metric, v.score, v.passed) for v in failed] == [
        ("judge", 0.0, False),
        ("positive", 0.0, False),
    ]
    assert "`this.total > 0`, which is false" in failed[1].reason
    assert failed[0].reason.startswith("not judged: `positive` ended the case; expected")

    held = judge_case(chosen, case(), Answer(text="", output={"total": 1}))
    assert asked == ["a"]
    assert [verdict.passed for verdict in held] == [True, True]


def test_expressions_cannot_reach_what_the_sandbox_hides() -> None:
    metric = metrics.check(expression="this.__class__.__mro__|length > 0")
    verdict = None
    with pytest.raises(ConfigError, match="unsafe"):
        verdict = metric.judge(case(), Answer(text="x"))
    assert verdict is None


def test_a_text_that_looks_like_a_template_stays_a_text() -> None:
    metric = metrics.check(expression="this == '{{ 6 * 7 }}'")
    assert metric.judge(case(), Answer(text="{{ 6 * 7 }}")).score == 1


@pytest.mark.parametrize("value", ["this|length", "'yes'", "-0.5"])
def test_a_check_that_gives_the_expected_answer_no_score_is_refused(value: str) -> None:
    metric = metrics.check(expression=value)
    with pytest.raises(ConfigError, match="case `a`: metric `check` expected true, false"):
        metrics.check_cases([metric], [case(expected="long")])
    metrics.check_cases([metric], [case()])


def test_an_answer_outside_of_the_scale_scores_0_and_ends_no_run() -> None:
    metric = metrics.check(expression="1 - (this|int - expected|int)|abs / 4")
    grade = case(expected="2")
    metrics.check_cases([metric], [grade])
    assert metric.judge(grade, Answer(text="4")).score == 0.5
    verdict = metric.judge(grade, Answer(text="100"))
    assert verdict.score == 0
    assert 'no number from 0 to 1; expected "2", found "100"' in verdict.reason


def test_expressions_see_input_expected_and_usage() -> None:
    metric = metrics.assertion(
        expressions=(
            "input == 'question'",
            "expected == 3",
            "usage.tokens == 12 and usage.cost < 0.1 and usage.seconds == 2",
        )
    )
    answer = Answer(
        text="x",
        usage=Usage(input_tokens=10, output_tokens=2),
        cost=Decimal("0.05"),
        seconds=2.0,
    )
    assert metric.judge(case(3), answer).passed


TRACEBACK = "2 of 3 queries run\nTraceback (most recent call last):\n  in line 4\n    total / count"


def test_the_reason_of_a_function_keeps_its_lines_and_its_length() -> None:
    metric = metrics.python(name="runs", function=lambda *_: (0.6, f"\n{TRACEBACK}\r\n"))
    [verdict] = judge_case([metric], case(), Answer(text=""))
    assert verdict.reason == TRACEBACK
    long = "\n".join(f"{number}: expected a comma" for number in range(900))
    [verdict] = judge_case([metrics.python(function=lambda *_: (0, long))], case(), Answer(text=""))
    assert verdict.reason == long


@pytest.mark.parametrize(
    ("outcome", "score", "reason"),
    [
        (True, 1.0, "`f` returned 1"),
        (0.25, 0.25, "`f` returned 0.25"),
        ((0, "bad"), 0.0, "bad"),
        (Verdict(metric="x", score=None, passed=None, reason="dead"), None, "dead"),
    ],
)
def test_a_function_returns_a_score_or_a_pair_or_a_verdict(
    outcome: object, score: float | None, reason: str
) -> None:
    def f(case: Case, answer: Answer) -> object:
        return outcome

    verdict = metrics.python(function=f).judge(case(), Answer(text=""))  # type: ignore[arg-type]
    assert (verdict.metric, verdict.score, verdict.reason) == ("f", score, reason)


@pytest.mark.parametrize(
    ("expected", "text", "told"),
    [
        ("red", "blue", 'expected "red", found "blue"'),
        ({"a": 1}, '{"a": 2}', 'expected {"a":1}, found {"a":2}'),
    ],
)
def test_a_bare_score_comes_with_what_was_expected_and_found(
    expected: Json, text: str, told: str
) -> None:
    compare = metrics.python(name="same", function=lambda case, answer: 0.5)
    verdict = compare.judge(case(expected=expected), Answer(text=text))
    assert verdict.reason == f"`same` returned 0.5; {told}"
    right = metrics.python(name="same", function=lambda case, answer: True)
    assert right.judge(case(expected=expected), Answer(text=text)).reason == "`same` returned 1"


def test_a_bare_score_comes_with_what_the_function_says_of_itself() -> None:
    def refunded(case: Case, answer: Answer) -> bool:
        """The customer is promised
        the refund.

        Not before the order number is known.
        """
        return "refund" in answer.text

    metric = metrics.python(function=refunded)
    verdict = metric.judge(case(expected=None), Answer(text="Sorry."))
    assert verdict.reason == "`refunded` returned 0; The customer is promised the refund."
    assert metric.judge(case(), Answer(text="refund")).reason == "`refunded` returned 1"


@pytest.mark.parametrize(
    ("outcome", "mend"),
    [
        ({"fluent": 0.5, "right": 1.0}, "return one of several scores, and name a metric for each"),
        ({"score": 0.5, "tokens": 3}, "put what the other keys say into `feedback`"),
    ],
)
def test_a_score_of_another_form_says_how_to_return_it(outcome: object, mend: str) -> None:
    def f(case: Case, answer: Answer) -> object:
        return outcome

    with pytest.raises(FeedbackError) as raised:
        metrics.python(function=f).judge(case(), Answer(text=""))  # type: ignore[arg-type]
    assert f"; {mend}" in str(raised.value)


@pytest.mark.parametrize("outcome", [2, -0.1, float("nan"), "good", None, (1, 2), (1, "a", "b")])
def test_a_function_that_returns_something_else_is_a_feedback_error(outcome: object) -> None:
    def f(case: Case, answer: Answer) -> object:
        return outcome

    with pytest.raises(FeedbackError, match="metric `f`, case `a`: expected a score from 0 to 1"):
        metrics.python(function=f).judge(case(), Answer(text=""))  # type: ignore[arg-type]


def test_a_function_that_raises_is_a_feedback_error_unless_it_says_whose_fault_it_is() -> None:
    def broken(case: Case, answer: Answer) -> float:
        raise KeyError("city")

    def dead(case: Case, answer: Answer) -> float:
        raise TransientProviderError("no answer")

    told = r"case `a`: KeyError: 'city' .*; if the answer is at fault, catch the error and return 0"
    with pytest.raises(FeedbackError, match=told):
        judge_case([metrics.python(function=broken)], case(), Answer(text=""))
    with pytest.raises(TransientProviderError):
        metrics.python(function=dead).judge(case(), Answer(text=""))


@pytest.mark.parametrize(
    "error",
    [
        TransientProviderError("no answer"),
        ConnectionRefusedError("no answer"),
        TimeoutError("no answer"),
        URLError(ConnectionRefusedError("no answer")),
        HTTPError("http://scorer", 503, "no answer", Message(), None),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_function_whose_service_is_down_leaves_the_answer_unscored(error: Exception) -> None:
    def dead(case: Case, answer: Answer) -> float:
        raise error

    [verdict] = judge_case([metrics.python(function=dead)], case(), Answer(text=""))
    assert (verdict.score, verdict.passed) == (None, None)
    assert "no answer" in verdict.reason


def test_what_an_answer_took_is_there_as_an_amount_beside_the_score() -> None:
    answer = Answer(
        text="", usage=Usage(input_tokens=90, output_tokens=30), cost=Decimal("0.5"), seconds=3.0
    )
    chosen: list[Metric] = [
        metrics.cost(limit=1),
        metrics.tokens(limit=100),
        metrics.latency(limit=2),
        metrics.length(max=3),
    ]
    amounts = [verdict.amount for verdict in judge_case(chosen, case(), answer)]
    assert amounts == [0.5, 120, 3.0, None]


def test_all_of_several_metrics_is_the_least_score_and_unscored_when_one_is() -> None:
    parts = (metrics.exact(), metrics.latency(limit=1))
    metric = metrics.all_of(name="both", metrics=parts, threshold=0.5)
    slow = metric.judge(case("x"), Answer(text="x", seconds=2.0))
    assert (slow.score, slow.passed) == (0.5, True)
    assert slow.reason == "expected at most 1 seconds, found 2: 1 over the limit"
    assert metric.judge(case("x"), Answer(text="x")).score is None


def test_long_answers_are_quoted_around_the_first_difference_within_limits() -> None:
    expected, found = "a" * 5000 + "X" + "b" * 5000, "a" * 5000 + "Y" + "c" * 90_000
    reason = metrics.exact().judge(case(expected), Answer(text=found)).reason
    assert "the first difference is at character 5001" in reason
    assert "aaaXbbb" in reason
    assert "aaaYccc" in reason
    assert len(reason) < 400

    calls = tuple(ToolUse(name="t" * 300, arguments={"n": n}) for n in range(50))
    lost = Case(id="a", input="", tools=calls)
    assert len(metrics.tool_trajectory().judge(lost, Answer(text="")).reason) <= 1000


def test_a_long_list_of_thousands_is_read_in_linear_time() -> None:
    # Minutes, if the list is read again from each of its items.
    listed = Answer(text="1" + ",111" * 30_000 + ",")
    assert metrics.number(which="last").judge(case(111), listed).score == 1
    assert metrics.number().judge(case(1_234_567), Answer(text="It is 1,234,567.")).score == 1


def test_deep_answers_score_zero_and_exhaust_nothing() -> None:
    for depth in (101, 900, 990, 100_000):
        answer = Answer(text="[" * depth + "]" * depth)
        verdict = metrics.json_match().judge(case([1]), answer)
        assert verdict.score == 0
        assert "at most 100 lists" in verdict.reason or "nested too deeply" in verdict.reason
        assert metrics.check(expression="this == 1").judge(case(), answer).score == 0
    deepest = Answer(text="[" * 100 + "]" * 100)
    assert (
        metrics.json_match()
        .judge(case([1]), deepest)
        .reason.startswith("`[0]`: expected 1, found [[")
    )


def test_a_schema_that_refers_to_another_document_is_refused() -> None:
    metric = metrics.json_schema(schema={"$ref": "https://example.org/other.json"})
    with pytest.raises(ConfigError, match="the schema refers to"):
        metric.judge(case(), Answer(text="{}"))


@pytest.mark.parametrize(
    ("metric", "kind", "expected"),
    [
        (metrics.exact(), Team, "queu"),
        (metrics.exact(), Team, ["queu", "help"]),
        (metrics.exact(answer_path="team"), Ticket, "queu"),
        (metrics.classification(labels=("queu", "desk")), Team, "queu"),
        (metrics.json_match(), Ticket, WHOLE),
        (metrics.json_match(paths=("team",)), Ticket, WHOLE),
        (metrics.json_match(answer_path="others"), Ticket, ["desk", "queu"]),
        (metrics.all_of(metrics=(metrics.contains(), metrics.exact())), Team, "queu"),
    ],
)
def test_an_expected_text_that_is_no_option_of_the_answer_blames_its_case(
    metric: metrics.BaseMetric, kind: object, expected: Json
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_cases([metric], [case(expected)], kind)
    assert str(caught.value) == (
        f"cases.jsonl:4: case `a`: metric `{metric.name}`: the expected 'queu' is no option of the "
        "prompt's answer (did you mean `queue`?); options: `queue`, `desk`"
    )
    recorded = attrs.evolve(case(expected), recorded=Answer(text="queu"))
    check_cases([metric], [recorded], kind)
    check_cases([metric], [case(expected)])


@pytest.mark.parametrize(
    ("metric", "kind", "expected"),
    [
        (metrics.exact(ignore_case=True, ignore_space=True), Team, " Desk"),
        (metrics.exact(), Team, ["elsewhere", "desk"]),
        (metrics.exact(), Team, "desk "),
        (metrics.exact(), str, "queu"),
        (metrics.exact(), Ticket, json.dumps({**WHOLE, "team": "queue"})),
        (metrics.exact(), list[str], '["a"]'),
        (metrics.exact(), float, "0.50"),
        (metrics.exact(), bool, "TRUE"),
        (metrics.exact(), int | None, ["none of them", "7"]),
        (metrics.exact(answer_path="near"), Ticket, "queu"),
        (metrics.exact(answer_path="nothing"), Ticket, "queu"),
        (metrics.contains(), Team, "queu"),
        (metrics.classification(labels=("queu", "desk"), several=True), Team, "queu, desk"),
        (metrics.json_match(ignore=("team",)), Ticket, WHOLE),
        (metrics.json_match(paths=("note",)), Ticket, WHOLE),
    ],
)
def test_expected_texts_that_an_answer_can_have_are_no_fault(
    metric: metrics.BaseMetric, kind: object, expected: Json
) -> None:
    check_cases([metric], [case(expected)], kind)


@pytest.mark.parametrize(
    ("kind", "expected", "why"),
    [
        (int, "1,000", "expected one number, found '1,000'"),
        (bool, "0", "expected one of true, yes, false, no; found '0', which names none of them"),
        (int, ["some", "1,000"], "expected one number, found 'some'"),
        (date, "01/31/2024", "expected an ISO 8601 date, found '01/31/2024' @ $"),
        (list[str], ["a", "b"], "it is no JSON; `json_match` compares objects and lists"),
        (int | None, "none", "it is no JSON; `json_match` compares objects and lists"),
        (Ticket, "queue", "it is no JSON; `json_match` compares objects and lists"),
    ],
)
def test_an_expected_text_that_no_answer_of_the_type_says_blames_its_case(
    kind: object, expected: Json, why: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_cases([metrics.exact()], [case(expected)], kind)
    text = expected[0] if isinstance(expected, list) else expected
    assert str(caught.value) == (
        f"cases.jsonl:4: case `a`: metric `exact`: the expected {text!r} is no answer of the "
        f"prompt: {why}"
    )


@attrs.frozen
class Line:
    sku: str
    amount: int | None = None


@attrs.frozen
class Bill:
    total: float
    is_paid: bool
    lines: tuple[Line, ...]
    code: int | str
    day: date
    time: datetime
    more: dict[str, int]
    team: Team | None = None


@pytest.mark.parametrize(
    ("expected", "fault"),
    [
        ({"total": "12.50"}, "has '12.50' at 'total', a text, where the prompt's answer has a nu"),
        ({"total": True}, "has True at 'total', true or false, where the prompt's answer has a nu"),
        ({"is_paid": "yes"}, "has 'yes' at 'is_paid', a text, where the prompt's answer has true "),
        ({"is_paid": 1}, "has 1 at 'is_paid', a number, where the prompt's answer has true or fal"),
        ({"lines": [{"sku": "7"}, {"sku": 7}]}, "has 7 at 'lines.sku', a number, where the promp"),
        ({"lines": [{"amount": "2"}]}, "has '2' at 'lines.amount', a text, where the prompt's an"),
        ({"day": "11/30/2026"}, "has '11/30/2026' at 'day', which is no ISO 8601 date"),
        ({"time": "noon"}, "has 'noon' at 'time', which is no ISO 8601 date"),
        ({"code": True}, "has True at 'code', true or false, where the prompt's answer has a numb"),
        ({"Total": 3}, "has 'Total', a field that no answer of the prompt has (did you mean `to"),
        ({"total": 3, "tags": []}, "has 'tags', a field that no answer of the prompt has (it h"),
        ({"lines": [{"price": 3}]}, "has 'price', a field that no answer of the prompt has (it h"),
    ],
)
def test_an_expected_value_that_no_answer_of_the_type_has_blames_its_case(
    expected: Json, fault: str
) -> None:
    for metric in (
        metrics.json_match(),
        metrics.all_of(metrics=(metrics.length(min=1), metrics.json_match())),
    ):
        with pytest.raises(ConfigError) as caught:
            check_cases([metric], [case(expected)], Bill)
        assert f"metric `{metric.name}`: `expected` {fault}" in str(caught.value)
        check_cases([metric], [case(expected)])


@pytest.mark.parametrize(
    "expected",
    [
        {"total": 12, "is_paid": False, "lines": [{"sku": "7", "amount": 2}], "code": "x"},
        {"total": 12.5, "is_paid": True, "lines": [], "code": 3, "day": "2026-11-30"},
        {"total": None, "lines": [{"amount": None}], "more": {"any": 1}, "team": "desk"},
    ],
)
def test_expected_values_that_an_answer_of_the_type_can_have_are_no_fault(expected: Json) -> None:
    check_cases([metrics.json_match()], [case(expected)], Bill)


@pytest.mark.parametrize("kind", [str, str | None, Annotated[str, "a note"]])
@pytest.mark.parametrize("expected", [5, True, [1, 2], {"n": 1}])
def test_json_of_any_kind_may_be_expected_of_an_answer_that_is_a_text(
    kind: object, expected: Json
) -> None:
    check_cases([metrics.json_match()], [case(expected)], kind)
    [verdict] = judge_case(
        [metrics.json_match()], case(expected), Answer(text=json.dumps(expected))
    )
    assert verdict.passed


def test_what_must_not_be_answered_may_be_what_no_answer_has() -> None:
    wrong = case({"total": "much"})
    of_case = metrics.by_case(metrics=(metrics.json_match(),), inverted=("json_match",))
    check_cases([of_case], [wrong], Bill)
    with pytest.raises(ConfigError, match="has 'much' at 'total'"):
        check_cases([metrics.by_case(metrics=(metrics.json_match(),))], [wrong], Bill)


@pytest.mark.parametrize("place", ["total", "Total"])
def test_places_that_are_not_compared_may_have_any_value(place: str) -> None:
    check_cases([metrics.json_match(ignore=(place,))], [case({place: "much"})], Bill)


@pytest.mark.parametrize("expected", [" Desk", "DESK"])
def test_an_expected_text_in_other_letters_than_the_option_scores_nothing(expected: str) -> None:
    metric = metrics.exact()
    assert metric.judge(case(expected), Answer(text="desk")).score == 0
    with pytest.raises(ConfigError) as caught:
        check_cases([metric], [case(expected)], Team)
    assert str(caught.value).endswith(
        f"the expected {expected!r} is no option of the prompt's answer (did you mean `desk`?); "
        "options: `queue`, `desk`; or set `ignore_case: true` and `ignore_space: true`"
    )


def test_an_empty_list_counts_as_one_value_in_any_order() -> None:
    expected: Json = {"a": [], "b": 1}
    for ignore_order in (False, True):
        metric = metrics.json_match(ignore_order=ignore_order)
        verdict = metric.judge(case(expected=expected), Answer(text='{"a": [], "b": 2}'))
        assert verdict.score == 0.5


@pytest.mark.parametrize(
    ("expected", "found", "score", "reason"),
    [
        (
            {"items": [{"a": 1, "b": 2}, {"a": 3, "b": 2}], "c": 4},
            {"items": [{"a": 3, "b": 2}, {"a": 1, "b": 2}], "c": 4},
            0.6,
            "2 of 5 values differ: `items` has the right items in another order",
        ),
        ([[1, 2], [3]], [[2, 1], [3]], 1 / 3, "`[0]` has the right items in another order"),
        ([1, 2], [2, 2], 0.5, "1 of 2 values differ: `[0]`: expected 1, found 2"),
        ([1, 2], [2, 1, 1], 0.0, "`[2]` was not expected"),
    ],
)
def test_items_in_another_order_are_one_fault(
    expected: Json, found: Json, score: float, reason: str
) -> None:
    answer = Answer(text=json.dumps(found))
    verdict = metrics.json_match().judge(case(expected=expected), answer)
    assert verdict.score == pytest.approx(score)
    assert reason in verdict.reason
    in_any_order = metrics.json_match(ignore_order=True).judge(case(expected=expected), answer)
    assert (in_any_order.score == 1) is ("another order" in verdict.reason)


def faults_of(metric: Metric, expected: Iterable[Json], output_type: object = None) -> str:
    cases = [
        Case(id=f"c{at}", input="x", expected=value, origin=f"cases.jsonl:{at + 1}")
        for at, value in enumerate(expected)
    ]
    with pytest.raises(ConfigError) as refused:
        check_cases([metric], cases, output_type)
    return str(refused.value)


def test_faults_that_differ_only_in_values_are_one_line() -> None:
    values: list[Json] = [{"total": n, "note": "it's; no" if n % 3 else "x" * n} for n in range(40)]
    assert faults_of(metrics.exact(), values) == (
        "cases.jsonl:1: case `c0`: metric `exact` needs a text or a list of texts as `expected`, "
        "none of them empty, found {'total': 0, 'note': ''}; the metric `json_match` compares "
        "objects and lists; similar in 39 more: `c1`, `c2`, …"
    )
    answers = Literal["roads", "waste"]
    texts = [f"{'roads' if n % 2 else 'else'}{n}" for n in range(40)]
    assert faults_of(metrics.exact(), texts, answers) == (
        "cases.jsonl:1: case `c0`: metric `exact`: the expected 'else0' is no option of the "
        "prompt's answer; options: `roads`, `waste`; similar in 39 more: `c1`, `c2`, …"
    )


def test_faults_of_several_kinds_keep_a_line_each() -> None:
    values: list[Json] = [{"a": 1}, None, {"a": 2}, None, [[1]], {"a": 3}, None, None, {"b": "'"}]
    said = faults_of(metrics.exact(), values)
    assert (
        "found {'a': 1}; the metric `json_match` compares objects and lists; similar in 4" in said
    )
    assert "`exact` needs `expected`, found none; the same in 3 more: `c3`, `c6`, …" in said
    assert said.count("metric `exact`") == 2
    few = faults_of(metrics.exact(), [{"a": 1}, {"a": 2}, {"a": 3}])
    assert "similar" not in few
    assert few.endswith("objects and lists; and 1 more")
    several = [metrics.exact(name=f"m{number}") for number in range(4)]
    with pytest.raises(ConfigError) as refused:
        check_cases(several, [Case(id="c", input="x", expected={"a": 1})])
    assert "similar" not in str(refused.value)
    # An empty text is no object.
    assert "json_match" not in faults_of(metrics.exact(), [""])


class Levenshtein:
    """As a scorer of autoevals."""

    def __call__(self, output: str, expected: str | None = None) -> float:
        return 1.0


def f1_score(y_true: list[str], y_pred: list[str], *, average: str = "binary") -> float:
    return 1.0


def turned(answer: Answer, case: Case) -> float:
    return float(answer.text == case.expected)


@pytest.mark.parametrize(
    ("function", "first"), [(Levenshtein(), "output"), (f1_score, "y_true"), (turned, "answer")]
)
def test_a_function_that_would_take_a_case_for_a_text_is_refused(
    function: Callable[..., float], first: str
) -> None:
    with pytest.raises(ConfigError, match=rf"would get a case as `{first}`; write a function of"):
        metrics.python(function=function)


@pytest.mark.parametrize(
    "function",
    [
        lambda gold, pred, trace=None: gold == pred,
        lambda example, prediction, trace=None: example.expected == prediction,
        lambda case, answer: answer != case.expected,
        lambda case, answer: answer in ("yes", "no"),
        lambda case, answer: answer == {"team": 1},
    ],
)
def test_a_function_that_compares_a_whole_answer_is_refused(
    function: Callable[..., bool],
) -> None:
    metric = metrics.python(function=function)
    with pytest.raises(TypeError, match=r"an answer is compared with .*; compare its `text`, or"):
        metric.assess(Case(id="a", input="?", expected="yes"), Answer(text="yes"))


def test_answers_are_equal_to_answers() -> None:
    first, second = Answer(text="yes", output={"a": 1}), Answer(text="no")
    assert first == attrs.evolve(second, text="yes", output={"a": 1})
    assert first != second
    assert (first == None, first in [None, second]) == (False, False)  # noqa: E711
    assert len({second, Answer(text="no")}) == 1


def test_the_arguments_of_a_function_by_name_are_shown_as_such() -> None:
    def judge(*, case: Case, answer: Answer) -> float:
        return 1.0

    with pytest.raises(ConfigError, match=r"its arguments are \(\*, case, answer\)"):
        metrics.python(function=judge)  # type: ignore[arg-type]


def test_a_function_that_looks_for_a_field_of_others_is_told_what_there_is() -> None:
    def of_dspy(example: Case, pred: Answer, trace: object = None) -> bool:
        return bool(example.desk == pred.desk)  # type: ignore[attr-defined]

    def of_texts(case: Case, answer: Answer) -> bool:
        return bool(answer.lower() == case.expected)  # type: ignore[attr-defined]

    def of_rows(case: Case, answer: Answer) -> bool:
        return bool(case["desk"] == answer.text)  # type: ignore[index]

    def of_outputs(case: Case, answer: Answer) -> bool:
        return bool(answer["desk"] == case.expected)  # type: ignore[index]

    for function, there in (
        (of_rows, "a case has `input`, `expected`, `id` and `fields`"),
        (of_outputs, "an answer has `text`, `output`, `tools` and `usage`"),
        (of_dspy, "a case has `input`, `expected`, `id` and `fields`"),
        (of_texts, "an answer has `text`, `output`, `tools` and `usage`"),
    ):
        with pytest.raises(FeedbackError, match=there):
            judge_case([metrics.python(function=function)], case(), Answer(text=""))


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        (3.0, ("3", "3.0"), ("3.00", "30", "three")),
        (3, ("3",), ("3.0",)),
        (2.5, ("2.5",), ("2",)),
        (True, ("true", "True"), ("TRUE", "1", "yes")),
        ([1.0, False], ("1", "1.0", "false", "False"), ("true",)),
        ("3.0", ("3.0",), ("3",)),  # a text is that text
    ],
)
def test_a_number_or_a_truth_value_has_the_spellings_of_json_and_python(
    expected: Json, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    asked = Case(id="a", input="x", expected=expected)
    scores = {
        text: judge_case([metrics.exact()], asked, Answer(text=text))[0].score
        for text in (*right, *wrong)
    }
    assert scores == {**dict.fromkeys(right, 1.0), **dict.fromkeys(wrong, 0.0)}


@pytest.mark.parametrize(
    "metric",
    [
        metrics.classification(labels=["Yes", "No"]),
        metrics.contains(),
        metrics.exact(),
    ],
)
def test_an_answer_that_is_true_or_false_is_a_yes_or_no(metric: metrics.BaseMetric) -> None:
    asked = Case(id="a", input="x", expected="Yes")
    answers = {output: Answer(text=str(output).lower(), output=output) for output in (True, False)}
    scores = {o: judge_case([metric], asked, answer)[0].score for o, answer in answers.items()}
    assert scores == {True: 1.0, False: 0.0}
    check_cases([metric], [case("Yes")], bool)


def test_a_text_that_no_truth_value_contains_is_refused_before_the_first_call() -> None:
    with pytest.raises(ConfigError) as caught:
        check_cases([metrics.contains()], [case("spam")], bool)
    assert str(caught.value) == (
        "cases.jsonl:4: case `a`: metric `contains`: no answer of the prompt contains the expected "
        "'spam': it is true or false; expect `yes` or `no`, or list the answers as the choices of "
        "the prompt"
    )
    check_cases([metrics.contains()], [case("spam")], list[bool])


def test_what_a_function_raises_tells_no_secret_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_TOKEN", "desk-012")  # of which the other one is made
    monkeypatch.setenv("DESK_TOKEN", "desk-0123456789")
    monkeypatch.setenv("DESK_KEY", "yes")
    monkeypatch.setenv("DESK_TEAM", "roads and pavements")

    def broken(case: Case, answer: Answer) -> float:
        raise ValueError(f"https://desk.example.com/{os.environ['DESK_TOKEN']}/yes: {answer.text}")

    with pytest.raises(FeedbackError) as caught:
        verdict_on(metrics.python(function=broken), case(), Answer(text="roads and pavements"))
    told = "ValueError: https://desk.example.com/[secret]/yes: roads and pavements"
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "form", [quote, lambda value: json.dumps(value)[1:-1], lambda value: f"Bearer {value}"]
)
def test_what_a_function_raises_tells_no_secret_in_another_form(
    form: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", 'desk/"0123 456"')

    def broken(case: Case, answer: Answer) -> float:
        raise ValueError(f"told {form(os.environ['DESK_TOKEN'])}")

    with pytest.raises(FeedbackError) as caught:
        verdict_on(metrics.python(function=broken), case(), Answer(text="x"))
    assert "ValueError: told " in str(caught.value)
    assert "0123" not in str(caught.value)


@pytest.mark.parametrize("options", [{"stderr": subprocess.PIPE}, {"stderr": subprocess.STDOUT}])
def test_a_program_that_a_function_runs_tells_why_it_failed(options: Mapping[str, int]) -> None:
    code = "import sys; sys.stderr.write('no grammar for Czech\\n'); sys.exit(2)"

    def broken(case: Case, answer: Answer) -> float:
        command = [sys.executable, "-c", code]
        subprocess.run(command, check=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
        return 1.0

    with pytest.raises(FeedbackError, match=r"exit status 2\. It printed: no grammar for Czech"):
        verdict_on(metrics.python(function=broken), case(), Answer(text="x"))


def test_an_exception_without_a_message_is_only_its_type() -> None:
    def broken(case: Case, answer: Answer) -> float:
        raise KeyError

    with pytest.raises(FeedbackError, match=r": KeyError \("):
        verdict_on(metrics.python(function=broken), case(), Answer(text="x"))


@pytest.mark.parametrize("metric", [metrics.exact(), metrics.contains()])
@pytest.mark.parametrize(
    ("expected", "output", "score"),
    [
        ("1.50", Decimal("1.5"), 1),
        (1.5, Decimal("1.50"), 1),
        ("1.51", Decimal("1.5"), 0),
        ("09:30", time(9, 30), 1),
        ("09:31", time(9, 30), 0),
    ],
)
def test_decimal_numbers_and_times_may_be_spelled_in_several_ways(
    metric: Metric, expected: Json, output: Any, score: float
) -> None:
    answer = Answer(text=str(output), output=output)
    [verdict] = judge_case([metric], case(expected), answer)
    assert verdict.score == score


@pytest.mark.parametrize(("label", "score"), [("true", 1), ("yes", 0)])
def test_of_two_labels_that_say_true_the_spelled_one_counts(label: str, score: float) -> None:
    metric = metrics.classification(labels=("yes", "true", "no"))
    [verdict] = judge_case([metric], case(label), Answer(text="true", output=True))
    assert verdict.score == score
