"""The text that stands for a section that is not shown in full."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.parts.descriptors import PromptDescriptor, PromptLike, SectionPath, show_path
from promptgraft.parts.entry import EffectiveParts, PartSource, PathEntry, Said, Source
from promptgraft.parts.validation import check_said
from promptgraft.serde import HexDigest, digest_text


@attrs.frozen(kw_only=True)
class SummaryOverride(PathEntry):
    """A text that replaces the summary of a section.

    Attributes:
        path: the section.
        expected_hash: hash of the summary that it was written for.
        summary: the text, in which no value is inserted.
    """

    path: SectionPath
    expected_hash: HexDigest
    summary: str

    kind = replaces = "summary"
    held_in = listed = "summaries"
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
        check_said(self.summary, self.part)
        return self

    def apply(self, parts: EffectiveParts) -> None:
        parts.summaries[self.path] = self.summary

    def said(self) -> Said:
        yield "summary", self.summary
