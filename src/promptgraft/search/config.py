"""The settings that a run of any algorithm has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.parts.descriptors import SectionPath
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.acceptance import AcceptancePolicy, Strict
from promptgraft.search.algorithm import Kit, Questions, Search
from promptgraft.search.budgets import Affordable, Auto
from promptgraft.search.config_checks import TARGETS, check_config, check_sizes
from promptgraft.search.config_fields import (
    ToolExampleTarget,
    as_auto,
    as_cost_limit,
    as_examples,
    as_frontier,
    as_held_out,
    as_names,
    as_pick,
    as_sections,
    as_stoppers,
    as_targets,
    as_task_examples,
    as_thresholds,
    as_weights,
)
from promptgraft.search.context import PersistenceScope
from promptgraft.search.frontier import FrontierType
from promptgraft.search.pool import Pool
from promptgraft.search.splitting import split_examples
from promptgraft.search.stoppers import RequiredObjectives, StopFile, Stopper
from promptgraft.serde import Json
from promptgraft.strict.checks import Check
from promptgraft.targets.base import Target
from promptgraft.targets.formatting import default_example_formatter, default_trace_formatter
from promptgraft.targets.prompt_rollout import OnError, Scoring
from promptgraft.targets.types import (
    ExampleFormatter,
    FeedbackFn,
    GepaExample,
    TraceFormatter,
)


@attrs.frozen(kw_only=True)
class RunConfig(ABC):
    """What every algorithm can be told; an algorithm is a subclass with settings of its own.

    Subclasses are attrs classes (``@attrs.frozen(kw_only=True)``) that name themselves, list what
    decides the path of a run, and return a search. Registered under the entry point group
    ``promptgraft.algorithms``, they are found by name in project files.

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
        pareto_set_size: examples that candidates are compared on (D_pareto); taken from the
            front of ``training_examples``. The others (D_feedback) are what mutations learn
            from.
        target_section_paths: sections whose text may change, in their turn; every section that
            may change where no part of any kind is named.
        target_tools: tools of which descriptions may change.
        target_output_fields: fields of the answer of which descriptions and aliases may
            change: ``Review.severity``, or the type's name for a choice.
        target_tool_examples: examples of tools that may change.
        target_task_examples: task examples that may change, by path.
        training_examples: the data.
        held_out_examples: examples that no part of the search sees. When it goes to its end with
            a winner, baseline and winner are tried on each of them once. That is part of
            the budget.
        feedback_fn: scores an answer and says why; None where a target does it itself.
        example_formatter: shows input and answer to the reflector.
        trace_formatter: shows what happened during a rollout to the reflector.
        seed: decides every random choice.
        enable_example_generation: write new task examples, into the sections of
            ``target_task_examples``, or into all where none are named.
        max_task_examples_per_section: task examples that a section may hold, those of the
            source included.
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
        persist: keep the winner when it is better than the baseline.
        persist_scope: where it is kept.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    algorithm: ClassVar[str]
    """The name of the algorithm, with its version after a slash where answers are keyed anew."""

    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {}
    """The questions that it asks the reflection model, by key; users may override their texts."""

    checks: ClassVar[Mapping[str, Check[object]]] = {}
    """What each setting of its own must be by itself."""

    in_projects: ClassVar[Mapping[str, object]] = {}
    """What project files take where they give nothing, if that is not the default."""

    permissive: ClassVar[Mapping[str, object]] = {}
    """Settings beside which every other one can be used: with them one is checked by itself."""

    auto: Auto | None = attrs.field(default=None, converter=as_auto)
    rollout_budget: int = 0
    max_reflections: int | None = None
    max_cost: Decimal | None = attrs.field(default=None, converter=as_cost_limit)
    max_tokens: int | None = None
    timeout: float | None = None
    stoppers: tuple[Stopper, ...] = attrs.field(default=(), converter=as_stoppers)
    frontier_type: FrontierType = attrs.field(default=FrontierType.INSTANCE, converter=as_frontier)
    pick: Mapping[str, float] = attrs.field(factory=dict, converter=as_pick)
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
    feedback_fn: FeedbackFn | None = None
    example_formatter: ExampleFormatter | None = None
    trace_formatter: TraceFormatter | None = None
    seed: int = 0
    enable_example_generation: bool = False
    max_task_examples_per_section: int = 5
    acceptance: AcceptancePolicy = attrs.field(factory=Strict)
    weights: Mapping[str, float] = attrs.field(factory=dict, converter=as_weights)
    required_objectives: Mapping[str, float] = attrs.field(factory=dict, converter=as_thresholds)
    max_prompt_chars: int | None = None
    shuffle_examples: bool = False
    perfect_score: float = 1.0
    max_example_chars: int = 6_000
    max_trace_chars: int = 6_000
    max_part_chars: int = 6_000
    on_error: OnError = "unscored"
    max_unscored_share: float = 0.3
    persist: bool = True
    persist_scope: PersistenceScope = PersistenceScope.GLOBAL

    def __attrs_post_init__(self) -> None:
        if self.auto is not None and self.rollout_budget == 0:
            check_sizes(self)
            object.__setattr__(self, "rollout_budget", self.budget_of(self.auto))
        check_config(self)

    @abstractmethod
    def search(self, kit: Kit) -> Search:
        """Return the search that these settings ask for."""

    @property
    @abstractmethod
    def decisive(self) -> Mapping[str, Json]:
        """The algorithm's own settings that decide the path of a run; part of the fingerprint."""

    def check(self) -> None:
        """Check the algorithm's own settings against each other.

        Raises:
            ConfigError: naming the field, what was expected and what was found.
        """
        return

    def budget_of(self, auto: Auto) -> int:
        """Return the rollouts that pay for a number of proposals tried on the validation set."""
        tried = 1 + auto.proposals
        return tried * self.pareto_set_size + self.following_size

    def pays_for(self, rollouts: int) -> Affordable:
        """Return how many proposals so many rollouts pay for."""
        left = rollouts - self.baseline_size - self.reserved_size
        count = max(0, left // self.pareto_set_size)
        return Affordable(if_accepted=count, if_refused=count, steps=count)

    def rollouts_for(self, proposals: int) -> int:
        """Return the fewest rollouts that pay for so many accepted proposals."""
        return self.baseline_size + proposals * self.pareto_set_size + self.reserved_size

    def most_questions(self, rollouts: int) -> int:
        """Return the questions that can be asked while so many rollouts are used."""
        return self.pays_for(rollouts).steps

    def longest_question(self, target: Target, questions: Questions, *, answer: int | None) -> int:
        """Return the characters of the longest question that can be asked, about.

        Args:
            target: what is improved.
            questions: the questions, as users have them now.
            answer: tokens of the longest answer of a rollout; None when that is not known.
        """
        del questions, answer
        baseline = target.baseline()
        texts = sum(len(target.text(module, baseline)) for module in target.modules)
        return texts + len(target.modules) * self.max_part_chars

    def pool(self) -> Pool:
        """Return where candidates are kept."""
        return Pool(self.frontier_type)

    @property
    def baseline_size(self) -> int:
        """Examples of the validation set that the baseline is evaluated on first."""
        return self.pareto_set_size

    @property
    def step_size(self) -> int:
        """Rollouts of the first step, if it ends with an accepted candidate."""
        return self.pareto_set_size

    @property
    def smaller_steps(self) -> str:
        """Further settings that make a step smaller, as the message about a small budget says."""
        return ""

    @property
    def finals_size(self) -> int:
        """Rollouts that are kept for the end of the search itself."""
        return 0

    @property
    def questions_at_once(self) -> int:
        """Questions that may be asked side by side."""
        return 1

    @property
    def least_budget(self) -> int:
        """Rollouts that pay for the baseline, one step and what ends a search."""
        return self.baseline_size + self.step_size + self.reserved_size

    @property
    def feedback_size(self) -> int:
        """Number of examples in the training set."""
        return len(self.training_examples) - self.pareto_set_size

    @property
    def names_targets(self) -> bool:
        """Whether any part is named that may change."""
        return self.enable_example_generation or any(getattr(self, name) for name in TARGETS)

    @property
    def objectives_asked_for(self) -> tuple[str, ...]:
        """Objectives that the baseline must show to exist."""
        stopping = (one.thresholds for one in self.stoppers if isinstance(one, RequiredObjectives))
        asked = (self.required_objectives, self.pick, *stopping)
        return tuple(name for names in asked for name in names)

    @property
    def critical_size(self) -> int:
        """Number of critical examples in the validation set."""
        return sum(example.critical for example in self.split[0])

    @property
    def split(self) -> tuple[tuple[GepaExample, ...], tuple[GepaExample, ...]]:
        """Validation set and training set."""
        return split_examples(
            self.training_examples,
            self.pareto_set_size,
            shuffle_seed=self.seed if self.shuffle_examples else None,
        )

    @property
    def confirmation_size(self) -> int:
        """Rollouts that are kept for confirming the winner."""
        return 2 * self.pareto_set_size * self.acceptance.confirmations

    @property
    def following_size(self) -> int:
        """Rollouts that are kept for confirming and for held-out examples."""
        return self.confirmation_size + 2 * len(self.held_out_examples)

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
        """How rollouts are judged and shown.

        Raises:
            ConfigError: there is no feedback function.
        """
        if self.feedback_fn is None:
            raise ConfigError(
                "feedback_fn: expected a function that scores an answer, found None; only a target "
                "of one's own brings one"
            )
        return Scoring(
            feedback_fn=self.feedback_fn,
            example_formatter=self.example_formatter or default_example_formatter,
            trace_formatter=self.trace_formatter or default_trace_formatter,
            max_example_chars=self.max_example_chars,
            max_trace_chars=self.max_trace_chars,
            on_error=self.on_error,
        )
