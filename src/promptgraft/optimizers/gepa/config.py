"""The settings of a GEPA run, checked whole before the first rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from promptgraft.errors import ConfigError
from promptgraft.optimizers.base import PersistenceScope
from promptgraft.optimizers.formatting import default_example_formatter, default_trace_formatter
from promptgraft.optimizers.modules import (
    GenerationModule,
    Module,
    OutputFieldModule,
    SectionModule,
    TaskExampleModule,
    ToolExampleModule,
    ToolModule,
)
from promptgraft.optimizers.prompt_rollout import OnError, Scoring
from promptgraft.optimizers.types import (
    ExampleFormatter,
    FeedbackFn,
    GepaExample,
    TraceFormatter,
    is_finite,
)
from promptgraft.overrides.entries import SectionPath, show_path
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.overrides.validation import MAX_BODY_CHARS
from promptgraft.serde import shown

_LEAST = {
    "rollout_budget": 1,
    "minibatch_size": 1,
    "pareto_set_size": 1,
    "seed": 0,
    "max_example_chars": 100,
    "max_trace_chars": 100,
    "max_part_chars": 1,
    "max_failed_reflections": 1,
    "max_idle_steps": 1,
    "max_merge_invocations": 0,
    "max_task_examples_per_section": 1,
}


_TARGETS = (
    "target_section_paths",
    "target_tools",
    "target_output_fields",
    "target_tool_examples",
    "target_task_examples",
)


@attrs.frozen(kw_only=True)
class ToolExampleTarget:
    """An example of a tool that may change.

    Attributes:
        tool_name: the tool.
        example_index: position among its examples, from 0.
    """

    tool_name: str
    example_index: int


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    _check_sequence(names, "expected a tuple of names")
    return tuple(names)


def _as_targets(targets: Iterable[ToolExampleTarget]) -> tuple[ToolExampleTarget, ...]:
    _check_sequence(targets, "target_tool_examples: expected a tuple of ToolExampleTarget")
    return tuple(targets)


def _as_sections(paths: Iterable[SectionPath]) -> tuple[SectionPath, ...]:
    _check_sequence(paths, "target_section_paths: expected a tuple of section paths")
    return tuple(paths)


def _as_task_examples(paths: Iterable[SectionPath]) -> tuple[SectionPath, ...]:
    _check_sequence(paths, "target_task_examples: expected a tuple of paths")
    return tuple(paths)


def _as_examples(examples: Iterable[GepaExample]) -> tuple[GepaExample, ...]:
    _check_sequence(examples, "training_examples: expected a sequence of GepaExample")
    return tuple(examples)


def _are_names(keys: tuple[object, ...]) -> bool:
    return all(isinstance(key, str) for key in keys)


def _check_sequence(values: object, expected: str) -> None:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping)):
        raise ConfigError(f"{expected}, found {shown(values)}")


@attrs.frozen(kw_only=True)
class GepaConfig:
    """What a GEPA run does.

    Attributes:
        rollout_budget: rollouts that the run may use in all; never exceeded.
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
        shuffle_examples: shuffle the data by ``seed`` before it is split.
        perfect_score: a score that leaves nothing to learn.
        max_example_chars: longest input or answer that the reflector is shown.
        max_trace_chars: longest trace or evaluation log that the reflector is shown.
        max_part_chars: longest text that a part may get.
        on_error: what a rollout becomes whose provider failed: ``"unscored"`` (kept out of
            every mean) or ``"zero"``.
        max_unscored_share: share of a batch that may stay unscored before the run stops,
            0 to 1.
        max_failed_reflections: steps in a row without a usable proposal before the run stops.
        max_idle_steps: steps in a row with nothing to learn before the run stops.
        persist: keep the winner when it is better than the baseline.
        persist_scope: where it is kept.

    Raises:
        ConfigError: naming the field, what was expected and what was found.
    """

    rollout_budget: int
    minibatch_size: int
    pareto_set_size: int
    target_section_paths: tuple[SectionPath, ...] = attrs.field(default=(), converter=_as_sections)
    target_tools: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    target_output_fields: tuple[str, ...] = attrs.field(default=(), converter=_as_names)
    target_tool_examples: tuple[ToolExampleTarget, ...] = attrs.field(
        default=(), converter=_as_targets
    )
    target_task_examples: tuple[SectionPath, ...] = attrs.field(
        default=(), converter=_as_task_examples
    )
    training_examples: tuple[GepaExample, ...] = attrs.field(converter=_as_examples, repr=False)
    feedback_fn: FeedbackFn
    example_formatter: ExampleFormatter | None = None
    trace_formatter: TraceFormatter | None = None
    seed: int = 0
    enable_merge: bool = False
    max_merge_invocations: int = 5
    enable_example_generation: bool = False
    max_task_examples_per_section: int = 5
    example_mutation_rate: float = 0.3
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
        self._check_numbers()
        self._check_choices()
        self._check_targets()
        self._check_examples()
        self._check_budget()

    @property
    def feedback_size(self) -> int:
        """Number of examples that mutations learn from."""
        return len(self.training_examples) - self.pareto_set_size

    @property
    def batch_size(self) -> int:
        """Number of examples that a mutation is tried on."""
        return min(self.minibatch_size, self.feedback_size)

    @property
    def step_size(self) -> int:
        """Rollouts of a step that ends with an accepted candidate."""
        return 2 * self.batch_size + self.pareto_set_size

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

    def modules(self, descriptor: PromptDescriptor) -> tuple[Module, ...]:
        """Return what may be mutated, in the order in which it takes its turn.

        Raises:
            ConfigError: nothing may be.
        """
        modules: tuple[Module, ...] = (
            *map(SectionModule, self.target_section_paths),
            *map(ToolModule, self.target_tools),
            *map(OutputFieldModule, self.target_output_fields),
            *(ToolExampleModule(t.tool_name, t.example_index) for t in self.target_tool_examples),
            *map(TaskExampleModule, self.target_task_examples),
            *map(GenerationModule, self._generation_paths(descriptor)),
        )
        if not modules:
            raise ConfigError(
                "enable_example_generation: the prompt has no section of task examples to write "
                "for; add a TaskExamplesSection or name another target"
            )
        return modules

    def _generation_paths(self, descriptor: PromptDescriptor) -> tuple[SectionPath, ...]:
        if not self.enable_example_generation:
            return ()
        named = tuple(dict.fromkeys(path[:-1] for path in self.target_task_examples))
        return named or tuple(found.path for found in descriptor.containers if found.overridable)

    def _check_numbers(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"{name}: expected an integer of at least {least}, found {shown(value)}"
                )
        for name in ("max_unscored_share", "example_mutation_rate", "perfect_score"):
            value = getattr(self, name)
            usable = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not usable or not is_finite(value):
                raise ConfigError(f"{name}: expected a finite number, found {shown(value)}")
        if self.max_part_chars > MAX_BODY_CHARS:
            raise ConfigError(
                f"max_part_chars: expected at most {MAX_BODY_CHARS}, which is what stores keep, "
                f"found {self.max_part_chars}"
            )
        for name in ("max_unscored_share", "example_mutation_rate"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ConfigError(f"{name}: expected a number from 0 to 1, found {share!r}")

    def _check_choices(self) -> None:
        for name in ("feedback_fn", "example_formatter", "trace_formatter"):
            value = getattr(self, name)
            optional = name != "feedback_fn"
            if not callable(value) and not (optional and value is None):
                raise ConfigError(f"{name}: expected a function, found {shown(value)}")
        if self.on_error not in ("unscored", "zero"):
            raise ConfigError(
                f"on_error: expected 'unscored' or 'zero', found {shown(self.on_error)}"
            )
        for name in ("shuffle_examples", "persist", "enable_merge", "enable_example_generation"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigError(f"{name}: expected True or False, found {shown(value)}")
        if not isinstance(self.persist_scope, PersistenceScope):
            raise ConfigError(
                f"persist_scope: expected a PersistenceScope, found {shown(self.persist_scope)}"
            )

    def _check_targets(self) -> None:
        for name in ("target_section_paths", "target_task_examples"):
            for path in getattr(self, name):
                keys: object = path
                if not isinstance(keys, tuple) or not keys or not _are_names(keys):
                    raise ConfigError(
                        f"{name}: expected tuples of section keys such as ('policies', 'refunds'), "
                        f"found {shown(path)}"
                    )
        for example in self.target_tool_examples:
            if not isinstance(example, ToolExampleTarget):
                raise ConfigError(
                    f"target_tool_examples: expected ToolExampleTarget, found {shown(example)}"
                )
        if not self.enable_example_generation and not any(getattr(self, n) for n in _TARGETS):
            raise ConfigError(
                "target_section_paths: expected at least one part that may change, here or under "
                "another target, found none"
            )
        for name in _TARGETS:
            seen: set[object] = set()
            for target in getattr(self, name):
                if target in seen:
                    named = show_path(target) if isinstance(target, tuple) else target
                    raise ConfigError(f"{name}: `{named}` is named twice")
                seen.add(target)

    def _check_examples(self) -> None:
        seen: set[str] = set()
        for position, example in enumerate(self.training_examples):
            if not isinstance(example, GepaExample):
                raise ConfigError(
                    f"training_examples[{position}]: expected a GepaExample, found {shown(example)}"
                )
            if example.id in seen:
                raise ConfigError(f"training_examples: the id `{example.id}` occurs twice")
            seen.add(example.id)
        if self.feedback_size < 1:
            raise ConfigError(
                f"pareto_set_size: {self.pareto_set_size} of {len(self.training_examples)} "
                "examples leave none to learn from; lower it or add examples"
            )

    def _check_budget(self) -> None:
        least = self.pareto_set_size + self.step_size
        if self.rollout_budget < least:
            raise ConfigError(
                f"rollout_budget: expected at least {least} (the baseline takes "
                f"{self.pareto_set_size} rollouts, one step up to {self.step_size}), "
                f"found {self.rollout_budget}; raise it or lower pareto_set_size or minibatch_size"
            )
