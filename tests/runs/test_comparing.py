"""Comparison of two runs: which scores can be compared, and which are estimates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from cli.console import Console
from jobs.job_world import FILE, write_project
from optimizers.worlds import about, failing, judge, twins
from promptgraft.errors import TransientProviderError
from promptgraft.project import load_project
from promptgraft.project.python_source import beside
from promptgraft.runs import RunFolder, RunRecord, read_run
from promptgraft.runs.comparing import (
    Incomparable,
    cases_frame,
    gain_between,
    incomparable,
    means_in_common,
    unseen_scores,
)
from promptgraft.runs.report.page import comparison_page
from runs.toy_runs import held_out, kept_run, make_job, make_tiny_job
from settings_leaves import evolved


class Strict:
    """Another judge, that says what it is."""

    identity = "strict"
    __call__ = staticmethod(judge)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return kept_run(tmp_path_factory.mktemp("first"), make_tiny_job())


def found(first: RunFolder, root: Path, **changes: Any) -> Incomparable:
    job = make_tiny_job()
    changed = attrs.evolve(job, config=evolved(job.config, **changes))
    other = kept_run(root, changed)
    return incomparable(read_run(first), read_run(other))


def test_runs_of_the_same_data_and_metrics_can_be_compared(
    first: RunFolder, tmp_path: Path
) -> None:
    assert found(first, tmp_path, minibatch_size=1).reasons == ()


def test_winners_are_compared_by_families_like_their_verdicts(tmp_path: Path) -> None:
    unseen = [attrs.evolve(example, family="f") for example in held_out(2)]
    job = make_job(held_out=[*unseen, attrs.evolve(held_out(3)[2], id="alone")])
    one, other = (read_run(kept_run(tmp_path / name, job)) for name in ("a", "b"))
    gained = gain_between(one, other, incomparable(one, other))
    assert gained is not None
    assert gained.tied == ("family f", "alone")


def test_other_metrics_make_no_score_comparable(first: RunFolder, tmp_path: Path) -> None:
    said = found(first, tmp_path, feedback_fn=Strict())
    [reason] = said.pareto
    assert said.held_out == (reason,)
    assert said.reasons == (f"scores cannot be compared: {reason}",)
    assert reason == "the functions of `feedback_fn` differ: 'worlds.judge' in A, 'strict' in B"


def test_metrics_that_differ_are_named_without_their_digests(tmp_path: Path) -> None:
    def run(name: str, body: str, option: str = "", more: str = "") -> RunRecord:
        folder = tmp_path / name
        metrics = f"[{{name: python, function: own.py:m}}, {{name: exact{option}}}]{more}"
        file = FILE.replace("[{name: exact}]", metrics)
        path = write_project(folder, file=file)
        path.with_name("own.py").write_text(f"def m(case, answer):\n    return {body}\n")
        with beside(folder):
            return read_run(kept_run(folder, load_project(path).job("triage")))

    first = run("a", "0.5")
    for other, reason in (
        (run("b", "0.25"), "the functions of `metric python` differ: 'own.m' was edited"),
        (run("c", "0.5", ", ignore_case: true"), "the metrics differ: metric `exact`"),
        (
            run("d", "0.5", more="\naggregation: {weights: {exact: 1}}"),
            "the functions of `aggregation` differ: none in A, 'promptgraft.evals.aggregate.W",
        ),
    ):
        *_, found_reason = incomparable(first, other).pareto
        assert found_reason.removesuffix(" between A and B").startswith(reason)


def test_other_weights_make_no_score_comparable(first: RunFolder, tmp_path: Path) -> None:
    [reason] = found(first, tmp_path, weights={"score": 1.0}).held_out
    assert reason == "the weights of the objectives differ: {} in A, {'score': 1.0} in B"


def test_other_examples_of_d_pareto_are_counted(first: RunFolder, tmp_path: Path) -> None:
    said = found(first, tmp_path, pareto_set_size=2)
    assert said.pareto == ("the examples of the validation set differ: 3 in A, 2 in B, 2 in both",)
    assert said.held_out == ()


def test_other_texts_under_the_same_ids_are_noticed(first: RunFolder, tmp_path: Path) -> None:
    changed = [attrs.evolve(example, label="new") for example in twins(3)]
    said = found(first, tmp_path, training_examples=changed)
    assert said.pareto == ("the training examples differ, and those of the validation set may too",)


def test_other_held_out_examples_leave_d_pareto_alone(first: RunFolder, tmp_path: Path) -> None:
    said = found(first, tmp_path, held_out=held_out(2))
    assert said.pareto == ()
    differing = "the tested unseen cases differ: 1 in A, 2 in B, 1 in both"
    assert said.held_out == (differing,)
    assert said.reasons == (f"scores of unseen cases cannot be compared: {differing}",)


def test_a_run_without_a_winner_has_tested_none(first: RunFolder, tmp_path: Path) -> None:
    job = make_job(reflection=lambda _: "I would rather not.", held_out=held_out(2))
    other = read_run(kept_run(tmp_path, job))
    assert other.held_out is not None
    record = read_run(first)
    assert incomparable(record, other).held_out == ()
    page = comparison_page(record, other)
    assert "B has no winner that was tested on unseen cases." in page
    assert "A has no winner" not in page
    assert '<td class="n"></td>' not in comparison_page(other, other, record)


def test_winners_that_were_tested_on_other_cases_are_compared_on_those_in_common(
    first: RunFolder, tmp_path: Path
) -> None:
    record, other = read_run(first), read_run(kept_run(tmp_path, make_job(held_out=held_out(2))))
    [alone] = unseen_scores(record).values()
    assert means_in_common(record, other, incomparable(record, other)) == (1, alone, alone)
    page = comparison_page(record, other)
    assert "On the 1 unseen case that both winners were tested on: A 1.000, B 1.000." in page
    strict = read_run(kept_run(tmp_path / "strict", make_job(feedback_fn=Strict())))
    assert means_in_common(record, strict, incomparable(record, strict)) is None


@pytest.mark.parametrize("header", [None, b"", b"damaged\n"])
def test_without_the_head_of_a_journal_nothing_is_said_to_be_comparable(
    first: RunFolder, tmp_path: Path, header: bytes | None
) -> None:
    other = kept_run(tmp_path, make_tiny_job())
    if header is None:
        other.journal.unlink()
    else:
        other.journal.write_bytes(header)
    said = incomparable(read_run(first), read_run(other))
    reason = "the data and metrics of B are unknown: its journal has no header"
    assert said.pareto == said.held_out == (reason,)


def test_estimated_means_are_marked_in_the_comparison_and_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(capsys)
    down = failing(TransientProviderError("503"), about("w1"))
    estimated = kept_run(tmp_path, make_job(down, training_examples=twins(6)))
    whole = kept_run(tmp_path, make_job(training_examples=twins(6)))
    first = read_run(estimated).line[0]
    assert (first.candidate, first.changed, first.estimated) == (0, "baseline", True)
    mean = first.mean
    assert not any(one.estimated for one in read_run(whole).line)

    ended = console("compare", estimated.id, whole.id, "--runs", str(tmp_path))
    assert re.search(rf"(?m)^your prompt +~{mean:.3f} +0\.000 ", ended.out)
    assert f"\n  ~{mean:.3f}  your prompt\n" in ended.out
    assert "\n~ is an estimate, from some of the cases\n" in ended.out
    assert "~" not in console("compare", whole.id, whole.id, "--runs", str(tmp_path)).out

    page = estimated.summary.read_text("utf-8")
    assert f"on which the search chooses | ~{mean:.3f} | ~" in page
    assert f"| your prompt | ~{mean:.3f} |" in page
    assert "A mean with ~ is an estimate: some cases have no score.\n" in page
    assert "~" not in whole.summary.read_text("utf-8")


def test_scores_of_two_runs_are_a_table_by_case(whole: RunFolder) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    record = read_run(whole)
    rows = cases_frame(record, record).to_dict("records")
    assert [row["case"] for row in rows if row["set"] == "validation"] == [*record.pareto_ids]
    assert all(row["a"] == row["b"] for row in rows)
    best = record.candidates[record.best].scores
    assert [row["a"] for row in rows][: len(best)] == list(best)


def test_a_result_is_a_table_of_candidates() -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    sizes: dict[str, Any] = {"training_examples": twins(20), "pareto_set_size": 20}
    result = make_job(preset="lean", rollout_budget=200, **sizes).run()
    assert any(map(result.is_estimated, range(len(result.means))))
    rows = list(result.to_frame("polars").iter_rows(named=True))
    assert [row["candidate"] for row in rows] == list(range(len(result.candidates)))
    assert [row["mean"] for row in rows] == list(result.means)
    for row, scores in zip(rows, result.scores_matrix, strict=True):
        seen = [score for score in scores if score is not None]
        assert (row["cases"], row["mean_there"]) == (len(seen), sum(seen) / len(seen))
    assert [row["parents"] for row in rows] == [list(one) for one in result.parents]
    assert [row["candidate"] for row in rows if row["best"]] == [result.best_index]
    assert [row["objective score"] for row in rows] == [one["score"] for one in result.objectives]
