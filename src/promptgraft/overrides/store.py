"""The contract of override stores, and the base that all of ours share.

A store maps (``ns``, ``prompt_key``, ``tag``) to a :class:`PromptOverride`. Stores are strict
when they write and lenient when they read: an override that no longer fits its source stays
where it is, is returned, and is skipped and reported by the prompt that renders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import attrs

from promptgraft.errors import InvalidOverrideError, UnknownPartError
from promptgraft.overrides.checks import UNBOUND, bound_entry, checked_entry
from promptgraft.overrides.entries import (
    AddedTaskExample,
    Entry,
    OutputFieldOverride,
    RemovedTaskExample,
    SectionOverride,
    SectionPath,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
    section_part,
)
from promptgraft.overrides.parts import PromptDescriptor
from promptgraft.overrides.sources import is_replaced, source_entries
from promptgraft.overrides.types import PromptLike, PromptOverride, Provenance, Revision
from promptgraft.overrides.validation import check_key, check_ns, check_provenance, check_tag
from promptgraft.serde import shown

Change = Callable[[PromptOverride], PromptOverride]
"""Computes the next state of a tag from the present one; pure, may raise to refuse."""

DEFAULT_TAG = "latest"


@attrs.frozen
class OverrideAddress:
    """The name under which a store keeps an override; its identifiers are always valid.

    Raises:
        InvalidIdentifierError: when one of them is not.
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

    All methods may be called from several threads. Every write is atomic: readers, and the
    store after a crash, hold the state before it or the state after it.
    """

    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        """Return what is kept for the prompt under ``tag``, stale entries included.

        Raises:
            InvalidIdentifierError: ``tag`` is no identifier.
            StoreError: the store cannot be read.
        """
        ...

    def upsert(
        self,
        descriptor: PromptDescriptor,
        override: PromptOverride,
        *,
        provenance: Provenance | None = None,
    ) -> PromptOverride:
        """Insert or replace each entry of ``override`` in one atomic write; keep the others.

        Returns what is kept afterwards. A store without history has no use for
        ``provenance`` and drops it.

        Raises:
            UnknownPartError, HashMismatchError, InvalidOverrideError, InvalidIdentifierError:
                nothing was written.
            StoreError: the store cannot be written.
        """
        ...

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        """Forget everything under ``tag``; nothing kept is no error."""
        ...

    def set_section_override(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath, body: str
    ) -> PromptOverride:
        """Replace the body of one section; raises as :meth:`upsert`."""
        ...

    def set_tool_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        name: str,
        description: str | None = None,
        param_descriptions: Mapping[str, str] | None = None,
    ) -> PromptOverride:
        """Replace what is said of a tool and its parameters; None keeps what is there.

        Raises as :meth:`upsert`.
        """
        ...

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
        """Replace an example of a tool; None keeps the source's. Raises as :meth:`upsert`."""
        ...

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
        """Replace single fields and steps of a task example, or all its steps.

        None keeps the source's. Raises as :meth:`upsert`.
        """
        ...

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
        """Append a task example to a section, or replace one that was added under that key.

        Raises as :meth:`upsert`.
        """
        ...

    def remove_task_example(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        """Hide a task example of the source, or forget one that was added.

        Raises as :meth:`upsert`.
        """
        ...

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
        """Replace what is said of a field of the answer; None keeps the source's.

        Raises as :meth:`upsert`.
        """
        ...

    def remove_section_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        """Forget the override of one section; see :meth:`remove_override`.

        Raises:
            UnknownPartError: nothing is kept for that section.
            InvalidOverrideError: ``path`` is no tuple of section keys.
        """
        ...

    def remove_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, part: str
    ) -> PromptOverride:
        """Forget the override of one part, stale or not, and return what remains.

        ``part`` is the part as messages name it: ``section policies/refunds``.

        Raises:
            UnknownPartError: nothing is kept for that part.
        """
        ...

    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        """Write the source of every overridable part that has no fresh override yet.

        What is seeded renders like the source; it is a start for editing.

        Raises:
            InvalidOverrideError: a source is longer than a body may be, or not Unicode.
        """
        ...


class RevisionedPromptOverridesStore(PromptOverridesStore, Protocol):
    """A store that remembers every state that a tag had."""

    def current(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> Revision | None:
        """Return the revision that the tag points at, or None."""
        ...

    def history(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> tuple[Revision, ...]:
        """Return every revision that was written under the tag, the oldest first."""
        ...

    def rollback(
        self,
        *,
        ns: str,
        prompt_key: str,
        tag: str = DEFAULT_TAG,
        revision: str | None = None,
    ) -> Revision | None:
        """Point the tag at an earlier revision (default: the parent of the present one).

        Revisions stay. ``revision`` is an id or a prefix of one that is at least 4 digits
        long and unique. Returns the revision that the tag points at afterwards; None when
        the first revision is rolled back, which leaves the tag without overrides.

        Raises:
            RevisionNotFoundError: there is no such revision, more than one, or nothing to
                roll back.
            InvalidIdentifierError: ``revision`` is not 4 to 64 hexadecimal digits.
        """
        ...


class BasePromptOverridesStore(ABC):
    """Everything a store does, on three primitives: ``resolve``, ``mutate`` and ``delete``."""

    @abstractmethod
    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None: ...

    @abstractmethod
    def mutate(
        self, address: OverrideAddress, change: Change, *, provenance: Provenance | None = None
    ) -> PromptOverride:
        """Replace what is kept at ``address`` by ``change`` of it, and return that.

        One lock is held while the present state is read, ``change`` runs and the result is
        written, so that two writers never lose a change. When ``change`` raises, or returns
        the state that it was given, nothing is written.
        """

    @abstractmethod
    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None: ...

    def upsert(
        self,
        descriptor: PromptDescriptor,
        override: PromptOverride,
        *,
        provenance: Provenance | None = None,
    ) -> PromptOverride:
        address = OverrideAddress(override.ns, override.prompt_key, override.tag)
        if (address.ns, address.prompt_key) != (descriptor.ns, descriptor.key):
            raise InvalidOverrideError(
                f"the override is for prompt `{address.ns}/{address.prompt_key}`, the descriptor "
                f"for `{descriptor.ns}/{descriptor.key}`; use those of one prompt"
            )

        if provenance is not None:
            check_provenance(provenance)

        def change(present: PromptOverride) -> PromptOverride:
            return present.merged_with(
                override.holding(
                    entry if present.find(entry) == entry else checked_entry(descriptor, entry)
                    for entry in override.entries()
                )
            )

        return self.mutate(address, change, provenance=provenance)

    def set_section_override(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath, body: str
    ) -> PromptOverride:
        entry = SectionOverride(path=_checked_path(path), expected_hash=UNBOUND, body=body)
        return self._set(prompt, tag, entry)

    def set_tool_override(
        self,
        prompt: PromptLike,
        *,
        tag: str = DEFAULT_TAG,
        name: str,
        description: str | None = None,
        param_descriptions: Mapping[str, str] | None = None,
    ) -> PromptOverride:
        entry = ToolOverride(
            name=name,
            expected_hash=UNBOUND,
            description=description,
            param_descriptions=param_descriptions or {},
        )
        return self._set(prompt, tag, entry)

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
        entry = ToolExampleOverride(
            tool_name=tool_name,
            example_index=example_index,
            expected_hash=UNBOUND,
            description=description,
            input_json=input_json,
            output_json=output_json,
        )
        return self._set(prompt, tag, entry)

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
        entry = TaskExampleOverride(
            path=_checked_path(path),
            expected_hash=UNBOUND,
            objective=objective,
            outcome_json=outcome_json,
            step_overrides=step_overrides or {},
            steps_json=steps_json,
        )
        return self._set(prompt, tag, entry)

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
        entry = AddedTaskExample(
            container_path=_checked_path(container_path),
            example_key=key,
            expected_hash=UNBOUND,
            objective=objective,
            outcome_json=outcome_json,
            steps_json=steps_json,
        )
        return self._set(prompt, tag, entry)

    def remove_task_example(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        descriptor = prompt.descriptor
        removed = RemovedTaskExample(path=_checked_path(path), expected_hash=UNBOUND)

        def change(present: PromptOverride) -> PromptOverride:
            if path in present.added_task_examples:
                return present.without(present.added_task_examples[path])
            entry = checked_entry(descriptor, bound_entry(descriptor, removed))
            return present.merged_with(present.holding([entry]))

        return self.mutate(OverrideAddress(descriptor.ns, descriptor.key, tag), change)

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
        entry = OutputFieldOverride(
            field=field,
            expected_hash=UNBOUND,
            description=description,
            aliases=aliases,
            value_descriptions=value_descriptions or {},
        )
        return self._set(prompt, tag, entry)

    def remove_section_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        part = section_part(_checked_path(path))
        return self.remove_override(ns=ns, prompt_key=prompt_key, tag=tag, part=part)

    def remove_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, part: str
    ) -> PromptOverride:
        def change(present: PromptOverride) -> PromptOverride:
            for entry in present.entries():
                if entry.part == part:
                    return present.without(entry)
            kept = ", ".join(f"`{entry.part}`" for entry in present.entries()) or "none"
            raise UnknownPartError(
                f"tag `{tag}` of prompt `{ns}/{prompt_key}` keeps no override of `{part}`; "
                f"kept: {kept}"
            )

        return self.mutate(OverrideAddress(ns, prompt_key, tag), change)

    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        descriptor = prompt.descriptor

        def change(present: PromptOverride) -> PromptOverride:
            visible = self._visible(descriptor, tag, present)
            missing = [
                checked_entry(descriptor, entry)
                for entry in source_entries(prompt)
                if not is_replaced(descriptor, visible, entry)
            ]
            return present.merged_with(present.holding(missing))

        return self.mutate(OverrideAddress(descriptor.ns, descriptor.key, tag), change)

    def _set(self, prompt: PromptLike, tag: str, entry: Entry) -> PromptOverride:
        """Write one entry, bound to the present source."""
        descriptor = prompt.descriptor
        address = OverrideAddress(descriptor.ns, descriptor.key, tag)
        bound = bound_entry(descriptor, entry)
        return self.upsert(descriptor, address.empty().holding([bound]))

    def _visible(
        self, descriptor: PromptDescriptor, tag: str, present: PromptOverride
    ) -> PromptOverride:
        """Return what a reader would see; a store over another one sees that one's too."""
        del descriptor, tag
        return present


def _checked_path(path: object) -> SectionPath:
    if isinstance(path, tuple) and path and all(isinstance(key, str) for key in path):
        return path
    raise InvalidOverrideError(
        "path: expected a tuple of section keys such as ('policies', 'refunds'), "
        f"found {shown(path)}"
    )
