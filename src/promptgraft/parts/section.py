"""The body of a section."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.parts.body import spell
from promptgraft.parts.descriptors import PromptDescriptor, PromptLike, SectionPath, show_path
from promptgraft.parts.entry import EffectiveParts, PathEntry, Said, SkipReason, Source
from promptgraft.parts.validation import check_text
from promptgraft.serde import HexDigest


@attrs.frozen(kw_only=True)
class SectionOverride(PathEntry):
    """A body that replaces the body of one section.

    Attributes:
        path: the section.
        expected_hash: the content hash of the source that the body was written for.
        body: text in the language of :mod:`promptgraft.parts.body`.
    """

    path: SectionPath
    expected_hash: HexDigest
    body: str

    kind = replaces = "section"
    held_in = listed = "sections"
    is_text = True

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (show_path(found.path) for found in descriptor.sections if found.overridable)

    def source(self, descriptor: PromptDescriptor) -> Source | None:
        return descriptor.section(self.path)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[SectionOverride]:
        for found in prompt.descriptor.sections:
            body = prompt.section_body(found.path)
            yield cls(path=found.path, expected_hash=found.content_hash, body=body)

    def checked(self, descriptor: PromptDescriptor) -> SectionOverride:
        check_text(self.body, self.part)
        found = descriptor.section(self.path)
        if found and (lost := found.lost(self.body)):
            names = ", ".join(f"`{spell(name, found.syntax)}`" for name in lost)
            raise InvalidOverrideError(
                f"{self.part} lost the placeholder {names}; keep it in the body"
            )
        if found and found.fault and (fault := found.fault(self.body)):
            raise InvalidOverrideError(f"{self.part}: {fault}")
        return self

    def misfit(self, descriptor: PromptDescriptor) -> SkipReason | None:
        found = descriptor.section(self.path)
        return SkipReason.LOST_PLACEHOLDER if found and found.lost(self.body) else None

    def apply(self, parts: EffectiveParts) -> None:
        parts.bodies[self.path] = self.body

    def said(self) -> Said:
        yield "body", self.body
