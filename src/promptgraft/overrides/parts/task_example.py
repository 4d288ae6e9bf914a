"""Overrides of task examples of the source, additions of others, and removals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, shown
from promptgraft.overrides.parts import validation
from promptgraft.overrides.parts.descriptors import (
    NO_INTERFACE,
    PromptDescriptor,
    PromptLike,
    SectionPath,
    TaskExampleDescriptor,
    find_tool,
    section_part,
    show_path,
)
from promptgraft.overrides.parts.entry import (
    UNBOUND,
    EffectiveParts,
    Entry,
    LabelledTexts,
    PartSource,
    PathEntry,
    SkipReason,
    SourcePart,
    frozen,
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


def _frozen_steps(steps: Mapping[int, TaskStepOverride]) -> FrozenMap[int, TaskStepOverride]:
    frozen_steps = frozen(steps, "TaskStepOverride by step index")
    for index, step in frozen_steps.items():
        if not isinstance(step, TaskStepOverride):
            raise InvalidOverrideError(
                f"step_overrides: expected a TaskStepOverride by step index, found {shown(step)} "
                f"at {shown(index)}"
            )
    return frozen_steps


@attrs.frozen(kw_only=True)
class TaskExampleDocument:
    """A task example override in a file; steps are a list, because JSON keys are not numbers."""

    path: tuple[str, ...]
    expected_hash: HexDigest
    objective: str | None
    outcome_json: str | None
    step_overrides: tuple[TaskStepOverride, ...]
    steps_json: str | None


@attrs.frozen
class TaskExampleOverride(PathEntry):
    """An override of a task example: of single fields and steps, or of all its steps.

    Attributes:
        expected_hash: hash of the source example, steps included.
        objective: None keeps the source's.
        outcome_json: the outcome as JSON; None keeps the source's.
        step_overrides: single steps by position.
        path: the example: its section's path and its key. In a ``PromptOverride`` it may be left
            out: it is then the key that the override is filed under.
        steps_json: all steps, ``[{"tool_name", "description", "input", "output"}]``; not together
            with ``step_overrides``.
    """

    expected_hash: HexDigest
    objective: str | None = None
    outcome_json: str | None = None
    step_overrides: Mapping[int, TaskStepOverride] = attrs.field(
        factory=dict, converter=_frozen_steps
    )
    path: SectionPath = attrs.field(default=(), kw_only=True)
    steps_json: str | None = attrs.field(default=None, kw_only=True)

    kind = replaces = "task example"
    with_overrides = "task_example_overrides"
    listed = "task_examples"
    document: ClassVar[type] = TaskExampleDocument

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
        validation.check_texts(self.part, *replaced)
        if self.objective is not None:
            validation.check_not_blank(self.objective, f"{self.part}: objective")
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
        validation.check_texts(where, *override.fields.values())
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
        return {"path": self.path, **super().stored_fields(), "step_overrides": steps}

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


@attrs.frozen(kw_only=True)
class AddedTaskExample(Entry):
    """A task example that the source does not have.

    Attributes:
        container_path: the section to which it is appended.
        example_key: its key there.
        expected_hash: hash of the tools and the output type for which it was written.
        outcome_json: the outcome as JSON.
        steps_json: the steps, ``[{"tool_name", "description", "input", "output"}]``.
    """

    container_path: SectionPath
    example_key: str
    expected_hash: HexDigest
    objective: str
    outcome_json: str
    steps_json: str

    kind = "added task example"
    replaces = "section of task examples"
    with_overrides = listed = "added_task_examples"
    undoes = "removed task example"

    @property
    def path(self) -> SectionPath:
        """Its path in the prompt."""
        return (*self.container_path, self.example_key)

    @property
    def key(self) -> SectionPath:
        return self.path

    @property
    def replaced(self) -> str:
        return show_path(self.container_path)

    @property
    def owner(self) -> str:
        return section_part(self.container_path)

    @property
    def example(self) -> WorkedExample:
        """The example as it is shown."""
        return WorkedExample(
            objective=self.objective,
            steps=stored_steps(self.steps_json),
            outcome_json=self.outcome_json,
        )

    def changed(self, worked: WorkedExample) -> AddedTaskExample:
        """Return an addition of another example with the same key, not bound to a source yet."""
        return attrs.evolve(
            self,
            expected_hash=UNBOUND,
            objective=worked.objective,
            outcome_json=worked.outcome_json,
            steps_json=worked.steps_json,
        )

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (
            show_path(container.path)
            for container in descriptor.containers
            if container.overridable
        )

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        container = descriptor.container(self.container_path)
        return PartSource(descriptor.interface_hash, container.overridable) if container else None

    def is_same_in(self, prompt: PromptLike) -> bool:
        example = prompt.descriptor.task_example(self.path)
        return example is not None and self.show_of(TaskExampleOverride.of(example)) == self.show()

    def check_address(self) -> None:
        validation.check_path(self.container_path)
        super().check_address()

    def checked(self, descriptor: PromptDescriptor) -> AddedTaskExample:
        validation.check_key(self.example_key, "task example key")
        if self.misfit(descriptor):
            raise InvalidOverrideError(
                f"{self.part}: the source has a part of that key; use another"
            )
        validation.check_not_blank(self.objective, f"{self.part}: objective")
        validation.check_text(self.outcome_json, f"{self.part}: outcome_json")
        validation.check_text(self.steps_json, f"{self.part}: steps_json")
        return attrs.evolve(
            self,
            outcome_json=descriptor.checked_outcome(self.outcome_json, where=self.part),
            steps_json=descriptor.checked_steps(self.steps_json, where=self.part),
        )

    def misfit(self, descriptor: PromptDescriptor) -> SkipReason | None:
        container = descriptor.container(self.container_path)
        return SkipReason.KEY_TAKEN if container and self.example_key in container.taken else None

    def apply(self, parts: EffectiveParts) -> None:
        parts.examples[self.container_path][self.example_key] = self.example

    def labelled_texts(self) -> LabelledTexts:
        yield "objective", self.objective
        yield from step_texts(self.steps_json, where=self.part)
        yield "outcome", self.outcome_json

    def is_about(self, label: str) -> bool:
        return True

    def check_stored(self, where: str) -> None:
        validation.check_key(self.example_key, "example_key")
        # A descriptor that is built without an interface hash has the empty one.
        if self.expected_hash != NO_INTERFACE:
            super().check_stored(where)
        check_json(where, outcome_json=self.outcome_json)
        read_stored_steps(self.steps_json, where=where)


@attrs.frozen(kw_only=True)
class RemovedTaskExample(PathEntry):
    """The removal of a task example: of the source, or added by a lower store.

    Attributes:
        path: the example.
        expected_hash: hash of the source example; for an added example, that of the tools and the
            output type, to which the addition is bound.
    """

    path: SectionPath
    expected_hash: HexDigest

    kind = "removed task example"
    replaces = "task example"
    with_overrides = listed = "removed_task_examples"
    undoes = "added task example"

    @property
    def owner(self) -> str:
        return section_part(self.path[:-1])

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return TaskExampleOverride.known(descriptor)

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        example = descriptor.task_example(self.path)
        # One that is bound to the interface removes an addition of a store below.
        if example is not None or self.expected_hash != descriptor.interface_hash:
            return example
        container = descriptor.container(self.path[:-1])
        return PartSource(descriptor.interface_hash, container.overridable) if container else None

    def counterpart(self, prompt: PromptLike) -> TaskExampleOverride | None:
        example = prompt.descriptor.task_example(self.path)
        return TaskExampleOverride.of(example) if example else None

    def is_same_in(self, prompt: PromptLike) -> bool:
        return prompt.descriptor.task_example(self.path) is None

    def apply(self, parts: EffectiveParts) -> None:
        # The addition that it hides may be gone from the store below.
        parts.examples[self.path[:-1]].pop(self.path[-1], None)

    def labelled_texts(self) -> LabelledTexts:
        return iter(())

    def is_about(self, label: str) -> bool:
        return True
