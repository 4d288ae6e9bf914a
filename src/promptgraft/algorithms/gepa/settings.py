"""The settings of GEPA, checked whole before the first rollout."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar

import attrs

from promptgraft.algorithms.gepa.config_checks import CHECKS, DECISIVE, check_gepa
from promptgraft.algorithms.gepa.config_fields import (
    as_minibatches,
    as_module_choice,
    as_preset,
    as_pruning,
    by_preset,
    pruning_by_preset,
    validation_by_preset,
)
from promptgraft.algorithms.gepa.policies import (
    ATTEMPTS,
    MOST_AT_ONCE,
    MinibatchChoice,
    ModuleChoice,
    Preset,
    parts_of,
)
from promptgraft.search.budgets import Affordable, Auto, affordable, auto_budget, rollouts_for
from promptgraft.search.config import RunConfig
from promptgraft.search.config_fields import as_rollout_cost
from promptgraft.search.frontier import FrontierPruning
from promptgraft.search.pool import Pool
from promptgraft.search.validation import Validation
from promptgraft.serde import Json
from promptgraft.strict.checks import Check


@attrs.frozen(kw_only=True)
class GepaSettings(RunConfig):
    """What a GEPA run does; see :class:`promptgraft.search.config.RunConfig` for the rest.

    Attributes:
        preset: the strategy that the next seven settings are taken from where they are not given:
            ``"lean"`` is what wins, ``"paper"`` what was published.
        validation: how much of D_pareto candidates are tried on: ``Full()``, or ``Racing()``, which
            drops those that do not keep up with the best one. ``Full()`` where ``pick`` or
            ``frontier_type`` need the means of all candidates.
        frontier_pruning: ``"dominated"``: a candidate that leads somewhere is no parent when
            another one dominates it; or ``"redundant"``: when others lead wherever it does, those
            with the lowest means first. ``"dominated"`` with ``Racing()``.
        exploration: share of the steps whose parent comes from the frontier, 0 to 1; in the
            others it is the best candidate.
        minibatches: ``"random"``; ``"epochs"``: every example before any is chosen again; or
            ``"teaching"``: mostly examples on which the parent has failed before.
        reuse_rollouts: a parent's rollouts on D_feedback are not made again, except for one
            example of each minibatch.
        module_choice: ``"turns"``, or ``"blamed"``: mostly those that feedback and traces name,
            often several at once.
        reflections_per_module: in every other proposal the failures of a minibatch are shared among
            so many reflections on a module, at least 1, each shown two or more, if its text is
            short; what they change is put together line by line and tried as one.
        proposals_per_step: proposals that a step makes from its parent, at least 1, each on a
            minibatch of its own; what is accepted of them is put together and tried as one. With
            more, an executor's workers are busy and a run takes less time; but proposals of a
            step do not know of each other.
        steps_at_once: steps that are under way at the same time, at least 1; the same trade.
            At most 1,000 proposals may be under way. The result depends on these two, and on
            neither time nor workers.
        minibatch_size: examples that a mutation is tried on first.
        enable_merge: combine what different candidates are good at.
        max_merge_invocations: how often a merge may be tried.
        example_mutation_rate: share of the steps that change an example rather than an
            instruction, 0 to 1, where there are both.
        max_rollout_cost: US dollars that one rollout of a candidate may cost.
        max_copied_words: an instruction that carries this many words in a row of a training
            answer is refused; None for no guard.
        history_top_k: how many better answers of earlier candidates to the same example the
            reflector is shown, of those that the run has seen on D_feedback.
        max_failed_reflections: steps whose replies could not be used, without a tried child
            between them, before the run stops.
        max_idle_steps: steps with nothing to learn or nothing new to try, without a tried
            child between them, before the run stops.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    checks: ClassVar[Mapping[str, Check[object]]] = CHECKS
    in_projects: ClassVar[Mapping[str, object]] = {"minibatch_size": 6}
    permissive: ClassVar[Mapping[str, object]] = {"preset": "paper", "minibatch_size": 1}

    preset: Preset = attrs.field(default=Preset.LEAN, converter=as_preset)
    validation: Validation = attrs.field(default=validation_by_preset())
    frontier_pruning: FrontierPruning = attrs.field(
        default=pruning_by_preset(), converter=as_pruning
    )
    exploration: float = attrs.field(default=by_preset("exploration"))
    minibatches: MinibatchChoice = attrs.field(
        default=by_preset("minibatches"), converter=as_minibatches
    )
    reuse_rollouts: bool = attrs.field(default=by_preset("reuse_rollouts"))
    module_choice: ModuleChoice = attrs.field(
        default=by_preset("module_choice"), converter=as_module_choice
    )
    reflections_per_module: int = attrs.field(default=by_preset("reflections_per_module"))
    proposals_per_step: int = 1
    steps_at_once: int = 1
    minibatch_size: int
    enable_merge: bool = False
    max_merge_invocations: int = 5
    example_mutation_rate: float = 0.3
    max_rollout_cost: Decimal | None = attrs.field(default=None, converter=as_rollout_cost)
    max_copied_words: int | None = 8
    history_top_k: int = 0
    max_failed_reflections: int = 5
    max_idle_steps: int = 20

    @property
    def smaller_steps(self) -> str:
        several = " or proposals_per_step" if self.proposals_per_step > 1 else ""
        return f" or minibatch_size{several}"

    def check(self) -> None:
        check_gepa(self)

    @property
    def decisive(self) -> Mapping[str, Json]:
        return {
            **{name: getattr(self, name) for name in DECISIVE},
            "validation": repr(self.validation),
            "max_rollout_cost": None
            if self.max_rollout_cost is None
            else str(self.max_rollout_cost),
        }

    def budget_of(self, auto: Auto) -> int:
        return auto_budget(auto, self)

    def pays_for(self, rollouts: int) -> Affordable:
        return affordable(rollouts, self)

    def rollouts_for(self, proposals: int) -> int:
        return rollouts_for(proposals, self)

    def most_questions(self, rollouts: int) -> int:
        return self.reflections_of(self.proposals_per_step * affordable(rollouts, self).steps)

    def pool(self) -> Pool:
        return Pool(self.frontier_type, pruning=self.frontier_pruning, ranks=self.validation.ranks)

    @property
    def batch_size(self) -> int:
        """Number of examples that a mutation is tried on."""
        return min(self.minibatch_size, self.feedback_size)

    @property
    def merges(self) -> int:
        """Number of merges that may be tried."""
        return self.max_merge_invocations if self.enable_merge else 0

    @property
    def least_parent_size(self) -> int:
        """Rollouts of a parent in a step, at least."""
        return 1 if self.reuse_rollouts else self.batch_size

    @property
    def baseline_size(self) -> int:
        """Examples of D_pareto that the baseline is tried on before the first step."""
        return self.validation.baseline(self.pareto_set_size, self.critical_size)

    def entry_size(self, candidates: int, *, merges: int = 0) -> int:
        """Return the rollouts on D_pareto that so many candidates and merges can use."""
        return self.validation.entries(
            self.pareto_set_size, self.critical_size, candidates, merges=merges
        )

    @property
    def step_size(self) -> int:
        """Rollouts of the first step, if it ends with an accepted candidate."""
        return self.proposals_per_step * self.trial_size + self.entry_size(1)

    @property
    def trial_size(self) -> int:
        """Rollouts of parent and child on a minibatch, all repeats included."""
        return 2 * self.batch_size * (1 + self.acceptance.max_repeats)

    @property
    def reflections_per_proposal(self) -> int:
        """Reflections that a proposal can use, repairs of replies included."""
        shared = parts_of(self.batch_size, self.reflections_per_module)
        return shared * self._reflections_if_not_shared

    @property
    def questions_at_once(self) -> int:
        """Reflections that may be asked side by side."""
        proposals = self.proposals_per_step * self.steps_at_once
        return proposals * (self.reflections_per_proposal // ATTEMPTS)

    def reflections_of(self, proposals: int) -> int:
        """Return the reflections that so many proposals can use; every other shares failures."""
        alone = proposals // 2
        shared = (proposals - alone) * self.reflections_per_proposal
        return shared + alone * self._reflections_if_not_shared

    @property
    def _reflections_if_not_shared(self) -> int:
        together = len((*self.target_section_paths, *self.target_tools, *self.target_output_fields))
        if not self.names_targets:
            together = MOST_AT_ONCE  # a target says itself what may change
        if self.module_choice is ModuleChoice.TURNS:
            together = 1
        return ATTEMPTS * min(max(1, together), MOST_AT_ONCE)

    @property
    def finals_size(self) -> int:
        """Rollouts that are kept for trying baseline and finalists on the rest of D_pareto."""
        return self.validation.finals(self.pareto_set_size, self.critical_size)
