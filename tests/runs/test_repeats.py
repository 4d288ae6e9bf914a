"""Rollouts with several answers: each counts once, with the mean of its scores."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import attrs
import pytest

from promptgraft import Objectives, OptimizationJob, ScriptedAdapter
from promptgraft.errors import PermanentProviderError
from promptgraft.evals.spending import AbandonedRolloutError, Role, Spending
from promptgraft.evals.types import Verdict
from promptgraft.prompt import RenderedPrompt
from promptgraft.runs.reading import questions_of, transcripts
from promptgraft.runtime.deadline import Deadline
from promptgraft.search.answers import Repeated
from promptgraft.targets.types import Candidate, GepaExample, RolloutFeedback, RolloutRecord
from runs.test_passing import answered, make_job
from runs.toy_runs import carry_out, new_folder

PAID = Spending(role=Role.TASK, model="m", cost=None)
CANDIDATE, EXAMPLE = Candidate(changes={}), GepaExample(id="c", params=([],))


def job_of(runs: int) -> OptimizationJob:
    return make_job(objectives=Objectives(num_runs=runs))


def moody(job: OptimizationJob) -> tuple[OptimizationJob, ScriptedAdapter]:
    """Return the job with a model whose every third answer is none of use."""
    number = count()

    def reply(rendered: RenderedPrompt[object]) -> str:
        return "what?" if next(number) % 3 == 0 else answered(rendered)

    adapter = ScriptedAdapter(reply, identity="task")
    return attrs.evolve(job, context=attrs.evolve(job.context, adapter=adapter)), adapter


def test_each_rollout_has_as_many_answers_and_counts_once(tmp_path: Path) -> None:
    job, model = moody(job_of(3))
    folder = new_folder(tmp_path, job)
    result = carry_out(folder, job)
    assert result.total_rollouts <= 120
    assert model.calls == 3 * result.total_rollouts
    [task] = [entry for entry in result.ledger if entry.role == "task"]
    assert task.calls == model.calls
    scores = {one.record.score for one in transcripts(folder)}
    assert len(scores) > 2  # means of several answers, not 0 and 1 alone
    shown = "".join(path.read_text() for path in questions_of(folder).values())
    assert "answers with the scores" in shown
    again, model = moody(job_of(3))
    assert carry_out(folder, again) == result
    assert model.calls == 0


def test_the_plan_counts_the_answers() -> None:
    (once,), (often,) = (
        [row for row in job_of(runs).plan().roles if row.role is Role.TASK] for runs in (1, 4)
    )
    assert (once.calls, often.calls) == (120, 480)
    assert often.expected.calls == 4 * (once.expected.calls or 0)


def record(score: float | None, said: str = "no", **metrics: float | None) -> RolloutRecord:
    verdicts = tuple(
        Verdict(metric=name, score=one, passed=None if one is None else one >= 0.5, reason="")
        for name, one in metrics.items()
    )
    objectives = {name: one for name, one in metrics.items() if one is not None}
    feedback = None
    if score is not None:
        feedback = RolloutFeedback(score=score, feedback=said, objectives=objectives)
    return RolloutRecord(
        example_id="c",
        inputs_repr="",
        output_repr="",
        tool_trace_repr="",
        feedback=feedback,
        fault="" if feedback else "overloaded",
        spent=(PAID,),
        verdicts=verdicts,
    )


def combined(*records: RolloutRecord, **thresholds: float) -> RolloutRecord:
    left = iter(records)

    def rollout(_: Candidate, example: GepaExample, deadline: Deadline | None) -> RolloutRecord:
        del deadline
        [seen] = example.params
        assert isinstance(seen, list)
        seen.append(1)
        assert len(seen) == 1, "each answer has a copy of the case"
        return next(left)

    made = Repeated(rollout=rollout, runs=len(records), thresholds=thresholds)
    return made(CANDIDATE, EXAMPLE.copy(), None)


def test_means_are_taken_and_the_worst_answer_is_shown() -> None:
    found = combined(
        record(1.0, "right", a=1.0, b=0.8), record(0.2, "wrong", a=0.2, b=0.2), a=0.5, b=0.5
    )
    assert found.feedback is not None
    assert found.score == pytest.approx(0.6)
    assert found.feedback.feedback == (
        "Of 2 answers with the scores 1, 0.2 this is the worst.\n\nwrong"
    )
    assert found.feedback.objectives == pytest.approx({"a": 0.6, "b": 0.5})
    assert [(one.metric, one.passed) for one in found.verdicts] == [("a", True), ("b", True)]
    assert len(found.spent) == 2


def test_equal_answers_say_nothing_of_their_number() -> None:
    found = combined(record(1.0, "right"), record(1.0, "right"))
    assert found.feedback is not None
    assert found.feedback.feedback == "right"


def test_what_has_no_score_is_left_out_of_the_mean() -> None:
    assert combined(record(1.0), record(None)).score == 1.0
    whole = combined(record(None), record(None))
    assert (whole.score, whole.fault) == (None, "overloaded")
    assert len(whole.spent) == 2


def test_a_metric_without_a_judgement_stays_without_one_only_if_it_has_none_at_all() -> None:
    one = combined(record(0.5, a=None), record(1.0, a=1.0), a=0.5)
    assert [(v.score, v.passed) for v in one.verdicts] == [(1.0, True)]
    none = combined(record(0.5, a=None), record(1.0, a=None), a=0.5)
    assert [(v.score, v.passed) for v in none.verdicts] == [(None, None)]


def test_answers_before_an_error_are_paid_for() -> None:
    calls = count()

    def rollout(*_: object) -> RolloutRecord:
        if next(calls):
            raise AbandonedRolloutError(PermanentProviderError("no key"), (PAID,))
        return record(1.0)

    with pytest.raises(AbandonedRolloutError) as caught:
        Repeated(rollout=rollout, runs=3, thresholds={})(CANDIDATE, EXAMPLE, None)
    assert len(caught.value.spent) == 2
    assert isinstance(caught.value.cause, PermanentProviderError)
