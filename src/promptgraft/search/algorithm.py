"""The base class of algorithms, and what the engine provides to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from promptgraft.prompt.template import Prompt
from promptgraft.search.asks import Asking, Checkpoint, Records, Rollouts, Standing, answered
from promptgraft.search.events import Emit, MutationRejected
from promptgraft.search.ledger import RolloutBudget
from promptgraft.search.place import Phase, Place
from promptgraft.search.population import Population
from promptgraft.search.result import RunResult
from promptgraft.search.scores import Scorer
from promptgraft.search.stopping import RunStoppedError, StopReason
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
        scorer: scores rollouts.
        population: receives candidates.
        budget: the rollouts that may be used.
        questions: the questions to the reflection model, by key, with the user's overrides.
        emit: receives events.
    """

    target: Target
    validation: Sequence[GepaExample]
    training: Sequence[GepaExample]
    scorer: Scorer
    population: Population
    budget: RolloutBudget
    questions: Questions
    emit: Emit


class BaseSearch:
    """A running search; evaluates every candidate on the whole validation set.

    Subclasses implement :meth:`run`.

    Args:
        kit: what the search works with.

    Attributes:
        kit: as above.
        population: the candidates so far; the first is the baseline.
        steps: steps made, including the one in which the search ended.
        accepted: the modules that each accepted proposal changed.
        rejections: every rejected proposal.
    """

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.population: Population = kit.population
        self.steps: int = 0
        self.accepted: list[Sequence[Module]] = []
        self.rejections: list[MutationRejected] = []

    @property
    def best(self) -> int:
        """Position of the best candidate, which has the highest mean; 0 is the baseline."""
        return self.population.pool.best

    def evaluate_baseline(
        self, places: Sequence[int] | None = None, *, required: Iterable[str] = ()
    ) -> Asking[Records]:
        """Evaluate the baseline on the validation set, and add it as candidate 0.

        Args:
            places: positions of the examples; None for all.
            required: objectives that its feedback must have.

        Raises:
            FeedbackError: an objective that is required or has a weight is missing.
            RunStoppedError: none of its answers can be used.
        """
        kit, baseline = self.kit, self.kit.target.baseline()
        chosen = range(len(kit.validation)) if places is None else places
        examples = [kit.validation[place] for place in chosen]
        scored: Records = ()
        try:
            records = yield from Rollouts(
                position="baseline", candidate=baseline, examples=examples
            )
            # Before any score is asked for: amounts are relative to those of the baseline.
            kit.scorer.learn(records)
            kit.scorer.require(required, records)
            scored = records
        finally:
            # Even a run that stops this early needs a best candidate.
            self.population.join(baseline, dict(zip(chosen, scored, strict=False)), step=0)
        yield from self._check_usable()
        return records

    def _check_usable(self) -> Asking[None]:
        """End the run if no answer of the baseline can be used: every step would waste money."""
        if self.population.unusable_baseline:
            yield from self.evaluate_more_of_baseline()
        if why := self.population.unusable_baseline:
            raise RunStoppedError(
                StopReason.UNREADABLE,
                f"{why}; fix that, or change the prompt's question, its output type or the model",
            )

    def evaluate_more_of_baseline(self) -> Asking[None]:
        """Evaluate the baseline on more examples, if it was evaluated on a few only."""
        return answered(None)

    def validate(self, candidate: Candidate, *, step: int = 0, proposal: int = 0) -> Asking[int]:
        """Evaluate a candidate on the validation set, add it to the pool, return its position.

        Args:
            candidate: the candidate.
            step: number of the step that made it, from 1; 0 for the baseline.
            proposal: number of the proposal in its step, from 1; 0 if the step has only one.
        """
        if not step:
            yield from self.evaluate_baseline()
            return 0
        records: Records = yield from Rollouts(
            position=str(Place.of_step(step, proposal).at(Phase.PARETO)),
            candidate=candidate,
            examples=self.kit.validation,
        )
        self.accepted.append(candidate.modules)
        return self.population.join(candidate, dict(enumerate(records)), step=step)

    def end_step(self, step: int) -> Asking[None]:
        """End a step. Call it after each.

        Raises:
            RunStoppedError: there is a reason to stop.
        """
        self.steps = step
        outlook = yield from Checkpoint(Standing(self.population.pool, step, len(self.accepted)))
        if outlook.stop is not None:
            raise outlook.stop

    def run(self) -> Asking[None]:
        """Search until a reason to stop is raised, or there is nothing left to do."""
        yield from self.validate(self.kit.target.baseline())

    def finish(self) -> Asking[None]:
        """Decide which candidate is the best, with rollouts reserved for that; none by default."""
        return answered(None)

    def result(self, core: RunResult) -> RunResult:
        """Return the result of the run: ``core``, or an extended result."""
        return core
