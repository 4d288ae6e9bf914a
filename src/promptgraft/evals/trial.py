"""A trial of metrics on answers that cost nothing, before the first paid call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal

import attrs

from promptgraft.adapters.base import Usage
from promptgraft.errors import CallerError, PromptgraftError
from promptgraft.evals.metrics.base import asks_models, verdict_on
from promptgraft.evals.metrics.judging import can_judge
from promptgraft.evals.types import Answer, Case, Metric

_USAGE = Usage(input_tokens=1, output_tokens=1)


@attrs.frozen(kw_only=True)
class Trial:
    """What a trial of metrics has shown, one line each.

    Attributes:
        faults: metrics that fail on the expected answer, as on the empty one.
        warnings: metrics that fail on one of both.
        unchecked: metrics that were not tried, and why.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def tried_metrics(metrics: Sequence[Metric], cases: Iterable[Case]) -> Trial:
    """Call each metric on an empty answer and on the expected one of a case that it can judge.

    Metrics that ask a model are not called.
    """
    chosen = tuple(cases)
    faults, warnings, unchecked = list[str](), list[str](), list[str]()
    for metric in metrics:
        if asks_models(metric):
            unchecked.append(f"metric `{metric.name}` asks a model")
            continue
        case = next((case for case in chosen if _is_plain(case) and can_judge(metric, case)), None)
        if case is None:
            unchecked.append(f"metric `{metric.name}`: no case shows its expected answer")
            continue
        empty = _fault(metric, case, "")
        expected = _fault(metric, case, case.expected)
        if empty and expected:
            faults.append(expected)
        elif empty or expected:
            what = "an empty answer" if empty else "the expected answer"
            warnings.append(f"fails on {what}, and such an answer ends a run: {empty or expected}")
    return Trial(faults=tuple(faults), warnings=tuple(warnings), unchecked=tuple(unchecked))


def _is_plain(case: Case) -> bool:
    return case.expected is not None and not case.turns


def _fault(metric: Metric, case: Case, said: object) -> str:
    """Return how a metric fails on an answer; empty if it does not."""
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    answer = Answer(text=text, usage=_USAGE, cost=Decimal(0), seconds=0.0)
    if not isinstance(said, str):
        answer = attrs.evolve(answer, output=json.loads(text))
    try:
        verdict_on(metric, case, answer)
    except CallerError as error:
        return str(error)
    except PromptgraftError:  # of what a metric calls, such as a server that is down
        return ""
    return ""
