"""Models behind Anthropic's Messages."""

from promptgraft.adapters.anthropic.adapter import AnthropicAdapter
from promptgraft.adapters.anthropic.profile import AnthropicProfile

__all__ = ["AnthropicAdapter", "AnthropicProfile"]
