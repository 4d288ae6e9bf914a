"""A world whose steps change several parts at once.

Each of some sections has to hold a word before a question about it is answered
well. The feedback names the sections that lack it, so they are blamed, and the reflection model
adds the word to whichever section it is asked about.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from optimizers.worlds import Run, asked, bound, config, current_text, instruction, section, twins
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaConfig, GepaExample, RolloutFeedback
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.runtime import SessionProtocol

Rendered = RenderedPrompt[object]

NAMES = ("apples", "berries", "cherries", "dates", "elder", "figs")


def prompt_of(names: tuple[str, ...], text: str = "Words:") -> Prompt[object]:
    parts = [MarkdownSection(title=name, key=name, template=text) for name in names]
    question = MarkdownSection(title="Question", key="question", template="Do you know $word?")
    return Prompt(
        PromptTemplate[object](ns="toy", key="parts", sections=(*parts, question)),
    )


def lacking(names: tuple[str, ...]) -> Callable[[Rendered], str]:
    """Return a task model that answers with the sections that lack the word."""

    def reply(rendered: Rendered) -> str:
        known = {name: section(rendered, (name,)).text.split() for name in names}
        return " ".join(name for name in names if asked(rendered) not in known[name])

    return reply


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    blamed = response.text.split()
    return RolloutFeedback(
        score=1.0 - len(blamed) / len(NAMES),
        feedback=f"{', '.join(blamed)}: missing {example.label}",
    )


def teach(rendered: Rendered) -> str:
    missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)} {missing[1] if missing else 'nothing'}")


def several(names: tuple[str, ...] = NAMES[:2], **changes: Any) -> GepaConfig:
    chosen: dict[str, Any] = {
        "preset": "lean",
        "rollout_budget": 260,
        "training_examples": twins(8),
        "pareto_set_size": 8,
        "target_section_paths": tuple((name,) for name in names),
        "feedback_fn": judge,
    }
    return config(**(chosen | changes))


def search(
    names: tuple[str, ...] = NAMES[:2],
    reflection: Any = teach,
    *,
    context: Any = None,
    **sizes: Any,
) -> Run:
    return Run(
        several(names, **sizes),
        task=lacking(names),
        reflection=reflection,
        prompt=prompt_of(names),
        **(context or {}),
    )


def moody(rendered: Rendered) -> str:
    mood = random.Random(rendered.text).randrange(4)
    useless = instruction(f"{current_text(rendered)} x")
    return (useless, "hm", teach(rendered), teach(rendered))[mood]
