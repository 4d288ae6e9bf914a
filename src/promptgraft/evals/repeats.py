"""What several runs over the same cases come to: means, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import StrEnum

import attrs

from promptgraft.evals.aggregate import CaseOutcome, CaseStatus, EvaluationReport, mean


class Varies(StrEnum):
    """What differs from one run to the next, and so what a spread is made of."""

    ANSWERS = "answers"
    JUDGEMENTS = "judgements"
    BOTH = "answers and judgements"
    NOTHING = "nothing"


@attrs.frozen(kw_only=True)
class Spread:
    """Scores of several runs.

    Attributes:
        mean: None without a score.
        deviation: the standard deviation of a sample; None with fewer than two scores.
    """

    mean: float | None
    deviation: float | None


@attrs.frozen(kw_only=True)
class CaseRepeats:
    """One case over all runs.

    Attributes:
        case_id: which.
        score: over the runs in which it has one.
        passed: runs in which it passes.
        failed: runs in which it fails or crashes.
        unscored: runs in which it has no score.
        varies: what differs from run to run.
    """

    case_id: str
    score: Spread
    passed: int
    failed: int
    unscored: int
    varies: Varies


def spread(scores: Sequence[float]) -> Spread:
    """Return mean and standard deviation."""
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    return Spread(mean=mean(scores), deviation=deviation)


def case_repeats(outcomes: Sequence[CaseOutcome], varies: Varies) -> CaseRepeats:
    """Return what the runs of one case come to; ``outcomes`` has one for each."""
    kinds = [outcome.status for outcome in outcomes]
    passed, unscored = kinds.count(CaseStatus.PASSED), kinds.count(CaseStatus.UNSCORED)
    return CaseRepeats(
        case_id=outcomes[0].case_id,
        score=spread([one.score for one in outcomes if one.score is not None]),
        passed=passed,
        failed=len(kinds) - passed - unscored,
        unscored=unscored,
        varies=varies,
    )


def spread_of_runs(runs: Sequence[EvaluationReport]) -> Spread:
    """Return how the mean score of whole runs spreads.

    It is taken over the cases that have a score in every run: other means would differ because
    they are of different cases.
    """
    scores = [[case.score for case in run.cases] for run in runs]
    always = [found for found in zip(*scores, strict=True) if None not in found]
    known = [[score for score in found if score is not None] for found in always]
    means = [mean(run) for run in zip(*known, strict=True)]
    return spread([found for found in means if found is not None])
