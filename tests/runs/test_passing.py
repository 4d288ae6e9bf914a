"""Pass rates and the means of metrics: in the result, the pages, the report and comparisons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from promptgraft import Dataset, OptimizationContext, OptimizationJob, ScriptedAdapter, Splits
from promptgraft.algorithms.gepa import GepaConfig
from promptgraft.evals import metrics
from promptgraft.evals.types import Case, Metric, Verdict
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runs import RunFolder, read_run, transcripts
from promptgraft.runs.comparing import figure_rows, figures_json, incomparable
from promptgraft.runs.report.page import comparison_page
from promptgraft.search.cases import Judging, data_settings
from promptgraft.search.verdict import PassRules
from promptgraft.targets.judging import feedback_from
from promptgraft.targets.types import RolloutFeedback, RolloutRecord
from runs.toy_runs import kept_run

PROMPT: Prompt[object] = Prompt(
    PromptTemplate(
        ns="toy",
        key="sums",
        sections=(
            MarkdownSection(title="Rules", key="rules", template="Add up."),
            MarkdownSection(title="Sum", key="sum", template="$sum"),
        ),
    )
)
ASKED: tuple[Metric, ...] = (
    metrics.contains(),
    metrics.length(name="short", max=8, threshold=0.6),
    metrics.length(name="very short", max=2, required=False),
)


def answered(rendered: RenderedPrompt[object]) -> str:
    """Answer wrongly, rightly, or rightly and too long, by what the rules say."""
    rules, asked = rendered.sections[0].text, rendered.sections[1].text
    number = int(asked.split()[0])
    found = str(number + 1) if "one more" in rules else "0"
    return f"the answer is {found}" if "one more" in rules and number % 3 == 0 else found


def make_job(**changes: Any) -> OptimizationJob:
    cases = tuple(
        Case(id=f"c{number}", input=f"{number} + 1", expected=str(number + 1))
        for number in range(1, 43)
    )
    splits = Splits(Dataset(cases[:12]), Dataset(cases[12:24]), Dataset(cases[24:]))
    given: dict[str, Any] = {
        **data_settings(PROMPT, Judging(splits=splits, metrics=ASKED)),
        "rollout_budget": 120,
        "target_section_paths": (("rules",),),
        **changes,
    }
    settings = GepaConfig(**given)
    context = OptimizationContext(
        ScriptedAdapter(answered, identity="task"),
        reflection_adapter=ScriptedAdapter(
            lambda _: "```instruction\nSay one more than the number.\n```", identity="writer"
        ),
    )
    return OptimizationJob(PROMPT, context, settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return kept_run(tmp_path_factory.mktemp("passing"), make_job())


def rates(folder: RunFolder, phases: set[str], candidate: int) -> tuple[float, dict[str, float]]:
    """Return what a candidate's answers come to, counted anew from the journal."""
    records = [
        one.record for one in transcripts(folder, candidates={candidate}) if one.phase in phases
    ]
    passed = [all(v.passed for v in one.verdicts if v.metric != "very short") for one in records]
    scores = {
        metric.name: [
            v.score or 0.0 for one in records for v in one.verdicts if v.metric == metric.name
        ]
        for metric in ASKED
    }
    means = {name: sum(found) / len(found) for name, found in scores.items()}
    return sum(passed) / len(passed), means


def test_the_result_has_pass_rates_means_and_thresholds_of_both_sides(folder: RunFolder) -> None:
    found = json.loads(folder.result.read_text())["metrics"]
    assert found["thresholds"] == {"contains": 1.0, "short": 0.6, "very short": 1.0}
    best = read_run(folder).best
    on_validation = {"baseline", "pareto", "merge", "final", "idle"}
    for name, phases in (("validation", on_validation), ("held_out", {"held-out"})):
        for side, candidate in (("baseline", 0), ("best", best)):
            rate, means = rates(folder, phases, candidate)
            assert found[name][side]["pass_rate"] == pytest.approx(rate), (name, side)
            assert found[name][side]["means"] == pytest.approx(means), (name, side)
    # Every third answer is right and too long: it is found in the mean, and does not pass.
    assert found["validation"]["baseline"]["pass_rate"] == 0.0
    assert 0.5 < found["validation"]["best"]["pass_rate"] < 1.0
    assert found["validation"]["best"]["means"]["contains"] == 1.0


def test_candidates_tell_their_own_figures(folder: RunFolder) -> None:
    record = read_run(folder)
    found = json.loads(folder.result.read_text())["metrics"]["validation"]
    for side, candidate in (("baseline", 0), ("best", record.best)):
        assert record.candidates[candidate].figures.pass_rate == found[side]["pass_rate"]
    page = folder.candidate(record.best).read_text()
    assert f"- pass rate: {found['best']['pass_rate']:.3f} of the cases with a score" in page


def test_summary_and_report_show_them_beside_the_means(folder: RunFolder) -> None:
    found = json.loads(folder.result.read_text())["metrics"]
    summary, report = folder.summary.read_text(), folder.report.read_text()
    for where, name in (("unseen cases", "held_out"), ("validation cases", "validation")):
        before, after = (found[name][side]["pass_rate"] for side in ("baseline", "best"))
        row = f"| pass rate, {where} |  | {before:.3f} | {after:.3f} | {after - before:+.3f} |"
        assert row in summary
        assert f"pass rate, {where}" in report
    assert re.search(r"\| short, unseen cases \| 0.6 \| 1.000 \| 0.\d+ \|", summary)


def test_two_runs_are_compared_in_them(folder: RunFolder, tmp_path: Path) -> None:
    other = kept_run(tmp_path, make_job(seed=5))
    first, second = read_run(folder), read_run(other)
    differing = incomparable(first, second)
    rows = {row[0]: row[1:] for row in figure_rows(first, second, differing)}
    rate = json.loads(folder.result.read_text())["metrics"]["held_out"]["best"]["pass_rate"]
    assert rows["pass rate, unseen cases"][0] == f"{rate:.3f}"
    sets = "contains, validation cases", "short, unseen cases", "pass rate, validation cases"
    assert set(rows) > {*sets}
    assert "pass rate, unseen cases" in comparison_page(first, second)
    plain = figures_json(first)
    assert plain["passing"] == json.loads(folder.result.read_text())["metrics"]


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    folder = kept_run(tmp_path)
    found = json.loads(folder.result.read_text())["metrics"]
    nothing: dict[str, object] = {"pass_rate": None, "means": {}}
    assert found["thresholds"] == {}
    assert found["validation"] == {"baseline": nothing, "best": nothing}
    assert "pass rate" not in folder.summary.read_text() + folder.report.read_text()


def record_of(score: float | None, **passed: bool | None) -> RolloutRecord:
    verdicts = tuple(
        Verdict(metric=name, score=None if one is None else float(one), passed=one, reason="")
        for name, one in passed.items()
    )
    feedback = None if score is None else RolloutFeedback(score=score, feedback="")
    return RolloutRecord(
        example_id="c",
        inputs_repr="",
        output_repr="",
        tool_trace_repr="",
        feedback=feedback,
        verdicts=verdicts,
    )


def test_what_passes_is_what_the_evaluation_says_too() -> None:
    asked = PassRules.of(feedback_from([metrics.exact(), metrics.length(max=3, required=False)]))
    assert asked.passes(record_of(1.0, exact=True, length=False)) is True
    assert asked.passes(record_of(0.5, exact=False, length=True)) is False
    assert asked.passes(record_of(0.0)) is False  # no answer came, for the candidate's fault
    assert asked.passes(record_of(None)) is None
    figures = asked.figures(
        [
            record_of(1.0, exact=True, length=True),
            record_of(1.0, exact=True, length=None),
            record_of(0.0),
            record_of(None),
        ]
    )
    assert figures.pass_rate == pytest.approx(2 / 3)
    assert figures.means == pytest.approx({"exact": 2 / 3, "length": 1 / 2})


def test_answers_without_a_metric_have_no_pass_rate() -> None:
    asked = PassRules.of(None)
    assert asked.figures([record_of(1.0), record_of(0.0)]).pass_rate is None
