"""The candidates of a run, their scores, and the frontier, kept as the run goes."""

from __future__ import annotations

from collections.abc import Sequence

from promptgraft.optimizers.types import Candidate

Score = float | None
"""A score on one example; None when the rollout stayed unscored."""


class Pool:
    """Candidates with a score on each example of D_pareto.

    The frontier is kept up to date as candidates arrive, so that choosing a parent costs no
    more at the end of a run than at its beginning.

    Args:
        examples: number of examples in D_pareto.
    """

    def __init__(self, examples: int) -> None:
        self._candidates: list[Candidate] = []
        self._scores: list[tuple[Score, ...]] = []
        self._means: list[float | None] = []
        self._best = 0
        self._leaders: list[set[int]] = [set() for _ in range(examples)]
        self._heights: list[float | None] = [None] * examples
        self._wins: dict[int, int] = {}
        self._dominated: set[int] = set()

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
    def best(self) -> int:
        """Position of the candidate with the highest mean; the elder wins a tie.

        A candidate with unscored examples must beat the baseline on those that both were
        scored on: leaving out what is hard makes nobody better.
        """
        return self._best

    def candidate(self, index: int) -> Candidate:
        """Return the candidate at a position."""
        return self._candidates[index]

    def mean(self, index: int) -> float | None:
        """Return the mean over the scored examples; None when there are none."""
        return self._means[index]

    def scores_of(self, index: int) -> tuple[Score, ...]:
        """Return the scores of the candidate at a position."""
        return self._scores[index]

    def add(self, candidate: Candidate, scores: Sequence[Score]) -> int:
        """Take in a candidate and return its position."""
        index = len(self._candidates)
        self._candidates.append(candidate)
        self._scores.append(tuple(scores))
        self._means.append(mean_score(scores))
        self._update_leaders(index)
        self._update_dominance(index)
        if _higher(self._means[index], self._means[self._best]) and beats(scores, self._scores[0]):
            self._best = index
        return index

    def frontier(self) -> tuple[tuple[int, int], ...]:
        """Return the candidates that a parent is chosen from, with their weights.

        These are the candidates that lead on at least one example and that no other one
        dominates; the weight is the number of examples on which they lead (GEPA, algorithm
        2). Where nothing is scored, the baseline is all there is.
        """
        frontier = tuple(
            (index, wins)
            for index, wins in sorted(self._wins.items())
            if index not in self._dominated
        )
        return frontier or ((0, 1),)

    def _update_leaders(self, index: int) -> None:
        for example, score in enumerate(self._scores[index]):
            if score is None:
                continue
            height = self._heights[example]
            if height is None or score > height:
                for leader in self._leaders[example]:
                    self._lose(leader)
                self._leaders[example] = set()
                self._heights[example] = score
            if score == self._heights[example]:
                self._leaders[example].add(index)
                self._wins[index] = self._wins.get(index, 0) + 1

    def _lose(self, leader: int) -> None:
        self._wins[leader] -= 1
        if not self._wins[leader]:
            del self._wins[leader]
            self._dominated.discard(leader)

    def _update_dominance(self, index: int) -> None:
        # Whoever dominates a leader leads wherever it does, so leaders are all there is to ask.
        if index not in self._wins:
            return
        scores = self._scores[index]
        for other in self._wins:
            if other == index or other in self._dominated:
                continue
            if dominates(scores, self._scores[other]):
                self._dominated.add(other)
            elif dominates(self._scores[other], scores):
                self._dominated.add(index)
                return


def mean_score(scores: Sequence[Score]) -> float | None:
    """Return the mean of the scores that there are; None when there are none."""
    scored = [score for score in scores if score is not None]
    return sum(scored) / len(scored) if scored else None


def beats(scores: Sequence[Score], others: Sequence[Score]) -> bool:
    """Tell whether ``scores`` have the higher mean on the examples that both have a score for."""
    pairs = [
        (score, other)
        for score, other in zip(scores, others, strict=True)
        if score is not None and other is not None
    ]
    return _higher(mean_score([pair[0] for pair in pairs]), mean_score([pair[1] for pair in pairs]))


def dominates(first: Sequence[Score], second: Sequence[Score]) -> bool:
    """Tell whether ``first`` is nowhere worse and somewhere better; unscored is the worst."""
    better = False
    for one, other in zip(first, second, strict=True):
        if _higher(other, one):
            return False
        better = better or _higher(one, other)
    return better


def _higher(one: Score, other: Score) -> bool:
    return one is not None and (other is None or one > other)
