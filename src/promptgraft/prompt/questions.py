"""Sections that questions to a model share."""

from __future__ import annotations

from promptgraft.prompt.sections import MarkdownSection
from promptgraft.prompt.syntax import given


def if_given(title: str, key: str, *, before: str = "") -> MarkdownSection:
    """Return a section that shows a value, left out where that is empty."""
    lead = f"{before}\n\n" if before else ""
    return MarkdownSection(title=title, key=key, template=f"{lead}${key}", enabled=given(key))


REFUSED = MarkdownSection(
    title="Refused attempt",
    key="problem",
    template=(
        "Your previous reply could not be used: $problem\n\n$previous\n\nMend that and reply again."
    ),
    enabled=given("problem"),
)
"""Why the previous reply could not be used, at every attempt but the first."""
