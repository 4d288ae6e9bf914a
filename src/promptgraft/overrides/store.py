"""The contract of override stores, and the base that all of ours share.

A store maps (``ns``, ``prompt_key``, ``tag``) to a :class:`PromptOverride`. Stores are strict
when they write and lenient when they read: an override that no longer fits its source stays
where it is, is returned, and is skipped and reported by the prompt that renders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

import attrs

from promptgraft.errors import InvalidOverrideError, UnknownPartError
from promptgraft.overrides.types import (
    PromptDescriptor,
    PromptLike,
    PromptOverride,
    Provenance,
    Revision,
    SectionOverride,
    SectionPath,
    show_path,
)
from promptgraft.overrides.validation import (
    check_key,
    check_ns,
    check_provenance,
    check_section_override,
    check_tag,
    check_text,
    is_fresh,
    require_section,
)
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

    def remove_section_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        """Forget the override of one section, stale or not, and return what remains.

        Raises:
            UnknownPartError: nothing is kept for that section.
            InvalidOverrideError: ``path`` is no tuple of section keys.
        """
        ...

    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        """Write the source of every overridable section that has no fresh override yet.

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

        for path in override.sections:
            _checked_path(path)
        if provenance is not None:
            check_provenance(provenance)

        def change(present: PromptOverride) -> PromptOverride:
            for path, section in override.sections.items():
                if present.sections.get(path) != section:
                    check_section_override(descriptor, section)
            return present.merged_with(override)

        return self.mutate(address, change, provenance=provenance)

    def set_section_override(
        self, prompt: PromptLike, *, tag: str = DEFAULT_TAG, path: SectionPath, body: str
    ) -> PromptOverride:
        descriptor = prompt.descriptor
        section = require_section(descriptor, _checked_path(path))
        check_text(body, f"section `{show_path(section.path)}`")
        entry = SectionOverride(path=section.path, expected_hash=section.content_hash, body=body)
        return self.upsert(descriptor, _override_of(descriptor, tag, [entry]))

    def remove_section_override(
        self, *, ns: str, prompt_key: str, tag: str = DEFAULT_TAG, path: SectionPath
    ) -> PromptOverride:
        _checked_path(path)

        def change(present: PromptOverride) -> PromptOverride:
            if path not in present.sections:
                kept = ", ".join(f"`{show_path(kept)}`" for kept in present.sections) or "none"
                raise UnknownPartError(
                    f"tag `{tag}` of prompt `{ns}/{prompt_key}` keeps no override of section "
                    f"`{show_path(path)}`; kept: {kept}"
                )
            return present.without_section(path)

        return self.mutate(OverrideAddress(ns, prompt_key, tag), change)

    def seed(self, prompt: PromptLike, *, tag: str = DEFAULT_TAG) -> PromptOverride:
        descriptor = prompt.descriptor

        def change(present: PromptOverride) -> PromptOverride:
            kept = self._visible(descriptor, tag, present)
            missing = [
                SectionOverride(
                    path=section.path,
                    expected_hash=section.content_hash,
                    body=prompt.section_body(section.path),
                )
                for section in descriptor.sections
                if section.overridable
                and not (
                    section.path in kept.sections
                    and is_fresh(descriptor, kept.sections[section.path])
                )
            ]
            for section_override in missing:
                check_section_override(descriptor, section_override)
            return present.merged_with(_override_of(descriptor, tag, missing))

        return self.mutate(OverrideAddress(descriptor.ns, descriptor.key, tag), change)

    def _visible(
        self, descriptor: PromptDescriptor, tag: str, present: PromptOverride
    ) -> PromptOverride:
        """Return what a reader would see; a store over another one sees that one's too."""
        del descriptor, tag
        return present


def _override_of(
    descriptor: PromptDescriptor, tag: str, sections: Iterable[SectionOverride]
) -> PromptOverride:
    return PromptOverride(
        ns=descriptor.ns,
        prompt_key=descriptor.key,
        tag=tag,
        sections={section.path: section for section in sections},
    )


def _checked_path(path: object) -> SectionPath:
    if isinstance(path, tuple) and path and all(isinstance(key, str) for key in path):
        return path
    raise InvalidOverrideError(
        "path: expected a tuple of section keys such as ('policies', 'refunds'), "
        f"found {shown(path)}"
    )
