"""What a model behind Anthropic's Messages can do."""

from __future__ import annotations

from typing import Literal

import attrs

from promptgraft.adapters.calling.schemas import SchemaRules

RULES = SchemaRules(keywords=frozenset({"format"}), all_required=False, recursive=False)
"""What Anthropic takes in the schema of an answer."""

# Claude models that cannot be held to a schema; all later ones can.
_OLDER = (
    "claude-1",
    "claude-2",
    "claude-3",
    "claude-instant",
    "claude-opus-4-0",
    "claude-opus-4-2",  # with its date: claude-opus-4-20250514
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
)
_SHORT = ("claude-1", "claude-2", "claude-3-haiku", "claude-3-opus", "claude-3-sonnet")


@attrs.frozen(kw_only=True)
class AnthropicProfile:
    """What a model can do.

    Attributes:
        structured_output: `native` when it can be held to a JSON Schema; `text` when the schema
            has to be said in the prompt.
        prompt_caching: whether the system text is marked to be cached.
        max_output_tokens: the longest answer when the user sets none; the format needs one.
        seller: the provider whose prices it has, as `genai-prices` calls it; None when unknown.
    """

    structured_output: Literal["native", "text"] = "text"
    prompt_caching: bool = False
    max_output_tokens: int = 4096
    seller: str | None = None


def profile_of(model: str) -> AnthropicProfile:
    """Return what is known of a model by its name; little of one that is no Claude."""
    name = model.rpartition("/")[2]
    if not name.startswith("claude-"):
        return AnthropicProfile()
    return AnthropicProfile(
        structured_output="text" if name.startswith(_OLDER) else "native",
        prompt_caching=True,
        max_output_tokens=4096 if name.startswith(_SHORT) else 8192,
        seller="anthropic",
    )
