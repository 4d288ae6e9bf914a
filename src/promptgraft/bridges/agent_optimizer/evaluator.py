"""``AgentEvaluator``: the gate of another optimizer, on the same files as its search."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from promptgraft.agents.adapter import BlackBox
from promptgraft.bridges.agent_optimizer.configuration import import_metrics, metrics_of
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.evaluate import Evaluation, evaluate
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.content import named
from promptgraft.ground.serde import Json
from promptgraft.ground.strict.checks import COUNT, reaches
from promptgraft.runtime.deadline import Cancellation, Deadline
from promptgraft.runtime.event_loop import beside


class AgentEvaluator:
    """Judges the answers of a black-box agent, with its texts as they are."""

    @staticmethod
    async def evaluate(
        *,
        call_agent: Callable[..., Any],
        eval_set_path: str,
        test_config_path: str,
        num_runs: int | None = None,
    ) -> Evaluation:
        """Answer and judge every case; return the evaluation if all cases pass.

        A case passes if each metric's mean score over its runs reaches the metric's threshold.

        Args:
            call_agent: answers a query with a text, plain or ``async``.
            eval_set_path: the cases.
            test_config_path: an ``optimizer.json``, or a file with its section ``evaluate`` only.
            num_runs: how often each case is answered; None for that of the configuration.

        Raises:
            AssertionError: a case does not pass or has no score; the message is JSON with the
                query, the answer, the expected answer and each metric's verdict.
            ConfigError, DataFormatError: an argument, the configuration or the data is unusable;
                raised before the first call.
        """
        if num_runs is not None:
            COUNT.hold("num_runs", num_runs)
        stop = Cancellation()
        files = Path(eval_set_path), Path(test_config_path)
        judge = partial(_evaluated, call_agent, files, num_runs=num_runs, stop=stop)
        evaluation, cases, metrics = await beside(judge, stop=stop)
        if failures := list(_failures(evaluation, cases, metrics)):
            count = f"{len(failures)} of {len(cases)} cases do not pass"
            details = json.dumps(failures, indent=2, ensure_ascii=False)
            raise AssertionError(f"{eval_set_path}: {count}:\n{details}")
        return evaluation


@attrs.frozen
class _InPlace:
    """Leaves the texts of the agent where they are."""

    kind: Literal["live"] = "live"

    def opened(self, folder: Path) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def deliver(
        self, texts: Mapping[str, str], *, deadline: Deadline | None = None
    ) -> contextlib.AbstractContextManager[Path | None]:
        return contextlib.nullcontext()


def _evaluated(
    agent: Callable[..., Any], files: tuple[Path, Path], *, num_runs: int | None, stop: Cancellation
) -> tuple[Evaluation, Sequence[Case], Sequence[Metric]]:
    """Return the evaluation of the cases of one file by the metrics of the other."""
    data, config = files
    imported, cases = import_metrics(config), Dataset.load(data).cases
    for line in imported.ignored:
        warnings.warn(line, stacklevel=2)
    metrics = metrics_of(imported.evaluate, imported.judges, path=config, keys=imported.keys)
    # A prompt has at least one text, which this delivery never writes anywhere.
    subject = BlackBox({"agent": "unchanged"}, agent=agent, delivery=_InPlace())
    with ThreadPoolExecutor(imported.workers) as executor:
        evaluation = evaluate(
            subject.prompt,
            cases,
            metrics,
            adapter=subject.adapter,
            num_runs=num_runs or imported.num_runs,
            executor=executor,
            deadline=Deadline(cancellation=stop),
        )
    return evaluation, cases, metrics


def _failures(
    evaluation: Evaluation, cases: Sequence[Case], metrics: Sequence[Metric]
) -> Iterator[Json]:
    """Yield what is wrong with each case that does not pass."""
    by_case = defaultdict[str, list[CaseAttempt]](list)
    for attempt in evaluation.attempts:
        by_case[attempt.case_id].append(attempt)
    thresholds = {metric.name: metric.threshold for metric in metrics}
    for case in cases:
        attempts = by_case[case.id]
        means = _means(attempts, thresholds)
        if all(
            mean is not None and reaches(mean, thresholds[name]) for name, mean in means.items()
        ):
            continue
        yield {
            "case": case.id,
            "query": named(case.input),
            "expected": case.expected,
            "scores": dict(means),
            "thresholds": dict(thresholds),
            "runs": [_told(attempt) for attempt in attempts],
        }


def _means(
    attempts: Sequence[CaseAttempt], thresholds: Mapping[str, float]
) -> Mapping[str, float | None]:
    """Return each metric's mean over the runs of a case; None if one has no score.

    A run without an answer scores 0, if the agent is to blame.
    """
    means: dict[str, float | None] = {}
    for name in thresholds:
        scores = [_score(attempt, name) for attempt in attempts]
        known_scores = [score for score in scores if score is not None]
        means[name] = (
            sum(known_scores) / len(known_scores) if len(known_scores) == len(scores) else None
        )
    return means


def _score(attempt: CaseAttempt, metric: str) -> float | None:
    for verdict in attempt.outcome.verdicts:
        if verdict.metric == metric:
            return verdict.score
    return attempt.outcome.score  # 0 without an answer, None if unscored


def _told(attempt: CaseAttempt) -> Json:
    reasons: dict[str, Json] = {
        verdict.metric: verdict.reason for verdict in attempt.outcome.verdicts
    }
    return {
        "answer": None if attempt.answer is None else attempt.answer.text,
        "error": attempt.outcome.error,
        "reasons": reasons,
    }
