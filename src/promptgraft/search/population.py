"""Candidates join the pool: scored, checked for what a winner must not do, and told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.frozenmap import FrozenMap
from promptgraft.search.acceptance import critical_loss
from promptgraft.search.events import CandidateAdded, CandidateScored, Emit
from promptgraft.search.ledger import Ledger
from promptgraft.search.pool import Pool
from promptgraft.search.scores import Objectives, Score, Scorer, beats, pick
from promptgraft.targets.base import Target
from promptgraft.targets.modules import names_of
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord, plain_changes


class Population:
    """The candidates of a run, by rollouts rather than by scores.

    Args:
        pool: holds them.
        target: shows their texts.
        examples: the validation set.
        scorer: gives rollouts their scores.
        required: the least mean in an objective that a winner must have.
        max_unscored_share: share of its rollouts that a winner may have unscored, 0 to 1.
        ledger: what the run has used.
        emit: is called with every candidate that joins, and with new scores.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        target: Target,
        examples: Sequence[GepaExample],
        scorer: Scorer,
        required: Mapping[str, float],
        max_unscored_share: float,
        ledger: Ledger,
        emit: Emit,
    ) -> None:
        self.pool = pool
        self._target = target
        self._examples = examples
        self._scorer = scorer
        self._required = required
        self._share = max_unscored_share
        self._ledger = ledger
        self._emit = emit
        self._eligible = [0]

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
        self._tell_added(step, position)
        return position

    def _join(self, candidate: Candidate, records: Sequence[RolloutRecord | None]) -> int:
        if not records:
            nothing = [None] * len(self._examples)
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
            self._tell_scored(step, position)

    def is_above_baseline(self, position: int) -> bool:
        """Tell whether a candidate may be called better than the baseline.

        A pool that ranks has compared them. A race that was stopped has not.
        """
        pool = self.pool
        return pool.ranks or beats(pool.scores_of(position), pool.scores_of(0))

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
        if critical_loss(self.pool.scores_of(0), scores, self._examples) is not None:
            return False
        return all(name in means and means[name] >= least for name, least in self._required.items())

    def _tell_scored(self, step: int, position: int) -> None:
        pool = self.pool
        self._emit(
            CandidateScored(
                step=step,
                candidate=position,
                scores=pool.scores_of(position),
                objectives=pool.objectives_of(position),
                mean=pool.estimate(position),
                best=pool.best,
            )
        )

    def _tell_added(self, step: int, position: int) -> None:
        pool, ledger = self.pool, self._ledger
        candidate = pool.candidate(position)
        self._emit(
            CandidateAdded(
                step=step,
                candidate=position,
                parents=candidate.parents,
                module=names_of(candidate.modules) or None,
                entries=plain_changes(candidate.changes),
                texts=texts_of(self._target, candidate),
                scores=pool.scores_of(position),
                objectives=pool.objectives_of(position),
                mean=pool.estimate(position),
                best=pool.best,
                rollouts=ledger.rollouts,
                reflections=ledger.reflections,
                tokens=ledger.charge.tokens,
                cost=ledger.known_cost,
            )
        )


def texts_of(target: Target, candidate: Candidate) -> Mapping[str, str]:
    """Return a candidate's text of each module by name; a new example has no text before it."""
    return FrozenMap(
        (module.name, target.text(module, candidate))
        for module in target.modules
        if not module.is_new
    )
