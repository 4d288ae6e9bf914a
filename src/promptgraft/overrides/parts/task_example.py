"""Overrides of task examples of the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    SectionPath,
    TaskExampleDescriptor,
    find_tool,
    section_part,
    show_path,
)
from promptgraft.overrides.parts.entry import (
    EffectiveParts,
    LabelledTexts,
    PathEntry,
    SourcePart,
    text_or_none,
)
from promptgraft.overrides.parts.examples import (
    ToolCall,
    WorkedExample,
    check_json,
    given,
    read_stored_steps,
    stored_steps,
)
from promptgraft.overrides.parts.validation import check_not_blank, check_texts

_STEP = "step "


@attrs.frozen
class TaskStepOverride:
    """An override of one step of a task example; None keeps the source's field.

    Attributes:
        step_index: position among the steps, from 0.
        tool_name: the tool that is called.
        description: why it is called.
        input_json: parameters as JSON.
        output_json: result as JSON.
    """

    step_index: int
    tool_name: str | None = None
    description: str | None = None
    input_json: str | None = None
    output_json: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """The replaced fields of the call."""
        return given(
            tool_name=self.tool_name,
            description=self.description,
            input_json=self.input_json,
            output_json=self.output_json,
        )


@attrs.frozen(kw_only=True)
class TaskExampleDocument:
    """A task example override in a file; steps are a list, because JSON keys are not numbers."""

    path: tuple[str, ...]
    expected_hash: HexDigest
    objective: str | None
    outcome_json: str | None
    step_overrides: tuple[TaskStepOverride, ...]
    steps_json: str | None


@attrs.frozen(kw_only=True)
class TaskExampleOverride(PathEntry):
    """An override of a task example: of single fields and steps, or of all its steps.

    Attributes:
        path: the example: its section's path and its key. In a ``PromptOverride`` it may be left
            out: it is then the key that the override is filed under.
        expected_hash: hash of the source example, steps included.
        objective: None keeps the source's.
        outcome_json: the outcome as JSON; None keeps the source's.
        step_overrides: single steps by position.
        steps_json: all steps, ``[{"tool_name", "description", "input", "output"}]``; not together
            with ``step_overrides``.
    """

    path: SectionPath = ()
    expected_hash: HexDigest
    objective: str | None = None
    outcome_json: str | None = None
    step_overrides: Mapping[int, TaskStepOverride] = attrs.field(
        factory=dict, converter=FrozenMap[int, TaskStepOverride]
    )
    steps_json: str | None = None

    kind = replaces = "task example"
    with_overrides = "task_example_overrides"
    listed = "task_examples"
    document = TaskExampleDocument

    @property
    def owner(self) -> str:
        return section_part(self.path[:-1])

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (
            show_path(example.path) for example in descriptor.task_examples if example.overridable
        )

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        return descriptor.task_example(self.path)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[TaskExampleOverride]:
        return map(cls.of, prompt.descriptor.task_examples)

    @classmethod
    def of(cls, source: TaskExampleDescriptor) -> TaskExampleOverride:
        """Return a task example of the source as an override that changes nothing."""
        return cls(
            path=source.path,
            expected_hash=source.content_hash,
            objective=text_or_none(source.example.objective),
            outcome_json=source.example.outcome_json,
            steps_json=source.example.steps_json,
        )

    def checked(self, descriptor: PromptDescriptor) -> TaskExampleOverride:
        example = descriptor.task_example(self.path)
        return self.checked_for(example.example.steps if example else (), descriptor)

    def checked_for(
        self, steps: Sequence[ToolCall], descriptor: PromptDescriptor
    ) -> TaskExampleOverride:
        """Return the override with its JSON in one line, checked for an example with ``steps``.

        Raises:
            InvalidOverrideError, DataFormatError: its content does not fit.
        """
        replaced = (self.objective, self.outcome_json, self.steps_json)
        if replaced == (None, None, None) and not self.step_overrides:
            raise InvalidOverrideError(f"{self.part}: replaces nothing; give a field")
        if self.steps_json is not None and self.step_overrides:
            raise InvalidOverrideError(f"{self.part}: give steps_json or step_overrides, not both")
        check_texts(self.part, *replaced)
        if self.objective is not None:
            check_not_blank(self.objective, f"{self.part}: objective")
        outcome, all_steps = self.outcome_json, self.steps_json
        return attrs.evolve(
            self,
            outcome_json=None
            if outcome is None
            else descriptor.checked_outcome(outcome, where=self.part),
            steps_json=None
            if all_steps is None
            else descriptor.checked_steps(all_steps, where=self.part),
            step_overrides={
                index: self._step(steps, index, descriptor) for index in self.step_overrides
            },
        )

    def _step(
        self, steps: Sequence[ToolCall], index: int, descriptor: PromptDescriptor
    ) -> TaskStepOverride:
        override = self.step_overrides[index]
        where = f"{self.part}: step {index}"
        # Not isinstance: True is an integer, but does not survive a file.
        if type(override.step_index) is not int or index not in range(len(steps)):
            raise InvalidOverrideError(f"{where}: expected the index of one of {len(steps)} steps")
        if override.step_index != index:
            raise InvalidOverrideError(
                f"{where}: step_index: expected {index}, found {override.step_index}"
            )
        if not override.fields:
            raise InvalidOverrideError(f"{where}: replaces nothing; give a field")
        check_texts(where, *override.fields.values())
        # The whole step, because a new tool must accept the values that are kept as well.
        step = attrs.evolve(steps[index], **override.fields)
        tool = find_tool(descriptor.tools_by_name, step.tool_name, where=where)
        call = tool.call(step.description, step.input_json, step.output_json, where=where)
        return attrs.evolve(
            override,
            input_json=None if override.input_json is None else call.input_json,
            output_json=None if override.output_json is None else call.output_json,
        )

    def apply(self, parts: EffectiveParts) -> None:
        examples = parts.examples[self.path[:-1]]
        examples[self.path[-1]] = self.changed(examples[self.path[-1]])

    def changed(self, example: WorkedExample) -> WorkedExample:
        """Return an example with the override applied."""
        if self.steps_json is not None:
            steps = stored_steps(self.steps_json)
        else:
            fields = {index: step.fields for index, step in self.step_overrides.items()}
            steps = tuple(
                attrs.evolve(step, **fields.get(index, {}))
                for index, step in enumerate(example.steps)
            )
        texts = given(objective=self.objective, outcome_json=self.outcome_json)
        return attrs.evolve(example, **texts, steps=steps)

    def labelled_texts(self) -> LabelledTexts:
        yield "objective", self.objective
        if self.steps_json is not None:
            yield from step_texts(self.steps_json, where=self.part)
        for index in sorted(self.step_overrides):
            yield from step_text(index, self.step_overrides[index])
        yield "outcome", self.outcome_json

    def is_about(self, label: str) -> bool:
        # All steps are replaced, including those that only the source has.
        return super().is_about(label) or (self.steps_json is not None and label.startswith(_STEP))

    def stored_fields(self) -> dict[str, Any]:
        steps = [self.step_overrides[index] for index in sorted(self.step_overrides)]
        return {**super().stored_fields(), "step_overrides": steps}

    @classmethod
    def read(cls, document: TaskExampleDocument, *, where: str) -> TaskExampleOverride:
        steps = {step.step_index: step for step in document.step_overrides}
        if len(steps) < len(document.step_overrides):
            raise DataFormatError(f"{where}: {show_path(document.path)}: one step occurs twice")
        fields: dict[str, Any] = attrs.asdict(document, recurse=False)
        return cls(**{**fields, "step_overrides": steps})

    def check_stored(self, where: str) -> None:
        if self.step_overrides:
            if self.steps_json is not None:
                raise DataFormatError(f"{where}: expected steps_json or step_overrides, found both")
            if min(self.step_overrides) < 0:
                raise DataFormatError(
                    f"{where}: step_index: expected at least 0, found {min(self.step_overrides)}"
                )
        super().check_stored(where)
        check_json(where, outcome_json=self.outcome_json)
        if self.steps_json is not None:
            read_stored_steps(self.steps_json, where=where)
        for index, step in self.step_overrides.items():
            check_json(
                f"{where}: step {index}", input_json=step.input_json, output_json=step.output_json
            )


def step_texts(steps_json: str, *, where: str) -> LabelledTexts:
    """Yield the texts of all steps of a task example."""
    steps = read_stored_steps(steps_json, where=where)
    if not steps:
        yield "steps", "none"
    for index, step in enumerate(steps):
        yield from step_text(index, step)


def step_text(index: int, step: ToolCall | TaskStepOverride) -> LabelledTexts:
    """Yield the texts of a step of a task example."""
    yield f"{_STEP}{index} tool", step.tool_name
    yield f"{_STEP}{index} description", step.description
    yield f"{_STEP}{index} input", step.input_json
    yield f"{_STEP}{index} output", step.output_json
