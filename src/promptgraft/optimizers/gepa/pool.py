"""The candidates of a run and what they are worth, kept as the run goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from promptgraft.frozenmap import FrozenMap
from promptgraft.optimizers.gepa.frontier import (
    Frontier,
    FrontierType,
    Objectives,
    cells_of,
    means_of,
)
from promptgraft.optimizers.gepa.scores import Score, beats, higher, mean_score
from promptgraft.optimizers.types import Candidate


class Pool:
    """Candidates with a score on each example of D_pareto.

    Args:
        frontier: in what candidates are compared when a parent is chosen.
    """

    def __init__(self, frontier: FrontierType = FrontierType.INSTANCE) -> None:
        self._kind = frontier
        self._names: tuple[str, ...] = ()
        self._candidates: list[Candidate] = []
        self._scores: list[tuple[Score, ...]] = []
        self._means: list[Score] = []
        self._objectives: list[Mapping[str, float]] = []
        self._best = 0
        self._frontier = Frontier()

    def __len__(self) -> int:
        return len(self._candidates)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every candidate, in order of arrival; the first is the baseline."""
        return tuple(self._candidates)

    @property
    def scores(self) -> tuple[tuple[Score, ...], ...]:
        """Candidates times examples."""
        return tuple(self._scores)

    @property
    def objectives(self) -> tuple[Mapping[str, float], ...]:
        """For each candidate the mean of each objective over the scored examples."""
        return tuple(self._objectives)

    @property
    def best(self) -> int:
        """Position of the eligible candidate with the highest mean; the elder wins a tie.

        A candidate with unscored examples must also beat the baseline on those that both were
        scored on: leaving out what is hard makes nobody better.
        """
        return self._best

    def candidate(self, index: int) -> Candidate:
        """Return the candidate at a position."""
        return self._candidates[index]

    def mean(self, index: int) -> Score:
        """Return the mean over the scored examples; None when there are none."""
        return self._means[index]

    def objectives_of(self, index: int) -> Mapping[str, float]:
        """Return the mean of each objective of the candidate at a position."""
        return self._objectives[index]

    def scores_of(self, index: int) -> tuple[Score, ...]:
        """Return the scores of the candidate at a position."""
        return self._scores[index]

    def add(
        self,
        candidate: Candidate,
        scores: Sequence[Score],
        objectives: Sequence[Objectives] = (),
        *,
        eligible: bool = True,
    ) -> int:
        """Take in a candidate and return its position.

        Args:
            candidate: the candidate.
            scores: its scores, by example.
            objectives: what it has in each objective, by example. The baseline's decide which
                objectives there are.
            eligible: whether it may be the best one.
        """
        index = len(self._candidates)
        if not index:
            self._names = tuple(sorted({name for found in objectives for name in found or ()}))
        self._candidates.append(candidate)
        self._scores.append(tuple(scores))
        self._means.append(mean_score(scores))
        means = zip(self._names, means_of(objectives, self._names), strict=True)
        self._objectives.append(FrozenMap((name, mean) for name, mean in means if mean is not None))
        self._frontier.add(cells_of(self._kind, scores, objectives, self._names))
        above = higher(self._means[index], self._means[self._best])
        if eligible and above and beats(scores, self._scores[0]):
            self._best = index
        return index

    def frontier(self) -> tuple[tuple[int, int], ...]:
        """Return the candidates that a parent is chosen from, with their weights."""
        return self._frontier.members()
