"""What an algorithm is, and what the engine gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from promptgraft.prompt.template import Prompt
from promptgraft.search.asks import Asking, Checkpoint, Records, Rollouts, Standing, answered
from promptgraft.search.events import Emit, MutationRejected
from promptgraft.search.ledger import RolloutBudget
from promptgraft.search.population import Population
from promptgraft.search.result import RunResult
from promptgraft.search.scores import Scorer
from promptgraft.targets.base import Target
from promptgraft.targets.types import Candidate, GepaExample, Module

Questions = Mapping[str, Prompt[object]]
"""Questions to the reflection model, by key."""


@attrs.frozen(kw_only=True)
class Kit:
    """What a search works with besides its settings.

    Attributes:
        target: what is improved.
        validation: the validation set (D_pareto of the specification).
        training: the training set (D_feedback).
        scorer: gives rollouts their scores.
        population: takes in candidates.
        budget: what may be spent.
        questions: the questions to the reflection model, by key, as users have them now.
        emit: takes events.
    """

    target: Target
    validation: Sequence[GepaExample]
    training: Sequence[GepaExample]
    scorer: Scorer
    population: Population
    budget: RolloutBudget
    questions: Questions
    emit: Emit


class Search(Protocol):
    """An algorithm at work on one target."""

    @property
    def population(self) -> Population:
        """The candidates so far; the first is the baseline."""
        ...

    @property
    def best(self) -> int:
        """Position of the candidate that wins."""
        ...

    @property
    def steps(self) -> int:
        """Steps made, the one included that the search ended in."""
        ...

    @property
    def accepted(self) -> Sequence[Sequence[Module]]:
        """What each accepted proposal has changed."""
        ...

    @property
    def rejections(self) -> Sequence[MutationRejected]:
        """Every rejected proposal."""
        ...

    def run(self) -> Asking[None]:
        """Search until a reason to stop is raised, or there is nothing more to do."""
        ...

    def finish(self) -> Asking[None]:
        """Settle which candidate is the best, with the rollouts that were kept for that."""
        ...

    def result(self, core: RunResult) -> RunResult:
        """Return the result of the run: ``core``, or what the search adds to it."""
        ...


class BaseSearch:
    """A search that evaluates every candidate on the whole validation set.

    Subclasses write :meth:`run`.

    Args:
        kit: what the search works with.
    """

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.population = kit.population
        self.steps = 0
        self.accepted: list[Sequence[Module]] = []
        self.rejections: list[MutationRejected] = []

    @property
    def best(self) -> int:
        """Position of the candidate with the highest mean; 0 is the baseline."""
        return self.population.pool.best

    def validate(self, candidate: Candidate, *, step: int = 0) -> Asking[int]:
        """Evaluate a candidate on the validation set, take it in, and return its position.

        Args:
            candidate: the candidate.
            step: number of the step that made it, from 1; 0 for the baseline.
        """
        position = f"step/{step}/pareto" if step else "baseline"
        made: Records = yield from Rollouts(
            position=position, candidate=candidate, examples=self.kit.validation
        )
        if not step:
            self.kit.scorer.learn(made)
        self.accepted += [candidate.modules] if step else []
        return self.population.join(candidate, dict(enumerate(made)), step=step)

    def end_step(self, step: int) -> Asking[None]:
        """End a step; to be asked after each.

        Raises:
            RunStoppedError: there is a reason to stop.
        """
        self.steps = step
        outlook = yield from Checkpoint(Standing(self.population.pool, step, len(self.accepted)))
        if outlook.stop is not None:
            raise outlook.stop

    def run(self) -> Asking[None]:
        """Search until a reason to stop is raised, or there is nothing more to do."""
        yield from self.validate(self.kit.target.baseline())

    def finish(self) -> Asking[None]:
        """Do nothing: the best candidate is known."""
        return answered(None)

    def result(self, core: RunResult) -> RunResult:
        """Return ``core``, to which there is nothing to add."""
        return core
