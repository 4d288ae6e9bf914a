"""The candidates of a run: how they join the pool, their scores, and which one is the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from promptgraft.evals.causes import unusable
from promptgraft.ground.serde import HexDigest
from promptgraft.ground.strict.checks import reaches
from promptgraft.ground.text import counted, listed
from promptgraft.search.events import CandidateAdded, CandidateScored, Emit, NewBest
from promptgraft.search.frontier import (
    Cover,
    Frontier,
    FrontierPruning,
    FrontierType,
    cells_of,
    means_of,
)
from promptgraft.search.ledger import Ledger
from promptgraft.search.scores import (
    UNSCORED,
    Objectives,
    Score,
    Scorer,
    Scores,
    beats,
    critical_loss,
    mean_score,
    paired_means,
    pick,
)
from promptgraft.search.verdict import NO_FIGURES, Figures, PassRules, Tally
from promptgraft.targets.base import Target, texts_of
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord, names_of, plain_changes

_FEWEST_UNUSABLE = 4  # fewer may all be unusable by chance
_SHOWN_IDS = 3


@attrs.define(eq=False, kw_only=True)
class Population:
    """The candidates of a run, in terms of rollouts rather than scores.

    Attributes:
        pool: holds the candidates.
        target: provides their texts.
        examples: the validation set.
        scorer: scores rollouts.
        required: the lowest mean of each objective that a winner may have.
        max_unscored_share: share of its rollouts that a winner may have unscored, 0 to 1.
        ledger: what the run has used.
        emit: receives every candidate that joins, and new scores.
        pass_rules: decides which answers pass.
        missing: for each candidate the positions of the examples that it was not evaluated on.
    """

    pool: Pool
    _target: Target
    _examples: Sequence[GepaExample]
    _scorer: Scorer
    _required: Mapping[str, float]
    _max_unscored_share: float
    _ledger: Ledger
    _emit: Emit
    pass_rules: PassRules = attrs.field(factory=PassRules)
    missing: list[set[int]] = attrs.field(factory=list, init=False)
    _eligible: list[int] = attrs.field(factory=lambda: [0], init=False)
    _tallies: list[Tally] = attrs.field(factory=list, init=False)
    _baseline_records: list[RolloutRecord] = attrs.field(factory=list, init=False)
    _leader: int = attrs.field(default=0, init=False)
    _unscored_places: list[list[int]] = attrs.field(factory=list, init=False)

    @property
    def unusable_baseline(self) -> str:
        """Why not a single answer of the baseline could be used; empty if one could."""
        return unusable(
            (
                (record.example_id, record.fault)
                for record in self._baseline_records
                if record.feedback
            ),
            least=_FEWEST_UNUSABLE,
        )

    @property
    def lacking_scores(self) -> str:
        """Which candidates only lacked scores to win, on which examples; empty if none did."""
        if not self._unscored_places:
            return ""
        places = Counter(place for unscored in self._unscored_places for place in unscored)
        examples = listed(self._examples[place].id for place, _ in places.most_common(_SHOWN_IDS))
        candidates = counted(len(self._unscored_places), "candidate")
        return (
            f"{candidates} with a higher mean could not win: more than "
            f"{self._max_unscored_share:.0%} of the validation cases have no score ({examples}); "
            "find out why their calls fail, or raise limits.max_unscored_share"
        )

    def scores(self, records: Sequence[RolloutRecord]) -> list[Score]:
        """Return the score of each rollout."""
        return [self._scorer.score(record) for record in records]

    def join(
        self,
        candidate: Candidate,
        records: Mapping[int, RolloutRecord],
        *,
        step: int,
        becomes_best: bool = False,
    ) -> int:
        """Add a candidate with its rollouts on the validation set, and return its position.

        Args:
            candidate: the candidate.
            records: its rollouts by position of the example; may be empty.
            step: number of the step.
            becomes_best: whether it becomes the best one, provided that it may win.
        """
        pool = self.pool
        scores, objectives = self._scored(records)
        means = means_of(objectives, pool.names)
        # The baseline is always eligible: a run that finds nothing better ends with it.
        eligible = not pool.candidates or self._is_eligible(len(records), scores, means)
        unscored = [place for place in records if scores[place] is None]
        lacks_scores = len(unscored) > self._max_unscored_share * len(records)
        if lacks_scores and not eligible and beats(scores, pool.scores[0]):
            self._unscored_places.append(unscored)
        position = pool.add(candidate, scores, objectives, eligible=eligible)
        self.missing.append({*range(len(self._examples))}.difference(records))
        if position and eligible:
            self._eligible.append(position)
        if not position:
            self._baseline_records += records.values()
        if becomes_best and eligible:
            pool.best = position
        self._tallies.append(Tally(self.pass_rules))
        self._publish(
            CandidateAdded(
                step=step,
                candidate=position,
                parents=candidate.parents,
                module=names_of(candidate.modules) or None,
                shortened=candidate.shortened,
                entries=plain_changes(candidate.changes),
                texts=texts_of(self._target, candidate),
                scores=pool.scores[position],
                objectives=pool.objectives[position],
                figures=self._tally(position, [records[place] for place in sorted(records)]),
                mean=pool.estimate(position),
                best=pool.best,
                rollouts=self._ledger.rollouts,
                reflections=self._ledger.reflections,
                tokens=self._ledger.charge.tokens,
                cost=self._ledger.known_cost,
            )
        )
        return position

    def pick(self, weights: Mapping[str, float]) -> int:
        """Return the eligible candidate with the highest weighted sum of objectives."""
        objectives = self.pool.objectives
        chosen = pick([objectives[candidate] for candidate in self._eligible], weights)
        return self._eligible[chosen]

    def fill(self, position: int, records: Mapping[int, RolloutRecord], *, step: int) -> None:
        """Add rollouts of a member on examples that it had not been evaluated on."""
        if not records:
            return
        pool, scorer = self.pool, self._scorer
        if not position:
            self._baseline_records += records.values()
        self.missing[position].difference_update(records)
        pool.fill(
            position,
            {
                place: (scorer.score(record), scorer.objectives(record))
                for place, record in records.items()
            },
        )
        self._publish(
            CandidateScored(
                step=step,
                candidate=position,
                scores=pool.scores[position],
                objectives=pool.objectives[position],
                figures=self._tally(position, records.values()),
                mean=pool.estimate(position),
                best=pool.best,
            )
        )

    def _publish(self, event: CandidateAdded | CandidateScored) -> None:
        self._emit(event)
        if (best := event.best) != self._leader:
            self._leader, mean = best, self.pool.estimate(best)
            partial = mean is not None and UNSCORED in self.pool.scores[best].row
            self._emit(NewBest(step=event.step, candidate=best, mean=mean, estimated=partial))

    def _tally(self, position: int, records: Iterable[RolloutRecord]) -> Figures:
        return self._tallies[position].add(records) if self.pass_rules.thresholds else NO_FIGURES

    def figures(self, position: int) -> Figures:
        """Return the figures of a member on the examples that it was evaluated on."""
        return self._tallies[position].add(())

    def is_above_baseline(self, position: int) -> bool:
        """Return whether a candidate may be called better than the baseline.

        A pool that ranks has compared the two; a race that was stopped has not.
        """
        pool = self.pool
        return pool.ranks or beats(pool.scores[position], pool.scores[0])

    def may_win(self, position: int, *, tried: int) -> bool:
        """Return whether a member that was evaluated on ``tried`` examples may win."""
        pool = self.pool
        return self._is_eligible(tried, pool.scores[position], pool.objectives[position])

    def beats_baseline(self, records: Mapping[int, RolloutRecord]) -> bool:
        """Return whether a candidate with these rollouts has a higher mean than the baseline."""
        return beats(self._scored(records)[0], self.pool.scores[0])

    def may_become_best(self, records: Mapping[int, RolloutRecord]) -> bool:
        """Return whether a candidate with these rollouts may become the best one."""
        scores, objectives = self._scored(records)
        return self._is_eligible(len(records), scores, means_of(objectives, self.pool.names))

    def _scored(self, records: Mapping[int, RolloutRecord]) -> tuple[list[Score], list[Objectives]]:
        scorer = self._scorer
        by_example = [records.get(place) for place in range(len(self._examples))]
        return [None if record is None else scorer.score(record) for record in by_example], [
            None if record is None else scorer.objectives(record) for record in by_example
        ]

    def _is_eligible(self, tried: int, scores: Sequence[Score], means: Mapping[str, float]) -> bool:
        """Return whether a candidate may win.

        Enough of its rollouts are scored, it is not worse on a critical example, and it meets the
        required objectives.
        """
        if tried - sum(score is not None for score in scores) > self._max_unscored_share * tried:
            return False
        if critical_loss(self.pool.scores[0], scores, self._examples) is not None:
            return False
        return all(
            name in means and reaches(means[name], least) for name, least in self._required.items()
        )


class Pool:
    """Candidates with a score on each validation example. Its attributes are read-only.

    Args:
        frontier: the cells in which candidates are compared when a parent is chosen.
        pruning: which leaders are dropped from the frontier.
        ranks: whether the candidate with the highest mean is the best; otherwise the search
            crowns an incumbent.

    Attributes:
        ranks: as above.
        frontier: returns the candidates that a parent is chosen from, in order, with their
            weights.
        candidates: all candidates, in order of arrival; the first is the baseline.
        scores: for each candidate its scores, by example.
        means: for each candidate its mean over the scored examples; None if there are none.
        objectives: for each candidate the mean of each objective over the scored examples.
        names: the objectives of the baseline.
        best: position of the eligible candidate with the highest mean; the older one wins a tie.
            A candidate with unscored examples must also beat the baseline on the examples that
            both have scores for: it gains nothing by leaving out hard ones. In a pool that does
            not rank, the position of the incumbent.
    """

    def __init__(
        self,
        frontier: FrontierType = "instance",
        *,
        pruning: FrontierPruning = "dominated",
        ranks: bool = True,
    ) -> None:
        self.ranks = ranks
        self.candidates: list[Candidate] = []
        self.scores: list[Scores] = []
        self.means: list[Score] = []
        self.objectives: list[Mapping[str, float]] = []
        self.best: int = 0
        self._kind = frontier
        self._gaps: dict[int, list[Objectives]] = {}
        self.names: tuple[str, ...] = ()
        self._frontier = Frontier()
        self._cover = Cover() if pruning == "redundant" else None
        parents_frontier = self._frontier if self._cover is None else self._cover
        self.frontier: Callable[[], Mapping[int, int]] = parents_frontier.members

    def __len__(self) -> int:
        return len(self.candidates)

    def estimate(self, index: int) -> Score:
        """Return the mean over all examples, estimated if some of them have no score.

        The estimate is the baseline's mean plus the candidate's gain on the examples that both
        have scores for, clipped to the range of their scores.
        """
        if self.ranks or index not in self._gaps:
            return self.means[index]
        mean, baseline = paired_means(self.scores[index], self.scores[0])
        whole = self.means[0]
        if mean is None or baseline is None or whole is None:
            return self.means[index]
        sides = self.scores[index], self.scores[0]
        scores: list[float] = [score for side in sides for score in side if score is not None]
        # A large gain on few examples must not promise more than any answer has scored.
        return max(min(scores), min(max(scores), whole + mean - baseline))

    def add(
        self,
        candidate: Candidate,
        scores: Sequence[Score],
        objectives: Sequence[Objectives] = (),
        *,
        eligible: bool = True,
    ) -> int:
        """Add a candidate and return its position.

        Args:
            candidate: the candidate.
            scores: its scores, by example.
            objectives: its value of each objective, by example. The baseline defines which
                objectives there are.
            eligible: whether it may become the best one.
        """
        index = len(self.candidates)
        if not index:
            self.names = tuple(sorted({name for scores in objectives for name in scores or ()}))
        self.candidates.append(candidate)
        self.scores.append(Scores(scores))
        self.means.append(mean_score(scores))
        self.objectives.append(means_of(objectives, self.names))
        if UNSCORED in self.scores[index].row:
            # Only as long as `fill` may add to them: those of a large pool take much memory.
            self._gaps[index] = list(objectives)
        cells = cells_of(self._kind, self.scores[index], objectives, self.names)
        if self._cover is None:
            self._frontier.add(cells)
        else:
            self._cover.add(cells, self.means[index])
        mean, best = self.means[index], self.means[self.best]
        is_above = mean is not None and (best is None or mean > best)
        if self.ranks and eligible and is_above and beats(scores, self.scores[0]):
            self.best = index
        return index

    def fill(self, index: int, results: Mapping[int, tuple[Score, Objectives]]) -> None:
        """Add results of a candidate on examples that it had no score for.

        Requires that the cells of the frontier are examples, or objectives on examples, and that
        candidates are not pruned by their means: a changed mean could not be taken back.
        """
        scores, objectives = list(self.scores[index]), self._gaps[index]
        for place, (score, by_objective) in results.items():
            scores[place], objectives[place] = score, by_objective
        self.scores[index] = Scores(scores)
        self.means[index] = mean_score(scores)
        self.objectives[index] = means_of(objectives, self.names)
        if UNSCORED not in self.scores[index].row:
            del self._gaps[index]
        cells = cells_of(self._kind, self.scores[index], objectives, self.names)
        self._frontier.fill(index, cells)


class Seen(dict[HexDigest, int]):
    """Digests of candidates already evaluated, numbered in order."""

    def add(self, digest: HexDigest) -> None:
        """Add a candidate, unless it is known."""
        self.setdefault(digest, len(self))
