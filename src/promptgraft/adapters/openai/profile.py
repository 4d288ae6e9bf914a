"""What a model behind OpenAI's Chat Completions can do."""

from __future__ import annotations

import re
from typing import Literal

import attrs

from promptgraft.adapters.calling.schemas import SchemaRules

RULES = SchemaRules(
    keywords=frozenset(
        {
            "exclusiveMaximum",
            "exclusiveMinimum",
            "format",
            "maxItems",
            "maximum",
            "minItems",
            "minimum",
            "multipleOf",
            "pattern",
        }
    ),
    all_required=True,
    recursive=True,
)
"""What OpenAI takes in the schema of an answer."""

_OURS = re.compile(r"(?:ft:)?(?:chatgpt-|gpt-\d|o\d)")
# Models of OpenAI that cannot be held to a schema; all later ones can.
_OLDER = re.compile(r"(?:ft:)?(?:gpt-3\.5|gpt-4(?:-|$)|chatgpt-4o-latest|o1-mini|o1-preview)")
# Models that always think, and take no sampling options.
_THINKING = re.compile(r"(?:ft:)?(?:o\d|gpt-5(?:-(?!chat)|$))")


@attrs.frozen(kw_only=True)
class OpenAIProfile:
    """What a model can do.

    Attributes:
        structured_output: `native` when it can be held to a JSON Schema; `text` when the schema
            has to be said in the prompt.
        output_limit: the field that limits the length of an answer.
        sampling: whether it takes `temperature` and `top_p`.
        seller: the provider whose prices it has, as `genai-prices` calls it; None when unknown.
    """

    structured_output: Literal["native", "text"] = "text"
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sampling: bool = True
    seller: str | None = None


def profile_of(model: str) -> OpenAIProfile:
    """Return what is known of a model by its name; little of one that is not OpenAI's own."""
    if not _OURS.match(model):
        return OpenAIProfile()
    return OpenAIProfile(
        structured_output="text" if _OLDER.match(model) else "native",
        output_limit="max_completion_tokens",
        sampling=not _THINKING.match(model),
        seller="openai",
    )
