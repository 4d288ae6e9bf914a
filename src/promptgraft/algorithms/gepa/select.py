"""The choices of a step: its parent (algorithm 2), whose turn it is to change, and its minibatch.

Each kind of random choice has its own stream of random numbers, so that one kind does not disturb
the others.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import attrs

from promptgraft.search.frontier import drawn
from promptgraft.search.population import Pool
from promptgraft.search.scores import Score, Scorer
from promptgraft.targets.types import Candidate, GepaExample, Module, RolloutRecord

ModuleChoice = Literal["turns", "all", "random"]
Explored = Literal["frontier", "leaders", "pool"]

_LEADERS = 5
"""Members of the frontier that ``explored: leaders`` chooses from."""


class Draws(deque[float]):
    """A queue of random numbers; steps that begin early look ahead in it.

    Args:
        seed: the seed of the run.
        kind: the kind of choice, which has a stream of its own.
    """

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__()
        self._random = random.Random(f"{seed}/{kind}")

    def at(self, ahead: int) -> float:
        """Return the number of the attempt that begins while ``ahead`` others are under way."""
        while len(self) <= ahead:
            self.append(self._random.random())
        return self[ahead]


class Parents:
    """Chooses the parents of steps.

    Args:
        seed: the seed of the run.
        exploration: share of the steps whose parent is drawn, 0 to 1; in the others it is the best
            candidate.
        explored: what it is drawn from.
    """

    def __init__(self, seed: int, *, exploration: float, explored: Explored) -> None:
        self._draws = random.Random(f"{seed}/parents")
        self._exploration = exploration
        self._explored = explored

    def choose(self, pool: Pool) -> int:
        """Return the position of the parent of the next step."""
        if self._exploration < 1 and self._draws.random() >= self._exploration:
            return pool.best
        members = pool.frontier()
        if self._explored == "pool":
            members = dict.fromkeys(range(len(pool)), 1)
        elif self._explored == "leaders":
            means = {member: pool.estimate(member) for member in members}
            # By descending mean, those without scores last; ties keep the elder first.
            ranked = sorted(members, key=lambda at: (means[at] is None, -(means[at] or 0.0)))
            members = {member: members[member] for member in sorted(ranked[:_LEADERS])}
        return drawn(members, self._draws.random())


@attrs.frozen
class Turn:
    """Which modules an attempt may change, fixed when it begins.

    Attributes:
        first: the modules of the class whose turn it is, least recently changed first.
        second: the modules of the other class.
        draw: a random number, 0 to 1, that decides which module is drawn.
    """

    first: tuple[Module, ...] = ()
    second: tuple[Module, ...] = ()
    draw: float = 0.0

    @property
    def all(self) -> tuple[Module, ...]:
        """All modules, in the order of their turns."""
        return (*self.first, *self.second)

    @property
    def drawn(self) -> tuple[Module, ...]:
        """One of the modules, drawn uniformly; empty if there is none."""
        # By name: the order of turns depends on what was changed so far.
        modules = sorted(self.all, key=lambda module: module.name)
        return (modules[int(self.draw * len(modules))],) if modules else ()


class Turns:
    """Whose turn it is: modules are changed one after the other, as published.

    Instructions and examples are two classes: ``example_rate`` decides whose turn it is, and within
    each the module that was changed least recently is the next.

    Args:
        seed: the seed of the run.
        modules: the modules that may change.
        example_rate: share of the steps that change an example, if there are both.
        are_drawn: whether modules are drawn instead.
    """

    def __init__(
        self, seed: int, modules: Sequence[Module], *, example_rate: float, are_drawn: bool = False
    ) -> None:
        self._classes = Draws(seed, "modules")
        self._draws = Draws(seed, "blame")
        self._are_drawn = are_drawn
        self._example_rate = example_rate
        # Least recently changed first, so that no module starves behind one that is often chosen.
        self._instructions = [module for module in modules if not module.is_example]
        self._examples = [module for module in modules if module.is_example]

    def at(self, ahead: int) -> Turn:
        """Return the turn of an attempt that begins while ``ahead`` others are under way."""
        # Assumes that each attempt under way changes one module, which is not known before it ends.
        first, second = deque(self._instructions), deque(self._examples)
        for turns in (first, second):
            turns.rotate(-ahead)
        if first and second and self._classes.at(ahead) < self._example_rate:
            first, second = second, first
        return Turn(tuple(first), tuple(second), self._draws.at(ahead))

    def took(self, turn: Turn, modules: Sequence[Module]) -> None:
        """Record a completed turn. Call in step order.

        Args:
            turn: the turn.
            modules: the modules it chose to change; empty if none was worth a change.
        """
        # A number is only used up where it has decided something.
        if turn.first and turn.second:
            self._classes.popleft()
        if self._are_drawn:
            self._draws.popleft()
        for module in modules:
            turns = self._examples if module.is_example else self._instructions
            turns.remove(module)
            turns.append(module)


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
    """Training rollouts of the latest candidates, by candidate and example."""

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

    def failed(self, candidate: Candidate, draws: random.Random) -> list[str]:
        """Return the examples a candidate failed on, the least often used first."""
        failures = self.scorer.split(self.of(candidate).values()).failures
        # Mixed first, because sorting keeps the order of equals.
        mixed = draws.sample([record.example_id for record in failures], len(failures))
        times = {name: self._chosen[candidate.digest, name] for name in mixed}
        return sorted(mixed, key=lambda name: times[name] // _TURNS_IN_A_ROW)

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

    def draw(
        self, candidate: Candidate, scores: Iterable[Score]
    ) -> tuple[tuple[GepaExample, ...], RolloutsById]:
        """Return a minibatch, and the parent's rollouts on it that are reused.

        The last example of a minibatch is always evaluated anew.

        Args:
            candidate: the parent.
            scores: its validation scores; the higher they are, the more examples are drawn.
        """
        size, scored = self.size, [score for score in scores if score is not None]
        if scored:
            # One more failure and one more success are added, because a few scores tell little.
            failed = sum(score < self._training_rollouts.scorer.perfect for score in scored)
            failing = (1 + failed) / (len(scored) + 2)
            most = min(self._growth * self.size, len(self._examples))
            size = min(most, max(self.size, round(self.size / failing)))
        if self._choice == "random":
            names = self._random.sample(list(self._examples), size)
        else:
            again: list[str] = []
            if self._choice == "teaching":
                # Failures come first in a minibatch, whose last example is always evaluated anew.
                places = sum(self._random.random() < _FAILED_SHARE for _ in range(size - 1))
                again = self._training_rollouts.failed(candidate, self._random)[:places]
            names = self._from_epoch(size, again)
        minibatch = tuple(self._examples[name] for name in names)
        if self._choice == "teaching":
            self._training_rollouts.choose(candidate, minibatch)
        return minibatch, self.reusable(candidate, minibatch[:-1])

    def reusable(self, candidate: Candidate, examples: Iterable[GepaExample]) -> RolloutsById:
        """Return the rollouts of a candidate on some examples that are reused."""
        rollouts: RolloutsById = self._training_rollouts.of(candidate) if self._reuses else {}
        return {example.id: rollouts[example.id] for example in examples if example.id in rollouts}

    def _from_epoch(self, size: int, failures: Sequence[str]) -> list[str]:
        """Draw distinct examples: ``failures`` first, and none twice before all others."""
        chosen = list(failures)
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
