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
    from promptgraft.algorithms.gepa import (
        GepaConfig,
        GepaExample,
        GepaOptimizer,
        GepaResult,
        MinGain,
        OptimizationJob,
        Paired,
        RolloutFeedback,
        RolloutRecord,
        Strict,
        ToolExampleTarget,
    )
    from promptgraft.errors import PromptgraftError
    from promptgraft.evals.dataset import Dataset
    from promptgraft.evals.evaluate import Evaluation, evaluate
    from promptgraft.evals.metrics import load_metrics
    from promptgraft.evals.splits import Splits
    from promptgraft.evals.types import Case
    from promptgraft.journal import FileJournal, MemoryJournal
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
    from promptgraft.search import (
        MaxCandidates,
        MaxProposals,
        NoImprovement,
        OptimizationContext,
        PersistenceScope,
        RequiredObjectives,
        RunState,
        StopFile,
        Stopper,
        StopReason,
        TargetScore,
    )
    from promptgraft.targets.judging import examples_from, feedback_from
    from promptgraft.targets.texts import Texts

__all__ = [
    "AnthropicAdapter",
    "Cancellation",
    "Case",
    "Dataset",
    "Deadline",
    "Described",
    "Evaluation",
    "EventBus",
    "FileJournal",
    "GepaConfig",
    "GepaExample",
    "GepaOptimizer",
    "GepaResult",
    "InMemoryPromptOverridesStore",
    "LocalPromptOverridesStore",
    "MarkdownSection",
    "MaxCandidates",
    "MaxProposals",
    "MemoryJournal",
    "MinGain",
    "ModelPrice",
    "NoImprovement",
    "OfflineAdapter",
    "OpenAIAdapter",
    "OptimizationContext",
    "OptimizationJob",
    "OverlayPromptOverridesStore",
    "Paired",
    "PersistenceScope",
    "Prices",
    "Prompt",
    "PromptOverride",
    "PromptResponse",
    "PromptTemplate",
    "PromptgraftError",
    "ProviderAdapter",
    "RenderedPrompt",
    "RequiredObjectives",
    "RetryPolicy",
    "RolloutFeedback",
    "RolloutRecord",
    "RunState",
    "ScriptedAdapter",
    "SectionOverride",
    "SectionVisibility",
    "Session",
    "Splits",
    "StopFile",
    "StopReason",
    "Stopper",
    "Strict",
    "TargetScore",
    "TaskExample",
    "TaskExamplesSection",
    "TaskStep",
    "Texts",
    "Tool",
    "ToolExample",
    "ToolExampleTarget",
    "Usage",
    "__version__",
    "evaluate",
    "examples_from",
    "feedback_from",
    "load_metrics",
]

__version__ = "0.1.0"

# Names are imported when they are first used, so that the command line answers at once.
_HOMES = {
    "AnthropicAdapter": "promptgraft.adapters.anthropic",
    "Cancellation": "promptgraft.runtime",
    "Case": "promptgraft.evals.types",
    "Dataset": "promptgraft.evals.dataset",
    "Deadline": "promptgraft.runtime",
    "Described": "promptgraft.prompt",
    "Evaluation": "promptgraft.evals.evaluate",
    "EventBus": "promptgraft.runtime",
    "FileJournal": "promptgraft.journal",
    "GepaConfig": "promptgraft.algorithms.gepa",
    "GepaExample": "promptgraft.algorithms.gepa",
    "GepaOptimizer": "promptgraft.algorithms.gepa",
    "GepaResult": "promptgraft.algorithms.gepa",
    "InMemoryPromptOverridesStore": "promptgraft.overrides",
    "LocalPromptOverridesStore": "promptgraft.overrides",
    "MarkdownSection": "promptgraft.prompt",
    "MaxCandidates": "promptgraft.search",
    "MaxProposals": "promptgraft.search",
    "MemoryJournal": "promptgraft.journal",
    "MinGain": "promptgraft.algorithms.gepa",
    "ModelPrice": "promptgraft.adapters.calling.prices",
    "NoImprovement": "promptgraft.search",
    "OfflineAdapter": "promptgraft.adapters.offline",
    "OpenAIAdapter": "promptgraft.adapters.openai",
    "OptimizationContext": "promptgraft.search",
    "OptimizationJob": "promptgraft.algorithms.gepa",
    "OverlayPromptOverridesStore": "promptgraft.overrides",
    "Paired": "promptgraft.algorithms.gepa",
    "PersistenceScope": "promptgraft.search",
    "Prices": "promptgraft.adapters.calling.prices",
    "Prompt": "promptgraft.prompt",
    "PromptOverride": "promptgraft.overrides",
    "PromptResponse": "promptgraft.adapters.base",
    "PromptTemplate": "promptgraft.prompt",
    "PromptgraftError": "promptgraft.errors",
    "ProviderAdapter": "promptgraft.adapters.base",
    "RenderedPrompt": "promptgraft.prompt",
    "RequiredObjectives": "promptgraft.search",
    "RetryPolicy": "promptgraft.adapters.calling.retrying",
    "RolloutFeedback": "promptgraft.algorithms.gepa",
    "RolloutRecord": "promptgraft.algorithms.gepa",
    "RunState": "promptgraft.search",
    "ScriptedAdapter": "promptgraft.adapters.scripted",
    "SectionOverride": "promptgraft.overrides",
    "SectionVisibility": "promptgraft.prompt",
    "Session": "promptgraft.runtime",
    "Splits": "promptgraft.evals.splits",
    "StopFile": "promptgraft.search",
    "StopReason": "promptgraft.search",
    "Stopper": "promptgraft.search",
    "Strict": "promptgraft.algorithms.gepa",
    "TargetScore": "promptgraft.search",
    "TaskExample": "promptgraft.prompt",
    "TaskExamplesSection": "promptgraft.prompt",
    "TaskStep": "promptgraft.prompt",
    "Texts": "promptgraft.targets.texts",
    "Tool": "promptgraft.prompt",
    "ToolExample": "promptgraft.prompt",
    "ToolExampleTarget": "promptgraft.algorithms.gepa",
    "Usage": "promptgraft.adapters.base",
    "evaluate": "promptgraft.evals.evaluate",
    "examples_from": "promptgraft.targets.judging",
    "feedback_from": "promptgraft.targets.judging",
    "load_metrics": "promptgraft.evals.metrics",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'promptgraft' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
