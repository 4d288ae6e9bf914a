"""A hidden metric guides no search, is reported beside the others, and may contradict them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft import (
    Case,
    Data,
    GepaConfig,
    GepaOptimizer,
    GepaResult,
    InMemoryPromptOverridesStore,
    MarkdownSection,
    Objectives,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
    Session,
    examples_from,
    feedback_from,
    load_metrics,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.errors import ConfigError
from promptgraft.evals import metrics
from promptgraft.evals.aggregate import CaseStatus, judged, metrics_identity
from promptgraft.evals.judges.kinds import LlmRubricResponse, Rubric
from promptgraft.evals.metrics.judging import judge_case
from promptgraft.evals.types import Answer, Metric, Verdict
from promptgraft.search.leak_guard import AnswerGuard
from promptgraft.search.verdict import RunVerdict
from promptgraft.targets.judging import with_held_out

TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="tests",
    key="hidden",
    sections=(
        MarkdownSection(title="Rules", key="rules", template="Count."),
        MarkdownSection(title="Question", key="question", template="$question"),
    ),
)
TRAINED_ON = 24


def correct(case: Case, answer: Answer) -> float:
    return float(str(case.expected) in answer.text)


def run(
    *also: Metric, answer: str = "{n} sheep, sir", **settings: object
) -> tuple[GepaResult, list[str], InMemoryPromptOverridesStore]:
    """Optimize for politeness; the baseline answers rightly, and the winner as ``answer`` says."""
    asked: list[str] = []

    def reply(rendered: object) -> str:
        text = str(getattr(rendered, "text", ""))
        number = text.rsplit(maxsplit=1)[-1]
        return answer.format(n=number) if "politely" in text else f"{number} sheep"

    def propose(rendered: object) -> str:
        asked.append(str(getattr(rendered, "text", "")))
        return "```instruction\nCount politely.\n```"

    judging = (metrics.regex(name="polite", pattern=r"\bs[i]r\b"), *also)
    cases = [Case(id=f"c{n}", input=f"How many: {n}", expected=str(n)) for n in range(64)]
    examples = examples_from(Prompt(TEMPLATE), cases, judging)
    store = InMemoryPromptOverridesStore()
    context = OptimizationContext(
        ScriptedAdapter(reply),
        reflection_adapter=ScriptedAdapter(propose),
        overrides_store=store,
    )
    config = GepaConfig(
        rollout_budget=300,
        pareto_set_size=12,
        target_section_paths=(("rules",),),
        training_examples=examples[:TRAINED_ON],
        data=Data(held_out=examples[TRAINED_ON:]),
        feedback_fn=feedback_from(judging),
        **settings,  # type: ignore[arg-type]
    )
    return GepaOptimizer(context, config).optimize(Prompt(TEMPLATE)), asked, store


def hidden(function: Callable[[Case, Answer], float] = correct) -> Metric:
    return metrics.python(name="truth", function=function, hidden=True)


def test_it_judges_held_out_answers_only_and_is_in_no_reflection_and_no_objective() -> None:
    judged_cases: list[str] = []

    def noting(case: Case, answer: Answer) -> float:
        judged_cases.append(case.id)
        return correct(case, answer)

    result, asked, _ = run(hidden(noting))
    assert judged_cases
    assert {int(id_[1:]) for id_ in judged_cases} <= {*range(TRAINED_ON, 64)}
    assert asked
    assert not any("truth" in text for text in asked)
    assert all("truth" not in objectives for objectives in result.objectives)


def test_a_winner_that_it_does_not_contradict_is_improved_and_it_is_reported() -> None:
    result, _, store = run(hidden())
    assert (result.verdict, result.persisted) == (RunVerdict.IMPROVED, True)
    assert store.resolve(TEMPLATE.descriptor) is not None
    rows = {what: (before, after) for what, _, before, after in result.passing.rows}
    assert rows["truth (hidden), unseen cases"] == (1.0, 1.0)
    assert "truth (hidden), validation cases" not in rows
    # Its score is not part of what an answer needs to pass.
    assert rows["pass rate, unseen cases"] == (0.0, 1.0)


@pytest.mark.parametrize(
    ("answer", "gain"), [("no idea, sir, about {n}0", -1.0), ("{n} sheep, sir", 0.0)]
)
def test_a_winner_that_it_contradicts_is_marked_and_not_stored(answer: str, gain: float) -> None:
    def exactly(case: Case, answer: Answer) -> float:
        return float(str(case.expected) in answer.text.split() and "!" not in answer.text)

    result, _, store = run(hidden(exactly), answer=answer)
    assert result.held_out is not None
    [scores] = result.held_out.hidden
    assert result.held_out.hidden_gain(scores).mean_gain == gain
    contradicts = gain < 0
    assert (result.verdict is RunVerdict.GAMED) == contradicts
    assert (store.resolve(TEMPLATE.descriptor) is None) == contradicts
    assert any("hidden metric `truth` -1.000" in remark for remark in result.remarks) == contradicts


def test_a_winner_that_it_does_not_follow_is_marked() -> None:
    result, _, _ = run(hidden(lambda case, answer: float(int(case.id[1:]) % 2)))
    assert result.verdict is RunVerdict.GAMED
    kept, _, store = run(hidden(lambda case, answer: 0.0), keep_anyway=True)
    assert (kept.verdict, kept.persisted) == (RunVerdict.GAMED, True)
    assert store.resolve(TEMPLATE.descriptor) is not None


def test_no_setting_may_name_it() -> None:
    with pytest.raises(ConfigError, match="the metric `truth` is hidden"):
        run(hidden(), objectives=Objectives(weights={"truth": 1.0}))


def test_it_counts_in_no_score() -> None:
    judging = (metrics.contains(texts=("yes",)), metrics.exact(name="same", hidden=True))
    case = Case(id="a", input="?", expected="other")
    outcome = judged("a", judge_case(judging, case, Answer(text="yes")), judging)
    assert (outcome.score, outcome.status) == (1.0, CaseStatus.PASSED)
    assert [verdict.score for verdict in outcome.verdicts] == [1.0, 0.0]


def test_metrics_of_which_all_are_hidden_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"all are hidden \(`exact`\)"):
        feedback_from([metrics.exact(hidden=True)])
    with pytest.raises(ConfigError, match="`exact` is hidden, and its score would count in `both`"):
        metrics.all_of(name="both", metrics=(metrics.exact(hidden=True),))


def test_files_may_hide_metrics_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps([{"name": "exact"}, {"name": "contains", "hidden": True}]))
    read = load_metrics(file)
    assert [getattr(metric, "hidden") for metric in read] == [False, True]  # noqa: B009
    assert metrics_identity(read) == metrics_identity(load_metrics(file))
    shown = [metrics.exact(), metrics.contains()]
    assert metrics_identity(read) != metrics_identity(shown)


RUBRIC = "The reply names the date on which the parcel will leave the warehouse"


def test_rubrics_and_questions_of_judges_are_guarded_like_answers() -> None:
    judge = LlmRubricResponse(
        judges=(ScriptedAdapter(["{}"]),), rubrics=(Rubric(id="date", text=RUBRIC),)
    )
    guard = AnswerGuard((), 8, (judge,))
    copied = guard.find(f"Be brief. {RUBRIC.lower()}, always.", ())
    assert copied is not None
    assert copied.detail.startswith("carries 13 words of the metric `llm_rubric_response`")
    assert guard.find(judge.instructions, ()) is not None
    assert guard.find(f"{RUBRIC}.", (RUBRIC,)) is None  # the prompt has said it before
    assert guard.find("Say when the parcel leaves.", ()) is None


def test_its_verdict_on_a_held_out_answer_is_in_no_feedback() -> None:
    judging = (metrics.contains(texts=("yes",)), metrics.exact(name="same", hidden=True))
    cases = [Case(id=id_, input=id_, expected="no") for id_ in ("seen", "unseen")]
    examples = examples_from(Prompt(TEMPLATE), cases, judging)
    feedback = with_held_out(feedback_from(judging), ["unseen"])
    assert feedback is not None
    for example, judged_by in zip(examples, (["contains"], ["contains", "same"]), strict=True):
        session = Session()
        response = PromptResponse[object](text="yes")
        said = feedback(example, response, session)
        assert isinstance(said, RolloutFeedback)
        assert (said.score, dict(said.objectives)) == (1.0, {"contains": 1.0})
        assert "same" not in said.feedback
        assert [verdict.metric for verdict in session.select_all(Verdict)] == judged_by
