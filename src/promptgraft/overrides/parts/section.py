"""Overrides of the body and of the summary of a section."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.ground.serde import HexDigest, digest_text
from promptgraft.overrides.parts.body import spell
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    SectionPath,
    show_path,
)
from promptgraft.overrides.parts.entry import (
    EffectiveParts,
    LabelledTexts,
    PartSource,
    PathEntry,
    SkipReason,
    Source,
)
from promptgraft.overrides.parts.validation import check_not_blank, check_text


@attrs.frozen(kw_only=True)
class SectionOverride(PathEntry):
    """A body that replaces the body of one section.

    Attributes:
        path: the section.
        expected_hash: the content hash of the source that the body was written for.
        body: text in the language of :mod:`promptgraft.overrides.parts.body`.
    """

    path: SectionPath
    expected_hash: HexDigest
    body: str

    kind = replaces = "section"
    with_overrides = listed = "sections"
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
        # May be blank, unlike a summary: a section may consist of its heading and its children.
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
        # A document may hold a body that was never checked against the source.
        return SkipReason.LOST_PLACEHOLDER if found and found.lost(self.body) else None

    def apply(self, parts: EffectiveParts) -> None:
        parts.bodies[self.path] = self.body

    def labelled_texts(self) -> LabelledTexts:
        yield "body", self.body


@attrs.frozen(kw_only=True)
class SummaryOverride(PathEntry):
    """A text that replaces the summary of a section.

    Attributes:
        path: the section.
        expected_hash: hash of the summary that it was written for.
        summary: the text; no values are inserted into it.
    """

    path: SectionPath
    expected_hash: HexDigest
    summary: str

    kind = replaces = "summary"
    with_overrides = listed = "summaries"
    is_text = True

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (
            show_path(found.path)
            for found in descriptor.sections
            if found.overridable and found.summary is not None
        )

    def source(self, descriptor: PromptDescriptor) -> Source | None:
        found = descriptor.section(self.path)
        if found is None or found.summary is None:
            return None
        return PartSource(digest_text(found.summary), found.overridable)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[SummaryOverride]:
        for found in prompt.descriptor.sections:
            if found.summary is not None and found.summary.strip():
                written_for = digest_text(found.summary)
                yield cls(path=found.path, expected_hash=written_for, summary=found.summary)

    def checked(self, descriptor: PromptDescriptor) -> SummaryOverride:
        del descriptor
        check_not_blank(self.summary, self.part)
        return self

    def apply(self, parts: EffectiveParts) -> None:
        parts.summaries[self.path] = self.summary

    def labelled_texts(self) -> LabelledTexts:
        yield "summary", self.summary
