"""How long the calls of a run can get: estimates from what is known before the first one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from promptgraft.adapters.base import MeteredAdapter, ProviderAdapter
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.targets.base import Target
from promptgraft.targets.prompt_target import PromptTarget

if TYPE_CHECKING:
    from promptgraft.search.config import RunConfig

CHARS_PER_TOKEN = 4
"""Characters of English text that make a token, about."""

FEEDBACK_CHARS = 1_000
"""Length that feedback is taken to have: nobody knows what a feedback function will write."""


def tokens_of(chars: int) -> int:
    """Return how many tokens a text of so many characters has, about."""
    return -(-chars // CHARS_PER_TOKEN)


def longest_answer(adapter: ProviderAdapter) -> int | None:
    """Return the tokens of the longest answer; None when the adapter does not know."""
    return adapter.longest_answer if isinstance(adapter, MeteredAdapter) else None


def longest_prompt(target: PromptTarget, config: RunConfig) -> int:
    """Return the characters of the longest prompt that a rollout can send.

    It is the longest of today's with all that its parts may grow by. Tools and output type
    are counted as their JSON Schema.
    """
    prompt = target.rollout.prompt_of(target.baseline())
    rendered = [prompt.bind(*example.params).render() for example in config.training_examples]
    longest = max(rendered, key=lambda found: len(found.text))
    return len(longest.text) + _beside(longest) + room_of(target, config)


def _beside(rendered: RenderedPrompt[object]) -> int:
    """Return the characters of what is sent beside the text."""
    schemas = [(tool.description, tool.params_schema) for tool in rendered.tools]
    return len(json.dumps([schemas, rendered.output_schema]))


def room_of(target: Target, config: RunConfig) -> int:
    """Return the characters by which the parts that may change can grow."""
    baseline = target.baseline()
    room = 0
    for module in target.modules:
        if module.is_new:
            room += config.max_task_examples_per_section * config.max_part_chars
        else:
            room += config.max_part_chars - len(target.text(module, baseline))
    return room
