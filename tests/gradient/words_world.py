"""The world of words, whose reflection model answers the questions of a gradient search.

It blames the first text for each word that feedback calls missing, and writes two of these words
into it at most.
"""

from __future__ import annotations

import json
import re
from typing import Any

from optimizers.worlds import NOTES, PROMPT, RULES, answer, bound, current_text, judge, twins
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer, GradientResult
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import OptimizationContext
from settings_leaves import grouped

PATCH = "write-patch"


def settings(**changes: Any) -> GradientConfig:
    """Return a small configuration that finds something: 6 training cases, 6 for validation."""
    given: dict[str, Any] = {
        "rollout_budget": 200,
        "pareto_set_size": 6,
        "target_section_paths": (RULES, NOTES),
        "training_examples": twins(6),
        "feedback_fn": judge,
        "seed": 1,
        "held_out": (),
        "keep_anyway": True,
        "attribution": "steps",
    }
    return GradientConfig(**grouped(**(given | changes)))


def block(value: object) -> str:
    """Return a reply: one block of JSON."""
    return f"```json\n{json.dumps(value)}\n```"


def text_block(text: str, why: str = "?") -> str:
    """Return a reply with a new text."""
    return f"{why}\n```instruction\n{text}\n```"


def missing(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"missing (\w+)", text)))


def reply(rendered: RenderedPrompt[object]) -> str:
    """Reply as the reflection model does."""
    match rendered.key:
        case "blame-step" | "blame-trace":
            said = [
                {"text": "T1", "severity": "P1", "problem": f"missing {word}"}
                for word in missing(bound(rendered, "losses"))
            ]
            return block(
                {"blame": said, "hand_on": []} if "step" in rendered.key else {"blame": said}
            )
        case "merge-problems":
            words = missing(bound(rendered, "said"))
            said = [{"severity": "P1", "problem": f"missing {word}"} for word in words]
            return block({"problems": said})
        case "write-patch":
            words = missing(bound(rendered, "problems"))[:2]
            text = " ".join((current_text(rendered), *words))
            return text_block(text, f"it does not know {', '.join(words)}")
    raise AssertionError(rendered.key)


class Run:
    """One gradient run with adapters that remember what they were asked."""

    def __init__(
        self,
        config: GradientConfig | None = None,
        *,
        task: Reply = answer,
        reflection: Reply = reply,
        **context: Any,
    ) -> None:
        self.task = ScriptedAdapter(task, identity="task")
        self.reflection = ScriptedAdapter(reflection, identity="reflection")
        surroundings = OptimizationContext(self.task, reflection_adapter=self.reflection, **context)
        self.optimizer = GradientOptimizer(surroundings, config or settings())

    def start(self) -> GradientResult:
        return self.optimizer.optimize(PROMPT)
