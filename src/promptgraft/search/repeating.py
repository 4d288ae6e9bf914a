"""Rollouts that are answered several times and count once, with the mean of their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean

import attrs

from promptgraft.evals.spending import AbandonedRolloutError, Spending
from promptgraft.evals.types import Verdict
from promptgraft.runtime.deadline import Deadline
from promptgraft.search.batches import RolloutFn
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord
from promptgraft.text import counted


@attrs.frozen(kw_only=True)
class Repeated:
    """Makes each rollout several times. Pickles when ``rollout`` does.

    Attributes:
        rollout: makes one.
        runs: how often, at least 2.
        thresholds: the least mean score that passes, by metric.
    """

    rollout: RolloutFn
    runs: int
    thresholds: Mapping[str, float]

    def __call__(
        self, candidate: Candidate, example: GepaExample, deadline: Deadline | None
    ) -> RolloutRecord:
        made: list[RolloutRecord] = []
        for run in range(self.runs):
            own = example if run == self.runs - 1 else example.copy()
            try:
                made.append(self.rollout(candidate, own, deadline))
            except AbandonedRolloutError as error:
                raise AbandonedRolloutError(error.cause, (*_spent(made), *error.spent)) from None
        return self._as_one(made)

    def _as_one(self, made: Sequence[RolloutRecord]) -> RolloutRecord:
        """Return the worst rollout with the means of all that have a score."""
        scored = [(one, one.feedback) for one in made if one.feedback is not None]
        if not scored:
            return attrs.evolve(made[-1], spent=_spent(made))
        worst, feedback = min(scored, key=lambda pair: pair[1].score)
        scores = [said.score for _, said in scored]
        names = dict.fromkeys(chain.from_iterable(said.objectives for _, said in scored))
        if min(scores) < max(scores):
            shown = ", ".join(f"{score:.4g}" for score in scores)
            head = f"Of {counted(len(scores), 'answer')} with the scores {shown} this is the worst."
            feedback = attrs.evolve(feedback, feedback=f"{head}\n\n{feedback.feedback}")
        objectives = {
            name: fmean(said.objectives.get(name, 0.0) for _, said in scored) for name in names
        }
        return attrs.evolve(
            worst,
            feedback=attrs.evolve(feedback, score=fmean(scores), objectives=objectives),
            spent=_spent(made),
            verdicts=tuple(
                self._as_verdict(verdict, [one for one, _ in scored]) for verdict in worst.verdicts
            ),
        )

    def _as_verdict(self, worst: Verdict, made: Sequence[RolloutRecord]) -> Verdict:
        """Return what a metric says of all answers; one that it did not judge counts as 0."""
        said = [{one.metric: one.score for one in record.verdicts} for record in made]
        known = [score for one in said if (score := one.get(worst.metric, 0.0)) is not None]
        score = fmean(known) if known else None
        passed = None if score is None else score >= self.thresholds.get(worst.metric, 0.0)
        return attrs.evolve(worst, score=score, passed=passed)


def _spent(made: Sequence[RolloutRecord]) -> tuple[Spending, ...]:
    return tuple(chain.from_iterable(record.spent for record in made))
