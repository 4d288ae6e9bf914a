"""Causes that explain all scores at once, whatever the prompt says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from promptgraft.evals.metrics.base import ReferenceMetric
from promptgraft.evals.types import Case, Metric
from promptgraft.ground.serde import Json, canonical_json, shown
from promptgraft.ground.text import clip, counted

_FEWEST_SCORES = 10  # fewer scores may be equal by chance
_LONGEST_FAULT = 300
_OF_ANSWER = "answer:"  # how faults of parsing begin
# Parts of reasons that quote the answer, so they differ from case to case.
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


def unusable(faults: Iterable[tuple[str, str]], *, least: int = 1) -> str:
    """Return why not a single answer could be used; empty if one could.

    Args:
        faults: the id of the case of each answer, and why it could not be used; empty if it could.
        least: the number of answers below which chance may explain it.
    """
    pairs = list(faults)
    if len(pairs) < max(1, least) or not all(fault for _, fault in pairs):
        return ""
    case, fault = pairs[0]
    kinds = len({_QUOTED.sub("", each) for _, each in pairs})
    several = f", for {kinds} different reasons; the first" if kinds > 1 else ""
    what = "read" if fault.startswith(_OF_ANSWER) else "used"
    why = clip(fault.removeprefix(f"{_OF_ANSWER} "), _LONGEST_FAULT, around=" ")
    return (
        f"{len(pairs)} of {len(pairs)} answers could not be {what}{several}: {why} (case `{case}`)"
    )


def constant_metrics(scores: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield a line for each metric that gave all of many answers the same score below 1.

    Args:
        scores: the scores of different answers, by metric.
    """
    for metric, metric_scores in scores.items():
        if (
            len(metric_scores) >= _FEWEST_SCORES
            and len(set(metric_scores)) == 1
            and metric_scores[0] < 1
        ):
            yield (
                f"metric `{metric}` gave all {len(metric_scores)} answers the score "
                f"{metric_scores[0]:.4g}; see that it compares what the prompt asks for"
            )


def silent_metrics(reasons: Mapping[str, Sequence[str]], scored: Container[str]) -> Iterator[str]:
    """Yield a line for each metric that scored none of many answers, such as a broken judge.

    Args:
        reasons: why answers have no score, by metric.
        scored: the metrics that have scored an answer.
    """
    for metric, whys in reasons.items():
        if len(whys) >= _FEWEST_SCORES and metric not in scored:
            why = clip(whys[-1], _LONGEST_FAULT, around=" ")
            yield f"metric `{metric}` scored none of {len(whys)} answers: {why}"


def compares_expected(metrics: Iterable[Metric]) -> bool:
    """Return whether a metric compares the whole answer with the ``expected`` of its case."""
    return any(isinstance(metric, ReferenceMetric) and metric.is_whole for metric in metrics)


def contradictions(cases: Iterable[Case]) -> str:
    """Return a line on cases that ask the same and expect different answers; empty for none.

    Only plain cases count: without turns, and with one expected value, not a list of several.
    """
    by_question: dict[str, list[Case]] = {}
    count = 0
    for case in cases:
        count += 1
        if case.expected is not None and not isinstance(case.expected, list) and not case.turns:
            question = [case.input, [each.text for each in case.context], dict(case.state)]
            by_question.setdefault(canonical_json(question), []).append(case)
    lost, pairs = 0, list[tuple[Case, Case]]()
    for group in by_question.values():
        labels = Counter(_folded(case.expected) for case in group)
        lost += len(group) - max(labels.values())
        first = _folded(group[0].expected)
        pairs += [(group[0], case) for case in group if _folded(case.expected) != first]
    if not pairs:
        return ""
    first_case, second = pairs[0]
    why = (
        f"`{first_case.id}` and `{second.id}` ask the same and expect "
        f"{shown(first_case.expected)} and {shown(second.expected)}"
    )
    most = f"no prompt can be right on more than {count - lost} of {counted(count, 'case')}"
    return f"{why}; {most}: correct the labels, or leave cases out"


def _folded(expected: Json) -> str:
    """Return what is expected without differences that metrics may ignore."""
    text = expected if isinstance(expected, str) else canonical_json(expected)
    return " ".join(text.split()).casefold()
