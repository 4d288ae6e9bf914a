"""Which examples a step learns from, and which a child is validated on."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Literal

from promptgraft.search.algorithm import Kit
from promptgraft.search.racing import RacingValidator
from promptgraft.search.scores import Scorer
from promptgraft.search.validation import Full, Validation, Validator
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

MinibatchChoice = Literal["random", "epochs", "teaching"]

_FAILED_SHARE = 0.7
"""How likely each place of a minibatch but the last goes to an earlier failure."""
_TURNS_IN_A_ROW = 2
"""How often one failure is learned from before others of the same candidate have their turn."""
_CANDIDATES = 200
"""Candidates whose training rollouts are remembered; the oldest are hardly ever parents again."""

Rollouts = Mapping[str, RolloutRecord]
"""Rollouts by example id."""


class Known:
    """Training rollouts of the latest candidates, by candidate and example.

    Args:
        scorer: computes scores.
        perfect: the score at which there is nothing left to learn.
    """

    def __init__(self, scorer: Scorer, perfect: float) -> None:
        self._scorer = scorer
        self._perfect = perfect
        self._of: OrderedDict[str, dict[str, RolloutRecord]] = OrderedDict()
        self._chosen: Counter[tuple[str, str]] = Counter()

    def add(self, candidate: Candidate, records: Iterable[RolloutRecord]) -> None:
        """Record rollouts; a later one of the same example replaces the earlier one."""
        rollouts = self._of.setdefault(candidate.digest, {})
        self._of.move_to_end(candidate.digest)
        rollouts.update(
            {record.example_id: record for record in records if record.feedback is not None}
        )
        while len(self._of) > _CANDIDATES:
            digest, forgotten = self._of.popitem(last=False)
            for name in forgotten:
                self._chosen.pop((digest, name), None)

    def of(self, candidate: Candidate) -> Rollouts:
        """Return the rollouts of a candidate by example."""
        return self._of.get(candidate.digest, {})

    def failed(self, candidate: Candidate) -> dict[str, int]:
        """Return the examples a candidate failed on, with how often each was learned from."""
        return {
            name: self._chosen[candidate.digest, name]
            for name, record in self.of(candidate).items()
            if (score := self._scorer.score(record)) is not None and score < self._perfect
        }

    def choose(self, candidate: Candidate, examples: Iterable[GepaExample]) -> None:
        """Count that a candidate's rollouts on some examples are learned from once more."""
        rollouts = self.of(candidate)
        self._chosen.update(
            (candidate.digest, example.id) for example in examples if example.id in rollouts
        )


class Minibatches:
    """Draws the minibatches of steps, and remembers the rollouts that may be reused.

    Args:
        seed: the seed of the run.
        examples: the training set.
        size: examples of a minibatch.
        choice: how they are drawn.
        reuses: whether rollouts of a parent are reused.
        known: remembers them.
    """

    def __init__(
        self,
        seed: int,
        examples: Sequence[GepaExample],
        size: int,
        *,
        choice: MinibatchChoice,
        reuses: bool,
        known: Known,
    ) -> None:
        self._random = random.Random(f"{seed}/minibatches")
        self._examples = {example.id: example for example in examples}
        self._size = size
        self._choice = choice
        self._reuses = reuses
        self._known = known
        self._epoch: list[str] = []

    def draw(self, candidate: Candidate) -> tuple[tuple[GepaExample, ...], Rollouts]:
        """Return a minibatch, and the parent's rollouts on it that are reused.

        The last example of a minibatch is always evaluated anew.
        """
        match self._choice:
            case "random":
                names = self._random.sample(list(self._examples), self._size)
            case "epochs":
                names = self._from_epoch()
            case _:
                names = self._from_epoch(again=self._failed(candidate))
        minibatch = tuple(self._examples[name] for name in names)
        if self._choice == "teaching":
            self._known.choose(candidate, minibatch)
        cached = self.known(candidate, minibatch[:-1])
        return minibatch, cached

    def known(self, candidate: Candidate, examples: Iterable[GepaExample]) -> Rollouts:
        """Return the rollouts of a candidate on some examples that are reused."""
        rollouts = self._known.of(candidate) if self._reuses else {}
        return {example.id: rollouts[example.id] for example in examples if example.id in rollouts}

    def learn(
        self,
        candidate: Candidate,
        records: Sequence[RolloutRecord],
        *,
        known: Container[str] = (),
    ) -> None:
        """Record training rollouts, except those on ``known`` examples. Call in step order."""
        if self._reuses or self._choice == "teaching":
            self._known.add(
                candidate, [record for record in records if record.example_id not in known]
            )

    def _failed(self, candidate: Candidate) -> list[str]:
        """Return earlier failures of a candidate for some places, those least often used first."""
        failed = self._known.failed(candidate)
        places = sum(self._random.random() < _FAILED_SHARE for _ in range(self._size - 1))
        mixed = self._random.sample(list(failed), len(failed))
        return sorted(mixed, key=lambda name: failed[name] // _TURNS_IN_A_ROW)[:places]

    def _from_epoch(self, again: Sequence[str] = ()) -> list[str]:
        """Draw distinct examples in epochs: none again before all others were drawn.

        Args:
            again: ids of examples to include whether or not it is their turn.
        """
        chosen = list(again)
        while len(chosen) < self._size:
            if not self._epoch:
                self._epoch = list(self._examples)
                self._random.shuffle(self._epoch)
            # An example that is already in this minibatch is left for the next one.
            place = next(
                (at for at, name in enumerate(reversed(self._epoch), 1) if name not in chosen), 0
            )
            if place:
                chosen.append(self._epoch.pop(-place))
            else:
                self._epoch = []
        return chosen


def validator_of(validation: Validation, kit: Kit, seed: int) -> Validator:
    """Return what validates children: on everything, or in a race against the best candidate."""
    count = len(kit.validation)
    if isinstance(validation, Full):
        return Validator(kit.validation, kit.population)
    races = random.Random(f"{seed}/races")
    return RacingValidator(
        validation,
        kit.validation,
        order=random.Random(f"{seed}/order").sample(range(count), count),
        budget=kit.budget,
        population=kit.population,
        race_order=lambda places: races.sample(places, len(places)),
    )
