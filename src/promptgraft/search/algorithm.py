"""What an algorithm is, and what the engine gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from promptgraft.prompt.template import Prompt
from promptgraft.search.asks import Asking
from promptgraft.search.budget import RolloutBudget
from promptgraft.search.events import Emit, MutationRejected
from promptgraft.search.objectives import Scorer
from promptgraft.search.population import Population
from promptgraft.targets.base import Target
from promptgraft.targets.modules import Module
from promptgraft.targets.types import GepaExample

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
        """Position of the candidate that wins, if it is confirmed."""
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
