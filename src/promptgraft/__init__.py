"""promptgraft improves the prompts of AI agents on real examples.

Candidate wordings are grafted onto a prompt as overrides, tried on examples, kept only when they
are better, and handed over as an entry in a tagged override store. The source never changes.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptgraft.adapters.anthropic import AnthropicAdapter
    from promptgraft.adapters.base import PromptResponse, ProviderAdapter, Usage
    from promptgraft.adapters.calling.prices import ModelPrice, Prices
    from promptgraft.adapters.calling.retrying import RetryPolicy
    from promptgraft.adapters.offline import OfflineAdapter
    from promptgraft.adapters.openai import OpenAIAdapter
    from promptgraft.adapters.scripted import ScriptedAdapter
    from promptgraft.errors import PromptgraftError
    from promptgraft.journal import FileJournal, MemoryJournal
    from promptgraft.optimizers import (
        OptimizationContext,
        PersistenceScope,
        StopReason,
    )
    from promptgraft.optimizers.gepa import (
        GepaConfig,
        GepaExample,
        GepaOptimizer,
        GepaResult,
        OptimizationJob,
        RolloutFeedback,
        RolloutRecord,
        ToolExampleTarget,
    )
    from promptgraft.overrides import (
        InMemoryPromptOverridesStore,
        LocalPromptOverridesStore,
        OverlayPromptOverridesStore,
        PromptOverride,
        SectionOverride,
    )
    from promptgraft.prompt import (
        Described,
        MarkdownSection,
        Prompt,
        PromptTemplate,
        RenderedPrompt,
        SectionVisibility,
        TaskExample,
        TaskExamplesSection,
        TaskStep,
        Tool,
        ToolExample,
    )
    from promptgraft.runtime import Cancellation, Deadline, EventBus, Session

__all__ = [
    "AnthropicAdapter",
    "Cancellation",
    "Deadline",
    "Described",
    "EventBus",
    "FileJournal",
    "GepaConfig",
    "GepaExample",
    "GepaOptimizer",
    "GepaResult",
    "InMemoryPromptOverridesStore",
    "LocalPromptOverridesStore",
    "MarkdownSection",
    "MemoryJournal",
    "ModelPrice",
    "OfflineAdapter",
    "OpenAIAdapter",
    "OptimizationContext",
    "OptimizationJob",
    "OverlayPromptOverridesStore",
    "PersistenceScope",
    "Prices",
    "Prompt",
    "PromptOverride",
    "PromptResponse",
    "PromptTemplate",
    "PromptgraftError",
    "ProviderAdapter",
    "RenderedPrompt",
    "RetryPolicy",
    "RolloutFeedback",
    "RolloutRecord",
    "ScriptedAdapter",
    "SectionOverride",
    "SectionVisibility",
    "Session",
    "StopReason",
    "TaskExample",
    "TaskExamplesSection",
    "TaskStep",
    "Tool",
    "ToolExample",
    "ToolExampleTarget",
    "Usage",
    "__version__",
]

__version__ = "0.1.0"

# Names are imported when they are first used, so that the command line answers at once.
_HOMES = {
    "AnthropicAdapter": "promptgraft.adapters.anthropic",
    "Cancellation": "promptgraft.runtime",
    "Deadline": "promptgraft.runtime",
    "Described": "promptgraft.prompt",
    "EventBus": "promptgraft.runtime",
    "FileJournal": "promptgraft.journal",
    "GepaConfig": "promptgraft.optimizers.gepa",
    "GepaExample": "promptgraft.optimizers.gepa",
    "GepaOptimizer": "promptgraft.optimizers.gepa",
    "GepaResult": "promptgraft.optimizers.gepa",
    "InMemoryPromptOverridesStore": "promptgraft.overrides",
    "LocalPromptOverridesStore": "promptgraft.overrides",
    "MarkdownSection": "promptgraft.prompt",
    "MemoryJournal": "promptgraft.journal",
    "ModelPrice": "promptgraft.adapters.calling.prices",
    "OfflineAdapter": "promptgraft.adapters.offline",
    "OpenAIAdapter": "promptgraft.adapters.openai",
    "OptimizationContext": "promptgraft.optimizers",
    "OptimizationJob": "promptgraft.optimizers.gepa",
    "OverlayPromptOverridesStore": "promptgraft.overrides",
    "PersistenceScope": "promptgraft.optimizers",
    "Prices": "promptgraft.adapters.calling.prices",
    "Prompt": "promptgraft.prompt",
    "PromptOverride": "promptgraft.overrides",
    "PromptResponse": "promptgraft.adapters.base",
    "PromptTemplate": "promptgraft.prompt",
    "PromptgraftError": "promptgraft.errors",
    "ProviderAdapter": "promptgraft.adapters.base",
    "RenderedPrompt": "promptgraft.prompt",
    "RetryPolicy": "promptgraft.adapters.calling.retrying",
    "RolloutFeedback": "promptgraft.optimizers.gepa",
    "RolloutRecord": "promptgraft.optimizers.gepa",
    "ScriptedAdapter": "promptgraft.adapters.scripted",
    "SectionOverride": "promptgraft.overrides",
    "SectionVisibility": "promptgraft.prompt",
    "Session": "promptgraft.runtime",
    "StopReason": "promptgraft.optimizers",
    "TaskExample": "promptgraft.prompt",
    "TaskExamplesSection": "promptgraft.prompt",
    "TaskStep": "promptgraft.prompt",
    "Tool": "promptgraft.prompt",
    "ToolExample": "promptgraft.prompt",
    "ToolExampleTarget": "promptgraft.optimizers.gepa",
    "Usage": "promptgraft.adapters.base",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'promptgraft' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
