"""Candidates join the pool: scored, checked for what a winner must not do, and told of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from promptgraft.optimizers.gepa.comparing import critical_loss
from promptgraft.optimizers.gepa.config import GepaConfig
from promptgraft.optimizers.gepa.frontier import Objectives, means_of
from promptgraft.optimizers.gepa.objectives import Scorer, pick
from promptgraft.optimizers.gepa.pool import Pool
from promptgraft.optimizers.gepa.scores import Score
from promptgraft.optimizers.types import Candidate, GepaExample, RolloutRecord


class Members:
    """The pool of a run, by rollouts rather than by scores.

    Args:
        config: the settings.
        pareto: D_pareto.
        scorer: gives rollouts their scores.
        tell: is told of every candidate that joined: the step, its position, the pool.
    """

    def __init__(
        self,
        config: GepaConfig,
        pareto: Sequence[GepaExample],
        scorer: Scorer,
        *,
        tell: Callable[[int, int, Pool], None],
    ) -> None:
        self._required = config.required_objectives
        self._max_unscored = config.max_unscored_share * config.pareto_set_size
        self._pareto = pareto
        self._scorer = scorer
        self._tell = tell
        self._eligible = [0]
        self.pool = Pool(config.frontier_type)

    def scores(self, records: Sequence[RolloutRecord]) -> list[Score]:
        """Return the score of each rollout."""
        return [self._scorer.score(record) for record in records]

    def join(self, candidate: Candidate, records: Sequence[RolloutRecord], *, step: int) -> int:
        """Take in a candidate with its rollouts on D_pareto, and return its position.

        Without rollouts it is unscored.
        """
        position = self._join(candidate, records)
        self._tell(step, position, self.pool)
        return position

    def _join(self, candidate: Candidate, records: Sequence[RolloutRecord]) -> int:
        if not records:
            nothing = [None] * len(self._pareto)
            return self.pool.add(candidate, nothing, nothing)
        scores = self.scores(records)
        objectives = [self._scorer.objectives(record) for record in records]
        eligible = not len(self.pool) or self._is_eligible(scores, objectives)
        position = self.pool.add(candidate, scores, objectives, eligible=eligible)
        if position and eligible:
            self._eligible.append(position)
        return position

    def pick(self, weights: Mapping[str, float]) -> int:
        """Return the candidate that may win with the highest weighted sum of objectives."""
        objectives = self.pool.objectives
        return self._eligible[pick([objectives[one] for one in self._eligible], weights)]

    def _is_eligible(self, scores: Sequence[Score], objectives: Sequence[Objectives]) -> bool:
        """Tell whether a candidate may win.

        Enough of it is scored, no critical example is lost, and it has what is required.
        """
        if sum(score is None for score in scores) > self._max_unscored:
            return False
        if critical_loss(self.pool.scores_of(0), scores, self._pareto) is not None:
            return False
        names = tuple(self._required)
        means = zip(names, means_of(objectives, names), strict=True)
        return all(mean is not None and mean >= self._required[name] for name, mean in means)
