"""What a reflector is told of one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.evals.metrics.reasons import clipped
from promptgraft.evals.types import Case, Verdict

LONGEST_FEEDBACK = 50_000
"""Characters of feedback on one answer; of a longer one the middle is left out, with a note."""


def feedback_text(case: Case, verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts with their reasons and the user's hints, failed metrics first.

    Then come the metrics that could not judge, then those that passed. Reasons arrive whole.
    Nothing but the verdicts and the hints of this case is said.
    """
    ranked = sorted(verdicts, key=_rank)
    general = case.hints.get("")
    parts = [_said(verdict, case.hints) for verdict in ranked]
    return clipped(
        "\n".join([*parts, *([f"hint: {general}"] if general else [])]), LONGEST_FEEDBACK
    )


def _rank(verdict: Verdict) -> int:
    if verdict.score is None:
        return 1
    return 2 if verdict.passed else 0


def _said(verdict: Verdict, hints: Mapping[str, str]) -> str:
    if verdict.score is None:
        head = f"[unscored] {verdict.metric}"
    else:
        head = f"[{'passed' if verdict.passed else 'failed'}] {verdict.metric} {verdict.score:.4g}"
    hint = hints.get(verdict.metric)
    lines = [f"{head}: {verdict.reason}", *([f"hint: {hint}"] if hint else [])]
    return "\n  ".join(line for text in lines for line in text.splitlines())
