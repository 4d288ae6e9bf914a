"""Judges with known answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.types import Answer, Case

CASE = Case(id="c1", input="What is the capital of France?", expected="Paris")
ANSWER = Answer(text="It is Paris.")

SCORES = {1.0: "correct", 0.5: "partly", 0.0: "wrong"}


def category(name: str, reason: str = "because") -> str:
    """Return a reply of a judge that compares."""
    return json.dumps({"reason": reason, "category": name})


def rubrics(met: Mapping[str, bool]) -> str:
    """Return a reply of a judge of rubrics."""
    return json.dumps(
        {
            "rubrics": [
                {"id": name, "reason": f"why {name}", "met": "yes" if holds else "no"}
                for name, holds in met.items()
            ]
        }
    )


def judge(*replies: str, identity: str = "scripted") -> ScriptedAdapter:
    """Return a judge that replies so in turn."""
    return ScriptedAdapter(replies, identity=identity)


def failing(error: Exception) -> ScriptedAdapter:
    """Return a judge whose provider fails."""

    def reply(_: object) -> str:
        raise error

    return ScriptedAdapter(reply, identity="failing")


def always(reply: str) -> Reply:
    """Return the reply to whatever is asked."""
    return lambda _: reply


def panel(scores: Sequence[float | None], **options: Any) -> LlmFinalResponse:
    """Return judges that give these scores; those with None give void replies."""
    judges = [
        judge("void", "void again") if score is None else judge(category(SCORES[score]))
        for score in scores
    ]
    return LlmFinalResponse(judges=judges, **options)
