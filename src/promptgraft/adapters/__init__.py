"""Adapters: what answers prompts."""

from typing import TYPE_CHECKING

from promptgraft.ground.lazy import lazy_exports

if TYPE_CHECKING:
    from promptgraft.adapters.anthropic import AnthropicAdapter
    from promptgraft.adapters.base import (
        PromptExecuted,
        PromptResponse,
        ProviderAdapter,
        ToolInvoked,
        Usage,
    )
    from promptgraft.adapters.calling.gathering import BatchExecutor
    from promptgraft.adapters.calling.prices import ModelPrice, Prices
    from promptgraft.adapters.calling.retrying import RetryPolicy
    from promptgraft.adapters.functions import FunctionAdapter
    from promptgraft.adapters.offline import OfflineAdapter
    from promptgraft.adapters.openai import OpenAIAdapter
    from promptgraft.adapters.scripted import ScriptedAdapter

__all__ = [
    "AnthropicAdapter",
    "BatchExecutor",
    "FunctionAdapter",
    "ModelPrice",
    "OfflineAdapter",
    "OpenAIAdapter",
    "Prices",
    "PromptExecuted",
    "PromptResponse",
    "ProviderAdapter",
    "RetryPolicy",
    "ScriptedAdapter",
    "ToolInvoked",
    "Usage",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
