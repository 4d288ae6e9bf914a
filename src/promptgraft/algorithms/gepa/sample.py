"""Which training examples a step learns from."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs

from promptgraft.search.scores import Score, Scorer
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

MinibatchChoice = Literal["random", "epochs", "teaching"]

_FAILED_SHARE = 0.7
"""How likely each place of a minibatch but the last goes to an earlier failure."""
_TURNS_IN_A_ROW = 2
"""How often one failure is learned from before others of the same candidate have their turn."""
_CANDIDATES = 200
"""Candidates whose training rollouts are remembered; the oldest are hardly ever parents again."""

RolloutsById = Mapping[str, RolloutRecord]
"""Rollouts by example id."""


class TrainingRollouts:
    """Training rollouts of the latest candidates, by candidate and example.

    Args:
        scorer: computes scores.
        keeps: whether anything is remembered.
    """

    def __init__(self, scorer: Scorer, *, keeps: bool = True) -> None:
        self.scorer = scorer
        self._keeps = keeps
        self._of: OrderedDict[str, dict[str, RolloutRecord]] = OrderedDict()
        self._chosen: Counter[tuple[str, str]] = Counter()

    def add(self, candidate: Candidate, records: Iterable[RolloutRecord]) -> None:
        """Record rollouts in step order; of one example, a later one replaces the earlier one."""
        if not self._keeps:
            return
        rollouts = self._of.setdefault(candidate.digest, {})
        self._of.move_to_end(candidate.digest)
        rollouts.update(
            {record.example_id: record for record in records if record.feedback is not None}
        )
        while len(self._of) > _CANDIDATES:
            digest, forgotten = self._of.popitem(last=False)
            for name in forgotten:
                self._chosen.pop((digest, name), None)

    def of(self, candidate: Candidate) -> RolloutsById:
        """Return the rollouts of a candidate by example."""
        return self._of.get(candidate.digest, {})

    def failed(self, candidate: Candidate) -> dict[str, int]:
        """Return the examples a candidate failed on, with how often each was learned from."""
        failures, _ = self.scorer.parted(self.of(candidate).values())
        return {
            record.example_id: self._chosen[candidate.digest, record.example_id]
            for record in failures
        }

    def choose(self, candidate: Candidate, examples: Iterable[GepaExample]) -> None:
        """Count that a candidate's rollouts on some examples are learned from once more."""
        rollouts = self.of(candidate)
        self._chosen.update(
            (candidate.digest, example.id) for example in examples if example.id in rollouts
        )


@attrs.define(kw_only=True, eq=False)
class Minibatches:
    """Draws the minibatches of steps.

    Args:
        seed: the seed of the run.
        examples: the training set, by id.
        size: least examples of a minibatch.
        growth: how many times that it may grow.
        choice: how they are drawn.
        reuses: whether rollouts of a parent are reused.
        training_rollouts: those of the latest candidates.
    """

    _seed: int
    _examples: Mapping[str, GepaExample]
    size: int
    _growth: int
    _choice: MinibatchChoice
    _reuses: bool
    _training_rollouts: TrainingRollouts
    _random: random.Random = attrs.field(init=False)
    _epoch: list[str] = attrs.field(factory=list[str], init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(f"{self._seed}/minibatches")

    def size_for(self, scores: Iterable[Score]) -> int:
        """Return the size for a parent with these validation scores: more, the better it is."""
        scored = [score for score in scores if score is not None]
        # As if one more example had failed and one had not: a few scores tell little.
        failed = sum(score < self._training_rollouts.scorer.perfect for score in scored)
        failing = (1 + failed) / (len(scored) + 2)
        most = min(self._growth * self.size, len(self._examples))
        return min(most, max(self.size, round(self.size / failing))) if scored else self.size

    def draw(self, candidate: Candidate, size: int) -> tuple[tuple[GepaExample, ...], RolloutsById]:
        """Return a minibatch, and the parent's rollouts on it that are reused.

        The last example of a minibatch is always evaluated anew.
        """
        if self._choice == "random":
            names = self._random.sample(list(self._examples), size)
        else:
            again = self._failed(candidate, size) if self._choice == "teaching" else ()
            names = self._from_epoch(size, again)
        minibatch = tuple(self._examples[name] for name in names)
        if self._choice == "teaching":
            self._training_rollouts.choose(candidate, minibatch)
        return minibatch, self.reusable(candidate, minibatch[:-1])

    def reusable(self, candidate: Candidate, examples: Iterable[GepaExample]) -> RolloutsById:
        """Return the rollouts of a candidate on some examples that are reused."""
        rollouts: RolloutsById = self._training_rollouts.of(candidate) if self._reuses else {}
        return {example.id: rollouts[example.id] for example in examples if example.id in rollouts}

    def _failed(self, candidate: Candidate, size: int) -> list[str]:
        """Return earlier failures of a candidate for some places, the least often used first."""
        failed = self._training_rollouts.failed(candidate)
        places = sum(self._random.random() < _FAILED_SHARE for _ in range(size - 1))
        mixed = self._random.sample(list(failed), len(failed))
        return sorted(mixed, key=lambda name: failed[name] // _TURNS_IN_A_ROW)[:places]

    def _from_epoch(self, size: int, again: Sequence[str] = ()) -> list[str]:
        """Draw distinct examples, first ``again``, then none twice before all others were drawn."""
        chosen = list(again)
        while len(chosen) < size:
            if not self._epoch:
                self._epoch = list(self._examples)
                self._random.shuffle(self._epoch)
            # An example that is already in this minibatch waits, unless the epoch has no other.
            place = next(
                (at for at, name in enumerate(reversed(self._epoch), 1) if name not in chosen), 0
            )
            if place:
                chosen.append(self._epoch.pop(-place))
            else:
                self._epoch = []
        return chosen
