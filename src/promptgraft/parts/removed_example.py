"""A task example that is not shown."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    SectionPath,
    section_part,
)
from promptgraft.parts.entry import EffectiveParts, Entry, PartSource, Said, Source
from promptgraft.parts.task_example import TaskExampleOverride
from promptgraft.parts.validation import check_path
from promptgraft.serde import HexDigest


@attrs.frozen(kw_only=True)
class RemovedTaskExample(Entry):
    """A task example that is not shown: one of the source, or one that a store below has added.

    Attributes:
        path: the example.
        expected_hash: hash of the source example; of an added one, that of the tools and the
            output type, which the addition is bound to as well.
    """

    path: SectionPath
    expected_hash: HexDigest

    kind = "removed task example"
    replaces = "task example"
    held_in = listed = "removed_task_examples"
    undoes = "added task example"

    @property
    def key(self) -> SectionPath:
        return self.path

    @property
    def owner(self) -> str:
        return section_part(self.path[:-1])

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return TaskExampleOverride.known(descriptor)

    def source(self, descriptor: PromptDescriptor) -> Source | None:
        found = descriptor.task_example(self.path)
        if found is not None or self.expected_hash != descriptor.interface_hash:
            return found
        container = descriptor.container(self.path[:-1])
        return PartSource(descriptor.interface_hash, container.overridable) if container else None

    def counterpart(self, prompt: PromptLike) -> TaskExampleOverride | None:
        found = prompt.descriptor.task_example(self.path)
        return TaskExampleOverride.of(found) if found else None

    def is_said_by(self, prompt: PromptLike) -> bool:
        return prompt.descriptor.task_example(self.path) is None

    def check_address(self) -> None:
        check_path(self.path)

    def apply(self, parts: EffectiveParts) -> None:
        parts.examples[self.path[:-1]].pop(self.path[-1], None)

    def said(self) -> Said:
        return iter(())

    def is_about(self, label: str) -> bool:
        del label
        return True
