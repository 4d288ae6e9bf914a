"""Additions and removals of task examples."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides.parts.descriptors import (
    NO_INTERFACE,
    PromptDescriptor,
    PromptLike,
    SectionPath,
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
)
from promptgraft.overrides.parts.examples import (
    WorkedExample,
    check_json,
    read_stored_steps,
    stored_steps,
)
from promptgraft.overrides.parts.task_example import TaskExampleOverride, step_texts
from promptgraft.overrides.parts.validation import (
    check_key,
    check_not_blank,
    check_path,
    check_texts,
)


@attrs.frozen(kw_only=True)
class AddedTaskExample(Entry):
    """A task example that the source does not have.

    Attributes:
        container_path: the section to which it is appended.
        example_key: its key there.
        expected_hash: hash of the tools and the output type for which it was written.
        objective: the objective.
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
        check_path(self.container_path)

    def checked(self, descriptor: PromptDescriptor) -> AddedTaskExample:
        check_key(self.example_key, "task example key")
        if self.misfit(descriptor):
            raise InvalidOverrideError(
                f"{self.part}: the source has a part of that key; use another"
            )
        check_not_blank(self.objective, f"{self.part}: objective")
        check_texts(self.part, self.outcome_json, self.steps_json)
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
        del label
        return True

    def check_stored(self, where: str) -> None:
        check_key(self.example_key, "example_key")
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
        del label
        return True
