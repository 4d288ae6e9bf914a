"""The contract of override stores.

A store maps (``ns``, ``prompt_key``, ``tag``) to a :class:`PromptOverride`. Stores are strict
when they write and lenient when they read: an override that no longer fits its source stays
where it is, is returned, and is skipped and reported by the prompt that renders.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.overrides.resolution import bound_entry
from promptgraft.overrides.types import PromptOverride, Provenance, Revision
from promptgraft.parts.added_example import AddedTaskExample
from promptgraft.parts.descriptors import PromptDescriptor, PromptLike, SectionPath, section_part
from promptgraft.parts.entry import UNBOUND, Entry
from promptgraft.parts.output_field import OutputFieldOverride
from promptgraft.parts.section import SectionOverride
from promptgraft.parts.summary import SummaryOverride
from promptgraft.parts.task_example import TaskExampleOverride, TaskStepOverride
from promptgraft.parts.tool import ToolExampleOverride, ToolOverride
from promptgraft.parts.validation import check_key, check_ns, check_path, check_tag

DEFAULT_TAG = "latest"


@attrs.frozen(order=True)
class OverrideAddress:
    """The name under which a store keeps an override; its identifiers are always valid.

    Addresses are in the order of their namespaces, keys and tags.

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
    """Keeps overrides of prompts under tags; what writes one part is an upsert of one entry.

    All methods may be called from several threads. Every write is atomic: readers, and the
    store after a crash, hold the state before it or the state after it, of all tags that it
    writes. Methods that write one part raise as :meth:`upsert` does.
    """

    @abstractmethod
    def resolve(
        self, descriptor: PromptDescriptor, tag: str = DEFAULT_TAG
    ) -> PromptOverride | None:
        """Return what is kept for the prompt under ``tag``, stale entries included.

        Raises:
            InvalidIdentifierError: ``tag`` is no identifier.
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

        Returns what is kept afterwards. A store without history has no use for
        ``provenance`` and drops it.

        Raises:
            UnknownPartError, HashMismatchError, InvalidOverrideError, InvalidIdentifierError:
                nothing was written.
            StoreError: the store cannot be written.
        """
        (kept,) = self.upsert_all([(descriptor, override)], provenance=provenance)
        return kept

    @abstractmethod
    def upsert_all(
        self,
        overrides: Iterable[tuple[PromptDescriptor, PromptOverride]],
        *,
        provenance: Provenance | None = None,
        expected: Iterable[PromptOverride | None] | None = None,
        removed: Iterable[PromptOverride] | None = None,
    ) -> tuple[PromptOverride, ...]:
        """Do what :meth:`upsert` does, for several prompts or tags in one atomic write.

        Every entry of all of them is checked before anything is written. Returns what is
        kept afterwards for each, in the order given.

        Args:
            overrides: what is written.
            provenance: where it comes from.
            expected: what :meth:`resolve` returned for each before; nothing is written when a part
                that would be replaced or removed holds something else by now. None writes over
                whatever is there.
            removed: for each, entries whose parts are forgotten before it is written, stale or not.
                What is said of a tool is then replaced instead of merged.

        Raises:
            OverrideConflictError: another writer has changed a part since; nothing was written.
            InvalidOverrideError: two of them are for one prompt and tag; nothing was written.
            UnknownPartError, HashMismatchError, InvalidIdentifierError, StoreError: as
                :meth:`upsert`.
        """

    @abstractmethod
    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None:
        """Forget everything under ``tag``; nothing kept is no error."""

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
        """Replace what is said of a tool and its parameters; None keeps what is there."""
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
        """Replace an example of a tool; None keeps the source's."""
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
        """Replace single fields and steps of a task example, or all its steps.

        None keeps those that the source has, or the addition where a store has added it.
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
        kept = self.resolve(descriptor, tag)
        added = kept.added_task_examples.get(path) if kept is not None else None
        if kept is None or added is None or descriptor.task_example(path) is not None:
            return _set(self, prompt, tag, entry)
        try:
            checked = entry.checked_for(added.example.steps, descriptor)
        except DataFormatError as error:
            raise InvalidOverrideError(str(error)) from None
        new = bound_entry(descriptor, added.changed(checked.changed(added.example)))
        (written,) = self.upsert_all([(descriptor, kept.holding([new]))], expected=[kept])
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
        """Append a task example to a section, or replace one that was added under that key."""
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
        """Forget a task example that was added; hide one of the source or of a store below."""

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
        """Replace what is said of a field of the answer; None keeps the source's."""
        entry = OutputFieldOverride(
            field=field,
            expected_hash=UNBOUND,
            description=description,
            aliases=aliases,
            value_descriptions=value_descriptions or {},
        )
        return _set(self, prompt, tag, entry)

    def remove_section_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        """Forget the override of one section; see :meth:`remove_override`.

        Raises:
            UnknownPartError: nothing is kept for that section.
            InvalidOverrideError: ``path`` is no tuple of section keys.
        """
        part = section_part(check_path(path))
        return self.remove_override(ns=ns, prompt_key=prompt_key, tag=tag, part=part)

    @abstractmethod
    def remove_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, part: str
    ) -> PromptOverride:
        """Forget the override of one part, stale or not, and return what remains.

        ``part`` is the part as messages name it: ``section policies/refunds``.

        Raises:
            UnknownPartError: nothing is kept for that part.
        """

    @abstractmethod
    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        """Write the source of every overridable part that has no fresh override yet.

        What is seeded renders like the source; it is a start for editing.

        Raises:
            InvalidOverrideError: a source is longer than a body may be, or not Unicode.
        """


def _set(store: PromptOverridesStore, prompt: PromptLike, tag: str, entry: Entry) -> PromptOverride:
    descriptor = prompt.descriptor
    address = OverrideAddress(descriptor.ns, descriptor.key, tag)
    bound = bound_entry(descriptor, entry)
    return store.upsert(descriptor, address.empty().holding([bound]))


class RevisionedPromptOverridesStore(PromptOverridesStore, Protocol):
    """A store that remembers every state that a tag had.

    Each tag has revisions of its own; those of one write of several tags share a ``step``.
    All methods raise :class:`InvalidIdentifierError` for an address that is none, and
    :class:`StoreError` for what cannot be read or is damaged.
    """

    @abstractmethod
    def addresses(self) -> tuple[OverrideAddress, ...]:
        """Return the address of every tag that points at a revision, sorted."""

    @abstractmethod
    def current(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> Revision | None:
        """Return the revision that the tag points at, or None."""

    @abstractmethod
    def history(self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG) -> tuple[Revision, ...]:
        """Return every revision that was written under the tag, the oldest first."""

    @abstractmethod
    def rollback(
        self,
        *,
        ns: str,
        prompt_key: str,
        tag: str = DEFAULT_TAG,
        revision: str | None = None,
    ) -> Revision | None:
        """Point the tag at another revision (default: the parent of the present one).

        Revisions stay, so that a later one may be named too. ``revision`` is an id or a prefix
        of one that is at least 4 digits long and unique. Returns the revision that the tag
        points at afterwards; None when the first revision is rolled back, which leaves the tag
        without overrides.

        Raises:
            RevisionNotFoundError: there is no such revision, more than one, or nothing to
                roll back.
            InvalidIdentifierError: ``revision`` is not 4 to 64 hexadecimal digits.
        """
