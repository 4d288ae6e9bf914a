"""Candidates join the pool: scored, checked for what a winner must not do, and told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.algorithms.gepa.comparing import critical_loss
from promptgraft.algorithms.gepa.config import GepaConfig
from promptgraft.algorithms.gepa.pool import Pool
from promptgraft.algorithms.gepa.telling import Newcomers
from promptgraft.search.frontier import Objectives
from promptgraft.search.objectives import Scorer, pick
from promptgraft.search.scores import Score
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord


class Members:
    """The pool of a run, by rollouts rather than by scores.

    Args:
        config: the settings.
        pareto: D_pareto.
        scorer: gives rollouts their scores.
        telling: tells of every candidate that joined, and of new scores.
    """

    def __init__(
        self,
        config: GepaConfig,
        pareto: Sequence[GepaExample],
        scorer: Scorer,
        *,
        telling: Newcomers,
    ) -> None:
        self._required = config.required_objectives
        self._pareto = pareto
        self._scorer = scorer
        self._telling = telling
        self._eligible = [0]
        self._share = config.max_unscored_share
        self.pool = Pool(
            config.frontier_type,
            pruning=config.frontier_pruning,
            ranks=config.validation.ranks,
        )

    def scores(self, records: Sequence[RolloutRecord | None]) -> list[Score]:
        """Return the score of each rollout; None also for those that were not made."""
        return [None if record is None else self._scorer.score(record) for record in records]

    def join(
        self,
        candidate: Candidate,
        records: Sequence[RolloutRecord | None],
        *,
        step: int,
        crowned: bool = False,
    ) -> int:
        """Take in a candidate with its rollouts on D_pareto, and return its position.

        Args:
            candidate: the candidate.
            records: by example; None where it was not tried. Without any it is unscored.
            step: number of the step.
            crowned: whether it is the best one from now on, in a pool that does not rank.
        """
        position = self._join(candidate, records)
        if crowned:
            self.pool.crown(position)
        self._telling.joined(step, position, self.pool)
        return position

    def _join(self, candidate: Candidate, records: Sequence[RolloutRecord | None]) -> int:
        if not records:
            nothing = [None] * len(self._pareto)
            return self.pool.add(candidate, nothing, nothing)
        scores = self.scores(records)
        objectives = [self._objectives(record) for record in records]
        tried = sum(record is not None for record in records)
        eligible = not len(self.pool) or self._is_eligible(
            tried, scores, self.pool.means_of(objectives)
        )
        position = self.pool.add(candidate, scores, objectives, eligible=eligible)
        if position and eligible:
            self._eligible.append(position)
        return position

    def pick(self, weights: Mapping[str, float]) -> int:
        """Return the candidate that may win with the highest weighted sum of objectives."""
        objectives = self.pool.objectives
        return self._eligible[pick([objectives[one] for one in self._eligible], weights)]

    def fill(self, position: int, records: Mapping[int, RolloutRecord], *, step: int) -> None:
        """Take in rollouts of a member on examples that it was not tried on before."""
        if records:
            self.pool.fill(
                position,
                {
                    place: (self._scorer.score(record), self._objectives(record))
                    for place, record in records.items()
                },
            )
            self._telling.scored(step, position, self.pool)

    def may_win(self, position: int, *, tried: int) -> bool:
        """Tell whether nothing keeps a member from winning that was tried on so many examples."""
        pool = self.pool
        return self._is_eligible(tried, pool.scores_of(position), pool.objectives_of(position))

    def may_join_as_best(self, records: Sequence[RolloutRecord | None]) -> bool:
        """Tell whether nothing in a candidate's rollouts keeps it from being the best one."""
        tried = sum(record is not None for record in records)
        objectives = [self._objectives(record) for record in records]
        return self._is_eligible(tried, self.scores(records), self.pool.means_of(objectives))

    def _objectives(self, record: RolloutRecord | None) -> Objectives:
        return None if record is None else self._scorer.objectives(record)

    def _is_eligible(self, tried: int, scores: Sequence[Score], means: Mapping[str, float]) -> bool:
        """Tell whether a candidate may win.

        Enough of what was tried is scored, no critical example is lost, and it has what is
        required.
        """
        if tried - sum(score is not None for score in scores) > self._share * tried:
            return False
        if critical_loss(self.pool.scores_of(0), scores, self._pareto) is not None:
            return False
        return all(name in means and means[name] >= least for name, least in self._required.items())
