"""What a store keeps about a prompt, and what it may know of the prompt itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol, Self

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides.body import BodySyntax
from promptgraft.serde import HexDigest

SectionPath = tuple[str, ...]
"""Keys from the outermost section to the section itself; written `policies/refunds`."""


def show_path(path: SectionPath) -> str:
    """Return the path as messages write it: ``policies/refunds``."""
    return "/".join(path)


def section_part(path: SectionPath) -> str:
    """Return the name of a section among the parts of a prompt: ``section policies/refunds``."""
    return f"section {show_path(path)}"


@attrs.frozen(kw_only=True)
class SectionDescriptor:
    """What a store needs to know of a section.

    Attributes:
        path: where the section stands.
        content_hash: SHA-256 over the source template and its syntax.
        syntax: how placeholders are spelled in the source and in override bodies.
        placeholders: names that an override body must keep, in order of appearance.
        overridable: whether the author allows overrides.
    """

    path: SectionPath
    content_hash: HexDigest
    syntax: BodySyntax
    placeholders: tuple[str, ...] = ()
    overridable: bool = True


@attrs.frozen(kw_only=True)
class PromptDescriptor:
    """The identity of a prompt and the hashes of its parts."""

    ns: str
    key: str
    sections: tuple[SectionDescriptor, ...]
    _by_path: Mapping[SectionPath, SectionDescriptor] = attrs.field(
        init=False, repr=False, eq=False
    )

    def __attrs_post_init__(self) -> None:
        by_path = FrozenMap((section.path, section) for section in self.sections)
        object.__setattr__(self, "_by_path", by_path)

    def section(self, path: SectionPath) -> SectionDescriptor | None:
        """Return the section at ``path``, or None."""
        return self._by_path.get(path)


class PromptLike(Protocol):
    """The little that a store sees of a prompt."""

    @property
    def descriptor(self) -> PromptDescriptor:
        """Identity and hashes of the source."""
        ...

    def section_body(self, path: SectionPath) -> str:
        """Return the source of a section, spelled as an override body.

        Raises:
            UnknownPartError: when there is no such section.
        """
        ...


@attrs.frozen(kw_only=True)
class SectionOverride:
    """A body that replaces the body of one section.

    Attributes:
        path: the section.
        expected_hash: the content hash of the source that the body was written for.
        body: text in the language of :mod:`promptgraft.overrides.body`.
    """

    path: SectionPath
    expected_hash: HexDigest
    body: str


def _frozen_sections(
    sections: Mapping[SectionPath, SectionOverride],
) -> Mapping[SectionPath, SectionOverride]:
    return FrozenMap(sections)


@attrs.frozen(kw_only=True)
class PromptOverride:
    """Every override that is kept for one prompt under one tag."""

    ns: str
    prompt_key: str
    tag: str
    sections: Mapping[SectionPath, SectionOverride] = attrs.field(
        factory=dict, converter=_frozen_sections
    )

    def __attrs_post_init__(self) -> None:
        for path, section in self.sections.items():
            if path != section.path:
                raise InvalidOverrideError(
                    f"the override of section `{show_path(section.path)}` is filed under "
                    f"`{show_path(path)}`; file it under its own path"
                )

    def __bool__(self) -> bool:
        return bool(self.sections)

    def merged_with(self, newer: PromptOverride) -> PromptOverride:
        """Return both; where both replace the same part, ``newer`` wins."""
        return attrs.evolve(self, sections={**self.sections, **newer.sections})

    def without_section(self, path: SectionPath) -> Self:
        """Return the override without the section at ``path``."""
        kept = {key: value for key, value in self.sections.items() if key != path}
        return attrs.evolve(self, sections=kept)


class SkipReason(StrEnum):
    """Why an override that is stored was not applied."""

    STALE = "stale"
    UNKNOWN_PART = "unknown part"
    NOT_OVERRIDABLE = "not overridable"
    LOST_PLACEHOLDER = "lost placeholder"


@attrs.frozen(kw_only=True)
class AppliedOverride:
    """A part whose source was replaced."""

    part: str
    expected_hash: HexDigest


@attrs.frozen(kw_only=True)
class SkippedOverride:
    """A part whose override is kept but was not applied.

    Attributes:
        part: the part, as messages write it: ``section policies/refunds``.
        reason: why.
        expected_hash: the source hash that the override was written for.
        found_hash: the hash of today's source; None when the part is gone.
    """

    part: str
    reason: SkipReason
    expected_hash: HexDigest
    found_hash: HexDigest | None


@attrs.frozen(kw_only=True)
class Provenance:
    """Where a stored override comes from.

    Attributes:
        run_id: the optimization run that produced it, if one did.
        note: one line for people.
        scores: names and values, such as ``baseline`` and ``best``.
    """

    run_id: str | None = None
    note: str = ""
    scores: FrozenMap[str, float] = attrs.field(factory=FrozenMap[str, float])


@attrs.frozen(kw_only=True)
class Revision:
    """An immutable state of a tag.

    Attributes:
        id: SHA-256 over everything else in the revision.
        number: 1 for the first revision of the tag, then one more for each write.
        parent: the revision that it was made from; None when the tag held nothing.
        time: when it was written, in UTC.
        provenance: where it comes from.
        override: what it holds.
    """

    id: HexDigest
    number: int
    parent: HexDigest | None
    time: datetime
    provenance: Provenance
    override: PromptOverride
