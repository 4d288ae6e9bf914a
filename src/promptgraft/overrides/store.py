"""The contract of override stores.

A store maps (``ns``, ``prompt_key``, ``tag``) to a :class:`PromptOverride`. Stores are strict on
writing and lenient on reading: an override that no longer fits its source stays stored and is
returned; rendering skips and reports it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    SectionPath,
    SectionVisibility,
    section_part,
)
from promptgraft.overrides.parts.entry import UNBOUND, Entry
from promptgraft.overrides.parts.replacements import (
    OutputFieldOverride,
    SectionOverride,
    SummaryOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.task_example import (
    AddedTaskExample,
    TaskExampleOverride,
    TaskStepOverride,
)
from promptgraft.overrides.parts.validation import check_key, check_ns, check_path, check_tag
from promptgraft.overrides.resolution import bound_entry
from promptgraft.overrides.types import PromptOverride, Provenance

DEFAULT_TAG = "latest"


@attrs.frozen(order=True)
class OverrideAddress:
    """The name under which a store keeps an override: valid identifiers, ordered as a tuple.

    Raises:
        InvalidIdentifierError: an identifier is not valid.
    """

    ns: str
    prompt_key: str
    tag: str

    def __attrs_post_init__(self) -> None:
        check_ns(self.ns)
        check_key(self.prompt_key, "prompt key")
        check_tag(self.tag)

    def empty(self) -> PromptOverride:
        """Return an override without entries for this address."""
        return PromptOverride(ns=self.ns, prompt_key=self.prompt_key, tag=self.tag)


class PromptOverridesStore(Protocol):
    """Keeps overrides of prompts under tags.

    All methods are thread-safe. Every write is atomic: readers, and the store after a crash, see
    the state before it or the state after it, of all tags that it writes. Methods that write one
    part are an :meth:`upsert` of one entry and raise the same errors.
    """

    @abstractmethod
    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        """Return the stored override of the prompt under ``tag``, stale entries included.

        Raises:
            InvalidIdentifierError: ``tag`` is not an identifier.
            StoreError: the store cannot be read.
        """

    def upsert(
        self,
        descriptor: PromptDescriptor,
        override: PromptOverride,
        *,
        provenance: Provenance | None = None,
    ) -> PromptOverride:
        """Insert or replace each entry of ``override`` in one atomic write; keep the others.

        Returns the override as it is stored afterwards. Stores without history ignore
        ``provenance``.

        Raises:
            UnknownPartError, HashMismatchError, InvalidOverrideError, InvalidIdentifierError:
                nothing was written.
            StoreError: the store cannot be written.
        """
        (revision,) = self.upsert_all([(descriptor, override)], provenance=provenance)
        return revision

    @abstractmethod
    def upsert_all(
        self,
        overrides: Iterable[tuple[PromptDescriptor, PromptOverride]],
        *,
        provenance: Provenance | None = None,
        expected: Iterable[PromptOverride | None] | None = None,
        removed: Iterable[PromptOverride] | None = None,
    ) -> tuple[PromptOverride, ...]:
        """Like :meth:`upsert`, for several prompts or tags in one atomic write.

        All entries are checked before anything is written. Returns the overrides as they are
        stored afterwards, in the order given.

        Args:
            overrides: the overrides to write.
            provenance: their origin.
            expected: for each, what :meth:`resolve` returned before; nothing is written if a part
                to be replaced or removed has changed since. None overwrites unconditionally.
            removed: for each, entries to remove before it is written, stale or not. Descriptions
                of a tool are then replaced instead of merged.

        Raises:
            OverrideConflictError: another writer has changed a part since; nothing was written.
            InvalidOverrideError: two of them are for one prompt and tag; nothing was written.
            UnknownPartError, HashMismatchError, InvalidIdentifierError, StoreError: as
                :meth:`upsert`.
        """

    @abstractmethod
    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        """Remove everything under ``tag``; an empty tag is no error."""

    def set_section_override(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath, body: str
    ) -> PromptOverride:
        """Replace the body of one section."""
        entry = SectionOverride(path=check_path(path), expected_hash=UNBOUND, body=body)
        return _set(self, prompt, tag, entry)

    def set_summary_override(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath, summary: str
    ) -> PromptOverride:
        """Replace the summary of one section."""
        entry = SummaryOverride(path=check_path(path), expected_hash=UNBOUND, summary=summary)
        return _set(self, prompt, tag, entry)

    def set_tool_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        name: str,
        description: str | None = None,
        param_descriptions: Mapping[str, str] | None = None,
    ) -> PromptOverride:
        """Replace descriptions of a tool and its parameters; None keeps the present one."""
        entry = ToolOverride(
            name=name,
            expected_hash=UNBOUND,
            description=description,
            param_descriptions=param_descriptions or {},
        )
        return _set(self, prompt, tag, entry)

    def set_tool_example_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        tool_name: str,
        example_index: int,
        description: str | None = None,
        input_json: str | None = None,
        output_json: str | None = None,
    ) -> PromptOverride:
        """Replace fields of an example of a tool; None keeps the source's."""
        entry = ToolExampleOverride(
            tool_name=tool_name,
            example_index=example_index,
            expected_hash=UNBOUND,
            description=description,
            input_json=input_json,
            output_json=output_json,
        )
        return _set(self, prompt, tag, entry)

    def set_task_example_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        path: SectionPath,
        objective: str | None = None,
        outcome_json: str | None = None,
        step_overrides: Mapping[int, TaskStepOverride] | None = None,
        steps_json: str | None = None,
    ) -> PromptOverride:
        """Replace fields and single steps of a task example, or all of its steps.

        None keeps those of the source, or of the addition if a store has added the example.
        """
        entry = TaskExampleOverride(
            path=check_path(path),
            expected_hash=UNBOUND,
            objective=objective,
            outcome_json=outcome_json,
            step_overrides=step_overrides or {},
            steps_json=steps_json,
        )
        descriptor = prompt.descriptor
        override = self.resolve(descriptor, tag)
        added = override.added_task_examples.get(path) if override is not None else None
        if override is None or added is None or descriptor.task_example(path) is not None:
            return _set(self, prompt, tag, entry)
        try:
            checked = entry.checked_for(added.example.steps, descriptor)
        except DataFormatError as error:
            raise InvalidOverrideError(str(error)) from None
        new = bound_entry(descriptor, added.changed(checked.changed(added.example)))
        # Computed from what was read: a concurrent change of the example must not be undone.
        (written,) = self.upsert_all([(descriptor, override.holding([new]))], expected=[override])
        return written

    def add_task_example(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        container_path: SectionPath,
        key: str,
        objective: str,
        outcome_json: str,
        steps_json: str,
    ) -> PromptOverride:
        """Add a task example to a section, or replace the one added under that key."""
        entry = AddedTaskExample(
            container_path=check_path(container_path),
            example_key=key,
            expected_hash=UNBOUND,
            objective=objective,
            outcome_json=outcome_json,
            steps_json=steps_json,
        )
        return _set(self, prompt, tag, entry)

    @abstractmethod
    def remove_task_example(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        """Remove a task example: an addition, or one of the source or of a store below."""

    def set_output_field_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        field: str,
        description: str | None = None,
        aliases: Iterable[str] | None = None,
        value_descriptions: Mapping[str, str] | None = None,
    ) -> PromptOverride:
        """Replace descriptions of a field of the answer; None keeps the source's."""
        entry = OutputFieldOverride(
            field=field,
            expected_hash=UNBOUND,
            description=description,
            aliases=aliases,
            value_descriptions=value_descriptions or {},
        )
        return _set(self, prompt, tag, entry)

    def set_visibility_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        path: SectionPath,
        visibility: SectionVisibility,
    ) -> PromptOverride:
        """Show or hide a section, with all that is below it, or a task example of the source."""
        entry = VisibilityOverride(
            path=check_path(path), expected_hash=UNBOUND, visibility=visibility
        )
        return _set(self, prompt, tag, entry)

    def remove_section_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        """Remove the override of one section; see :meth:`remove_override`.

        Raises:
            UnknownPartError: nothing is stored for that section.
            InvalidOverrideError: ``path`` is not a tuple of section keys.
        """
        part = section_part(check_path(path))
        return self.remove_override(ns=ns, prompt_key=prompt_key, tag=tag, part=part)

    @abstractmethod
    def remove_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, part: str
    ) -> PromptOverride:
        """Remove the override of one part, stale or not, and return what remains.

        ``part`` is the part as messages name it: ``section policies/refunds``.

        Raises:
            UnknownPartError: nothing is stored for that part.
        """

    @abstractmethod
    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        """Store the source of every overridable part that has no fresh override, for editing.

        Seeded entries render like the source.

        Raises:
            InvalidOverrideError: a source is longer than a body may be, or not Unicode.
        """


def _set(store: PromptOverridesStore, prompt: PromptLike, tag: str, entry: Entry) -> PromptOverride:
    descriptor = prompt.descriptor
    address = OverrideAddress(descriptor.ns, descriptor.key, tag)
    bound = bound_entry(descriptor, entry)
    return store.upsert(descriptor, address.empty().holding([bound]))
