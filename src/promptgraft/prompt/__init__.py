"""What a prompt is: sections, parameters, output type, and the text that a model receives."""

from promptgraft.prompt.rendering import (
    PromptRendered,
    RenderedPrompt,
    RenderedSection,
    Segment,
)
from promptgraft.prompt.sections import MarkdownSection, SectionVisibility
from promptgraft.prompt.template import Prompt, PromptTemplate

__all__ = [
    "MarkdownSection",
    "Prompt",
    "PromptRendered",
    "PromptTemplate",
    "RenderedPrompt",
    "RenderedSection",
    "SectionVisibility",
    "Segment",
]
