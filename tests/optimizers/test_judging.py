"""Data sets and metrics as the examples and the feedback function of a run."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from evals.judging import category
from optimizers.worlds import (
    PROMPT,
    RULES,
    PlainAdapter,
    Question,
    Run,
    bound,
    config,
    optimize,
    propose,
)
from process_pools import process_pool
from promptgraft import AgentCall, BlackBox
from promptgraft.adapters.base import PromptResponse
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.algorithms.gepa import GepaConfig, GepaExample, GepaOptimizer, RolloutFeedback
from promptgraft.errors import (
    ConfigError,
    FeedbackError,
    JournalMismatchError,
    ProviderError,
    TransientProviderError,
)
from promptgraft.evals import metrics
from promptgraft.evals.aggregate import Aggregation, Lexicographic, WeightedMean
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import Session
from promptgraft.search import OptimizationContext
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.targets.judging import examples_from, feedback_from
from promptgraft.targets.prompt_rollout import OnError


def known(case: Case, answer: Answer) -> tuple[bool, str]:
    """Judge as the world of words does."""
    return answer.text == "ok", "fine" if answer.text == "ok" else f"missing {case.input}"


def broken(case: Case, answer: Answer) -> bool:
    return bool(1 / 0)


KNOWN = metrics.python(function=known)
SHORT = metrics.length(name="short", max=1, required=False)


def cases(count: int, *, prefix: str = "e", hints: str = "") -> tuple[Case, ...]:
    """Return questions about w0, w1, ..., perhaps each with a hint of its own."""
    return tuple(
        Case(
            id=f"{prefix}{number}",
            input=f"w{number}",
            expected="ok",
            state={"prefix": prefix},
            hints={"": f"{hints}{number}"} if hints else {},
        )
        for number in range(count)
    )


def judged_by(*asked: Metric, count: int = 6, **changes: Any) -> GepaConfig:
    """Return a run over ``count`` cases to compare on and as many to learn from."""
    both = (*cases(count), *cases(count, prefix="t"))
    settings: dict[str, Any] = {
        "training_examples": examples_from(PROMPT, both, asked),
        "feedback_fn": feedback_from(asked),
        "pareto_set_size": count,
    }
    return config(**(settings | changes))


def feedback_on(
    text: str, case: Case, *asked: Metric, aggregation: Aggregation | None = None
) -> RolloutFeedback:
    [example] = examples_from(PROMPT, [case])
    response = PromptResponse[object](text=text, output=None)
    return feedback_from(asked, aggregation=aggregation)(example, response, Session())


# ---- examples ----


def test_a_case_becomes_an_example_with_its_input_as_parameters_and_itself_as_label(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(
        '{"id": "a", "input": "w1", "expected": "ok", "critical": true}\n'
        '{"id": "b", "input": {"word": "w2"}, "expected": "ok"}\n',
        "utf-8",
    )
    data = Dataset.load(path)
    first, second = examples_from(PROMPT, data, [metrics.exact()])
    assert [first.id, second.id] == ["a", "b"]
    assert [first.label, second.label] == list(data)
    assert [first.critical, second.critical] == [True, False]
    texts = [PROMPT.bind(*example.params).render().text for example in (first, second)]
    assert "Do you know w1?" in texts[0]
    assert "Do you know w2?" in texts[1]


def test_a_function_may_make_the_parameters_of_a_case() -> None:
    made = examples_from(PROMPT, cases(2), params=lambda case: Question(word=f"<{case.input}>"))
    assert [example.params for example in made] == [(Question("<w0>"),), (Question("<w1>"),)]


def test_a_recorded_answer_is_refused_with_its_case_and_its_place() -> None:
    old = Case(id="old", input="w", recorded=Answer(text="ok"), origin="cases.jsonl:3")
    with pytest.raises(ConfigError, match=r"cases\.jsonl:3: case `old` has a recorded answer"):
        examples_from(PROMPT, [*cases(1), old])


def test_what_metrics_need_of_cases_is_checked_with_all_faults_at_once() -> None:
    bare = [attrs.evolve(case, expected=None) for case in cases(2)]
    with pytest.raises(ConfigError, match=r"case `e0`: metric `exact`.*case `e1`: metric `exact`"):
        examples_from(PROMPT, bare, [KNOWN, metrics.exact()])
    assert len(examples_from(PROMPT, bare, [KNOWN])) == 2


def test_inputs_that_do_not_fit_the_prompt_are_refused_with_their_cases() -> None:
    with pytest.raises(ConfigError, match="case `a`: input: the prompt has no placeholder `wrod`"):
        examples_from(PROMPT, [Case(id="a", input={"wrod": "w1"})])


# ---- feedback on one answer ----


def test_the_score_is_the_aggregation_and_every_metric_is_an_objective() -> None:
    [case] = cases(1)
    long = "no, never"
    assert feedback_on("ok", case, KNOWN, SHORT).score == 1.0  # required metrics only
    found = feedback_on(
        long, case, KNOWN, SHORT, aggregation=WeightedMean({"known": 1, "short": 3})
    )
    assert found.objectives == {"known": 0.0, "short": 1 / 9}
    assert found.score == pytest.approx(3 / 4 / 9)
    first = feedback_on(long, case, KNOWN, SHORT, aggregation=Lexicographic(("short", "known")))
    assert first.score == pytest.approx(1 / 9, abs=0.001)


def test_the_feedback_has_failed_metrics_first_with_the_hints_of_the_case() -> None:
    hints = {"": "Ask twice.", "known": "Words are listed.", "short": "Be brief."}
    case = Case(id="a", input="w1", hints=hints)
    wide = attrs.evolve(SHORT, max=2)
    assert feedback_on("no", case, wide, KNOWN).feedback.split("\n") == [
        "[failed] known 0: missing w1",
        "  hint: Words are listed.",
        "[passed] short 1: expected at most 2 characters, found 2",
        "  hint: Be brief.",
        "hint: Ask twice.",
    ]


def test_metrics_that_cannot_stand_together_are_refused_when_the_function_is_made() -> None:
    with pytest.raises(ConfigError, match="two metrics have the name `known`"):
        feedback_from([KNOWN, KNOWN])
    with pytest.raises(ConfigError, match="expected at least one metric"):
        feedback_from([])
    with pytest.raises(ConfigError, match=r"unknown metric `knwon`.*`known`"):
        feedback_from([KNOWN], aggregation=WeightedMean({"knwon": 1}))


def test_examples_without_cases_are_refused() -> None:
    example = GepaExample(id="a", params=(Question("w1"),), label="w1")
    with pytest.raises(FeedbackError, match=r"made by `examples_from`; its label is 'w1'"):
        feedback_from([KNOWN])(example, PromptResponse(text="ok", output=None), Session())


# ---- judges ----


def judge_without(*words: str) -> Reply:
    """Judge as the world does, and fail on answers to questions about ``words``."""

    def reply(rendered: RenderedPrompt[object]) -> str:
        if any(word in rendered.text for word in words):
            raise TransientProviderError("503: the judge is down")
        return category("correct" if "ok" in bound(rendered, "answer") else "wrong")

    return reply


def llm(*words: str, required: bool = True) -> LlmFinalResponse:
    judge = ScriptedAdapter(judge_without(*words), identity="judge")
    return LlmFinalResponse(name="judge", judges=[judge], required=required)


@pytest.mark.parametrize("on_error", ["unscored", "zero"])
def test_an_answer_that_its_judge_cannot_judge_is_unscored_and_never_zero(
    on_error: OnError,
) -> None:
    result = optimize(judged_by(KNOWN, llm("w2"), on_error=on_error, max_unscored_share=1))
    places = dict(zip(result.pareto_ids, result.scores_matrix[0], strict=True))
    assert places["e2"] is None
    assert all(score == 0.0 for place, score in places.items() if place != "e2")
    assert result.found_better
    assert any(spent.role is Role.JUDGE for spent in result.ledger)


def test_a_judge_without_a_part_in_the_score_leaves_it_alone() -> None:
    [case] = cases(1)
    found = feedback_on("ok", case, KNOWN, llm("w0", required=False))
    assert (found.score, found.objectives) == (1.0, {"known": 1.0})
    assert found.feedback.startswith("[unscored] judge: ")
    with pytest.raises(ProviderError, match=r"not judged: judge: .*503"):
        feedback_on("ok", case, KNOWN, llm("w0"))


def test_a_metric_of_the_user_that_raises_ends_the_run_and_is_named() -> None:
    fault = r"metric `broken`, case `e0`: ZeroDivisionError"
    with pytest.raises(FeedbackError, match=fault):
        optimize(judged_by(KNOWN, metrics.python(function=broken)))


# ---- whole runs ----


def test_a_run_over_a_data_set_with_two_metrics_improves_and_reports_both() -> None:
    asked = (KNOWN, SHORT)
    data = Dataset.of([*cases(6, hints="seen-never-"), *cases(6, prefix="t", hints="seen-")])
    settings = judged_by(
        *asked,
        training_examples=examples_from(PROMPT, data, asked),
        feedback_fn=feedback_from(asked, aggregation=WeightedMean({"known": 4, "short": 1})),
        frontier_type="hybrid",
    )
    run = Run(settings)
    result = run.start()
    # Both answers are longer than one character: the brevity of "ok" and "no" is one half.
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == pytest.approx((0.1, 0.9))
    assert result.objectives[result.best_index] == {"score": 0.9, "known": 1.0, "short": 0.5}
    assert set(result.pareto_ids) == {f"e{number}" for number in range(6)}
    told = [request.text for request in run.reflection.requests]
    assert any("hint: seen-0" in text for text in told)
    assert not any("seen-never" in text for text in told)


def test_processes_judge_as_one_thread_does() -> None:
    settings = judged_by(KNOWN, SHORT, target_section_paths=(RULES,), rollout_budget=40)
    assert pickle.loads(pickle.dumps(settings.feedback_fn)) == settings.feedback_fn

    def scores(executor: ProcessPoolExecutor | None) -> object:
        context = OptimizationContext(
            PlainAdapter(), reflection_adapter=ScriptedAdapter(propose), executor=executor
        )
        result = GepaOptimizer(context, settings).optimize(PROMPT)
        return result.scores_matrix, result.objectives, result.best_section_overrides

    with process_pool(1) as executor:
        assert scores(executor) == scores(None)


# ---- what a journal belongs to ----


def test_a_journal_belongs_to_its_metrics_with_their_options() -> None:
    journal = MemoryJournal()
    assert optimize(judged_by(KNOWN), journal=journal).found_better
    for asked in ([SHORT], [KNOWN, SHORT], [metrics.length(name="short", max=2)]):
        with pytest.raises(JournalMismatchError, match="metrics"):
            optimize(judged_by(*asked), journal=journal)
    silent = Run(judged_by(KNOWN), journal=journal)
    silent.start()
    assert silent.task.calls == 0


def test_a_journal_does_not_care_where_a_case_stands_in_its_file() -> None:
    journal = MemoryJournal()
    settings = judged_by(KNOWN)
    first = optimize(settings, journal=journal)
    both = (*cases(6), *cases(6, prefix="t"))
    elsewhere = [attrs.evolve(case, origin="other.jsonl:7") for case in both]
    moved = examples_from(PROMPT, elsewhere, [KNOWN])
    again = Run(attrs.evolve(settings, training_examples=moved), journal=journal)
    assert again.start().scores_matrix == first.scores_matrix
    assert again.task.calls == 0


def test_following_a_hint_copies_no_answer() -> None:
    hint = "always say whether the word is one of those that the rules list"
    case = Case(id="a", input="what is known of w1", expected="the answer is " + "so long " * 6)
    [example] = examples_from(
        PROMPT, [attrs.evolve(case, hints={"": hint})], params=lambda _: Question("w")
    )
    guard = AnswerGuard([example], 8)
    assert guard.find(f"Rules: {hint}", ()) is None
    assert guard.find(f"Rules: {case.expected}", ()) is not None
    with pytest.raises(ConfigError, match=r"^cases: two cases have the id `a`"):
        examples_from(PROMPT, [case, case], params=lambda _: Question("w"))


@pytest.mark.parametrize(
    ("judging", "told"),
    [
        ([metrics.exact()], "what was expected: a\n"),
        ([metrics.exact(hidden=True), metrics.length(min=5)], ""),
    ],
)
def test_an_answer_that_could_not_be_used_is_shown_with_what_its_case_tells(
    judging: list[Metric], told: str
) -> None:
    questions: list[str] = []

    def note(rendered: RenderedPrompt[object]) -> str:
        questions.append(rendered.text)
        return "no block"

    def crash(query: str, call: AgentCall) -> str:
        if query in ("q3", "q4", "q5"):
            raise ValueError("no such table")
        return "no"

    box = BlackBox({"system": "Be brief."}, agent=crash)
    hinted = [
        Case(id=f"c{number}", input=f"q{number}", expected="a", hints={"": "P1: see the manual"})
        for number in range(6)
    ]
    settings = GepaConfig(
        training_examples=examples_from(box.prompt, hinted, judging),
        pareto_set_size=3,
        minibatch_size=1,
        rollout_budget=20,
        feedback_fn=feedback_from(judging),
    )
    surroundings = OptimizationContext(box.adapter, reflection_adapter=ScriptedAdapter(note))
    GepaOptimizer(surroundings, settings).optimize(box.prompt)
    fault = "The answer could not be used: the agent raised ValueError: no such table"
    assert any(f"{fault}\n{told}hint: see the manual\n" in question for question in questions)
