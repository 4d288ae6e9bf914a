"""The settings of a run, whatever the algorithm."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Self

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.spending import Role
from promptgraft.evals.types import Case
from promptgraft.ground.functions import taking
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict import checks
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.prompt.template import PromptTemplate
from promptgraft.search.acceptance import AcceptancePolicy, Strict
from promptgraft.search.algorithm import BaseSearch, Kit, Questions
from promptgraft.search.population import Pool
from promptgraft.search.settings import (
    EXAMPLES,
    PATHS,
    PROPOSALS,
    Affordable,
    Data,
    Guards,
    Limits,
    Objectives,
    PersistenceScope,
    Settings,
    Several,
    Size,
    Targets,
    ToolExampleTarget,
    group,
)
from promptgraft.search.stopping import Plateau, RequiredObjectives, Stopper
from promptgraft.search.verdict import again_size
from promptgraft.targets.base import Target
from promptgraft.targets.estimating import Sizes
from promptgraft.targets.formatting import default_example_formatter, default_trace_formatter
from promptgraft.targets.prompt_rollout import Scoring
from promptgraft.targets.types import ExampleFormatter, FeedbackFn, GepaExample, TraceFormatter

ROLLOUTS = checks.integer(1, checks.LARGEST_AMOUNT)
"""A budget of test calls as a number."""

BUDGET: checks.Check[int | str] = checks.check(
    f"{ROLLOUTS.what} or one of {', '.join(f'`{size}`' for size in PROPOSALS)}",
    lambda value: (
        ROLLOUTS.fits(value) or (value if isinstance(value, str) and value in PROPOSALS else None)
    ),
    {"anyOf": [ROLLOUTS.schema, {"enum": list(PROPOSALS)}]},
    names=PROPOSALS,
)

_POLICY: checks.Check[object] = checks.check(
    "a policy such as Strict(), MinGain(0.05) or Paired()",
    lambda value: (
        value if not isinstance(value, type) and callable(getattr(value, "decide", None)) else None
    ),
)


# Held out by default: a share of the examples and of the budget, if that is enough to show a gain.
_SHARE, _LEAST, _PER_BUDGET = 0.3, 8, 0.1


def is_foreign(part: object) -> bool:
    """Return whether another package has written the class of an object."""
    return not type(part).__module__.startswith("promptgraft.")


@attrs.frozen(kw_only=True)
class RunConfig(Settings, ABC):
    """The settings of every algorithm; an algorithm is a subclass with settings of its own.

    Subclasses are attrs classes (``@attrs.frozen(kw_only=True)``) that set their name and return a
    search. Project files can name those registered under the entry point group
    ``promptgraft.algorithms``.

    Attributes:
        rollout_budget: rollouts that the run may use in total; never exceeded. Or ``light``,
            ``medium`` or ``heavy``, which pay for 6, 15 or 40 accepted proposals; a run of such a
            size stops earlier at a ``Plateau``.
        pareto_set_size: examples of the validation set, on which candidates are compared; taken
            from the front of ``training_examples``. The others are the training set, from which
            proposals are derived.
        target_section_paths: sections whose text may change, in the order of their turns; by
            default every overridable section, if no part of any kind is named.
        target_tool_examples: examples of tools that may change.
        target_task_examples: task examples that may change, by path.
        targets: further parts that may change.
        training_examples: the data.
        data: further settings of the data.
        feedback_fn: scores an answer and says why; None if a target does it itself.
        example_formatter: shows input and answer to the reflection model.
        trace_formatter: shows what happened during a rollout to the reflection model.
        seed: seed of every random choice.
        enable_example_generation: write new task examples, into the sections of
            ``target_task_examples``, or into all if none are named.
        max_task_examples_per_section: task examples that a section may hold, including those of
            the source.
        max_example_chars: longest input or answer that the reflection model is shown.
        max_trace_chars: longest trace or evaluation log that the reflection model is shown.
        limits: what ends the run before its budget is used up.
        objectives: what makes one candidate better than another.
        acceptance: when a child is accepted: ``Strict()``, ``MinGain(gain)``, or ``Paired()`` for
            noisy scores.
        guards: reasons to refuse a candidate, whatever its score.
        persist: store the winner if held-out examples show that it is better.
        keep_anyway: also store a winner that is better on the validation set only.
        persist_scope: where the winner is stored.

    Raises:
        ConfigError: naming the setting by its path, what was expected and what was found.
    """

    algorithm: ClassVar[str]
    """The name of the algorithm, with a version after a slash when its keys have changed."""

    functions: ClassVar[tuple[str, ...]] = ("example_formatter", "trace_formatter")
    """Its settings that name a function in Python."""

    questions: ClassVar[Mapping[str, PromptTemplate[object]]] = {}
    """Its questions to the reflection model, by key; users may override their texts."""

    question_shares: ClassVar[Mapping[Role, float]] = {Role.REFLECTION: 1.0}
    """The roles of its questions, with the share of each; they add up to 1."""

    rollout_budget: int | Size = attrs.field(validator=BUDGET)
    pareto_set_size: int = attrs.field(validator=checks.COUNT)
    target_section_paths: Sequence[SectionPath] = attrs.field(default=(), validator=PATHS)
    target_tool_examples: Sequence[ToolExampleTarget] = attrs.field(
        default=(),
        validator=Several("a tuple of ToolExampleTarget", checks.instance(ToolExampleTarget)),
    )
    target_task_examples: Sequence[SectionPath] = attrs.field(default=(), validator=PATHS)
    targets: Targets = attrs.field(factory=Targets, validator=group(Targets))
    training_examples: Sequence[GepaExample] = attrs.field(validator=EXAMPLES, repr=False)
    data: Data = attrs.field(factory=Data, validator=group(Data))
    feedback_fn: FeedbackFn | None = attrs.field(
        default=None, validator=taking("example", "response", "session")
    )
    example_formatter: ExampleFormatter | None = attrs.field(
        default=None, validator=taking("example", "response")
    )
    trace_formatter: TraceFormatter | None = attrs.field(default=None, validator=taking("session"))
    seed: int = attrs.field(default=0, validator=checks.integer(0))
    enable_example_generation: bool = attrs.field(default=False, validator=checks.FLAG)
    max_task_examples_per_section: int = attrs.field(default=5, validator=checks.COUNT)
    max_example_chars: int = attrs.field(default=6_000, validator=checks.integer(100))
    max_trace_chars: int = attrs.field(default=6_000, validator=checks.integer(100))
    limits: Limits = attrs.field(factory=Limits, validator=group(Limits))
    objectives: Objectives = attrs.field(factory=Objectives, validator=group(Objectives))
    acceptance: AcceptancePolicy = attrs.field(factory=Strict, validator=_POLICY)
    guards: Guards = attrs.field(factory=Guards, validator=group(Guards))
    persist: bool = attrs.field(default=True, validator=checks.FLAG)
    keep_anyway: bool = attrs.field(default=False, validator=checks.FLAG)
    persist_scope: PersistenceScope = attrs.field(
        default=PersistenceScope.GLOBAL, validator=checks.instance(PersistenceScope)
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._check_examples()
        self.check()
        self._check_budget()

    @abstractmethod
    def search(self, kit: Kit) -> BaseSearch:
        """Return a search with these settings."""

    @property
    def author(self) -> str:
        """What of the search promptgraft has not written, in words; empty for nothing."""
        return f"algorithm `{self.algorithm}`" if is_foreign(self) else ""

    @property
    def decisive(self) -> Mapping[str, Json]:
        """The algorithm's own settings that decide the path of a run; part of the fingerprint."""
        shared: type[Settings] = RunConfig
        own_fields = set(attrs.fields_dict(type(self))) - set(attrs.fields_dict(shared))
        return {name: unstructure(getattr(self, name), path=name) for name in sorted(own_fields)}

    @classmethod
    def kinds(cls) -> Mapping[str, checks.Kind[object]]:
        """Return how files write settings that differ from their form in Python, by name."""
        return {}

    @classmethod
    def modernized(cls, written: Mapping[str, Json]) -> tuple[Mapping[str, Json], Sequence[str]]:
        """Return settings of a file as this version writes them, with a note for each change."""
        return written, ()

    def translated(self, recorded: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return a fingerprint of an earlier version as this version writes it.

        Raises:
            JournalMismatchError: its run cannot be continued by this version.
        """
        return recorded

    def check_target(self, target: Target) -> None:
        """Check that the algorithm's own settings fit what is to be improved; as :meth:`check`."""

    def warnings(self, target: Target) -> Iterator[str]:
        """Yield problems of the algorithm's own settings with this target, a line each."""
        return iter(())

    def check(self) -> None:
        """Check that the algorithm's own settings fit each other.

        Raises:
            ConfigError: naming the setting, what was expected and what was found.
        """
        return

    def with_own_examples(self) -> Self:
        """Return the settings with copies of the examples, so that later changes have no effect.

        Raises:
            ConfigError: an example cannot be copied.
        """
        examples = self.data.held_out
        return attrs.evolve(
            self,
            training_examples=[example.copy() for example in self.training_examples],
            data=attrs.evolve(
                self.data, held_out=examples and [example.copy() for example in examples]
            ),
        )

    def budget_of(self, proposals: int) -> int:
        """Return the rollouts of a run that can accept this many proposals."""
        return self.baseline_size + proposals * self.step_size + self.following_size

    def pays_for(self, rollouts: int) -> Affordable:
        """Return how many proposals this many rollouts pay for."""
        remaining = rollouts - self.baseline_size - self.reserved_size
        count = max(0, remaining // self.step_size)
        return Affordable(if_accepted=count, if_refused=count, steps=count)

    def rollouts_for(self, proposals: int) -> int:
        """Return the fewest rollouts that pay for this many accepted proposals."""
        return self.baseline_size + proposals * self.step_size + self.reserved_size

    def most_questions(self, rollouts: int, *, modules: int = 1, steps: int = 1) -> int:
        """Return how many questions a run can ask at most."""
        return self.pays_for(rollouts).steps

    def expected_questions(self, proposals: int, modules: int) -> int:
        """Return how many questions are expected for proposals on this many modules."""
        return proposals

    def question_chars(self, target: Target, questions: Questions, sizes: Sizes) -> Sequence[int]:
        """Return the approximate length of the question about each module, in characters.

        Args:
            target: what is improved.
            questions: the questions, with the user's overrides.
            sizes: lengths of what they show of a rollout.
        """
        baseline = target.baseline()
        return [sum(len(target.text(module, baseline)) for module in target.modules)]

    def pool(self) -> Pool:
        """Return an empty pool."""
        return Pool(self.objectives.frontier_type)

    @property
    def budget(self) -> int:
        """Rollouts that the run may use: ``rollout_budget``, or those of a size."""
        size = self.rollout_budget
        return size if isinstance(size, int) else self.budget_of(PROPOSALS[size])

    @property
    def stoppers(self) -> Sequence[Stopper]:
        """The stoppers of the limits, and that for a plateau where a size is the budget."""
        named = self.limits.stoppers
        has_one = any(isinstance(stopper, Plateau) for stopper in named)
        return named if has_one or isinstance(self.rollout_budget, int) else (*named, Plateau())

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
        """Further settings that make a step smaller, for the message about a small budget."""
        return ""

    @property
    def finals_size(self) -> int:
        """Rollouts reserved for the end of the search itself."""
        return 0

    @property
    def questions_at_once(self) -> int:
        """Questions that may be asked in parallel."""
        return 1

    @property
    def least_budget(self) -> int:
        """Rollouts that pay for the baseline, one step and the end of a search."""
        return self.baseline_size + self.step_size + self.reserved_size

    @property
    def names_targets(self) -> bool:
        """Whether the settings name any part that may change."""
        named = (
            self.target_section_paths,
            self.targets.tools,
            self.targets.summaries,
            self.targets.output_fields,
            self.targets.visibility,
            self.target_tool_examples,
            self.target_task_examples,
        )
        return self.enable_example_generation or any(named)

    @property
    def objectives_asked_for(self) -> tuple[str, ...]:
        """Objectives that the baseline's feedback must have."""
        return tuple(
            name
            for setting, names in self.objectives_by_setting.items()
            if setting != "objectives.weights"
            for name in names
        )

    @property
    def objectives_by_setting(self) -> Mapping[str, Iterable[str]]:
        """The objectives that settings name, by setting."""
        named: dict[str, Iterable[str]] = {
            f"objectives.{name}": getattr(self.objectives, name)
            for name in ("required", "pick", "weights")
        }
        for place, stopper in enumerate(self.limits.stoppers):
            if isinstance(stopper, RequiredObjectives):
                named[f"limits.stoppers[{place}].thresholds"] = stopper.thresholds
        return named

    @property
    def split(self) -> tuple[tuple[GepaExample, ...], tuple[GepaExample, ...]]:
        """Validation set and training set."""
        end, first = len(self.training_examples) - self._taken_out, self.pareto_set_size
        return self._ordered[:first], self._ordered[first:end]

    @property
    def cases(self) -> list[Case]:
        """The cases of the training and validation set; none if examples have no cases."""
        labels = (example.label for example in self.training_examples)
        return [label for label in labels if isinstance(label, Case)]

    @property
    def held_out(self) -> tuple[GepaExample, ...]:
        """The held-out examples: those of ``data``, or else the last of the training examples."""
        examples = self._ordered[len(self.training_examples) - self._taken_out :]
        return examples if self.data.held_out is None else tuple(self.data.held_out)

    @cached_property
    def _ordered(self) -> tuple[GepaExample, ...]:
        ordered = list(self.training_examples)
        if self.data.shuffle:
            # A generator of its own: further draws of a search must not change the split.
            random.Random(f"{self.seed}/split").shuffle(ordered)
        return tuple(ordered)

    @property
    def training_size(self) -> int:
        """Examples of the training set, without those that are held out by default."""
        return len(self.training_examples) - self.pareto_set_size - self._taken_out

    # Budgets are searched by bisection, which asks for this many times.
    @cached_property
    def _taken_out(self) -> int:
        """How many of the training examples are held out."""
        count = len(self.training_examples) if self.data.held_out is None else 0
        size = min(int(_SHARE * count), (count - self.pareto_set_size) // 2)
        if size >= _LEAST and isinstance(budget := self.rollout_budget, int):
            # With none held out: the least budget depends on the number that is wanted here.
            without = attrs.evolve(self, data=attrs.evolve(self.data, held_out=()))
            # Each takes two rollouts, the baseline's and the winner's.
            size = min(size, int(_PER_BUDGET * budget), (budget - without.least_budget) // 2)
        return size if size >= _LEAST else 0

    @cached_property
    def following_size(self) -> int:
        """Rollouts reserved for held-out examples."""
        return 2 * len(self.held_out) + again_size(self.held_out)

    @property
    def reserved_size(self) -> int:
        """Rollouts reserved for the end of the search and for held-out examples."""
        return self.finals_size + self.following_size

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
            on_error=self.objectives.on_error,
        )

    def _check_examples(self) -> None:
        ids: set[str] = set()
        groups = {"training_examples": self.training_examples, "data.held_out": self.data.held_out}
        for name, examples in groups.items():
            for example in examples or ():
                if example.id in ids:
                    raise ConfigError(f"{name}: the id `{example.id}` occurs twice")
                ids.add(example.id)
        if self.pareto_set_size >= len(self.training_examples):
            raise ConfigError(
                f"pareto_set_size: {self.pareto_set_size} of {len(self.training_examples)} "
                "examples leave none to learn from; lower it or add examples"
            )

    def _check_budget(self) -> None:
        if self.budget < self.least_budget:
            reserves = {
                "the rest of the validation set": self.finals_size,
                "the test cases": self.following_size,
            }
            last = "".join(f", {what} {size}" for what, size in reserves.items() if size)
            tests = ", of test cases" if self.following_size else ""
            raise ConfigError(
                f"rollout_budget: expected at least {self.least_budget} (your prompt takes "
                f"{self.baseline_size} test calls, one step up to {self.step_size}{last}), found "
                f"{self.budget}; raise it, or lower the number of validation cases "
                f"(pareto_set_size in Python){tests}{self.smaller_steps}"
            )
