"""Prompts: sections, tools, examples and output types, and their rendering for a model."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.ground.content import File, Image
    from promptgraft.overrides.parts.descriptors import SectionVisibility
    from promptgraft.prompt.describing import hash_task_example, hash_tool_example
    from promptgraft.prompt.fields import Described
    from promptgraft.prompt.rendered import (
        PromptRendered,
        RenderedPrompt,
        RenderedSection,
        RenderedTool,
        Segment,
        text_of_section,
    )
    from promptgraft.prompt.sections import (
        MarkdownSection,
        TaskExample,
        TaskExamplesSection,
        TaskStep,
        Tool,
        ToolExample,
        plain_section,
    )
    from promptgraft.prompt.template import Prompt, PromptTemplate

__all__ = [
    "Described",
    "File",
    "Image",
    "MarkdownSection",
    "Prompt",
    "PromptRendered",
    "PromptTemplate",
    "RenderedPrompt",
    "RenderedSection",
    "RenderedTool",
    "SectionVisibility",
    "Segment",
    "TaskExample",
    "TaskExamplesSection",
    "TaskStep",
    "Tool",
    "ToolExample",
    "hash_task_example",
    "hash_tool_example",
    "plain_section",
    "text_of_section",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
