"""A prompt on cases: what is checked first, what is counted, what varies."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from decimal import Decimal
from enum import StrEnum
from typing import Any

import attrs
import pytest

from evals.judging import always, category, failing, judge
from optimizers.paid import CENT, TOKENS, PaidAdapter
from promptgraft.adapters.base import ModelCalled, PromptResponse, ToolInvoked
from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.errors import (
    CallerError,
    ConfigError,
    FeedbackError,
    PermanentProviderError,
    TransientProviderError,
)
from promptgraft.evals.aggregate import CaseStatus, Spread
from promptgraft.evals.attempt import answer_of
from promptgraft.evals.evaluate import Evaluation, evaluate
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.metrics import Exact, Python
from promptgraft.evals.types import Answer, Case, Message, Speaker, ToolUse, Turn
from promptgraft.ground.serde import Json
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runtime import Budget, Cancellation, Deadline, Session, event_loop


def template(text: str, output_type: type[object] | None = None) -> Prompt[object]:
    section = MarkdownSection(title="Question", key="question", template=text)
    return Prompt(
        PromptTemplate(ns="toy", key="echo", sections=(section,), output_type=output_type)
    )


ECHO = template("Say: $word")
MANY = tuple(Case(id=f"c{n}", input=f"w{n}", expected=f"w{n}") for n in range(60))
CASES = MANY[:6]


def echo(rendered: RenderedPrompt[object]) -> str:
    return rendered.text.rpartition("Say: ")[2].strip()


def wrong_from(first: int) -> Reply:
    return lambda rendered: echo(rendered) if int(echo(rendered)[1:]) < first else "no"


def test_a_text_goes_to_the_one_open_placeholder() -> None:
    found = evaluate(ECHO, CASES, [Exact()], adapter=ScriptedAdapter(wrong_from(4)))
    assert [case.status for case in found.report.cases] == [CaseStatus.PASSED] * 4 + [
        CaseStatus.FAILED
    ] * 2
    assert (found.report.pass_rate, found.report.mean_score) == (4 / 6, 4 / 6)
    assert [attempt.case_id for attempt in found.attempts] == [case.id for case in CASES]
    assert found.stopped == ""


def test_an_object_goes_to_the_placeholders_of_its_names_beside_what_is_bound() -> None:
    prompt = template("$tone $name Say: $word").bind({"tone": "Kindly"})
    case = Case(id="a", input={"word": "hi", "name": "Ann"}, expected="hi")
    adapter = ScriptedAdapter(echo)
    assert evaluate(prompt, [case], [Exact()], adapter=adapter).report.passed == 1
    assert "Kindly Ann Say: hi" in adapter.requests[0].text


def test_params_make_anything_of_a_case() -> None:
    prompt = template("$a Say: $b")
    adapter = ScriptedAdapter(echo)
    for params in (
        lambda case: {"a": "x", "b": case.input},
        lambda case: (attrs.make_class("A", ["a"])("x"), {"b": case.input}),
    ):
        found = evaluate(prompt, CASES[:1], [Exact()], adapter=adapter, params=params)
        assert found.report.passed == 1


def case(given: Json, **changes: Any) -> Case:
    return Case(**{"id": "x", "input": given, "expected": "t", **changes})


@pytest.mark.parametrize(
    ("text", "case", "message"),
    [
        ("$a $b", case("t"), "case `x`: input: a text needs one open placeholder, found `a`, `b`"),
        (
            "none",
            case("t"),
            (
                "a text needs one open placeholder, found none; write `$text` where it goes, "
                "`{text}` with `syntax: format`, `{{ text }}` with `jinja`; `plain` fills in "
                "nothing"
            ),
        ),
        (
            "Say {a}, {{ b }} or {1}.",
            case("t"),
            (
                "found none; section `question` has `{a}`, which is plain text; write `$a`, or set "
                "the syntax to `format`; section `question` has `{{ b }}`, which is plain text; "
                "write `$b`, or set the syntax to `jinja`"
            ),
        ),
        (
            "$a {b}",
            case({"a": 1, "b": 2}),
            "no placeholder `b`; section `question` has `{b}`, which is plain text; write `$b`",
        ),
        ("$a $b", case({"a": 1}), "input: expected a value for `b`, found none"),
        ("$alpha", case({"alpa": 1}), "no placeholder `alpa` (did you mean `alpha`?)"),
        (
            "$a",
            case({"a": 1, "fold": "Dev"}),
            'Splits.by_field(Dataset.of(CASES, keep=["fold"]), "fold")` divides the cases by it',
        ),
        ("$a", case({"a": 1, "fold": "Deal"}), '`Dataset.of(CASES, keep=["fold"])` hides it'),
        ("$a", case([1]), "input: expected a text or an object, found [1]"),
        (
            "$a",
            case("t", expected=None, origin="f.jsonl:3"),
            "f.jsonl:3: case `x`: metric `exact` needs `expected`",
        ),
        ("$a", case("t", turns=(Turn(user="t"),)), "needs `params`"),
        ("$a $b", case("t", context=(Message(Speaker.USER, "u"),)), "or `params` that say where"),
    ],
)
def test_cases_that_do_not_fit_are_named_before_the_first_call(
    text: str, case: Case, message: str
) -> None:
    adapter = ScriptedAdapter(echo)
    with pytest.raises(ConfigError) as caught:
        evaluate(template(text), [case], [Exact()], adapter=adapter)
    assert message in str(caught.value)
    assert adapter.calls == 0


@pytest.mark.parametrize("written", ["$word", "${word}", "{word}"])
def test_a_jinja_prompt_that_spells_placeholders_otherwise_says_how(written: str) -> None:
    section = MarkdownSection(title="Question", key="question", template=written, syntax="jinja")
    prompt = Prompt(PromptTemplate[object](ns="toy", key="echo", sections=(section,)))
    with pytest.raises(ConfigError) as caught:
        evaluate(prompt, CASES[:1], [Exact()], adapter=ScriptedAdapter(echo))
    assert f"has `{written}`, which is plain text; write `{{{{ word }}}}`" in str(caught.value)


def down_at(*cases: str) -> Reply:
    def answer(rendered: RenderedPrompt[object]) -> str:
        if echo(rendered) in cases:
            raise TransientProviderError("the service is down")
        return echo(rendered)

    return answer


@pytest.mark.parametrize("threads", [0, 3])
def test_an_outage_of_the_first_five_cases_ends_it(threads: int) -> None:
    is_over = threading.Event()

    def answer(rendered: RenderedPrompt[object]) -> str:
        # All could be answered before the thread of this test looks at the first.
        if int(echo(rendered).removeprefix("w")) >= 10:
            is_over.wait(60)
        raise TransientProviderError("the service is down")

    adapter = ScriptedAdapter(answer)
    with ThreadPoolExecutor(threads) if threads else nullcontext() as executor:
        with pytest.raises(
            PermanentProviderError, match=r"first 5 cases .* in vain: the service is down"
        ):
            evaluate(ECHO, MANY, [Exact()], adapter=adapter, executor=executor)
        is_over.set()
    assert adapter.calls < len(MANY)


@pytest.mark.parametrize("answered", ["w0", "w4"])
def test_one_answer_among_the_first_five_cases_keeps_it_going(answered: str) -> None:
    down = [str(case.input) for case in MANY if case.input != answered]
    found = evaluate(ECHO, MANY, [Exact()], adapter=ScriptedAdapter(down_at(*down)))
    assert len(found.report.unscored) == len(MANY) - 1


def test_a_bad_last_case_is_found_before_the_first_call() -> None:
    adapter = ScriptedAdapter(echo)
    with pytest.raises(ConfigError, match="case `x`: input"):
        evaluate(ECHO, [*CASES, case([1])], [Exact()], adapter=adapter)
    assert adapter.calls == 0


def test_a_fault_that_all_cases_share_is_reported_once() -> None:
    many = [case("t", id=f"c{number}") for number in range(12)]
    with pytest.raises(ConfigError) as caught:
        evaluate(template("$a $b"), many, [Exact()], adapter=judge())
    assert str(caught.value) == (
        "case `c0`: input: a text needs one open placeholder, found `a`, `b`; give an object with "
        "values by name, or `params`; the same in 11 more: `c1`, `c2`, …"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cases": ()}, "cases: expected at least one case, found none"),
        ({"cases": CASES[:1] * 2}, "cases: two cases have the id `c0`"),
        ({"metrics": ()}, "metrics: expected at least one metric, found none"),
        ({"num_runs": 0}, "num_runs: expected an integer of at least 1, found 0"),
        ({"num_runs": True}, "num_runs: expected an integer of at least 1, found True"),
    ],
)
def test_an_evaluation_that_makes_no_sense_is_refused(
    changes: Mapping[str, Any], message: str
) -> None:
    settings: dict[str, Any] = {"cases": CASES, "metrics": [Exact()], **changes}
    with pytest.raises(ConfigError) as caught:
        evaluate(ECHO, adapter=judge(), **settings)
    assert message in str(caught.value)


class Kind(StrEnum):
    YES = "yes"
    NO = "no"


def test_an_unusable_answer_scores_zero_and_a_failed_provider_nothing() -> None:
    def reply(rendered: RenderedPrompt[object]) -> str:
        match echo(rendered):
            case "w0":
                return "perhaps"
            case "w1":
                raise TransientProviderError("503")
        return "yes"

    cases = [attrs.evolve(case, expected="yes") for case in CASES[:3]]
    found = evaluate(template("Say: $word", Kind), cases, [Exact()], adapter=ScriptedAdapter(reply))
    report = found.report
    assert (report.crashed, report.unscored, report.passed) == (("c0",), ("c1",), 1)
    assert (report.pass_rate, report.mean_score) == (0.5, 0.5)
    assert report.cases[0].error.startswith("the answer could not be used: answer: expected one of")
    assert report.cases[1].error == "the model's provider failed: 503"
    assert found.attempts[0].answer is not None
    assert found.attempts[0].answer.text == "perhaps"
    assert found.attempts[2].answer is not None
    assert found.attempts[2].answer.output == "yes"


def test_a_failing_judge_leaves_its_case_unscored() -> None:
    def reply(rendered: RenderedPrompt[object]) -> str:
        if "w1" in rendered.text:
            raise TransientProviderError("503")
        return category("wrong" if "w2" in rendered.text else "correct")

    metric = LlmFinalResponse(judges=[ScriptedAdapter(reply)])
    report = evaluate(ECHO, CASES[:3], [metric], adapter=ScriptedAdapter(echo)).report
    assert (report.passed, report.failed, report.unscored) == (1, 1, ("c1",))
    assert report.mean_score == 0.5
    assert report.metrics[0].unscored == 1
    assert "the judge's provider failed: 503" in report.cases[1].error


@pytest.mark.parametrize("workers", [0, 3])
def test_who_fails_for_good_ends_the_evaluation(workers: int) -> None:
    dead = LlmFinalResponse(judges=[failing(PermanentProviderError("401: no key"))])
    pool = ThreadPoolExecutor(workers) if workers else None
    try:
        with pytest.raises(PermanentProviderError, match="judge `failing`: 401: no key"):
            evaluate(ECHO, CASES, [dead], adapter=ScriptedAdapter(echo), executor=pool)
    finally:
        if pool is not None:
            pool.shutdown()


def test_a_metric_of_the_user_that_raises_is_the_callers_fault() -> None:
    def broken(case: Case, answer: Answer) -> float:
        return 1 / len(case.fields)

    with pytest.raises(FeedbackError, match="`broken`, case `c0`: ZeroDivisionError"):
        evaluate(ECHO, CASES, [Python(function=broken)], adapter=ScriptedAdapter(echo))


def test_side_by_side_nothing_differs() -> None:
    adapter = ScriptedAdapter(wrong_from(3))
    alone = evaluate(ECHO, CASES, [Exact()], adapter=adapter, num_runs=2)
    with ThreadPoolExecutor(4) as pool:
        together = evaluate(ECHO, CASES, [Exact()], adapter=adapter, num_runs=2, executor=pool)
    assert together == alone


def test_recorded_answers_are_judged_without_a_call() -> None:
    cases = [attrs.evolve(CASES[0], recorded=Answer(text="w0")), CASES[1]]
    adapter = ScriptedAdapter(echo)
    found = evaluate(ECHO, cases, [Exact()], adapter=adapter)
    assert found.report.passed == 2
    assert adapter.calls == 1


def test_answers_hold_what_was_called_and_paid_for_them() -> None:
    metric = LlmFinalResponse(judges=[PaidAdapter(reply=always(category("correct")), identity="j")])
    adapter = PaidAdapter(reply=echo, identity="t")
    session = Session()
    found = evaluate(ECHO, CASES[:1], [metric], adapter=adapter, session=session)
    (attempt,) = found.attempts
    assert attempt.answer is not None
    assert (attempt.answer.cost, attempt.answer.usage) == (CENT, TOKENS)
    assert attempt.answer.seconds is not None
    assert [call.model for call in attempt.task_calls] == ["t"]
    assert [call.model for call in attempt.judge_calls] == ["j"]
    assert [call.model for call in session.select_all(ModelCalled)] == ["t", "j"]


@attrs.frozen
class Query:
    words: str


def test_answers_hold_the_tools_that_were_called_for_them() -> None:
    session = Session()
    session.dispatch(ToolInvoked(name="find", params=Query("x"), result=("a", Kind.YES)))
    session.dispatch(ToolInvoked(name="find", params="?", result=None, error="no such word"))
    answer = answer_of(PromptResponse(text="done", usage=TOKENS), session)
    assert answer.tools == (
        ToolUse(name="find", arguments={"words": "x"}, result=["a", "yes"]),
        ToolUse(name="find", arguments={"value": "?"}, result={"error": "no such word"}),
    )
    assert (answer.usage, answer.cost, answer.seconds) == (TOKENS, None, None)


def test_an_unknown_price_makes_the_cost_of_an_answer_unknown() -> None:
    found = evaluate(ECHO, CASES[:1], [Exact()], adapter=PaidAdapter(reply=echo, cost=None))
    answer = found.attempts[0].answer
    assert answer is not None
    assert answer.cost is None


def test_money_that_runs_out_stops_the_evaluation_and_names_what_was_not_tried() -> None:
    metric = LlmFinalResponse(judges=[PaidAdapter(reply=always(category("correct")), identity="j")])
    session = Session(budget=Budget(max_cost=Decimal("0.05")))
    found = evaluate(
        ECHO, CASES, [metric], adapter=PaidAdapter(reply=echo, identity="t"), session=session
    )
    assert "max_cost" in found.stopped
    assert found.report.passed == 2
    assert found.report.unscored == ("c2", "c3", "c4", "c5")
    assert found.report.cases[2].error.startswith("not judged: max_cost")
    assert found.report.cases[3].error.startswith("not tried: max_cost")
    assert len(session.select_all(ModelCalled)) == 5
    assert len(found.attempts[2].task_calls) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_ends_with_its_deadline(workers: int) -> None:
    stop = Cancellation()

    def reply(rendered: RenderedPrompt[object]) -> str:
        if "w2" in rendered.text:
            stop.set("enough")
        return echo(rendered)

    pool = ThreadPoolExecutor(workers) if workers else None
    found = evaluate(
        ECHO,
        CASES,
        [Exact()],
        adapter=ScriptedAdapter(reply),
        executor=pool,
        deadline=Deadline(cancellation=stop),
    )
    if pool is not None:
        pool.shutdown()
    assert found.stopped == "the run was stopped: enough"
    assert found.report.cases[0].status is CaseStatus.PASSED
    assert found.report.cases[5].status is CaseStatus.UNSCORED
    assert len(found.report.cases) == 6


def test_runs_have_mean_and_spread_by_case_and_over_all() -> None:
    replies = iter(["w0", "w1", "w0", "no", "w0", "w1"])
    found = evaluate(
        ECHO, CASES[:2], [Exact()], adapter=ScriptedAdapter(lambda _: next(replies)), num_runs=3
    )
    assert [run.mean_score for run in found.runs] == [1.0, 0.5, 1.0]
    first, second = found.cases
    assert first.score == Spread(mean=1.0, deviation=0.0)
    assert second.score.mean == pytest.approx(2 / 3)
    assert second.score.deviation == pytest.approx((1 / 3) ** 0.5)
    assert (second.passed, second.failed, second.unscored) == (2, 1, 0)
    assert found.score.mean == pytest.approx(5 / 6)
    assert found.score.deviation == pytest.approx((1 / 12) ** 0.5)


def test_one_run_has_no_spread() -> None:
    found = evaluate(ECHO, CASES, [Exact()], adapter=ScriptedAdapter(echo))
    assert found.score == Spread(mean=1.0, deviation=None)
    assert found.cases[0].score == Spread(mean=1.0, deviation=None)


def test_the_spread_of_runs_is_of_the_same_cases() -> None:
    count = itertools.count()

    def reply(rendered: RenderedPrompt[object]) -> str:
        if next(count) == 1:
            raise TransientProviderError("503")
        return "no" if "w1" in rendered.text else "w0"

    found = evaluate(ECHO, CASES[:2], [Exact()], adapter=ScriptedAdapter(reply), num_runs=2)
    assert [run.mean_score for run in found.runs] == [1.0, 0.5]
    assert found.score == Spread(mean=1.0, deviation=0.0)
    assert found.cases[1].score == Spread(mean=0.0, deviation=None)
    assert found.cases[1].unscored == 1


def test_the_embedded_model_is_evaluated_as_any_other() -> None:
    class Colour(StrEnum):
        RED = "red"
        BLUE = "blue"

    prompt = template("red: tomato, rose. blue: sky, sea.\n\nInput: $text", Colour)
    cases = [
        Case(id="1", input="a rose", expected="red"),
        Case(id="2", input="the sea", expected="blue"),
    ]
    found = evaluate(prompt, cases, [Exact()], adapter=OfflineAdapter(), num_runs=2)
    assert isinstance(found, Evaluation)
    assert found.cases[0].score.deviation == 0.0
    assert found.report.unscored == ()


def test_side_by_side_inside_the_loop_that_workers_need_is_refused_and_not_waited_for() -> None:
    async def inside(executor: ThreadPoolExecutor | None) -> int:
        adapter = ScriptedAdapter(echo)
        return evaluate(ECHO, CASES, [Exact()], adapter=adapter, executor=executor).report.passed

    with ThreadPoolExecutor(2) as executor:
        with pytest.raises(CallerError, match=r"await asyncio\.to_thread"):
            event_loop.run(inside(executor))
        assert event_loop.run(inside(None)) == len(CASES)
