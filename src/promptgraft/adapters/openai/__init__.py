"""Models behind OpenAI's Chat Completions, its own and those of compatible servers."""

from promptgraft.adapters.openai.adapter import OpenAIAdapter
from promptgraft.adapters.openai.profile import OpenAIProfile

__all__ = ["OpenAIAdapter", "OpenAIProfile"]
