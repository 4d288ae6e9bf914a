"""Prompts that the broken project files name."""

from __future__ import annotations

from enum import Enum

from promptgraft import MarkdownSection, Prompt, PromptTemplate


class Queue(Enum):
    """Where a ticket goes."""

    BILLING = "billing"
    LOGIN = "login"


TRIAGE = PromptTemplate[object](
    ns="broken",
    key="triage",
    output_type=Queue,
    sections=(
        MarkdownSection(title="Rules", key="rules", template="- billing: money\n- login: access"),
        MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),
    ),
)
TWIN = Prompt(TRIAGE)
FIXED = PromptTemplate[object](
    ns="broken",
    key="fixed",
    sections=(MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),),
)
TWO_INPUTS = PromptTemplate[object](
    ns="broken",
    key="two-inputs",
    sections=(MarkdownSection(title="Rules", key="rules", template="$text in $language"),),
)
IN_BRACES = PromptTemplate[object](
    ns="broken",
    key="in-braces",
    sections=(
        MarkdownSection(title="Rules", key="rules", template="Be brief."),
        MarkdownSection(title="Ticket", key="ticket", template="{text}", overridable=False),
    ),
)
NAMES = ["billing", "login"]
