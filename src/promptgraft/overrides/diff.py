"""What overrides change, line by line; pure functions for people and for reviews."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.overrides.types import (
    PromptLike,
    PromptOverride,
    SectionOverride,
    SectionPath,
    SkipReason,
    section_part,
)
from promptgraft.overrides.validation import skip_reason

_NO_NEWLINE = "\n\\ No newline at end of text\n"


@attrs.frozen(kw_only=True)
class PartDiff:
    """How one part of a prompt changes.

    Attributes:
        part: the part, as messages write it: ``section policies/refunds``.
        before: its text before; None when there was none.
        after: its text after; None when there is none.
        text: a unified diff of the two, empty when they are equal.
        state: why the override is not applied to today's source; None when it is applied, or
            when two revisions are compared.
    """

    part: str
    before: str | None
    after: str | None
    text: str
    state: SkipReason | None = None


def diff_bodies(before: str, after: str, *, part: str) -> str:
    """Return a unified diff of two bodies whose headers name ``part``; empty when equal."""
    if before == after:
        return ""
    return "".join(_diff_lines(_lines(before), _lines(after), part))


def diff_override(prompt: PromptLike, override: PromptOverride | None) -> tuple[PartDiff, ...]:
    """Compare today's source with each entry of ``override``, in the order of the prompt.

    Entries for parts that the prompt no longer has come last, with nothing before.

    Raises:
        InvalidOverrideError: the override is for another prompt.
    """
    if override is None:
        return ()
    descriptor = prompt.descriptor
    if (override.ns, override.prompt_key) != (descriptor.ns, descriptor.key):
        raise InvalidOverrideError(
            f"the override is for prompt `{override.ns}/{override.prompt_key}`, the source is "
            f"`{descriptor.ns}/{descriptor.key}`; compare those of one prompt"
        )
    known = [section.path for section in descriptor.sections]
    gone = sorted(path for path in override.sections if path not in known)
    return tuple(
        _section_diff(
            path,
            prompt.section_body(path) if path in known else None,
            override.sections[path].body,
            skip_reason(descriptor, override.sections[path]),
        )
        for path in [*known, *gone]
        if path in override.sections
    )


def diff_revisions(before: PromptOverride, after: PromptOverride) -> tuple[PartDiff, ...]:
    """Compare the entries of two overrides, by path; entries that are equal are left out.

    An entry whose body is the same but was written for another source has an empty text.
    """
    return tuple(
        _section_diff(path, _body(before.sections.get(path)), _body(after.sections.get(path)), None)
        for path in sorted({*before.sections, *after.sections})
        if before.sections.get(path) != after.sections.get(path)
    )


def _section_diff(
    path: SectionPath, before: str | None, after: str | None, state: SkipReason | None
) -> PartDiff:
    part = section_part(path)
    text = diff_bodies(before or "", after or "", part=part)
    return PartDiff(part=part, before=before, after=after, text=text, state=state)


def _body(override: SectionOverride | None) -> str | None:
    return None if override is None else override.body


def _lines(text: str) -> list[str]:
    # Not splitlines: a form feed or a line separator is a character of its line.
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _diff_lines(before: list[str], after: list[str], part: str) -> Iterator[str]:
    for line in difflib.unified_diff(before, after, f"{part} (before)", f"{part} (after)"):
        yield line if line.endswith("\n") else line + _NO_NEWLINE
