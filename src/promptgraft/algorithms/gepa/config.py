"""The settings of a GEPA run, checked whole before the first rollout."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import attrs

from promptgraft.algorithms.gepa.budgets import Auto, auto_budget
from promptgraft.algorithms.gepa.config_checks import check_config, check_sizes
from promptgraft.algorithms.gepa.config_fields import (
    ToolExampleTarget,
    as_auto,
    as_cost_limit,
    as_examples,
    as_frontier,
    as_held_out,
    as_minibatches,
    as_module_choice,
    as_names,
    as_pick,
    as_preset,
    as_pruning,
    as_rollout_cost,
    as_sections,
    as_stoppers,
    as_targets,
    as_task_examples,
    as_thresholds,
    as_weights,
    by_preset,
    pruning_by_preset,
    validation_by_preset,
)
from promptgraft.algorithms.gepa.policies import MinibatchChoice, ModuleChoice, Preset
from promptgraft.algorithms.gepa.selection import split_examples
from promptgraft.algorithms.gepa.sharing import ATTEMPTS, MOST_AT_ONCE, parts_of
from promptgraft.parts.descriptors import SectionPath
from promptgraft.search.acceptance import AcceptancePolicy, Strict
from promptgraft.search.context import PersistenceScope
from promptgraft.search.frontier import FrontierPruning, FrontierType
from promptgraft.search.stoppers import RequiredObjectives, StopFile, Stopper
from promptgraft.search.validation import Validation
from promptgraft.targets.formatting import default_example_formatter, default_trace_formatter
from promptgraft.targets.prompt_rollout import OnError, Scoring
from promptgraft.targets.types import (
    ExampleFormatter,
    FeedbackFn,
    GepaExample,
    TraceFormatter,
)


@attrs.frozen(kw_only=True)
class GepaConfig:
    """What a GEPA run does.

    Attributes:
        auto: ``"light"``, ``"medium"`` or ``"heavy"``: sets a ``rollout_budget`` that pays for 6,
            15 or 40 accepted proposals.
        rollout_budget: rollouts that the run may use in all; never exceeded. Given, unless
            ``auto`` is; 0 leaves it to that.
        max_reflections: reflections that the run may use, repairs included; None for no limit.
        max_cost: US dollars that the run may use, task, judge and reflection together; exceeded
            at most by the calls in flight. Needs models whose prices are known.
        max_tokens: tokens that the run may use, sent and received; the same.
        timeout: seconds that the run may take.
        stoppers: what else ends the run, asked between steps in this order: ``MaxProposals``,
            ``NoImprovement``, ``TargetScore``, ``RequiredObjectives``, ``MaxCandidates``,
            ``StopFile``, or any function that takes a ``RunState`` and returns a reason in
            words or None.
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
        pareto_set_size: examples that candidates are compared on (D_pareto); taken from the
            front of ``training_examples``. The others (D_feedback) are what mutations learn
            from.
        target_section_paths: sections whose text may change, in their turn.
        target_tools: tools of which descriptions may change.
        target_output_fields: fields of the answer of which descriptions and aliases may
            change: ``Review.severity``, or the type's name for a choice.
        target_tool_examples: examples of tools that may change.
        target_task_examples: task examples that may change, by path.
        training_examples: the data.
        held_out_examples: examples that no part of the search sees. When it goes to its end with
            a winner, baseline and winner are tried on each of them once. That is part of
            the budget.
        feedback_fn: scores an answer and says why.
        example_formatter: shows input and answer to the reflector.
        trace_formatter: shows what happened during a rollout to the reflector.
        seed: decides every random choice.
        enable_merge: combine what different candidates are good at.
        max_merge_invocations: how often a merge may be tried.
        enable_example_generation: write new task examples, into the sections of
            ``target_task_examples``, or into all where none are named.
        max_task_examples_per_section: task examples that a section may hold, those of the
            source included.
        example_mutation_rate: share of the steps that change an example rather than an
            instruction, 0 to 1, where there are both.
        acceptance: when a child is better than its parent: ``Strict()``, ``MinGain(gain)``, or
            ``Paired()`` for scores with noise, which also confirms the winner.
        frontier_type: in what candidates are compared when a parent is chosen: ``"instance"``
            (the examples), ``"objective"``, ``"hybrid"`` or ``"cartesian"``.
        weights: makes the score the weighted mean of objectives: ``{"score": 0.8, "tokens":
            0.2}`` or ``"score=0.8,tokens=0.2"``. ``score`` is the feedback's own; ``tokens``,
            ``cost`` and ``seconds`` are measured against the baseline, less is better; others
            are the feedback's objectives.
        pick: makes the winner the candidate with the highest weighted sum of objectives, written
            as ``weights`` are; empty for the one with the highest score. Only decides which
            candidate wins, not what is searched.
        required_objectives: the least mean on D_pareto that a winner must have in an objective.
        max_prompt_chars: longest rendered prompt that a candidate may lead to.
        max_rollout_cost: US dollars that one rollout of a candidate may cost.
        max_copied_words: an instruction that carries this many words in a row of a training
            answer is refused; None for no guard.
        history_top_k: how many better answers of earlier candidates to the same example the
            reflector is shown, of those that the run has seen on D_feedback.
        shuffle_examples: shuffle the data by ``seed`` before it is split.
        perfect_score: a score that leaves nothing to learn.
        max_example_chars: longest input or answer that the reflector is shown.
        max_trace_chars: longest trace or evaluation log that the reflector is shown.
        max_part_chars: longest text that a part may get.
        on_error: what a rollout becomes whose provider failed: ``"unscored"`` (kept out of
            every mean) or ``"zero"``. When a judge fails it is unscored.
        max_unscored_share: share of the rollouts that may stay unscored, 0 to 1. The run
            stops when, in some stretch of it, more than this share and 4 more are unscored:
            with 0.3, 6 in a row stop it. 0 stops at the first, 1 never stops. A candidate with
            more than this share of D_pareto unscored does not win.
        max_failed_reflections: steps whose replies could not be used, without a tried child
            between them, before the run stops.
        max_idle_steps: steps with nothing to learn or nothing new to try, without a tried
            child between them, before the run stops.
        persist: keep the winner when it is better than the baseline.
        persist_scope: where it is kept.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    auto: Auto | None = attrs.field(default=None, converter=as_auto)
    rollout_budget: int = 0
    max_reflections: int | None = None
    max_cost: Decimal | None = attrs.field(default=None, converter=as_cost_limit)
    max_tokens: int | None = None
    timeout: float | None = None
    stoppers: tuple[Stopper, ...] = attrs.field(default=(), converter=as_stoppers)
    preset: Preset = attrs.field(default=Preset.LEAN, converter=as_preset)
    frontier_type: FrontierType = attrs.field(default=FrontierType.INSTANCE, converter=as_frontier)
    pick: Mapping[str, float] = attrs.field(factory=dict, converter=as_pick)
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
    pareto_set_size: int
    target_section_paths: tuple[SectionPath, ...] = attrs.field(default=(), converter=as_sections)
    target_tools: tuple[str, ...] = attrs.field(default=(), converter=as_names)
    target_output_fields: tuple[str, ...] = attrs.field(default=(), converter=as_names)
    target_tool_examples: tuple[ToolExampleTarget, ...] = attrs.field(
        default=(), converter=as_targets
    )
    target_task_examples: tuple[SectionPath, ...] = attrs.field(
        default=(), converter=as_task_examples
    )
    training_examples: tuple[GepaExample, ...] = attrs.field(converter=as_examples, repr=False)
    held_out_examples: tuple[GepaExample, ...] = attrs.field(
        default=(), converter=as_held_out, repr=False
    )
    feedback_fn: FeedbackFn
    example_formatter: ExampleFormatter | None = None
    trace_formatter: TraceFormatter | None = None
    seed: int = 0
    enable_merge: bool = False
    max_merge_invocations: int = 5
    enable_example_generation: bool = False
    max_task_examples_per_section: int = 5
    example_mutation_rate: float = 0.3
    acceptance: AcceptancePolicy = attrs.field(factory=Strict)
    weights: Mapping[str, float] = attrs.field(factory=dict, converter=as_weights)
    required_objectives: Mapping[str, float] = attrs.field(factory=dict, converter=as_thresholds)
    max_prompt_chars: int | None = None
    max_rollout_cost: Decimal | None = attrs.field(default=None, converter=as_rollout_cost)
    max_copied_words: int | None = 8
    history_top_k: int = 0
    shuffle_examples: bool = False
    perfect_score: float = 1.0
    max_example_chars: int = 6_000
    max_trace_chars: int = 6_000
    max_part_chars: int = 6_000
    on_error: OnError = "unscored"
    max_unscored_share: float = 0.3
    max_failed_reflections: int = 5
    max_idle_steps: int = 20
    persist: bool = True
    persist_scope: PersistenceScope = PersistenceScope.GLOBAL

    def __attrs_post_init__(self) -> None:
        if self.auto is not None and self.rollout_budget == 0:
            check_sizes(self)
            object.__setattr__(self, "rollout_budget", auto_budget(self.auto, self))
        check_config(self)

    @property
    def feedback_size(self) -> int:
        """Number of examples that mutations learn from."""
        return len(self.training_examples) - self.pareto_set_size

    @property
    def batch_size(self) -> int:
        """Number of examples that a mutation is tried on."""
        return min(self.minibatch_size, self.feedback_size)

    @property
    def objectives_asked_for(self) -> tuple[str, ...]:
        """Objectives that the baseline must show to exist."""
        stopping = (one.thresholds for one in self.stoppers if isinstance(one, RequiredObjectives))
        asked = (self.required_objectives, self.pick, *stopping)
        return tuple(name for names in asked for name in names)

    @property
    def merges(self) -> int:
        """Number of merges that may be tried."""
        return self.max_merge_invocations if self.enable_merge else 0

    @property
    def least_parent_size(self) -> int:
        """Rollouts of a parent in a step, at least."""
        return 1 if self.reuse_rollouts else self.batch_size

    @property
    def critical_size(self) -> int:
        """Number of critical examples in D_pareto."""
        return sum(example.critical for example in self.split[0])

    @property
    def split(self) -> tuple[tuple[GepaExample, ...], tuple[GepaExample, ...]]:
        """D_pareto and D_feedback."""
        return split_examples(
            self.training_examples,
            self.pareto_set_size,
            shuffle_seed=self.seed if self.shuffle_examples else None,
        )

    @property
    def baseline_size(self) -> int:
        """Examples of D_pareto that the baseline is tried on before the first step."""
        return self.validation.baseline(self.pareto_set_size, self.critical_size)

    @property
    def least_budget(self) -> int:
        """Rollouts that pay for the baseline, one step and what ends a search."""
        return self.baseline_size + self.step_size + self.reserved_size

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
        if self.module_choice is ModuleChoice.TURNS:
            together = 1
        return ATTEMPTS * min(max(1, together), MOST_AT_ONCE)

    @property
    def confirmation_size(self) -> int:
        """Rollouts that are kept for confirming the winner."""
        return 2 * self.pareto_set_size * self.acceptance.confirmations

    @property
    def following_size(self) -> int:
        """Rollouts that are kept for confirming and for held-out examples."""
        return self.confirmation_size + 2 * len(self.held_out_examples)

    @property
    def finals_size(self) -> int:
        """Rollouts that are kept for trying baseline and finalists on the rest of D_pareto."""
        return self.validation.finals(self.pareto_set_size, self.critical_size)

    @property
    def reserved_size(self) -> int:
        """Rollouts that are kept for what ends a search: finals, confirming, held-out examples."""
        return self.finals_size + self.following_size

    @property
    def stop_files(self) -> tuple[Path, ...]:
        """The files that end the run when they are there."""
        return tuple(stopper.path for stopper in self.stoppers if isinstance(stopper, StopFile))

    @property
    def scoring(self) -> Scoring:
        """How rollouts are judged and shown."""
        return Scoring(
            feedback_fn=self.feedback_fn,
            example_formatter=self.example_formatter or default_example_formatter,
            trace_formatter=self.trace_formatter or default_trace_formatter,
            max_example_chars=self.max_example_chars,
            max_trace_chars=self.max_trace_chars,
            on_error=self.on_error,
        )
