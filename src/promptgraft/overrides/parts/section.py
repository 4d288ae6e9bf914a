"""Overrides of sections: their bodies, their summaries, and whether they are shown."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.ground.serde import HexDigest, digest_text, shown
from promptgraft.overrides.parts.body import spell
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    SectionDescriptor,
    SectionPath,
    SectionVisibility,
    TaskExampleDescriptor,
    show_path,
)
from promptgraft.overrides.parts.entry import (
    EffectiveParts,
    LabelledTexts,
    PartSource,
    PathEntry,
    SkipReason,
    SourcePart,
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
        return (show_path(section.path) for section in descriptor.sections if section.overridable)

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        return descriptor.section(self.path)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[SectionOverride]:
        for section in prompt.descriptor.sections:
            body = prompt.section_body(section.path)
            yield cls(path=section.path, expected_hash=section.content_hash, body=body)

    def checked(self, descriptor: PromptDescriptor) -> SectionOverride:
        # May be blank, unlike a summary: a section may consist of its heading and its children.
        check_text(self.body, self.part)
        section = descriptor.section(self.path)
        if section and (lost := section.lost(self.body)):
            names = ", ".join(f"`{spell(name, section.syntax)}`" for name in lost)
            raise InvalidOverrideError(
                f"{self.part} lost the placeholder {names}; keep it in the body"
            )
        if section and section.fault and (fault := section.fault(self.body)):
            raise InvalidOverrideError(f"{self.part}: {fault}")
        return self

    def misfit(self, descriptor: PromptDescriptor) -> SkipReason | None:
        section = descriptor.section(self.path)
        # A document may hold a body that was never checked against the source.
        return SkipReason.LOST_PLACEHOLDER if section and section.lost(self.body) else None

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
            show_path(section.path)
            for section in descriptor.sections
            if section.overridable and section.summary is not None
        )

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        section = descriptor.section(self.path)
        if section is None or section.summary is None:
            return None
        return PartSource(digest_text(section.summary), section.overridable)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[SummaryOverride]:
        for section in prompt.descriptor.sections:
            if section.summary is not None and section.summary.strip():
                written_for = digest_text(section.summary)
                yield cls(path=section.path, expected_hash=written_for, summary=section.summary)

    def checked(self, descriptor: PromptDescriptor) -> SummaryOverride:
        del descriptor
        check_not_blank(self.summary, self.part)
        return self

    def apply(self, parts: EffectiveParts) -> None:
        parts.summaries[self.path] = self.summary

    def labelled_texts(self) -> LabelledTexts:
        yield "summary", self.summary


_IN_WORDS = {
    SectionVisibility.FULL: "shown",
    SectionVisibility.SUMMARY: "shown as its summary",
    SectionVisibility.HIDDEN: "no longer shown",
}


@attrs.frozen(kw_only=True)
class VisibilityOverride(PathEntry):
    """Whether a section, with all that is below it, or a task example of the source is shown.

    Attributes:
        path: the section or the task example.
        expected_hash: hash of the example, or of the section and all that is below it.
        visibility: full, hidden or, for a section that has one, its summary.
    """

    path: SectionPath
    expected_hash: HexDigest
    visibility: SectionVisibility

    kind = "visibility"
    replaces = "section or task example"
    with_overrides = listed = "visibilities"
    is_text = True

    @property
    def target(self) -> str:
        # It replaces no text, so other overrides of the section stay in force.
        return self.part

    @property
    def owner(self) -> None:
        return None

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        sections = (
            section.path
            for section in descriptor.sections
            if section.overridable and not section.needed
        )
        examples = (example.path for example in descriptor.task_examples if example.overridable)
        return map(show_path, (*sections, *examples))

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        section = descriptor.section(self.path)
        if section is None:
            return descriptor.task_example(self.path)
        may_change = section.overridable and not section.needed
        return PartSource(descriptor.subtree_hash(self.path), may_change)

    def needed(self, descriptor: PromptDescriptor) -> str:
        section = descriptor.section(self.path)
        return "" if section is None else section.needed

    def counterpart(self, prompt: PromptLike) -> VisibilityOverride | None:
        part = _part(prompt.descriptor, self.path)
        return None if part is None else attrs.evolve(self, visibility=part.visibility)

    def checked(self, descriptor: PromptDescriptor) -> VisibilityOverride:
        possible = visibilities(descriptor, self.path)
        # A set, because `in` raises TypeError for what cannot be hashed.
        if not any(self.visibility == visibility for visibility in possible):
            raise InvalidOverrideError(
                f"{self.part}: expected {' or '.join(possible)}, found {shown(self.visibility)}"
            )
        return attrs.evolve(self, visibility=SectionVisibility(self.visibility))

    def misfit(self, descriptor: PromptDescriptor) -> SkipReason | None:
        # The summary is part of the hash of a section; a document may hold any value.
        fits = self.visibility in visibilities(descriptor, self.path)
        return None if fits else SkipReason.UNKNOWN_PART

    def apply(self, parts: EffectiveParts) -> None:
        parts.visibility[self.path] = self.visibility

    def labelled_texts(self) -> LabelledTexts:
        yield "visibility", _IN_WORDS[self.visibility]


def visibilities(descriptor: PromptDescriptor, path: SectionPath) -> tuple[SectionVisibility, ...]:
    """Return how a section or a task example may be shown."""
    section = descriptor.section(path)
    has_summary = section is not None and bool((section.summary or "").strip())
    return tuple(
        visibility
        for visibility in SectionVisibility
        if has_summary or visibility is not SectionVisibility.SUMMARY
    )


def _part(
    descriptor: PromptDescriptor, path: SectionPath
) -> SectionDescriptor | TaskExampleDescriptor | None:
    return descriptor.section(path) or descriptor.task_example(path)
